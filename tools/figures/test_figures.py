"""Tests of what can go wrong without an engine: `python3 -m unittest` in this folder.

A fake program answers for a machine of four nodes with 48 cores each, so every sweep goes its whole way.
"""

import io
import json
import sys
import tempfile
import time
import unittest
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compare")]

import arclight_paper  # noqa: E402
import arm  # noqa: E402
import page  # noqa: E402
import points  # noqa: E402
import products  # noqa: E402
import sandwich  # noqa: E402
import zigllama  # noqa: E402
from arclight_paper import FIGURES as ARCLIGHT, SYNC_A, SYNC_B, gain, sync_gain  # noqa: E402
from machines import Cluster, doublings, steps  # noqa: E402
from measure import Load  # noqa: E402
from points import OURS, PEER, PREDICTED, PUBLISHED, REPLAYED, Point, Results  # noqa: E402
from session import FULL, Answer, Session, our_point  # noqa: E402

FIGURES = [*ARCLIGHT, *arm.FIGURES, *sandwich.FIGURES, *products.FIGURES, *zigllama.FIGURES]
BY_NAME = {f.name: f for f in FIGURES}

PROFILE_TABLE = """
tg48: 144 steps of 11.563 ms, 1 token each, on 2 threads

operator              n  ms/step   share  GB/s GMAC/s of limit    wait longest
logits                1    3.700  32.3 %  34.5   41.6     86 %   0.056   0.063
gate_up              28    2.800  25.5 %  33.6   59.7     84 %   0.061   0.063
rope+append+attend   28    0.287   2.5 %  13.0   13.0     32 %   0.016   0.022
quantize            113    0.086   0.7 %     -      -        -       -       -
all                 399   11.303  97.7 %  33.6   53.1     84 %   0.260   0.272
"""

# Nanoseconds of `plan --machines --machine neoverse-n2`.
N2 = {"arrival, own node": 150, "arrival, other node": 450, "line, own node": 60, "line, other node": 400}

BATCHED = """
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|    96 |     96 |    1 |    192 |    0.047 |   341.25 |    0.109 |    73.59 |    0.156 |   154.24 |
"""


def option(command: list[str], name: str, default: str = "") -> str:
    return command[command.index(name) + 1] if name in command else default


