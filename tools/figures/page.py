"""The page that can be sent: every figure with what its source says and what was measured, in one file."""

import base64
import datetime
from collections.abc import Iterable
from html import escape
from pathlib import Path

from points import KINDS, OURS, PEER, PREDICTED, PUBLISHED, REPLAYED, Figure, Point, Results

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1120px; margin: 2em auto; padding: 0 1em; color: #1c2126; }
h1 { font-size: 1.7em; } h2 { margin-top: 2.4em; font-size: 1.25em; border-top: 1px solid #d5dae0; padding-top: .8em; }
h2 small { font-weight: normal; color: #5b6570; } nav { columns: 3; font-size: .9em; }
table { border-collapse: collapse; margin: .6em 0; } th, td { text-align: left; padding: .25em .8em .25em 0;
  vertical-align: top; border-bottom: 1px solid #e6e9ed; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } pre { background: #f4f6f8; padding: .7em; overflow-x: auto; font-size: .85em; }
.warn { background: #fff3d6; border-left: 4px solid #d99a1b; padding: .6em 1em; }
.small { color: #5b6570; font-size: .9em; } details { margin: .5em 0; } summary { cursor: pointer; color: #5b6570; }
@media print { details { display: none; } h2 { break-before: page; } }
"""

KEY = {OURS: "this program", PEER: "llama.cpp, here", PUBLISHED: "published",
       PREDICTED: "predicted by the model of time", REPLAYED: "replayed from counted accesses"}
DRAWN = {OURS: "full lines with dots", PEER: "dashed lines with squares", PUBLISHED: "black and grey, with crosses",
         PREDICTED: "dotted lines, hatched bars", REPLAYED: "lines of dashes and dots"}

# Figures and tables of the documents that are not measured, and why.
NOT_SHOWN = [
    ("Sandwich, figure 2", "instructions per cycle, cache loads and controller loads by phase: bench --counters prints them "
                           "where a program may read the machine's counters"),
    ("Sandwich, figure 7: TVM", "it generates kernels of its own; the searches with our micro-kernels are there"),
    ("ArcLight, figures 1 to 9", "drawings of the design; docs/sources.md names the code"),
    ("Arm, the curves of the charts", "images without numbers in the text"),
]


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def table(head: Iterable[str], rows: Iterable[Iterable[object]], numbers: tuple[int, ...] = ()) -> str:
    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{' class=n' if i in numbers and tag == 'td' else ''}>{escape(str(c))}</{tag}>"
                                for i, c in enumerate(cells)) + "</tr>"
    return f"<table>{row(head, 'th')}{''.join(row(r, 'td') for r in rows)}</table>"


def all_points(points: list[Point]) -> str:
    rows = [(p.panel, p.series, KEY[p.kind], p.x, cell(p.value), p.unit,
             f"{cell(p.low)} to {cell(p.high)}" if p.low is not None and p.high is not None else "",
             p.error or ", ".join(filter(None, (p.note, "disturbed" if p.disturbed else "")))) for p in points]
    return table(("panel", "series", "whose", "x", "value", "unit", "range", ""), rows, (4,))


def section(figure: Figure, results: Results, published: list[Point], svg: Path, one_node: bool) -> str:
    points = results.points + published
    parts = [f"<h2 id={figure.name}>{escape(figure.title)} <small>{escape(figure.source)}, "
             f"{escape(figure.number)}</small></h2>"]
    if one_node and figure.needs_nodes:
        parts.append("<p class=warn>One memory node: several nodes are virtual here. This shows function and not "
                     "speed.</p>")
    if svg.exists():
        image = base64.b64encode(svg.read_bytes()).decode()
        parts.append(f'<img alt="{escape(figure.title)}" src="data:image/svg+xml;base64,{image}">')
    else:
        parts.append("<p>No figure was measured.</p>")
    measured = [p for p in results.points if p.kind in (OURS, PEER)]
    noisy = 2 * sum(1 for p in measured if p.disturbed) > len(measured)
    found_here = "found here, most of it disturbed by other programs" if noisy else "found here"
    parts.append(table(("the source says", found_here), figure.verdicts(points)))
    parts += [f"<p>{escape(words)}</p>" for words in figure.says]
    if figure.differs:
        parts.append(f"<p class=small>Differs from the source: {escape(figure.differs)}</p>")
    for name, title in (("left out", "Left out"), ("skipped", "Not measured")):
        if found := results.about(name):
            parts.append(f"<p class=small>{title}: {escape('; '.join(found))}.</p>")
    errors = sorted({f"{p.series}: {p.error}" for p in results.points if p.error})
    if errors:
        parts.append(f"<p class=small>Failed: {escape('; '.join(errors))}.</p>")
    if any(p.disturbed for p in results.points):
        parts.append("<p class=small>Hollow points were disturbed: others had more than 5 % of the machine's time."
                     "</p>")
    if commands := results.about("command"):
        parts.append(f"<details open><summary>commands</summary><pre>{escape(chr(10).join(commands))}"
                     "</pre></details>")
    parts.append(f"<details><summary>{len(points)} points</summary>{all_points(points)}</details>")
    return "\n".join(parts)


def page(found: list[tuple[Figure, Results, list[Point], Path]], about: list[tuple[str, str]], one_node: bool) -> str:
    links = "".join(f"<div><a href=#{f.name}>{escape(f.source)}, {escape(f.number)}</a>: {escape(f.title)}</div>"
                    for f, *_ in found)
    warn = "<p class=warn>This machine has one memory node. Where a figure needs several they are virtual: groups of " \
        "threads on the same memory, so that every part of the program runs and no link is crossed. That shows " \
        "function and not speed.</p>" if one_node else ""
    key = table(("drawn as", "what"), ((DRAWN[k], KEY[k]) for k in KINDS))
    body = "\n".join(section(*of, one_node) for of in found)
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>Arclight: figures of its source documents, measured</title><style>{STYLE}</style>
<h1>Figures of Arclight's source documents, measured on one machine</h1>
<p class=small>Made by tools/figures/run, {datetime.date.today()}.</p>
{table(("", ""), about)}
{warn}
{key}
<nav>{links}</nav>
{body}
<h2 id=not-shown>Not shown</h2>
{table(("figure", "why"), NOT_SHOWN)}
</html>
"""
