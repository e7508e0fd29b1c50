#!/usr/bin/env python3
"""Replays counted accesses on the bandwidth matrix of a machine: a simulation of a step, stage by stage.

    tools/figures/replay.py COUNTS.csv --machine MACHINE.json [--matrix TOPO.json] [--threads N,..] [--layers N]
        [--cache GB/s]

COUNTS.csv is of tests/numa-vm/stages. MACHINE.json is of `arclight plan --machines --machine NAME -o json`, TOPO.json of
`arclight topo --bandwidth -o json`: its matrix replaces the machine's.

A step was counted with one and with two threads on each node. In every stage the busiest thread of a node has a part
that is the same in both counts, because every thread or only one of them does it, and a part that is divided:
x = own + divided / threads. The machine's cores divide it further. Lines that every thread of a node fetches come from
memory once; --cache is the rate at which a core then reads them from the node's shared cache. No machine of ours states it:
without it they take as long as lines from memory. docs/cost-model.md has the formulas and results.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

LINE = 64
# Instructions of a core a second outside of products: as many as the cost model has elements of a pass.
INSTRUCTIONS = 2e9


@dataclass(frozen=True)
class Machine:
    """Equal nodes. Bytes, products and instructions a second; seconds."""
    read: tuple[tuple[float, ...], ...]     # all cores of a node (row) from a node's memory (column)
    cores: int                              # of each node
    core_own: float                         # bytes a second that a core alone reads from its own node
    core_other: float
    int8: float                             # products of a core
    f32: float
    arrival: float                          # an arrival at a barrier's counter, after one of the same node
    other_arrival: float                    # after one of another node
    line: float                             # a line's way inside of a node
    other_line: float
    cache: float | None = None              # bytes a second that a core reads of its node's shared cache

    @staticmethod
    def of(found: dict, topo: dict | None = None) -> "Machine":
        """From the JSON of `plan --machines --machine NAME`, and of `topo --bandwidth` if its matrix is used."""
        figures = {figure["what"]: figure["value"] for figure in found["figures"]}
        read = found["read_bytes_per_second"] if topo is None else topo["access"]["read_bytes_per_second"]
        if any(len(row) != len(read) or not all(row) for row in read):
            raise ValueError("the matrix of bandwidths is not square, or a rate was not measured")
        return Machine(
            tuple(tuple(row) for row in read), found["cores_per_node"],
            figures["core, own memory"] * 1e9, figures["core, other memory"] * 1e9,
            figures["core, int8"] * 1e9, figures["core, f32"] * 1e9, figures["arrival, own node"] * 1e-9,
            figures["arrival, other node"] * 1e-9, figures["line, own node"] * 1e-9, figures["line, other node"] * 1e-9)

    def core(self, node: int, memory: int) -> float:
        return self.core_own if node == memory else self.core_other

    def wait(self, end: str, threads: list[int], flat: bool) -> float:
        """Seconds of a barrier, by the formulas of the cost model."""
        used, most = [n for n in threads if n], max(threads)
        local = most * self.arrival + 2 * self.line if most > 1 else 0.0
        if end == "stop":
            return 0.0
        if end == "local" or len(used) == 1:
            return local
        if not flat:
            return local + len(used) * self.other_arrival + 2 * self.other_line
        together = sum(used)
        same = sum((n / together) ** 2 for n in used)
        return together * (same * self.arrival + (1 - same) * self.other_arrival) + 2 * self.other_line


@dataclass(frozen=True)
class Share:
    """A quantity of the busiest thread of a node: what is not divided, and what all divide."""
    own: float
    divided: float

    @staticmethod
    def of(one: float, busiest: float) -> "Share":
        """From the count of a thread alone on its node, and of the busier one of two."""
        # Alone a thread has own + divided, of two the busier one has own + divided / 2.
        own = min(max(2 * busiest - one, 0.0), one)
        return Share(own, one - own)

    def each(self, threads: int) -> float:
        return self.own + self.divided / threads

    def node(self) -> float:
        """The quantity of the node: lines that every thread fetches count once, because cores share a last-level cache."""
        return self.own + self.divided


@dataclass(frozen=True)
class Stage:
    """Work between two waits."""
    end: str                                    # local, global or stop
    lines: dict[int, dict[int, Share]]          # bytes by node and memory
    int8: dict[int, Share]                      # by node
    f32: dict[int, Share]
    instructions: dict[int, Share]


@dataclass(frozen=True)
class Step:
    """A counted step."""
    engine: str
    placement: str
    model: str
    nodes: int
    tokens: int
    stages: tuple[Stage, ...]

    @property
    def used(self) -> list[int]:
        """The nodes with threads."""
        return sorted(self.stages[0].lines)

    def grown(self, layers: int) -> "Step":
        """The step of a model with more layers: the last counted layer is repeated."""
        at, length, counted = layer(self.stages)
        again = self.stages[at:at + length]
        end = at + length
        return Step(self.engine, self.placement, self.model, self.nodes, self.tokens,
                    self.stages[:end] + again * (layers - counted) + self.stages[end:])


def products(stage: Stage) -> float:
    return sum(share.node() for share in stage.int8.values())


def layer(stages: tuple[Stage, ...]) -> tuple[int, int, int]:
    """Where the last counted layer begins, its number of stages, and the number of counted layers.

    Layers are the longest sequence of stages that comes twice, one after the other, with the same int8 products.
    """
    sums = [products(stage) for stage in stages]

    def same(a: int, length: int, b: int) -> bool:
        pairs = zip(sums[a:a + length], sums[b:b + length], strict=True)
        return any(sums[a:a + length]) and all(abs(x - y) <= 0.02 * max(x, y) for x, y in pairs)

    for length in range(len(sums) // 2, 0, -1):
        for at in range(len(sums) - 2 * length + 1):
            if same(at, length, at + length):
                counted = 2
                while at + (counted + 1) * length <= len(sums) and same(at, length, at + counted * length):
                    counted += 1
                return at + (counted - 1) * length, length, counted
    raise ValueError("no two layers of the same products were counted")


def read_steps(lines: Iterable[str]) -> list[Step]:
    """The steps of a CSV of tests/numa-vm/stages."""
    # By step and number of threads on a node: rows by stage and node.
    runs: dict[tuple, dict[int, dict[int, dict[int, list[dict]]]]] = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        key = row["engine"], row["placement"], row["model"], int(row["nodes"]), int(row["tokens"])
        stage = runs.setdefault(key, {}).setdefault(int(row["threads"]), {}).setdefault(int(row["stage"]), {})
        stage.setdefault(int(row["node"]), []).append(row)
    return [step_of(key, by_threads) for key, by_threads in runs.items()]


def step_of(key: tuple, by_threads: dict[int, dict[int, dict[int, list[dict]]]]) -> Step:
    name = " ".join(map(str, key))
    if sorted(by_threads) != [1, 2]:
        raise ValueError(f"{name}: counts with one and with two threads on a node are needed")
    one, two = by_threads[1], by_threads[2]
    if len(one) != len(two):
        raise ValueError(f"{name}: {len(one)} stages with one thread on a node and {len(two)} with two")
    return Step(*key, tuple(stage_of(one[at], two[at]) for at in sorted(one)))


def stage_of(one: dict[int, list[dict]], two: dict[int, list[dict]]) -> Stage:
    def share(node: int, column: str, scale: int = 1) -> Share:
        return Share.of(*(scale * max(float(row[column]) for row in rows[node]) for rows in (one, two)))

    def by_node(column: str) -> dict[int, Share]:
        return {node: share(node, column) for node in one}

    memories = range(sum(name.startswith("lines") for name in next(iter(one.values()))[0]))
    lines = {node: {memory: share(node, f"lines{memory}", LINE) for memory in memories} for node in one}
    return Stage(next(iter(one.values()))[0]["end"], lines, by_node("int8"), by_node("f32"), by_node("instructions"))


@dataclass(frozen=True)
class Load:
    """Equal threads of a node that fetch something."""
    node: int
    threads: int
    each: tuple[float, ...]         # bytes of one thread from each memory
    node_bytes: tuple[float, ...]   # bytes of all of them

    def seconds(self, machine: Machine) -> float:
        """Time of a thread that waits for no other."""
        return sum(amount / machine.core(self.node, memory) for memory, amount in enumerate(self.each))


def fetch(machine: Machine, loads: list[Load]) -> dict[int, float]:
    """Seconds until the threads of each node have their lines.

    A thread takes its lines from all memories in turn, at its own rate at most. Where a memory or a link is full its
    users share it equally, byte by byte; what one of them cannot use the others have. When a node's threads are done
    the rest is shared again.
    """
    left = {load.node: 1.0 for load in loads if load.seconds(machine) > 0}
    ends, now = {load.node: 0.0 for load in loads}, 0.0
    while left:
        rates = share_out(machine, [load for load in loads if load.node in left])
        lasts = {node: left[node] / rate for node, rate in rates.items()}
        first = min(lasts.values())
        now += first
        for node, last in lasts.items():
            left[node] -= first * rates[node]
            if last <= first * (1 + 1e-12):
                ends[node] = now
                del left[node]
    return ends


def share_out(machine: Machine, loads: list[Load]) -> dict[int, float]:
    """The part of their lines that the threads of each node fetch in a second: max-min fair in bytes."""
    # Capacity, and what each node takes of it by fetching all of its lines once.
    queues: list[tuple[float, dict[int, float]]] = []
    for load in loads:
        queues.append((1.0, {load.node: load.seconds(machine)}))
        for memory, amount in enumerate(load.node_bytes):
            if memory != load.node and amount > 0:
                queues.append((machine.read[load.node][memory], {load.node: amount}))
    for memory in range(len(machine.read)):
        takes = {load.node: load.node_bytes[memory] for load in loads if memory < len(load.node_bytes)}
        queues.append((machine.read[memory][memory], {node: taken for node, taken in takes.items() if taken > 0}))
    size = {load.node: sum(load.each) for load in loads}
    rates = {load.node: 0.0 for load in loads}
    rising = set(rates)
    while rising:
        # Bytes a second of a thread, beyond those that it has, until the first queue is full.
        room = []
        for capacity, takes in queues:
            more = sum(taken / size[node] for node, taken in takes.items() if node in rising)
            if more > 0:
                used = sum(taken * rates[node] for node, taken in takes.items())
                room.append((max(capacity - used, 0.0) / more, takes))
        step, _ = min(room, key=lambda r: r[0])
        for node in rising:
            rates[node] += step / size[node]
        rising -= {node for by, takes in room if by <= step * (1 + 1e-9) for node in takes}
    return rates


def stage_seconds(machine: Machine, stage: Stage, threads: int) -> float:
    """Until the slowest thread has its lines and products. The two go on together."""
    loads = []
    for node, memories in stage.lines.items():
        shares = [share for _, share in sorted(memories.items())]
        each = tuple(share.divided / threads if machine.cache else share.each(threads) for share in shares)
        loads.append(Load(node, threads, each, tuple(share.node() for share in shares)))
    ends = fetch(machine, loads)
    if machine.cache:
        for node, memories in stage.lines.items():
            ends[node] += sum(share.own for share in memories.values()) / machine.cache
    return max(max(ends[node], compute_seconds(machine, stage, node, threads)) for node in ends)


def compute_seconds(machine: Machine, stage: Stage, node: int, threads: int) -> float:
    """Time of a thread's products, or of its instructions where it has none, and of work that is not divided."""
    int8, f32, instructions = stage.int8[node], stage.f32[node], stage.instructions[node]
    multiply = int8.each(threads) / machine.int8 + f32.each(threads) / machine.f32
    if int8.node() + f32.node() == 0:
        return instructions.each(threads) / INSTRUCTIONS
    return multiply + instructions.own / INSTRUCTIONS


