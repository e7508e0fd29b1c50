"""Figures of Arm's article "Scaling llama.cpp on Neoverse N2": barriers, products, batched bench, bandwidth by node."""

import re
from collections.abc import Iterator

from arclight_paper import listed, nodes_words, threads_words
from machines import doublings, steps
from points import OURS, PEER, PREDICTED, PUBLISHED, Figure, Point, of_kind
from session import Session, failed

SOURCE = "Arm"
N2 = "model of Arm's machine, 2 x 64 Neoverse N2"
BASE = "llama.cpp"
FLAT, GLOBAL, LOCAL = "one counter for all", "by nodes (arclight)", "own node alone (arclight)"


def barriers(session: Session) -> Iterator[Point]:
    cluster, measured = session.cluster, "measured: µs of a wait"
    nodes = cluster.wanted((1, 2, 4))
    found, answer = session.json("bench-sync", "-r", session.sizes.rounds, "-s", "4K", "-t",
                                 listed(doublings(cluster.total)), "--nodes", listed(nodes))
    if not found:
        yield failed(measured, GLOBAL, OURS, 1, answer, unit="µs")
    for row in found["barriers"] if found else []:
        place = nodes_words(row["nodes"]) + (", virtual" if row["virtual_nodes"] else "")
        for key, name in (("flat", FLAT), ("global", GLOBAL), ("local", LOCAL)):
            if (row["nodes"] == 1) == (key == "local") and row[key]:
                yield Point(measured, f"{name}: {place}" if key != "local" else LOCAL, OURS, str(row["threads"]),
                            row[key]["median"], "µs", row[key]["low"], row[key]["high"], row["nodes"],
                            row["threads"], **answer.noise())
    yield from waits_of_the_model(session)


def waits_of_the_model(session: Session) -> Iterator[Point]:
    """The formulas of docs/cost-model.md, with the numbers of Arm's machine there."""
    found, _ = session.json("plan", "--machines", "--machine", "neoverse-n2")
    if not found:
        return
    ns = {f["what"]: f["value"] for f in found["figures"] if f["unit"] == "ns"}
    cores = found["cores_per_node"]
    for threads in doublings(2 * cores):
        flat, by_nodes = wait_ns(ns, threads, cores)
        for name, value in ((f"model: {FLAT}", flat), ("model: by nodes", by_nodes)):
            yield Point(f"{N2}: µs of a wait", name, PREDICTED, str(threads), value / 1000, "µs", threads=threads)


