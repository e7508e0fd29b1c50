"""Figures of the ArcLight paper (arXiv 2603.07770): bandwidths, and speed by threads, nodes and prompt."""

from collections.abc import Iterator
from pathlib import Path

import replay
from machines import steps
from points import OURS, PEER, PREDICTED, PUBLISHED, REPLAYED, Figure, Point, of_kind
from session import Session, failed, our_point, peer_point

SOURCE = "ArcLight"
LLAMA_ISOLATE, LLAMA_DISTRIBUTE = "llama.cpp isolate", "llama.cpp distribute"
SYNC_A, SYNC_B = "arclight, Sync A", "arclight, Sync B"
MACHINE, DENSE, EXPERTS = "kunpeng-920", "qwen3-4b", "olmoe-1b-7b"
PAPER = "simulated: 4 x 48 Kunpeng 920, {model}: {nodes}"
# Files DATE-stages.csv of tests/numa-vm/stages, of models with two layers. The newest is used.
COUNTS = Path(__file__).resolve().parents[2] / "benchmarks"
LAYERS = {DENSE: 36, EXPERTS: 16}
REPLAYS = {("llama.cpp", "isolate"): "replayed: llama.cpp isolate",
           ("llama.cpp", "distribute"): "replayed: llama.cpp distribute",
           ("arclight", "tp"): "replayed: this engine",
           ("arclight", "interleave"): "replayed: this engine, interleaved",
           ("arclight", "off"): "replayed: this engine, unplaced"}


def bandwidth(session: Session) -> Iterator[Point]:
    found, answer = session.json("topo", "--bandwidth")
    if not found:
        yield failed("measured", "node 0", OURS, "node 0", answer, unit="GB/s")
        return
    access = found["access"]
    for reader, row in zip(access["readers"], access["read_bytes_per_second"], strict=True):
        for memory, rate in zip(access["memories"], row, strict=True):
            value = None if rate is None else rate / 1e9
            yield Point("measured", f"node {reader['node']}", OURS, f"node {memory['node']}", value,
                        "GB/s", error="" if value else "not measured", **answer.noise())


def ratio_of(points: list[Point], kind: str) -> str:
    cells = {(p.series, p.x): p.value for p in of_kind(points, kind)}
    own = [v for (a, b), v in cells.items() if a == b]
    other = [v for (a, b), v in cells.items() if a != b]
    if not own:
        return "not measured"
    mean = sum(own) / len(own)
    if not other:
        return f"{mean:.1f} GB/s; there is no other node"
    away = sum(other) / len(other)
    return f"{mean:.1f} GB/s own, {away:.1f} GB/s others': {mean / away:.1f} times"


def bandwidth_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    yield f"own memory is about 4 times as fast: {ratio_of(points, PUBLISHED)}", ratio_of(points, OURS)


def threads_on(session: Session, nodes: int) -> list[int]:
    return [nodes * n for n in steps(session.cluster.per_node(nodes), session.sizes.counts)]


def words_for(session: Session, nodes: int) -> list[str]:
    """The option for so many nodes: node 0 alone, the first of several, or virtual ones."""
    return ["--nodes", "0," if nodes == 1 else str(nodes)]


