"""What a figure is made of: points, their CSV, and what the source documents published.

A point has a panel (one set of axes), a series (one curve, bar colour or row of a matrix) and a place on the x
axis, a number or a word. `kind` says whose it is.
"""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TextIO

OURS, PEER, PUBLISHED, PREDICTED, REPLAYED = "ours", "peer", "published", "predicted", "replayed"
KINDS = (OURS, PEER, PUBLISHED, PREDICTED, REPLAYED)
PUBLISHED_FOLDER = Path(__file__).with_name("published")


@dataclass(frozen=True)
class Point:
    panel: str
    series: str
    kind: str
    x: str                      # a number as text, or a word
    value: float | None         # None where there is none: `error` says why
    unit: str = "tokens/s"
    low: float | None = None    # of the repetitions
    high: float | None = None
    nodes: int | None = None
    threads: int | None = None
    foreign_pct: float | None = None    # of the machine, during the command
    steal_pct: float | None = None
    disturbed: str = ""         # "yes" where one of them is over the threshold
    error: str = ""
    note: str = ""


NUMBERS = {"value", "low", "high", "foreign_pct", "steal_pct"}
COUNTS = {"nodes", "threads"}
NAMES = [f.name for f in fields(Point)]


@dataclass(frozen=True)
class Figure:
    """A figure or table of a source document, and how this machine shows the same."""
    name: str                   # on the command line
    source: str
    number: str                 # in the source
    title: str
    chart: str                  # lines, steps, bars or matrix
    x: str                      # what the axes are
    y: str
    says: tuple[str, ...]       # what the source says
    differs: str                # from the source's measurement, in words
    share: float                # of the time of a whole run
    sweep: Callable             # of a session: yields points
    verdicts: Callable          # of all points: yields (what the source says, what was found)
    files: tuple[str, ...] = () # published numbers, in `published/`
    log: bool = False           # the y axis
    needs_nodes: bool = False   # virtual ones show function and not speed


@dataclass
class Results:
    """A figure's CSV."""
    comments: list[str] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    def about(self, name: str) -> list[str]:
        """The comments that begin with this word and a colon."""
        return [c.partition(": ")[2] for c in self.comments if c.startswith(f"{name}: ")]


def write_head(out: TextIO) -> None:
    csv.writer(out, lineterminator="\n").writerow(NAMES)


def write_comment(out: TextIO, words: str) -> None:
    out.write(f"# {' '.join(words.split())}\n")
    out.flush()


def write_point(out: TextIO, point: Point) -> None:
    cells = []
    for name in NAMES:
        value = getattr(point, name)
        if value is None:
            value = ""
        elif name in NUMBERS:
            value = f"{value:.6g}"
        cells.append(value)
    csv.writer(out, lineterminator="\n").writerow(cells)
    out.flush()     # a run takes most of an hour: nothing of it is to be lost


def parse(text: str, name: str, kind: str | None = None) -> Results:
    """A CSV of points, or of published numbers, which has fewer columns and gets its kind here."""
    lines = text.splitlines(keepends=True)
    table = csv.DictReader(line for line in lines if not line.startswith("#"))
    known = set(table.fieldnames or [])
    if not {"panel", "series", "x", "value"} <= known <= set(NAMES):
        raise ValueError(f"{name}: the columns are not those of tools/figures")
    found = Results([line[1:].strip() for line in lines if line.startswith("#")])
    for cells in table:
        values = {}
        for column, cell in cells.items():
            if column in NUMBERS or column in COUNTS:
                values[column] = (int(cell) if column in COUNTS else float(cell)) if cell else None
            else:
                values[column] = cell
        point = Point(**({"kind": kind} if kind else {}), **values)
        if point.kind not in KINDS:
            raise ValueError(f"{name}: {point.kind!r} is no kind of point")
        found.points.append(point)
    return found


def read(path: Path) -> Results:
    return parse(path.read_text(encoding="utf-8"), path.name)


def published(figure: Figure) -> list[Point]:
    """What the figure's source has in numbers."""
    return [point for file in figure.files
            for point in parse((PUBLISHED_FOLDER / file).read_text(encoding="utf-8"), file, PUBLISHED).points]


def of_kind(points: list[Point], kind: str, series: str = "", panel: str = "") -> Iterator[Point]:
    """Points that have a value."""
    for point in points:
        if point.kind == kind and point.value is not None and \
                (not series or series in point.series) and (not panel or panel in point.panel):
            yield point