def wait_ns(ns: dict[str, float], threads: int, cores: int) -> tuple[float, float]:
    """Nanoseconds of a flat and of a hierarchical wait, where threads fill one node after the other."""
    own, other, line, far = (ns[k] for k in ("arrival, own node", "arrival, other node", "line, own node",
                                             "line, other node"))
    if threads <= cores:
        local = threads * own + 2 * line
        return local, local
    groups = [cores] * (threads // cores) + [threads % cores] * (threads % cores > 0)
    same = sum((g / threads) ** 2 for g in groups)
    flat = threads * (same * own + (1 - same) * other) + 2 * far
    return flat, max(groups) * own + 2 * line + len(groups) * other + 2 * far


def last(points: list[Point], kind: str, series: str) -> str:
    found = [(p.threads or 0, p.value) for p in of_kind(points, kind, series)]
    return f"{max(found)[1]:.2f} µs with {max(found)[0]} threads" if found else "not measured"


def barrier_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    yield "a counter for all grows with threads, and more beyond a node", last(points, OURS, FLAT)
    yield "by nodes there is no obvious drop", last(points, OURS, GLOBAL)


# A row of the table of `--profile`: operator, times in a step, time in a step.
OPERATOR = re.compile(r"^(\S+)\s+(\d+)\s+([\d.]+)\s+[\d.]+ %\s+(\S+)\s+(\S+)")


def products(table: str) -> tuple[float, int] | None:
    """Microseconds of all products of matrices in a step, and how many, from the table of operators."""
    unit = 1000.0 if "ms/step" in table else 1.0
    micro = count = 0
    for line in table.splitlines():
        found = OPERATOR.match(line)
        # Attention multiplies keys, and no matrix of the model; an operator without products has a dash.
        if found and found[5] != "-" and "attend" not in found[1] and found[1] != "all":
            micro += float(found[3]) * unit
            count += int(found[2])
    return (micro, count) if count else None


def matmul(session: Session) -> Iterator[Point]:
    panel = "µs of a product, decoding"
    trace = session.work / "trace.json"
    count = 0
    for threads in steps(session.cluster.total, session.sizes.counts):
        nodes = session.cluster.holding(threads)
        if session.late(f"{threads} threads"):
            break
        _, answer = session.bench("-p", "0", "-n", session.sizes.tokens, "-d", "15", "-t", threads, "--nodes",
                                  "0," if nodes == 1 else nodes, "--profile", trace)
        found = products(answer.stderr)
        if found is None:
            yield failed(panel, "arclight", OURS, threads, answer, unit="µs")
            continue
        micro, count = found
        yield Point(panel, "arclight", OURS, str(threads), micro / count, "µs", nodes=nodes, threads=threads,
                    **answer.noise())
    trace.unlink(missing_ok=True)
    found = session.plan("-m", session.plan_model, "-c", "20", "-p", "15", "-e", "tp-b")
    if found and count:
        best = found["engines"][0]["decode"]
        stages = {s["name"]: s["working_seconds"] for s in best["prediction"]["stages"]}
        whole = sum(v for name, v in stages.items() if name not in ("rest", "attention"))
        yield Point(panel, "model: Sync B, its best threads", PREDICTED, str(sum(best["threads"])),
                    whole * 1e6 / count, "µs", threads=sum(best["threads"]))


def matmul_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    found = [(p.threads, p.value) for p in of_kind(points, OURS)]
    words = "not measured"
    if found:
        least = min(found, key=lambda f: f[1])
        words = f"{found[0][1]:.1f} µs with {threads_words(found[0][0])}; least {least[1]:.1f} with {least[0]}; " \
            f"{found[-1][1]:.1f} with {found[-1][0]}"
    yield "more threads should make it faster; across nodes they do so only where buffers are local", words


ANSWERS, WHOLE = "S_TG: tokens/s of answers", "S: tokens/s of prompt and answers"


def combined(prompt: float, answer: float, tokens: int) -> float:
    """Tokens of prompt and answer, as many of each, over the time of both."""
    return 2 * tokens / (tokens / prompt + tokens / answer)


def batched(session: Session) -> Iterator[Point]:
    cluster, tokens = session.cluster, 2 * session.sizes.tokens
    for threads in steps(cluster.total, session.sizes.counts):
        nodes = cluster.holding(threads)
        if session.late(f"{threads} threads"):
            break
        where = ["-t", threads, "--nodes", "0," if nodes == 1 else nodes]
        # Arm's llama-batched-bench keeps keys and values in f16, as is the default of both.
        prompts, first = session.bench("-p", tokens, "-n", "0", *where, kv_type="f16")
        decoded, answer = session.bench("-p", "0", "-n", tokens, "-d", tokens, *where, kv_type="f16")
        if prompts and decoded:
            for panel, value in ((ANSWERS, decoded[0]["mean"]),
                                 (WHOLE, combined(prompts[0]["mean"], decoded[0]["mean"], tokens))):
                yield Point(panel, "arclight", OURS, str(threads), value, nodes=nodes, threads=threads,
                            **answer.noise())
        else:
            yield failed(ANSWERS, "arclight", OURS, threads, first if first.error else answer)
        yield from batched_peer(session, threads, tokens)
    for engine, series in (("unplaced", "model: llama.cpp"), ("tp-b", "model: Sync B")):
        yield from batched_model(session, engine, series, tokens)


def batched_peer(session: Session, threads: int, tokens: int) -> Iterator[Point]:
    if session.llama is None:
        return
    answer = session.run([str(session.llama / "llama-batched-bench"), "-m", str(session.model), "-c",
                          str(2 * tokens + 64), "-npp", str(tokens), "-ntg", str(tokens), "-npl", "1", "-t",
                          str(threads), "-tb", str(threads)])
    found = table(answer.stdout + "\n" + answer.stderr)
    for panel, column in ((ANSWERS, "S_TG t/s"), (WHOLE, "S t/s")):
        if column in found:
            yield Point(panel, BASE, PEER, str(threads), float(found[column]), threads=threads, **answer.noise())
        else:
            yield failed(panel, BASE, PEER, threads, answer)


def table(text: str) -> dict[str, str]:
    """The last row of llama-batched-bench's table, by its column titles."""
    rows = [[c.strip() for c in line.strip().strip("|").split("|")]
            for line in text.splitlines() if line.lstrip().startswith("|")]
    head = next((r for r in rows if "S_TG t/s" in r), None)
    found = [r for r in rows if head and len(r) == len(head) and re.fullmatch(r"\d+", r[0])]
    return dict(zip(head, found[-1], strict=True)) if found else {}


def batched_model(session: Session, engine: str, series: str, tokens: int) -> Iterator[Point]:
    counts = steps(session.cluster.total, session.sizes.counts)
    speeds = {}
    for context, what in ((0, "prompt"), (tokens + tokens // 2, "decode")):
        found, _ = session.json("plan", "-m", session.plan_model, "-c", context, "-p", tokens, "-t", listed(counts),
                                "-e", engine)
        for row in found["rows"] if found else []:
            used = sum(1 for n in row["threads"] if n)
            if used == session.cluster.holding(sum(row["threads"])):
                speeds.setdefault(sum(row["threads"]), {})[what] = row[f"{what}_tokens_per_second"][0]
    for threads, found in sorted(speeds.items()):
        if len(found) == 2:
            yield Point(ANSWERS, series, PREDICTED, str(threads), found["decode"], threads=threads)
            yield Point(WHOLE, series, PREDICTED, str(threads),
                        combined(found["prompt"], found["decode"], tokens), threads=threads)


def best(points: list[Point], kind: str, panel: str, series: str = "") -> tuple[float, str] | None:
    found = [(p.value, p.x) for p in of_kind(points, kind, series, panel)]
    return max(found) if found else None


def batched_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    for panel, said in ((ANSWERS, "26.52 with 32 threads; patched 41.15 with 40: 1.55 times"),
                        (WHOLE, "48.73 with 36 threads; patched 74.67 with 54: 1.53 times")):
        ours, base = best(points, OURS, panel), best(points, PEER, panel)
        words = "not measured" if ours is None else f"arclight {ours[0]:.1f} with {ours[1]}"
        if ours and base:
            words = f"llama.cpp {base[0]:.1f} with {base[1]} threads; {words}: {ours[0] / base[0]:.2f} times"
        yield f"best {panel.partition(':')[0]}: llama.cpp {said}", words


def node_bandwidth(session: Session) -> Iterator[Point]:
    cluster = session.cluster
    cases = []
    for nodes in cluster.wanted((1, 2, 4)):
        whole = nodes * cluster.per_node(nodes)
        cases += [(nodes, n) for n in sorted({max(nodes, whole // 2), whole})]
    limits: dict[str, float] = {}
    for nodes, threads in cases:
        virtual = ", virtual" if cluster.virtual(nodes) else ""
        x = f"{nodes_words(nodes)}{virtual}, {threads_words(threads)}"
        if session.late(x):
            continue
        rows, answer = session.bench("-p", "0", "-n", session.sizes.tokens, "-t", threads, "--nodes",
                                     "0," if nodes == 1 else nodes, "--report")
        if not rows:
            yield failed("read while decoding", "node 0", OURS, x, answer, unit="GB/s")
            continue
        report = rows[0]["report"]
        for place, node in enumerate(report["nodes"]):
            traffic = node["traffic"]
            yield Point("read while decoding", f"node {place}", OURS, x,
                        traffic["read_bytes_per_second"] / 1e9, "GB/s", nodes=nodes, threads=threads,
                        note="computed from the bytes that the program reads", **answer.noise())
            limits[f"node {place}"] = max(limits.get(f"node {place}", 0), traffic["limit_bytes_per_second"] / 1e9)
    found = session.plan("-m", session.plan_model, "-c", session.sizes.tokens // 2, "-p", "15", "-e", "tp-b")
    if found:
        decode = found["engines"][0]["decode"]
        rate = decode["prediction"]["tokens_per_second"] * found["bytes_per_step"] / 1e9
        used = sum(1 for n in decode["threads"] if n)
        for place in range(used):
            yield Point("read while decoding", f"model: node {place}", PREDICTED,
                        f"model, {threads_words(sum(decode['threads']))}", rate / used, "GB/s", nodes=used)


def node_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    def last_case(kind: str, series: str) -> str:
        cases: dict[str, list[float]] = {}
        for p in of_kind(points, kind):
            if series in p.x:
                cases.setdefault(p.x, []).append(p.value)
        if not cases:
            return "not measured"
        x = list(cases)[-1]
        return f"{x}: " + " and ".join(f"{v:.1f}" for v in cases[x]) + " GB/s"
    yield f"with nodes' own buffers both nodes read alike: {last_case(PUBLISHED, 'patched')}", last_case(OURS, "")
    yield f"without, node 0 is the bottleneck: {last_case(PUBLISHED, 'llama.cpp, 128')}", \
        "llama.cpp's reads need counters of memory controllers and were not counted"


FIGURES = [
    Figure("barriers", SOURCE, "charts 2 and 4", "Time of a barrier by threads", "lines", "threads", "µs",
           ("The average time of ggml_barrier grows with threads, and faster beyond a node of 64 cores.",
            "With a counter in each node there is no obvious drop.",
            "The charts are images; the text has no numbers of them."),
           "One counter for all threads is what llama.cpp has, in this program's pool. The model's panel has the "
           "formulas of docs/cost-model.md.", 0.03, barriers, barrier_verdicts, log=True, needs_nodes=True),
    Figure("matmul", SOURCE, "charts 3 and 5", "Average time of a product of matrices while decoding", "lines",
           "threads", "µs",
           ("Products get slower when threads cross nodes; with local buffers there is a clear uplift.",
            "The charts are images; the text has no numbers of them."),
           "llama.cpp prints no time of its products without a patch. Threads fill one node after the other.",
           0.05, matmul, matmul_verdicts, needs_nodes=True),
    Figure("batched", SOURCE, "charts 1 and 6", "llama-batched-bench: answers, and prompt and answers together",
           "lines", "threads", "tokens/s",
           ("S_TG: llama.cpp at best 26.52 with 32 threads, patched 41.15 with 40.",
            "S: 48.73 with 36 threads, patched 74.67 with 54."),
           "Another model than Llama 3 8B unless --model says so. Our S is computed from a prompt and a decoding that "
           "are timed apart.", 0.08, batched, batched_verdicts, ("arm-batched.csv",), needs_nodes=True),
    Figure("node-bandwidth", SOURCE, "table", "What each node reads while decoding", "bars", "", "GB/s",
           ("Without the patch all comes from node 0; with it both nodes read alike.",),
           "Ours is computed from the bytes that each node's threads read and the time, not counted by memory "
           "controllers.", 0.04, node_bandwidth, node_verdicts, ("arm-node-bandwidth.csv",), needs_nodes=True),
]