def step_seconds(machine: Machine, step: Step, threads: int) -> float:
    """Time of a step with `threads` threads on each of its nodes."""
    if max(step.used) >= len(machine.read):
        raise ValueError(f"the step was counted on node {max(step.used)}, but the machine has {len(machine.read)} nodes")
    if not 1 <= threads <= machine.cores:
        raise ValueError(f"{threads} threads on a node of {machine.cores} cores")
    on = [threads if node in step.used else 0 for node in range(len(machine.read))]
    flat = step.engine != "arclight"
    return sum(stage_seconds(machine, stage, threads) + machine.wait(stage.end, on, flat) for stage in step.stages)


def tokens_per_second(machine: Machine, step: Step, threads: int) -> float:
    return step.tokens / step_seconds(machine, step, threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", type=Path, metavar="COUNTS.csv")
    parser.add_argument("--machine", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--matrix", type=Path, metavar="FILE.json")
    parser.add_argument("--threads", metavar="N,..", help="on each node (default: all cores)")
    parser.add_argument("--cache", type=float, metavar="GB/s", help="of a core from its node's shared cache")
    parser.add_argument("--layers", type=int, metavar="N", help="of the model (default: as counted)")
    args = parser.parse_args()
    machine = Machine.of(json.loads(args.machine.read_text()), json.loads(args.matrix.read_text()) if args.matrix else None)
    if args.cache is not None and not args.cache > 0:
        parser.error("--cache: a rate above 0")
    machine = replace(machine, cache=args.cache and args.cache * 1e9)
    counts = [int(n) for n in args.threads.split(",")] if args.threads else [machine.cores]
    print("engine,placement,model,nodes,tokens,threads on a node,tokens/s")
    with args.counts.open(encoding="utf-8") as file:
        steps = read_steps(file)
    for step in steps:
        step = step.grown(args.layers) if args.layers else step
        for threads in counts:
            rate = tokens_per_second(machine, step, threads)
            print(f"{step.engine},{step.placement},{step.model},{step.nodes},{step.tokens},{threads},{rate:.4g}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError) as e:
        sys.exit(f"replay: {e}")
