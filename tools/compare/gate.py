"""The guard: whether Arclight is still as far ahead of its peers as in stored results."""

from dataclasses import dataclass

from engines import ARCLIGHT
from results import Case, Row, standings

# By how much a median ratio may be below the stored one. Medians of three rounds of one program against
# itself differed by up to 4 % on shared machines.
ALLOWED_LOSS = 0.05


@dataclass(frozen=True)
class Verdict:
    """A median ratio to a peer, and the stored one."""
    case: Case
    peer: str
    stored: float
    now: float | None   # None: no figure

    @property
    def lost(self) -> bool:
        return self.now is None or self.now < self.stored * (1 - ALLOWED_LOSS)

    def __str__(self) -> str:
        shape, kind, test = self.case
        now = "no figure" if self.now is None else f"{self.now:.2f} ({self.now / self.stored - 1:+.0%})"
        mark = "  LOST" if self.lost else ""
        return f"{f'{shape}:{kind} {test}':<32} over {self.peer:<14} {self.stored:.2f}  now {now}{mark}"


def verdicts(stored: list[Row], now: list[Row]) -> list[Verdict]:
    """Of every case and peer that both have; a peer counts with the flags that suit it best then and now."""
    found = standings(now)
    result = []
    for case, engines in standings(stored).items():
        measured = found.get(case)
        if measured is None:
            continue
        for peer, standing in engines.items():
            if peer == ARCLIGHT or standing.ratio is None or peer not in measured:
                continue
            ratio = measured[peer].ratio
            result.append(Verdict(case, peer, standing.ratio.median, ratio.median if ratio else None))
    return result


def other_machine(stored: list[str], here: str) -> str | None:
    """What the stored results say of their machine, where this is another one."""
    machines = [line.removeprefix("Machine: ").rstrip(".") for line in stored
                if line.startswith("Machine: ")]
    return next((m for m in machines if m != here), None)
