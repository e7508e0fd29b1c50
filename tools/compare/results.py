"""Results: the rows of the CSV, and what they come to over the rounds."""

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import TextIO

from engines import ARCLIGHT
from workload import Test, parse


@dataclass(frozen=True)
class Row:
    """One engine, one test, one round. Empty fields are what does not apply or is not known."""
    model: str
    type: str
    test: str
    round: int
    engine: str
    flags: str
    tokens_per_second: float | None
    ratio: float | None         # Arclight's of the same round over this one's
    limit: float | None         # tokens per second that the machine allows, measured by Arclight
    of_limit: float | None      # this engine's share of it
    read_gb_s: float | None     # limits in the same run of Arclight
    int8_gmac_s: float | None
    bf16_gmac_s: float | None
    foreign_pct: float | None   # of the machine, during the command
    steal_pct: float | None
    disturbed: str              # "yes" where one of them is over the threshold
    error: str                  # why there is no figure


NUMBERS = {f.name for f in fields(Row) if "float" in str(f.type)}
DIGITS = {"tokens_per_second": 2, "ratio": 3, "limit": 1, "of_limit": 3}


def write_head(out: TextIO, comments: Iterable[str], first: bool) -> None:
    for comment in comments:
        out.write(f"# {comment}\n")
    if first:
        csv.writer(out, lineterminator="\n").writerow(f.name for f in fields(Row))
    out.flush()


def write_row(out: TextIO, row: Row) -> None:
    cells = []
    for f in fields(Row):
        value = getattr(row, f.name)
        if f.name in NUMBERS:
            value = "" if value is None else f"{value:.{DIGITS.get(f.name, 1)}f}"
        cells.append(value)
    csv.writer(out, lineterminator="\n").writerow(cells)
    out.flush()     # a run takes hours: nothing of it is to be lost


@dataclass(frozen=True)
class Results:
    comments: list[str]
    rows: list[Row]


def read(path: Path) -> Results:
    with path.open(newline="", encoding="utf-8") as text:
        lines = text.read().splitlines(keepends=True)
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    table = csv.DictReader(line for line in lines if not line.startswith("#"))
    names = [f.name for f in fields(Row)]
    if table.fieldnames != names:
        raise ValueError(f"{path.name}: the columns are not those of tools/compare")
    rows = []
    for cells in table:
        values = {n: (float(c) if c else None) if n in NUMBERS else c for n, c in cells.items()}
        rows.append(Row(**{**values, "round": int(cells["round"])}))
    return Results(comments, rows)


@dataclass(frozen=True)
class Spread:
    """Values of the rounds."""
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)


@dataclass(frozen=True)
class Standing:
    """An engine in one test of one model, with the flags that suit it best there."""
    engine: str
    flags: str
    speed: Spread | None                # None: no figure in any round
    of_limit: Spread | None
    ratios: tuple[tuple[float, bool], ...]  # by round, and whether it was disturbed
    failures: tuple[str, ...]

    @property
    def ratio(self) -> Spread | None:
        return Spread(tuple(r for r, _ in self.ratios)) if self.ratios else None

    @property
    def disturbed(self) -> int:
        return sum(d for _, d in self.ratios)


Case = tuple[str, str, Test]   # model, type, test


def standings(rows: list[Row]) -> dict[Case, dict[str, Standing]]:
    """Models in order of measurement, tests in order of measurement, engines by name; Arclight
    is among them, its ratios being 1."""
    by_case: dict[Case, dict[str, dict[str, list[Row]]]] = {}
    for row in rows:
        case = row.model, row.type, parse(row.test)
        engines = by_case.setdefault(case, {})
        engines.setdefault(row.engine, defaultdict(list))[row.flags].append(row)
    result = {}
    for case, engines in by_case.items():
        ours = {r.round: r for rs in engines.get(ARCLIGHT, {}).values() for r in rs}
        result[case] = {engine: best_of(engine, by_flags, ours)
                        for engine, by_flags in engines.items()}
    return result


def best_of(engine: str, by_flags: dict[str, list[Row]], ours: dict[int, Row]) -> Standing:
    """The flags with the highest median speed; those without any figure are last."""
    def speed(flags: str) -> float:
        known = [r.tokens_per_second for r in by_flags[flags] if r.tokens_per_second]
        return median(known) if known else 0.0

    flags = max(by_flags, key=speed)
    rows = by_flags[flags]
    speeds = tuple(r.tokens_per_second for r in rows if r.tokens_per_second)
    shares = tuple(r.of_limit for r in rows if r.of_limit)

    def disturbed(row: Row) -> bool:
        mine = ours.get(row.round)
        return bool(row.disturbed or (mine and mine.disturbed))

    return Standing(
        engine, flags,
        Spread(speeds) if speeds else None,
        Spread(shares) if shares else None,
        tuple((1.0 if engine == ARCLIGHT else r.ratio, disturbed(r)) for r in rows
              if r.tokens_per_second and (engine == ARCLIGHT or r.ratio)),
        tuple(dict.fromkeys(r.error for r in rows if r.error)),
    )
