"""Tests of what can go wrong without a peer: `python3 -m unittest` in this folder."""

import io
import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import gate
import machine
import measure
import plot
import report
import results
import watch
from engines import IK, LLAMA, OPENVINO, AnswerError, Arclight, Figure, LlamaBench, OpenVino
from measure import Load
from results import Row
from rounds import Model, Session, result_row
from workload import Test, groups, parse

PP, TG, B4, D = Test("pp", 512), Test("tg", 128), Test("b", 4), Test("d", 8192)
SVG = "{http://www.w3.org/2000/svg}"


class Workload(unittest.TestCase):
    def test_names_are_read_and_written(self):
        self.assertEqual([parse(n) for n in ("pp512", "tg128", "b4", "d8192")], [PP, TG, B4, D])
        self.assertEqual(str(B4), "b4")
        for wrong in ("pp", "pp0", "x3", "b4 ", "-1"):
            with self.assertRaises(ValueError):
                parse(wrong)

    def test_only_prompts_and_plain_decoding_share_a_command(self):
        self.assertEqual(groups([B4, PP, D, TG]), [[PP, TG], [B4], [D]])
        self.assertEqual(groups([B4]), [[B4]])

    def test_models_are_shape_and_type(self):
        self.assertEqual(Model.parse("qwen3-0.6b:q4_0").file_name, "qwen3-0.6b-q4_0.gguf")
        for wrong in ("qwen3-0.6b", ":q4_0", "tiny:"):
            with self.assertRaises(ValueError):
                Model.parse(wrong)

    def test_files_are_named_after_themselves(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, told in [("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct:q4_1"),
                               ("gemma-3-270m-it-UD-Q4_K_M.gguf", "gemma-3-270m-it-ud:q4_k_m"),
                               ("model.gguf", "model:-")]:
                file = Path(folder) / name
                file.touch()
                self.assertEqual(str(Model.of_file(str(file))), told)
                self.assertEqual(Model.of_file(str(file)).given, file.resolve())
            with self.assertRaises(ValueError):
                Model.of_file(str(Path(folder) / "none.gguf"))


def arclight_row(kind, tokens, depth, batch, mean):
    return {"kind": kind, "tokens": tokens, "depth": depth, "batch": batch, "mean": mean,
            "limit": 100.0, "read_bytes_per_second": 3e10, "macs_per_second": {"int8": 9e11}}


class Answers(unittest.TestCase):
    def test_arclight(self):
        engine = Arclight(Path("arclight"), "")
        text = json.dumps({"results": [arclight_row("prompt", 512, 0, 1, 800.5),
                                       arclight_row("decode", 128, 0, 1, 77.1)]})
        figures = engine.figures(text, [PP, TG])
        self.assertEqual(figures[PP].tokens_per_second, 800.5)
        self.assertEqual((figures[TG].tokens_per_second, figures[TG].read), (77.1, 3e10))
        # The same tokens at another depth or number of sequences are another test.
        deep = json.dumps({"results": [arclight_row("decode", 64, 128, 8, 200.0)]})
        self.assertEqual(engine.figures(deep, [Test("b", 8)])[Test("b", 8)].tokens_per_second, 200)
        for text in (deep, "", "{}", '{"results": [{}]}'):
            with self.assertRaises(AnswerError):
                engine.figures(text, [B4])

    def test_llama_bench(self):
        rows = [{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 348.7},
                {"n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": 66.8},
                {"n_prompt": 0, "n_gen": 64, "n_depth": 8192, "avg_ts": 30.0}]
        engine = LlamaBench(Path("bin"), "")
        text = json.dumps(rows, indent=2)
        self.assertEqual(engine.figures(text, [PP, TG])[TG].tokens_per_second, 66.8)
        self.assertEqual(engine.figures(text, [D])[D].tokens_per_second, 30.0)
        # The fork has no depth but both numbers, and prints around its JSON.
        rows = [{"n_prompt": 8192, "n_gen": 64, "avg_ts": 31.0}]
        text = f"warning: [x]\n{json.dumps(rows, indent=2)}\nbye\n"
        fork = LlamaBench(Path("bin"), "", IK)
        self.assertEqual(fork.figures(text, [D])[D].tokens_per_second, 31.0)
        for text in ("", "[\n]", "[\n{}\n]"):
            with self.assertRaises(AnswerError):
                engine.figures(text, [PP])

    def test_batched_bench(self):
        text = """
main: n_kv_max = 768
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |     64 |    4 |    768 |    1.415 |   361.90 |    2.470 |   103.66 |    3.884 |   197.72 |
"""
        engine = LlamaBench(Path("bin"), "")
        self.assertEqual(engine.figures(text, [B4])[B4].tokens_per_second, 103.66)
        self.assertEqual(engine.figures("", [B4], text)[B4].tokens_per_second, 103.66)
        with self.assertRaises(AnswerError):
            engine.figures(text, [Test("b", 8)])
        with self.assertRaises(AnswerError):
            engine.figures("no table", [B4])

    def test_openvino(self):
        engine = OpenVino(Path("python"), "", "PA")
        figures = engine.figures('a library says hello\n{"pp512": 482.5}\n', [PP])
        self.assertEqual(figures[PP].tokens_per_second, 482.5)
        for text in ("", "[1]", '{"tg128": 1}', '{"pp512": null}'):
            with self.assertRaises(AnswerError):
                engine.figures(text, [PP])

    def test_all_engines_are_asked_for_the_same_work(self):
        ours = Arclight(Path("arclight"), "").command(Path("F"), [B4], 2)
        theirs = LlamaBench(Path("bin"), "").command(Path("F"), [B4], 2)
        value = lambda words, flag: words[words.index(flag) + 1]  # noqa: E731
        self.assertEqual((value(ours, "-d"), value(ours, "-n"), value(ours, "-b")),
                         (value(theirs, "-npp"), value(theirs, "-ntg"), value(theirs, "-npl")))
        self.assertEqual(value(theirs, "-c"), "768")  # 4 x (128 + 64)
        only = LlamaBench(Path("bin"), "").command(Path("F"), [TG], 2)
        self.assertEqual((value(only, "-p"), value(only, "-n")), ("0", "128"))

    def test_keys_and_values_are_of_as_many_bits_everywhere(self):
        engines = [Arclight(Path("a"), ""), LlamaBench(Path("bin"), "", IK, ["-rtr", "1"], ["-rtr"]),
                   OpenVino(Path("python"), "", "PA")]
        words = lambda bits, test: [  # noqa: E731
            replace(e, kv_bits=bits).command(Path("F"), [test], 2) for e in engines]
        for test in (PP, B4, D):
            for bits, ggml, openvino in ((8, "q8_0", "u8"), (16, "f16", "bf16")):
                ours, theirs, python = words(bits, test)
                self.assertEqual(ours[-2:], ["--kv-type", ggml])
                at = theirs.index("-ctk")
                self.assertEqual(theirs[at:at + 4], ["-ctk", ggml, "-ctv", ggml])
                self.assertEqual(python[4:6], ["PA", openvino])
            ours, theirs, python = words(None, test)
            self.assertFalse({"--kv-type", "-ctk", "-ctv"} & {*ours, *theirs})
            self.assertEqual(python[4:], ["PA", "-", str(test)])
        flags = [replace(e, kv_bits=8).flags for e in engines]
        self.assertEqual(flags, ["--kv-type q8_0", "-rtr 1 -ctk q8_0 -ctv q8_0", "PA u8"])
        self.assertEqual([e.flags for e in engines], ["", "-rtr 1", "PA"])


class Loads(unittest.TestCase):
    REPORT = {"seconds": 10.0, "own": 15.0, "busy": 18.0, "steal": 0.4, "cpus": 2}

    def test_what_others_had(self):
        load = Load.of(self.REPORT)
        self.assertAlmostEqual(load.foreign, 15.0)  # 3 of 20 processor seconds
        self.assertAlmostEqual(load.steal, 2.0)
        self.assertTrue(load.disturbed)
        self.assertFalse(Load.of({**self.REPORT, "busy": 15.9}).disturbed)
        self.assertTrue(Load.of({**self.REPORT, "busy": 15.0, "steal": 1.1}).disturbed)
        self.assertEqual(Load.of({**self.REPORT, "busy": 14.9}).foreign, 0.0)

    def test_ticks_are_those_of_all_processors_with_guests_once(self):
        stat = "cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
        self.assertEqual(watch.cpu_ticks(stat), (163, 8))

    def test_what_serves_a_command_is_its_own(self):
        stat = "7 (a (name) b) S 1 7 7 0 -1 0 0 0 0 0 31 11 0 0 20 0 4 0 5 0"
        self.assertEqual(watch.process_ticks(stat), 42)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "load.json"
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            try:
                subprocess.check_call([sys.executable, str(measure.WATCH), str(report), "--with", str(busy.pid),
                                       "--", "sleep", "1"])
            finally:
                busy.kill()
                busy.wait()
            # Of a second, on a machine that does other things too.
            self.assertGreater(json.loads(report.read_text())["own"], 0.2)

    def test_a_command_is_watched(self):
        with tempfile.TemporaryDirectory() as work:
            good = measure.run(["sh", "-c", "echo out"], ["env"], Path(work), 60)
            self.assertEqual((good.stdout, good.error), ("out\n", None))
            self.assertIsNotNone(good.load)
            bad = measure.run(["sh", "-c", "echo error: no /tmp/x/y.gguf >&2; echo; exit 3"], [],
                              Path(work), 60)
            self.assertEqual(bad.error, "exit code 3: error: no y.gguf")
            self.assertIsNotNone(bad.load)
            killed = measure.run(["sh", "-c", "kill -SEGV $$"], [], Path(work), 60)
            self.assertEqual(killed.error, "killed by SIGSEGV")
            slow = measure.run(["sleep", "60"], [], Path(work), 0.3)
            self.assertEqual((slow.error, slow.load), ("stopped after 0 s", None))
            # A wrapper that is stopped can put its things in order.
            with tempfile.TemporaryDirectory() as place:
                wrap = f"cd {place} && trap 'touch done; exit 1' TERM; sleep 60 & wait"
                measure.run([], ["sh", "-c", wrap], Path(work), 0.5)
                self.assertEqual([p.name for p in Path(place).iterdir()], ["done"])
            self.assertEqual(list(Path(work).iterdir()), [])

    def test_the_cause_of_a_failure_is_its_last_line_unless_one_says_error(self):
        trace = "Traceback\n  File \"/a/b.py\"\nRuntimeError: at /x/y.cpp:716:\nUnsupported type\n"
        self.assertEqual(measure.reason(1, trace, ""), "exit code 1: Unsupported type")
        self.assertEqual(measure.reason(2, "error: first\ntry --help\n", ""),
                         "exit code 2: error: first")

    def test_siblings_are_one_core(self):
        with tempfile.TemporaryDirectory() as folder:
            for cpu, (package, core) in enumerate([(0, 0), (0, 1), (1, 0), (0, 0)]):
                topology = Path(folder) / f"cpu{cpu}" / "topology"
                topology.mkdir(parents=True)
                (topology / "physical_package_id").write_text(f"{package}\n")
                (topology / "core_id").write_text(f"{core}\n")
            cores = lambda allowed: machine.physical_cores(Path(folder), allowed)  # noqa: E731
            self.assertEqual((cores({0, 1, 2, 3}), cores({0, 3}), cores({9})), (3, 1, 1))


class Fake:
    """An engine that is a shell command; speeds go up with every call."""

    def __init__(self, engine, flags="", fails=False):
        self.engine, self.flags, self.version, self.fails = engine, flags, "1", fails
        self.log = []

    def command(self, file, tests, threads):
        self.log.append([str(t) for t in tests])
        return ["false"] if self.fails else ["true"]

    def figures(self, stdout, tests, stderr):
        speed = 10.0 * len(self.log)
        ours = Figure(2 * speed, limit=100.0, read=3e10, int8=9e11)
        return {t: ours if self.engine == "arclight" else Figure(speed) for t in tests}


class Rounds(unittest.TestCase):
    def test_every_round_has_everybody_in_turn_and_its_own_ratio(self):
        engines = [Fake("arclight"), Fake(LLAMA), Fake(OPENVINO, fails=True)]
        rows = []
        with tempfile.TemporaryDirectory() as work:
            session = Session(engines, [PP, TG, B4], 2, 2, [], Path(work), 60)
            session.measure(Model("m", "q4_0"), Path("f"), rows.append)
        self.assertEqual([(r.round, r.test, r.engine) for r in rows[:6]], [
            (1, "pp512", "arclight"), (1, "tg128", "arclight"), (1, "pp512", LLAMA),
            (1, "tg128", LLAMA), (1, "pp512", OPENVINO), (1, "tg128", OPENVINO)])
        self.assertEqual(engines[0].log, [["pp512", "tg128"], ["b4"]] * 2)
        self.assertTrue(all(r.ratio == 2.0 for r in rows if r.engine == LLAMA))
        self.assertTrue(all(r.ratio is None for r in rows if r.engine != LLAMA))
        self.assertEqual({r.error for r in rows if r.engine == OPENVINO}, {"exit code 1"})
        first = next(r for r in rows if r.engine == LLAMA)
        self.assertEqual((first.limit, first.of_limit, first.read_gb_s), (100.0, 0.1, 30.0))

    def test_a_limit_that_is_beaten_has_no_share(self):
        done = measure.Run("", "", None, None)
        of = lambda speed: result_row(Model("m", "q4_0"), 1, Fake(LLAMA), TG, done, Figure(speed),  # noqa: E731
                                      Figure(1.0, limit=100.0)).of_limit
        self.assertEqual((of(50.0), of(100.0), of(100.5)), (0.5, 1.0, None))


def row(number, engine, speed, ratio=None, flags="", test="pp512", **other):
    whole = dict(model="qwen3-0.6b", type="q4_0", test=test, round=number, engine=engine,
                 flags=flags, tokens_per_second=speed, ratio=ratio, limit=1000.0,
                 of_limit=speed / 1000 if speed else None, read_gb_s=30.0, int8_gmac_s=900.0,
                 bf16_gmac_s=None, foreign_pct=0.0, steal_pct=0.0, disturbed="", error="")
    return Row(**{**whole, **other})


ROWS = [
    row(1, "arclight", 800.0), row(2, "arclight", 900.0), row(3, "arclight", 700.0),
    row(1, LLAMA, 400.0, 2.0), row(2, LLAMA, 300.0, 3.0),
    row(3, LLAMA, 350.0, 2.0, disturbed="yes", foreign_pct=12.0),
    row(1, IK, 500.0, 1.6), row(2, IK, 450.0, 2.0), row(3, IK, 500.0, 1.4),
    row(1, IK, 1000.0, 0.8, "-rtr 1"), row(2, IK, 1000.0, 0.9, "-rtr 1"),
    row(3, IK, 450.0, 1.56, "-rtr 1"),
    row(1, OPENVINO, None, error="exit code 1: Unsupported quantization type"),
]
CASE = ("qwen3-0.6b", "q4_0", PP)


class Summary(unittest.TestCase):
    def setUp(self):
        self.cases = results.standings(ROWS)
        self.engines = self.cases[CASE]

    def test_ratios_are_of_rounds_and_the_better_flags_count(self):
        llama, ik = self.engines[LLAMA], self.engines[IK]
        self.assertEqual((llama.ratio.median, llama.ratio.least, llama.ratio.most), (2, 2, 3))
        self.assertEqual((ik.flags, ik.speed.median, ik.ratio.median), ("-rtr 1", 1000, 0.9))

    def test_a_ratio_is_disturbed_when_either_side_was(self):
        self.assertEqual([d for _, d in self.engines[LLAMA].ratios], [False, False, True])
        rows = [replace(r, disturbed="yes") if (r.engine, r.round) == ("arclight", 2) else r
                for r in ROWS]
        self.assertEqual([d for _, d in results.standings(rows)[CASE][IK].ratios],
                         [False, True, False])

    def test_no_figure_is_no_figure(self):
        openvino = self.engines[OPENVINO]
        self.assertIsNone(openvino.speed)
        self.assertIsNone(openvino.ratio)
        self.assertEqual(openvino.failures, ("exit code 1: Unsupported quantization type",))

    def test_csv_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.csv"
            with path.open("w", encoding="utf-8") as out:
                results.write_head(out, ["one, two", "three"], True)
                for r in ROWS[:6]:
                    results.write_row(out, r)
                results.write_head(out, ["appended"], False)
                for r in ROWS[6:]:
                    results.write_row(out, r)
            found = results.read(path)
            self.assertEqual(found.rows, ROWS)
            self.assertEqual(found.comments, ["one, two", "three", "appended"])
            path.write_text("a,b\n1,2\n", encoding="utf-8")
            with self.assertRaises(ValueError):
                results.read(path)

    def test_commas_and_quotes_in_a_reason_survive(self):
        out = io.StringIO()
        results.write_row(out, row(1, LLAMA, None, error='no "x", sorry'))
        self.assertIn('"no ""x"", sorry"', out.getvalue())

    def test_page(self):
        found = results.Results(["Machine: An EPYC (avx2), 2 cores.", "Held to: env ARCLIGHT_ISA=avx2."], ROWS)
        body = report.section(found, self.cases, "d.csv", "comparison-d.svg")
        self.assertIn("An EPYC (avx2), 2 cores, every engine held to AVX2. Every figure", body[0])
        self.assertIn("(figures/comparison-d.svg)", body[2])
        self.assertNotIn("## One", report.markdown([("One", body)]))
        self.assertIn("## One", report.markdown([("One", body), ("Two", body)]))
        page = report.markdown([("One", body)])
        line = next(x for x in page.splitlines() if x.startswith("| prompt of 512"))
        self.assertEqual(line, "| prompt of 512 | 800 (700–900) | 80 % | 350 | 2.00 (2.00–3.00)\\* "
                               "| 1000 | **0.90** (0.80–1.56) | – | – |")
        self.assertIn("1 of all 13 figures\n(up to 12 %", page)
        self.assertLessEqual(max(len(line) for line in page.split("\n") if not line.startswith("|")), 110)
        self.assertIn("openvino-genai, qwen3-0.6b Q4_0 pp512: `exit code 1: Unsupported", page)
        self.assertIn("`-rtr 1` in 1", page)


class Gate(unittest.TestCase):
    def test_a_loss_of_more_than_a_twentieth_is_one(self):
        stored = [row(1, "arclight", 800.0), row(1, LLAMA, 400.0, 2.0), row(1, IK, 500.0, 1.6)]
        now = [row(1, "arclight", 700.0), row(1, LLAMA, 365.0, 1.91), row(1, IK, 470.0, 1.5)]
        found = {v.peer: v for v in gate.verdicts(stored, now)}
        self.assertEqual({peer: v.lost for peer, v in found.items()}, {LLAMA: False, IK: True})
        self.assertIn("LOST", str(found[IK]))
        self.assertNotIn("LOST", str(found[LLAMA]))

    def test_what_has_no_figure_is_lost_and_who_is_not_asked_is_not(self):
        stored = [row(1, "arclight", 800.0), row(1, LLAMA, 400.0, 2.0), row(1, IK, 500.0, 1.6)]
        now = [row(1, "arclight", 700.0), row(1, LLAMA, None, error="exit code 1")]
        (only,) = gate.verdicts(stored, now)
        self.assertTrue(only.peer == LLAMA and only.lost and only.now is None)
        self.assertEqual(gate.verdicts(stored, [row(1, "arclight", 9.0, test="tg128")]), [])

    def test_another_machine_is_named(self):
        self.assertEqual(gate.other_machine(["x", "Machine: a (avx2), 2 cores."], "b"), "a (avx2), 2 cores")
        self.assertIsNone(gate.other_machine(["Machine: b."], "b"))


class Plot(unittest.TestCase):
    def setUp(self):
        self.root = ET.fromstring(plot.svg(results.standings(ROWS)))

    def marks(self, tag, kind):
        return [e for e in self.root.iter(SVG + tag) if e.get("class") == kind]

    def test_a_dot_per_round_hollow_where_disturbed(self):
        # Two engines of three have figures; three filled dots are of the legend.
        self.assertEqual(len(self.marks("circle", "round")), 5 + 3)
        hollow = self.marks("circle", "disturbed")
        self.assertEqual(len(hollow), 1)
        self.assertEqual(hollow[0].get("fill"), "none")

    def test_ratios_stand_on_the_right_side_of_the_line(self):
        one = float(self.marks("line", "one")[0].get("x1"))
        medians = [float(e.get("x1")) for e in self.marks("line", "median")]
        self.assertGreater(medians[0], one)  # llama.cpp, 2.0
        self.assertLess(medians[1], one)     # ik_llama.cpp, 0.9

    def test_what_failed_is_a_dash(self):
        self.assertEqual([e.text for e in self.root.iter(SVG + "text")].count("–"), 1)

    def test_everything_is_inside(self):
        width, height = float(self.root.get("width")), float(self.root.get("height"))
        for e in self.root.iter():
            for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width),
                               ("y", height), ("y1", height), ("y2", height), ("cy", height)):
                if (value := e.get(name)) is not None:
                    self.assertTrue(0 <= float(value) <= most, ET.tostring(e))

    def test_one_engine_with_equal_ratios_has_an_axis_too(self):
        rows = [row(1, "arclight", 100.0), row(1, LLAMA, 100.0, 1.0)]
        root = ET.fromstring(plot.svg(results.standings(rows)))
        self.assertTrue([e for e in root.iter(SVG + "line") if e.get("class") == "one"])

    def test_marks_of_the_axis(self):
        self.assertEqual(plot.ticks(0.9, 9.0), [1.0, 2.0, 4.0, 8.0])
        self.assertEqual([plot.number(t) for t in plot.ticks(0.7, 2.1)],
                         ["0.71", "1.00", "1.41", "2.00"])


if __name__ == "__main__":
    unittest.main()
