"""Figures of ZigLlama's page on threads: Amdahl's law, and the statistics of the pool."""

from collections.abc import Iterator

from arclight_paper import listed
from machines import doublings
from points import OURS, PREDICTED, PUBLISHED, Figure, Point, of_kind
from session import Session, failed

SOURCE = "ZigLlama"
SPEEDUP = "speed over one thread"
HEALTHY = {"stolen": (5, 20), "queue depth": (0, 2), "utilisation": (90, 100)}


def amdahl(threads: float, parallel: float) -> float:
    return 1 / ((1 - parallel) + parallel / threads)


def fit(speeds: dict[int, float]) -> float | None:
    """The parallel share by least squares over 1/S = 1 - p (1 - 1/W), which is linear in p; of speeds over one
    thread. It lies in 0..1."""
    terms = [(1 - 1 / w, 1 - 1 / s) for w, s in speeds.items() if w > 1 and s > 0]
    weight = sum(a * a for a, _ in terms)
    return min(1.0, max(0.0, sum(a * b for a, b in terms) / weight)) if weight else None


def scaling(session: Session) -> Iterator[Point]:
    counts = doublings(session.cluster.total)
    for what, size in (("decoding", ["-p", "0", "-n", session.sizes.tokens]),
                       ("prompt", ["-p", session.sizes.prompts[1], "-n", "0"])):
        if session.late(what):
            continue
        # On the fewest nodes that hold them: bench takes all nodes for every number of threads.
        speeds, answer = {}, None
        for nodes in sorted({session.cluster.holding(n) for n in counts}):
            of_nodes = [n for n in counts if session.cluster.holding(n) == nodes]
            rows, answer = session.bench(*size, "-t", listed(of_nodes), "--nodes", "0," if nodes == 1 else nodes)
            speeds.update({row["threads"]: row["mean"] for row in rows})
        if 1 not in speeds:
            yield failed(SPEEDUP, what, OURS, 1, answer, unit="times")
            continue
        over_one = {w: s / speeds[1] for w, s in speeds.items()}
        for w, s in over_one.items():
            yield Point(SPEEDUP, f"arclight, {what}", OURS, str(w), s, "times", threads=w, **answer.noise())
        share = fit(over_one)
        if share is not None:
            for w in doublings(64):
                yield Point(SPEEDUP, f"fit, {what}", PREDICTED, str(w), amdahl(w, share), "times",
                            note=f"p = {share:.3f}")


def scaling_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    fits = sorted({(p.series.partition(", ")[2], p.note) for p in of_kind(points, PREDICTED, "fit")})
    yield "a token of LLaMA 7B is parallel by p = 0.93", \
        "; ".join(f"{what}: {share}" for what, share in fits) or "one thread only: nothing to fit"


def pool(session: Session) -> Iterator[Point]:
    rows, answer = session.bench("-p", 2 * session.sizes.prompts[1], "-n", "0", "--report")
    tasks = rows[0]["report"].get("tasks") if rows else None
    found = {} if not tasks else {"stolen": 100 * tasks["stolen_share"] if tasks["stolen_share"] is not None else None,
                                  "queue depth": tasks["depth"], "utilisation": 100 * tasks["utilisation"]}
    for name, (low, high) in HEALTHY.items():
        unit = "tiles" if name == "queue depth" else "%"
        yield Point(name, "healthy, at least", PUBLISHED, "range", low, unit)
        yield Point(name, "healthy, at most", PUBLISHED, "range", high, unit)
        if found.get(name) is None:
            yield failed(name, "arclight, a prompt", OURS, "prompt", answer, unit=unit)
        else:
            yield Point(name, "arclight, a prompt", OURS, "prompt", found[name], unit, **answer.noise())


def pool_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    for name, (low, high) in HEALTHY.items():
        found = next(of_kind(points, OURS, panel=name), None)
        yield f"{name}: {low} to {high}", "not counted" if found is None else f"{found.value:.1f} {found.unit}"


FIGURES = [
    Figure("amdahl", SOURCE, "section 7", "Speed by threads, and Amdahl's law", "lines", "threads", "times",
           ("p = 0.93: 3.1 times with 4 workers, 5.2 with 8, 7.6 with 16, 11.5 with 64.",),
           "The fit is of measured speeds; decoding ends at the memory's bandwidth, which Amdahl's law does not know.",
           0.03, scaling, scaling_verdicts, ("zigllama-amdahl.csv",)),
    Figure("pool", SOURCE, "section 8", "Work stolen, queues, utilisation", "bars", "", "",
           ("Healthy: 5 to 20 % of tasks stolen, queues of 0 to 2, utilisation above 90 %.",),
           "Only tiles of attention in prompts are tasks here; the rest is dealt beforehand (docs/threads.md).", 0.02,
           pool, pool_verdicts),
]
