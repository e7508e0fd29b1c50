"""The machine that is measured: its nodes and cores, as the program sees them, and numbers of threads to try."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Cluster:
    """Memory nodes with cores, those that this process may use."""
    cores: tuple[int, ...]  # of each node, a thread each

    @staticmethod
    def of(topo: str) -> "Cluster":
        """From the JSON of `arclight topo`: the threads that it would place by default."""
        groups = json.loads(topo)["layout"]["groups"]
        return Cluster(tuple(len(group["cpus"]) for group in groups))

    @property
    def nodes(self) -> int:
        return len(self.cores)

    @property
    def total(self) -> int:
        return sum(self.cores)

    @property
    def one_node(self) -> bool:
        return self.nodes == 1

    def per_node(self, nodes: int) -> int:
        """Cores of each of so many nodes: virtual ones share the cores of a machine that has fewer."""
        if nodes <= self.nodes:
            return min(self.cores)
        return self.total // nodes

    def virtual(self, nodes: int) -> bool:
        return nodes > self.nodes

    def wanted(self, nodes: tuple[int, ...]) -> list[int]:
        """Those numbers of nodes that have a core each."""
        return [n for n in nodes if self.per_node(n) >= 1]

    def holding(self, threads: int) -> int:
        """The fewest nodes with as many cores."""
        held = 0
        for nodes, cores in enumerate(self.cores, 1):
            held += cores
            if held >= threads:
                return nodes
        raise ValueError(f"{threads} threads for {self.total} cores")


def steps(most: int, count: int) -> list[int]:
    """At most `count` numbers up to `most`, evenly, the last one `most` (ArcLight takes 6, 12, ... 48)."""
    if most <= count:
        return list(range(1, most + 1))
    return sorted({round(most * i / count) for i in range(1, count + 1)} - {0})


def doublings(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    found, n = [], 1
    while n < most:
        found.append(n)
        n *= 2
    return [*found, most]
