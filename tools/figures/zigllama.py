"""Figures of ZigLlama's page on threads: Amdahl's law, and the statistics of the pool."""

from collections.abc import Iterator

from arclight_paper import listed
from machines import doublings
from points import OURS, PREDICTED, PUBLISHED, Figure, Point, of_kind
from session import Session, failed

SOURCE = "ZigLlama"
SPEEDUP = "speed over one thread"
HEALTHY = {"stolen": (5, 20), "queue depth": (0, 2), "utilisation": (90, 100)}


def amdahl(threads: float, serial: float) -> float:
    return 1 / (serial + (1 - serial) / threads)


def scaling(session: Session) -> Iterator[Point]:
    """Speeds and the fitted share as `plan --scaling` has them; here the law goes on to 64 threads."""
    found, answer = session.json("plan", "--scaling", "-m", session.model, "--kv-type", session.kv_type, "-p",
                                 session.sizes.prompts[1], "-c", session.sizes.prompts[0], "-t",
                                 listed(doublings(session.cluster.total)), timeout=1800)
    if not found:
        yield failed(SPEEDUP, "arclight", OURS, 1, answer, unit="times")
        return
    names = {"decode": "decoding", "prompt": "prompt"}
    for row in found["rows"]:
        yield Point(SPEEDUP, f"arclight, {names[row['phase']]}", OURS, str(row["threads"]), row["speedup"], "times",
                    nodes=row["nodes"], threads=row["threads"], **answer.noise())
    for phase in found["phases"]:
        serial = phase["serial_share"]
        for threads in doublings(64) if serial is not None else []:
            yield Point(SPEEDUP, f"fit, {names[phase['phase']]}", PREDICTED, str(threads), amdahl(threads, serial),
                        "times", note=f"p = {1 - serial:.3f}")


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