def listed(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def predicted(session: Session, panel: str, nodes: int, threads: list[int], depth: int, prompt: int,
              what: str) -> Iterator[Point]:
    """The model's speed of this machine, measured for it. It knows no virtual nodes."""
    if session.cluster.virtual(nodes):
        session.left_out.append(f"prediction on {nodes} nodes: they are virtual")
        return
    engines = {"unplaced": "model: llama.cpp", "tp-a": "model: Sync A", "tp-b": "model: Sync B"}
    found = session.plan("-m", session.plan_model, "-c", depth, "-p", prompt, "-t", listed(threads),
                         "-e", ",".join(engines))
    for row in found["rows"] if found else []:
        used = sum(1 for n in row["threads"] if n)
        if used == nodes:
            for name, rate in zip(engines.values(), row[f"{what}_tokens_per_second"], strict=True):
                if nodes > 1 or "Sync A" not in name:
                    yield Point(panel, name, PREDICTED, str(sum(row["threads"])), rate, nodes=nodes)


def paper(session: Session, nodes: list[int], depth: int, prompt: int, what: str) -> Iterator[Point]:
    """The speed of the paper's machine, whose curves are images without numbers in the text: by the model of time, and
    by the replay of counted accesses."""
    engines = {"unplaced": "model: llama.cpp", "paper-a": "model: ArcLight, Sync A",
               "paper-b": "model: ArcLight, Sync B", "tp-b": "model: this engine, Sync B"}
    for model in LAYERS:
        for n in nodes:
            panel = PAPER.format(model=model, nodes=nodes_words(n))
            found = session.plan("--machine", MACHINE, "-m", f"{model}:q4_0", "-c", depth, "-p", prompt,
                                 "-t", listed([6 * i * n for i in range(1, 9)]), "-e", ",".join(engines))
            for row in found["rows"] if found else []:
                if sum(1 for t in row["threads"] if t) == n:
                    for name, rate in zip(engines.values(), row[f"{what}_tokens_per_second"], strict=True):
                        if n > 1 or "Sync A" not in name:
                            yield Point(panel, name, PREDICTED, str(sum(row["threads"])), rate, nodes=n)
    yield from replayed(session, nodes, what)


def replayed(session: Session, nodes: list[int], what: str) -> Iterator[Point]:
    """The counted steps on the paper's machine. Prompts have the length that was counted."""
    files = sorted(COUNTS.glob("*-stages.csv"))
    if not files:
        session.left_out.append("replay of counted accesses: benchmarks/ has no counts (tests/numa-vm/stages makes them)")
        return
    found, _ = session.json("plan", "--machines", "--machine", MACHINE)
    if not found:
        session.left_out.append("replay of counted accesses: the machine's numbers were not printed")
        return
    machine = replay.Machine.of(found)
    with files[-1].open(encoding="utf-8") as file:
        counted = replay.read_steps(file)
    for step in counted:
        model, used = step.model.partition("/")[0], len(step.used)
        if model not in LAYERS or used not in nodes or (step.tokens > 1) != (what == "prompt"):
            continue
        grown = step.grown(LAYERS[model])
        for threads in steps(machine.cores, 8):
            rate = replay.tokens_per_second(machine, grown, threads)
            yield Point(PAPER.format(model=model, nodes=nodes_words(used)), REPLAYS[step.engine, step.placement], REPLAYED,
                        str(used * threads), rate, nodes=used, threads=used * threads,
                        note=f"prompt of {step.tokens}" if step.tokens > 1 else "")


def nodes_words(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def threads_words(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def speed(session: Session, nodes: list[int], depth: int, prompt: int) -> Iterator[Point]:
    """Decoding after `depth` tokens where `prompt` is 0, or a prompt of so many."""
    tokens = session.sizes.decoded
    size = ["-p", prompt, "-n", "0"] if prompt else ["-p", "0", "-n", tokens, "-d", depth]
    what = "prompt" if prompt else "decode"
    middle = 0 if prompt else depth + tokens // 2
    for n in session.cluster.wanted(tuple(nodes)):
        panel = nodes_words(n) + (", virtual" if session.cluster.virtual(n) else "")
        threads = threads_on(session, n)
        modes = [(SYNC_B, []), (SYNC_A, ["--sync-a"])] if n > 1 else [("arclight", [])]
        for series, options in modes:
            if session.late(f"{series}, {panel}"):
                continue
            rows, answer = session.bench(*size, "-t", listed(threads), *words_for(session, n), *options)
            for row in rows:
                yield our_point(panel, series, row, answer)
            if not rows:
                yield failed(panel, series, OURS, threads[-1], answer)
        peer = LLAMA_ISOLATE if n == 1 else LLAMA_DISTRIBUTE
        if session.llama and not session.late(f"{peer}, {panel}"):
            rows, answer = session.peer_bench(*size, "-t", listed(threads), "--numa", peer.split()[1])
            for row in rows:
                yield peer_point(panel, peer, row, answer, nodes=n)
            if not rows:
                yield failed(panel, peer, PEER, threads[-1], answer)
        yield from predicted(session, panel, n, threads, middle, prompt or 15, what)
    for n in nodes:
        if n not in session.cluster.wanted(tuple(nodes)):
            session.left_out.append(f"{n} nodes: there are fewer cores than nodes")
    yield from paper(session, nodes, middle, prompt or 15, what)


def one_node(session: Session) -> Iterator[Point]:
    yield from speed(session, [1], session.sizes.prompts[0], 0)


def several_nodes(session: Session) -> Iterator[Point]:
    yield from speed(session, [2, 4], session.sizes.prompts[0], 0)


def several_nodes_deep(session: Session) -> Iterator[Point]:
    yield from speed(session, [2, 4], session.sizes.prompts[1], 0)


def prompts(session: Session) -> Iterator[Point]:
    yield from speed(session, [1, 2, 4], 0, session.sizes.prompts[1])


def by_place(points: list[Point], kind: str, series: str) -> dict[tuple[int, int], float]:
    return {(p.nodes, p.threads): p.value for p in of_kind(points, kind, series) if p.threads}


def gain(points: list[Point]) -> str:
    """Ours over the peer at the same threads."""
    ours, peer = by_place(points, OURS, ""), by_place(points, PEER, "llama.cpp")
    ours.update(by_place(points, OURS, SYNC_B))     # and not Sync A at the same place
    both = sorted((ours[place] / peer[place], place) for place in ours.keys() & peer.keys())
    if not both:
        return "no peer was measured"
    (low, _), (high, (nodes, threads)) = both[0], both[-1]
    where = f"{threads_words(threads)} on {nodes_words(nodes)}"
    if len(both) == 1:
        return f"{high:.2f} times with {where}"
    return f"{low:.2f} to {high:.2f} times; the most with {where}"


def rising(points: list[Point], kind: str) -> str:
    values = [v for _, v in sorted(by_place(points, kind, "").items())]
    if len(values) < 2:
        return "one number of threads only"
    up = sum(b > a for a, b in zip(values, values[1:]))
    return f"{values[0]:.1f} to {values[-1]:.1f} tokens/s; {up} of {len(values) - 1} steps go up"


def one_node_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    yield "from 6 to 48 threads both improve", f"arclight {rising(points, OURS)}; llama.cpp {rising(points, PEER)}"
    yield "ArcLight is slightly higher", gain(points)


def sync_gain(points: list[Point]) -> str:
    a, b = by_place(points, OURS, SYNC_A), by_place(points, OURS, SYNC_B)
    gains = [(b[place] - a[place], a[place]) for place in a.keys() & b.keys()]
    if not gains:
        return "not measured"
    most, base = max(gains)
    if len(gains) == 1:
        return f"{most:+.1f} tokens/s ({100 * most / base:+.1f} %)"
    return f"{min(gains)[0]:+.1f} to {most:+.1f} tokens/s (the most is {100 * most / base:+.1f} %)"


def nodes_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    yield "ArcLight outperforms llama.cpp, by up to 46 %", gain(points)
    yield "Sync B gives about 5 tokens/s more than Sync A", sync_gain(points)


def deep_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    yield "slightly lower than after a short prompt; ArcLight ahead", gain(points)
    yield "(not stated) Sync B over Sync A", sync_gain(points)


def prompt_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    yield "ArcLight still ahead, by less than in decoding: prompts are compute-bound", gain(points)


IMAGES = "The curve is an image; the text has no numbers of it. Panels whose title begins with \"simulated\" have the " \
    "paper's machine: by our model of time, and by the replay of accesses that were counted in a virtual machine."
HERE = "Keys and values are q4_0, as in the paper's commands. Replayed prompts have the length that was counted."

FIGURES = [
    Figure("bandwidth", SOURCE, "table 1", "Memory bandwidth of every node's cores from every node's memory",
           "matrix", "memory in", "cores from",
           ("Own memory gives 101 to 103 GB/s, other nodes' 22 to 26: about a quarter.",), "", 0.02,
           bandwidth, bandwidth_verdicts, ("arclight-table-1.csv",), needs_nodes=True),
    Figure("decode-one-node", SOURCE, "figure 10", "Decoding on one node, by threads", "lines", "threads", "tokens/s",
           ("From 6 to 48 threads both engines improve; ArcLight is slightly higher.", IMAGES), HERE, 0.08,
           one_node, one_node_verdicts),
    Figure("decode-nodes", SOURCE, "figure 11", "Decoding on several nodes, by threads", "lines", "threads", "tokens/s",
           ("ArcLight outperforms llama.cpp on 2 and 4 nodes, by up to 46 %.",
            "Waiting apart (Sync B) gives about 5 tokens/s.", IMAGES), HERE, 0.12,
           several_nodes, nodes_verdicts, needs_nodes=True),
    Figure("decode-nodes-300", SOURCE, "figure 12", "Decoding on several nodes after a prompt of 300", "lines",
           "threads", "tokens/s", ("Slightly lower than after a short prompt.", IMAGES), HERE, 0.08,
           several_nodes_deep, deep_verdicts, needs_nodes=True),
    Figure("prompt-300", SOURCE, "figure 13", "A prompt of 300 tokens, by threads and nodes", "lines", "threads",
           "tokens/s", ("ArcLight is ahead, by less than in decoding.", IMAGES), HERE, 0.08, prompts,
           prompt_verdicts, needs_nodes=True),
]