class Fake(Session):
    """Answers as the programs do, for 4 x 48 cores; a token a second for each thread."""

    def run(self, command: list[str], timeout: float = 900) -> Answer:
        self.commands.append(" ".join(command))
        program, what = Path(command[0]).name, command[1]
        if program == "llama-bench":
            rows = [{"n_threads": int(t), "avg_ts": 0.5 * int(t), "samples_ts": [0.5 * int(t)]}
                    for t in option(command, "-t").split(",")]
            return self.said(f"noise\n{json.dumps(rows)}\n")
        if program == "llama-batched-bench":
            return self.said(BATCHED)
        if program == "timeout":
            Path(option(command, "--profile-file")).write_text("[search]\ncomplete = true\nseconds = 12.5\n")
            return self.said("{}")
        if program == "cargo":
            return self.said("\n".join(["Running", *map(json.dumps, self.product_rows(command))]))
        if program == "env":
            return self.said("\n".join(map(json.dumps, self.library_rows(command))))
        return self.said(json.dumps(getattr(self, what.replace("-", "_") + "_json")(command)), PROFILE_TABLE)

    def product_rows(self, command: list[str]) -> list[dict]:
        """Two matrices; the tuned way is twice as fast as no search, and took 3 s for each."""
        times = {"default": 2.0, "sandwich": 1.0, "roller": 1.0, "model": 4.0}
        return [{"matrix": name, "type": "BF16", "rows": rows, "cols": 1000, "tokens": int(tokens), "threads": 48,
                 "way": way, "seconds": seconds, "low": seconds, "high": seconds, "products_timed": 7,
                 "search_seconds": 3.0, "complete": way != "roller"}
                for name, rows in (("qkv", 1000), ("down", 2000)) for tokens in option(command, "tokens").split(",")
                for way, seconds in times.items()]

    def library_rows(self, command: list[str]) -> list[dict]:
        library, _, of, threads, shapes, counts, _ = command[4:]
        if (library, of) == ("openblas", "bf16"):
            return [{"library": library, "type": of, "error": "it has no such product"}]
        return [{"library": library, "type": of, "rows": rows, "cols": cols, "tokens": int(tokens), "threads": int(threads),
                 "seconds": 3.0, "low": 3.0, "high": 3.0}
                for rows, cols in (map(int, shape.split("x")) for shape in shapes.split(","))
                for tokens in counts.split(",")]

    def said(self, out: str, err: str = "") -> Answer:
        return Answer(out, err, Load(0.0, 0.0), "")

    def bench_json(self, command: list[str]) -> dict:
        nodes = int(option(command, "--nodes", "4").rstrip(",")) or 1
        slower = 0.9 if "--sync-a" in command else 1
        node = {"traffic": {"read_bytes_per_second": 9e10, "limit_bytes_per_second": 1e11}}
        tasks = {"stolen_share": 0.07, "depth": 1.5, "utilisation": 0.95}
        return {"results": [
            {"threads": t, "nodes": nodes, "mean": slower * t, "samples": [slower * t] * 2,
             "report": {"nodes": [node] * nodes, "tasks": tasks}}
            for t in map(int, option(command, "-t", "192").split(","))]}

    def topo_json(self, command: list[str]) -> dict:
        nodes = [{"node": n} for n in range(4)]
        rates = [[100e9 if a == b else 25e9 for b in range(4)] for a in range(4)]
        return {"access": {"readers": nodes, "memories": nodes, "read_bytes_per_second": rates}}

    def plan_json(self, command: list[str]) -> dict:
        if "--machines" in command:
            return json.loads((HERE / "known" / f"{option(command, '--machine')}.json").read_text(encoding="utf-8"))
        if "--scaling" in command:
            rows = [{"phase": phase, "threads": t, "nodes": 1, "speedup": 0.5 * t + 0.5}
                    for phase in ("decode", "prompt") for t in map(int, option(command, "-t").split(","))]
            return {"rows": rows, "phases": [{"phase": "decode", "serial_share": 0.07},
                                             {"phase": "prompt", "serial_share": None}]}
        engines = option(command, "-e").split(",")
        rows = []
        for total in map(int, filter(None, option(command, "-t").split(","))):
            for nodes in (1, 2, 4):
                if total % nodes == 0 and total // nodes <= 48:
                    used = [total // nodes] * nodes + [0] * (4 - nodes)
                    rows.append({"threads": used, "decode_tokens_per_second": [1.0 * total] * len(engines),
                                 "prompt_tokens_per_second": [9.0 * total] * len(engines)})
        best = {"threads": [48] * 4, "prediction": {"tokens_per_second": 40.0, "stages": [
            {"name": "qkv", "working_seconds": 0.002}, {"name": "rest", "working_seconds": 0.5}]}}
        return {"rows": rows, "bytes_per_step": 2e9, "engines": [{"decode": best}]}

    def tune_json(self, command: list[str]) -> dict:
        if "--ablation" in command:
            ways = [(1, "no placement, all wait"), (1, "+ split-K"), (2, "k = 1"), (3, "window = 5")]
            return {"rows": [{"table": table, "way": way, "tuning_seconds": 3.0, "complete": table == 1,
                              "prompt_ms": 9.0, "batch_1": 4.0 + table, "batch_8": 9.0} for table, way in ways]}
        won = {"cut": 1.0, "remove": 1.02, "group": 1.3 if "--contention" in command else 1.0}
        return {"decoding_won": won, "steps_timed": 300, "seconds": 0.2, "seconds_of_steps_there": 12.0}

    def bench_sync_json(self, command: list[str]) -> dict:
        time_of = {"median": 0.2, "low": 0.1, "high": 0.3}
        return {"barriers": [
            {"nodes": n, "threads": 48 * n, "virtual_nodes": False, "local": time_of,
             "global": time_of if n > 1 else None, "flat": time_of if n > 1 else None} for n in (1, 2, 4)]}


def session(cores: tuple[int, ...] = (48,) * 4, peer: bool = True) -> Fake:
    work = Path(tempfile.mkdtemp())
    made = Fake(Path("arclight"), Path("/llama") if peer else None, Path("m.gguf"), Path("s.gguf"), "qwen3-4b:q4_0",
                Cluster(cores), FULL, work, 50)
    made.begin(1)
    made.kept["libraries"] = Path("python"), {name: Path(name) for name in products.FILES}
    return made


def counted_steps() -> str:
    """As tests/numa-vm/stages writes them: two layers and a head; the peer reads node 0 alone."""
    rows = ["engine,placement,model,nodes,threads,tokens,stage,end,thread,node,instructions,int8,f32,lines0,lines1"]
    for engine, placement in (("arclight", "tp"), ("llama.cpp", "isolate"), ("llama.cpp", "distribute")):
        for nodes in ((1,) if placement == "isolate" else (2,) if placement == "distribute" else (1, 2)):
            for model, threads, tokens in product(("qwen3-4b/2", "olmoe-1b-7b/2"), (1, 2), (1, 300)):
                for stage, work in enumerate((4_000_000, 4_000_000, 9_000_000)):
                    for thread in range(threads * nodes):
                        node = thread // threads
                        part = work // (threads * nodes)
                        home = node if engine == "arclight" else 0
                        lines = [part // 64 if home == m else 0 for m in range(2)]
                        rows.append(",".join(map(str, (engine, placement, model, nodes, threads, tokens, stage,
                                                       "global" if stage < 2 else "stop", 2 * node + thread % threads,
                                                       node, part // 8, tokens * part, 0, *lines))))
    return "\n".join(rows) + "\n"


LEVEL = {
    "figures": {"completed": 3, "seconds": 3.0, "output_tokens_per_second": 40.0,
                "ttft_ms": {"mean": 100.0, "p90": 120.0}, "tpot_ms": {"mean": 20.0, "p90": 22.0},
                "e2e_ms": {"mean": 1000.0}},
    "attainment": [{"scale": s, "both": min(1.0, s)} for s in sandwich.SCALES],
    "strictest_scale": 0.9,
    "requests": [{"outcome": "done", "e2e_ms": t} for t in (3000.0, 1000.0, 2000.0)] + [{"outcome": "failed"}],
}


def swept(name: str, made: Fake | None = None) -> list[Point]:
    made = made or session()
    made.kept.setdefault("serving", {"arclight": (OURS, LEVEL, made.said("")), "llama.cpp": (PEER, None, Answer(
        "", "", None, "exit code 1"))})
    return list(BY_NAME[name].sweep(made))


class Numbers(unittest.TestCase):
    def test_threads_are_those_of_the_paper(self):
        self.assertEqual(steps(48, 8), [6, 12, 18, 24, 30, 36, 42, 48])
        self.assertEqual((steps(2, 8), steps(1, 2)), ([1, 2], [1]))
        self.assertEqual((doublings(6), doublings(1), doublings(64)[-1]), ([1, 2, 4, 6], [1], 64))

    def test_nodes_are_virtual_where_there_are_fewer(self):
        four, one = Cluster((48,) * 4), Cluster((2,))
        self.assertEqual((four.wanted((1, 2, 4)), one.wanted((1, 2, 4))), ([1, 2, 4], [1, 2]))
        self.assertEqual((four.per_node(2), one.per_node(2), one.virtual(2), four.virtual(4)), (48, 1, True, False))
        self.assertEqual((four.holding(48), four.holding(49), four.holding(192)), (1, 2, 4))
        with self.assertRaises(ValueError):
            one.holding(3)
        topo = {"layout": {"groups": [{"node": 0, "cpus": [0, 1]}, {"node": 2, "cpus": [4]}]}}
        self.assertEqual(Cluster.of(json.dumps(topo)).cores, (2, 1))

    def test_waits_follow_the_formulas_of_the_cost_model(self):
        self.assertEqual(arm.wait_ns(N2, 64, 64), (64 * 150 + 120,) * 2)
        flat, by_nodes = arm.wait_ns(N2, 128, 64)
        self.assertAlmostEqual(flat, 128 * (0.5 * 150 + 0.5 * 450) + 800)
        self.assertAlmostEqual(by_nodes, 64 * 150 + 120 + 2 * 450 + 800)

    def test_amdahl_s_law_is_zigllama_s(self):
        for workers, speed in ((4, 3.3), (8, 5.4), (16, 7.8)):
            self.assertAlmostEqual(zigllama.amdahl(workers, 0.07), speed, delta=0.05)

    def test_prompt_and_answer_are_combined_by_their_times(self):
        self.assertAlmostEqual(arm.combined(100, 50, 100), 200 / 3)


class Outputs(unittest.TestCase):
    def test_the_table_of_operators(self):
        micro, count = arm.products(PROFILE_TABLE)
        self.assertAlmostEqual(micro, 6500)
        self.assertEqual(count, 29)
        self.assertAlmostEqual(arm.products(PROFILE_TABLE.replace("ms/step", "µs/step"))[0], 6.5)
        self.assertIsNone(arm.products("nothing"))

    def test_the_table_of_the_batched_bench(self):
        found = arm.table(BATCHED + "\n| something else |\n")
        self.assertEqual((found["S_TG t/s"], found["S t/s"]), ("73.59", "154.24"))
        self.assertEqual(arm.table("error"), {})

    def test_points_are_read_as_they_were_written(self):
        made = [Point("a, b", "s", OURS, "2", 1.5, low=1.0, high=2.0, nodes=1, threads=2, foreign_pct=0.5),
                Point("p", "s", PEER, "x", None, error="exit code 1: no, \"really\"")]
        out = io.StringIO()
        points.write_comment(out, "command: a\n b")
        points.write_head(out)
        for point in made:
            points.write_point(out, point)
        found = points.parse(out.getvalue(), "x.csv")
        self.assertEqual((found.points, found.about("command")), (made, ["a b"]))
        with self.assertRaisesRegex(ValueError, "x.csv: the columns"):
            points.parse("a,b\n1,2\n", "x.csv")
        with self.assertRaisesRegex(ValueError, "no kind"):
            points.parse(out.getvalue().replace(",ours,", ",theirs,"), "x.csv")


class Published(unittest.TestCase):
    def test_every_file_is_read_and_used_or_said_not_to_be(self):
        used = {file for f in FIGURES for file in f.files}
        there = {file.name for file in points.PUBLISHED_FOLDER.iterdir()}
        words = " ".join(why for _, why in page.NOT_SHOWN)
        self.assertEqual({file for file in there - used if file not in words}, {"sandwich-slo.csv"})
        for file in sorted(there):
            text = (points.PUBLISHED_FOLDER / file).read_text(encoding="utf-8")
            self.assertTrue(text.startswith("# "), file)
            self.assertTrue(all(p.value is not None for p in points.parse(text, file, PUBLISHED).points), file)

    def test_sandwich_s_bounds_are_those_of_the_defaults(self):
        text = (points.PUBLISHED_FOLDER / "sandwich-slo.csv").read_text()
        bounds = {(p.x, p.series): p.value for p in points.parse(text, "", PUBLISHED).points}
        made = session()
        self.assertEqual(made.slo, (bounds["1.3B one by one", "TTFT"], bounds["1.3B one by one", "TPOT"]))
        self.assertEqual(made.slo_batch, (bounds["1.3B batches", "TTFT"], bounds["1.3B batches", "TPOT"]))

    def test_means_are_those_of_the_text(self):
        said = next(sandwich.tuning_verdicts(points.published(BY_NAME["tuning"])))[0]
        # Section 7.3: 78 to 3279 s and 1309 on average; 2022 to 23115 s and 10155.
        for part in ("79 to 3280 s, 1309 ", "2023 to 23115 s, 10156 "):
            self.assertIn(part, said)


class Sweeps(unittest.TestCase):
    def test_figures_have_names_and_share_the_time(self):
        self.assertEqual(len(BY_NAME), len(FIGURES))
        self.assertAlmostEqual(sum(f.share for f in FIGURES), 1.0)

    def test_every_figure_of_four_nodes(self):
        for figure in FIGURES:
            if figure.name == "goodput":    # it starts servers
                continue
            with self.subTest(figure.name):
                found = swept(figure.name)
                # What the search finds on other machines is predicted.
                kind = PREDICTED if figure.name == "configurations" else OURS
                self.assertTrue(any(p.kind == kind and p.value is not None for p in found))
                text = page.section(figure, Results([], found), points.published(figure), Path("/none"), False)
                self.assertIn("the source says", text)
                for said, here in figure.verdicts(found + points.published(figure)):
                    self.assertTrue(said and here)

    def test_speed_by_threads_and_nodes(self):
        made = session()
        found = swept("decode-nodes", made)
        four = {p.series for p in found if p.panel == "4 nodes"}
        self.assertEqual(four, {SYNC_A, SYNC_B, "llama.cpp distribute", "model: llama.cpp", "model: Sync A",
                                "model: Sync B"})
        self.assertEqual([p.x for p in found if p.panel == "4 nodes" and p.series == SYNC_B],
                         [str(4 * n) for n in steps(48, 8)])
        # Sync B does 1 token/s a thread, Sync A 0.9, the peer 0.5.
        self.assertIn("2.00 to 2.00 times", gain(found))
        self.assertEqual(sync_gain(found), "+1.2 to +19.2 tokens/s (the most is +11.1 %)")
        self.assertTrue(any("--numa distribute" in c and "-ctk q4_0" in c for c in made.commands))
        paper = [p for p in found if "Kunpeng" in p.panel and "4 nodes" in p.panel]
        self.assertEqual(max(int(p.x) for p in paper), 192)
        # The paper decodes 256 tokens.
        self.assertTrue(all(option(c.split(), "-n") == "256" for c in made.commands if "bench" in c.split()[1:2]))

    def test_counted_accesses_are_replayed_on_the_paper_s_machine(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(arclight_paper, "COUNTS", Path(folder)):
            made = session()
            self.assertFalse([p for p in swept("decode-nodes", made) if p.kind == REPLAYED])
            self.assertIn("replay of counted accesses: benchmarks/ has no counts", made.left_out[-1])
            Path(folder, "2026-01-01-stages.csv").write_text(counted_steps(), encoding="utf-8")
            for name, nodes in (("decode-one-node", [1]), ("decode-nodes", [2]), ("prompt-300", [1, 2])):
                found = [p for p in swept(name) if p.kind == REPLAYED]
                self.assertEqual(sorted({p.nodes for p in found}), nodes, name)
                for n in nodes:
                    for model in ("qwen3-4b", "olmoe-1b-7b"):
                        own = [p for p in found if p.nodes == n and model in p.panel and "this engine" in p.series]
                        peer = [p for p in found if p.nodes == n and model in p.panel and "llama.cpp" in p.series]
                        self.assertEqual([p.threads for p in own], [n * t for t in steps(48, 8)])
                        # All lines of the peer are on node 0.
                        self.assertEqual(own[-1].value > 1.2 * peer[-1].value, n > 1 and name != "prompt-300")

    def test_titles_of_what_is_simulated_say_so(self):
        for figure in ARCLIGHT[1:]:
            for point in swept(figure.name):
                self.assertEqual("Kunpeng" in point.panel, point.panel.startswith("simulated"), point.panel)
        self.assertTrue(all(p.panel.startswith("simulated") for p in swept("configurations")))

    def test_one_node_is_said_to_be_virtual(self):
        made = session((2,), peer=False)
        found = swept("decode-nodes", made)
        self.assertEqual({p.panel for p in found if p.kind == OURS}, {"2 nodes, virtual"})
        self.assertFalse([p for p in found if p.kind == PEER])
        self.assertFalse([p for p in found if p.kind == PREDICTED and "virtual" in p.panel])
        # The counts that are replayed are of another machine.
        here = [words for words in made.left_out if not words.startswith("replay of counted accesses")]
        self.assertEqual(here, ["prediction on 2 nodes: they are virtual", "4 nodes: there are fewer cores than nodes"])

    def test_what_time_does_not_allow_is_left_out(self):
        made = session()
        made.deadline = time.monotonic() - 1
        found = swept("decode-nodes", made)
        self.assertFalse([p for p in found if p.kind in (OURS, PEER)])
        self.assertIn("arclight, Sync B, 2 nodes: its time was over", made.left_out)

    def test_what_figures_leave_of_their_time_the_next_ones_have(self):
        made = session()
        made.started, made.shared = time.monotonic() - 60, 0.0      # of 50 minutes
        made.begin(0.1)
        self.assertAlmostEqual(made.deadline - time.monotonic(), 300, delta=1)  # all of its own
        made.begin(0.1)
        self.assertAlmostEqual(made.deadline - time.monotonic(), 540, delta=1)  # 240 of the first, too

    def test_searches_of_the_ablation_are_shown_where_they_were_made(self):
        made = session()
        made.kept["ablation"] = [{"table": 2, "way": "k = 1", "tuning_seconds": 9.0, "batch_1": 5.0, "complete": True}], \
            made.said("")
        made.deadline = time.monotonic() - 1
        found = [(p.value, p.unit) for p in swept("tuning", made) if p.x == "k = 1"]
        self.assertEqual(found, [(5.0, "tokens/s"), (9.0, "s")])
        self.assertNotIn("by k and by window: its time was over", made.left_out)

    def test_failures_are_points_with_their_reason(self):
        made = session()
        made.run = lambda command, timeout=900: Answer("", "", None, "exit code 1: error: no")
        found = swept("decode-one-node", made)
        self.assertEqual({p.error for p in found if p.kind in (OURS, PEER)}, {"exit code 1: error: no"})
        shown = page.section(BY_NAME["decode-one-node"], Results([], found), [], Path("/none"), False)
        self.assertIn("Failed: arclight: exit code 1: error: no; llama.cpp isolate", shown)

    def test_the_distribution_of_latencies(self):
        ours = [(p.x, p.value) for p in swept("cdf") if p.kind == OURS]
        self.assertEqual([x for x, _ in ours], ["1", "2", "3"])
        self.assertAlmostEqual(ours[-1][1], 100)
        self.assertIn("arclight 2.00 s, llama.cpp not measured",
                      next(sandwich.cdf_verdicts(swept("cdf")))[1])

    def test_goodput_is_the_highest_rate_that_is_met(self):
        panel = "requests that meet both bounds"
        made = [Point(panel, "arclight", OURS, x, v) for x, v in (("1", 100), ("2", 95), ("4", 40))]
        made += [Point(panel, "llama.cpp", PEER, "1", 80)]
        self.assertIn("arclight 2, llama.cpp none of the rates", next(sandwich.goodput_verdicts(made))[1])
        self.assertIn("arclight at least 2", next(sandwich.goodput_verdicts(made[:2]))[1])

    def test_a_law_is_drawn_where_one_was_fitted(self):
        found = swept("amdahl")
        laws = [(p.series, p.x, p.note) for p in found if p.kind == PREDICTED]
        self.assertEqual(({s for s, _, _ in laws}, laws[-1][1:]), ({"fit, decoding"}, ("64", "p = 0.930")))
        self.assertEqual({p.series for p in found if p.kind == OURS}, {"arclight, decoding", "arclight, prompt"})
        self.assertIn("decoding: p = 0.930", next(zigllama.scaling_verdicts(found))[1])

    def test_mechanisms_are_measured_once_for_two_figures(self):
        made = session()
        found = swept("tuning", made)
        ways = [(p.panel, p.x) for p in swept("ablation", made) if p.kind == OURS]
        self.assertEqual(sum("--ablation" in c for c in made.commands), 1)
        self.assertEqual(sum(c.startswith("timeout") for c in made.commands), 3)
        self.assertEqual(len(ways), 4)
        self.assertIn(("measured: batch of 8", "+ split-K"), ways)
        notes = {(p.x, p.note) for p in found if p.kind == OURS}
        self.assertIn(("k = 1", "the search ended with its time"), notes)
        # Of this model's searches alone.
        verdict = next(sandwich.tuning_verdicts(found + points.published(BY_NAME["tuning"])))[1]
        self.assertEqual(verdict.count("tokens/s"), 3)

    def test_configurations_are_searched_where_cores_share_something_and_where_not(self):
        found = [p for p in swept("configurations") if p.kind == PREDICTED]
        self.assertEqual(len(found), 2 * 3 * 4 * 2)
        words = dict(sandwich.configuration_verdicts(found))
        self.assertIn("group and remove: up to 1.30 x", words["EPYC: grouping and reduction are essential"])


    def test_products_are_measured_once_and_stand_beside_libraries(self):
        made = session()
        found = swept("products", made)
        qkv = [p for p in found if p.panel == products.SPEED.format("bf16, qkv") and p.x == "8"]
        # 8 tokens of 1000 x 1000 in one second.
        self.assertEqual({p.series: p.value for p in qkv}, {
            "arclight, no search": 0.004, "arclight, tuned": 0.008, "onednn": 0.008 / 3, "mkl": 0.008 / 3})
        self.assertIn("openblas, bf16: it has no such product", made.left_out)
        said, ratios = next(products.product_verdicts(found + points.published(BY_NAME["products"])))
        self.assertIn("EPYC 7H12: 2.26", said)
        self.assertIn("bf16: 3.00 times onednn; bf16: 3.00 times mkl; f32: 3.00 times onednn", ratios)
        before = len(made.commands)
        searched = swept("searches", made)
        self.assertEqual(len(made.commands), before)
        words = next(products.search_verdicts(searched))[1]
        self.assertEqual(words, "arclight, tuned: 2.00 times no search, 6.0 s; like Roller: 2.00 times no search, 6.0 s; "
                                "by a model alone: 0.50 times no search, 6.0 s")
        notes = {p.series: p.note for p in searched if p.panel == products.SEARCHED}
        self.assertEqual(notes["like Roller"], "7 products timed; it ended with its time")


class Page(unittest.TestCase):
    def test_it_is_one_file_and_says_what_is_missing(self):
        found = [Point("p", "arclight", OURS, "2", 1.0, disturbed="yes"), replace(Point("p", "<i>", PEER, "2", 2.0))]
        results = Results(["command: arclight bench", "left out: 4 nodes: few cores", "skipped: no server"], found)
        with tempfile.NamedTemporaryFile(suffix=".svg") as svg:
            svg.write(b"<svg/>")
            svg.flush()
            text = page.page([(BY_NAME["decode-nodes"], results, [], Path(svg.name))], [("machine", "A & B")], True)
        for part in ("data:image/svg+xml;base64,", "function and not", "Left out: 4 nodes: few cores", "Hollow points",
                     "Not measured: no server", "A &amp; B", "&lt;i&gt;", "Not shown", "figure 2"):
            self.assertIn(part, text)
        for part in ("http://", "https://", "src=\"/", "<script"):
            self.assertNotIn(part, text)

    def test_our_point_has_its_range_and_noise(self):
        row = {"threads": 2, "nodes": 1, "mean": 2.0, "samples": [1.0, 3.0]}
        point = our_point("p", "s", row, Answer("", "", Load(9.0, 0.0), ""))
        self.assertEqual((point.x, point.low, point.high, point.disturbed), ("2", 1.0, 3.0, "yes"))


if __name__ == "__main__":
    unittest.main()
