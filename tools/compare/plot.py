"""The plot of ratios: a panel per test, a row per model, a lane per engine.

Plain SVG with a transparent ground and colours of middling lightness, so that it can be read on
a light page and on a dark one. The axis is logarithmic: twice as fast and half as fast are
equally far from the line at 1.
"""

from math import log2
from xml.sax.saxutils import escape

from engines import ARCLIGHT, IK, LLAMA, OPENVINO
from results import Case, Standing

INK = "#7D8590"
COLOURS = {LLAMA: "#209660", IK: "#D16914", OPENVINO: "#896CE2"}

LABEL, NUMBER, GAP, MARGIN = 132, 40, 12, 12    # widths: row labels, medians, between, around
PANELS = 820                                    # width of all panels together
LANE, PAD, TOP, FOOT = 15, 9, 92, 44            # heights
DOT = 3.1


def ticks(low: float, high: float) -> list[float]:
    """Marks of the axis: powers of two, and halves between them where there is room."""
    step = 0.5 if log2(high / low) <= 2.0 else 1.0
    marks = [2.0 ** (i * step) for i in range(-12, 13)]
    return [m for m in marks if low <= m <= high]


def number(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


class Drawing:
    def __init__(self, width: float, height: float, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" font-family="sans-serif" role="img">',
            f"<title>{escape(title)}</title>",
        ]

    def text(self, x: float, y: float, words: str, size: float = 12, fill: str = INK,
             anchor: str = "start", weight: str = "normal") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = INK,
             width: float = 1, opacity: float = 1, kind: str = "") -> None:
        mark = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<line{mark} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{stroke}" stroke-width="{width:g}" opacity="{opacity:g}"/>')

    def dot(self, x: float, y: float, colour: str, hollow: bool) -> None:
        look = f'fill="none" stroke="{colour}" stroke-width="1.3"' if hollow else \
            f'fill="{colour}" opacity="0.75"'
        self.parts.append(f'<circle class="{"disturbed" if hollow else "round"}" '
                          f'cx="{x:.1f}" cy="{y:.1f}" r="{DOT}" {look}/>')

    def band(self, x: float, y: float, width: float, height: float) -> None:
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                          f'height="{height:.1f}" fill="{INK}" opacity="0.07"/>')

    def end(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def svg(cases: dict[Case, dict[str, Standing]]) -> str:
    tests = list(dict.fromkeys(test for _, _, test in cases))
    models = list(dict.fromkeys((shape, kind) for shape, kind, _ in cases))
    present = {e for engines in cases.values() for e in engines} - {ARCLIGHT}
    peers = [e for e in COLOURS if e in present]
    ratios = [r for engines in cases.values() for e, s in engines.items() if e != ARCLIGHT
              for r, _ in s.ratios] + [0.9, 1.5]
    low, high = min(ratios) / 1.1, max(ratios) * 1.1

    row = len(peers) * LANE + 2 * PAD
    panel = (PANELS - GAP * (len(tests) - 1)) / max(1, len(tests))
    width, height = 2 * MARGIN + LABEL + PANELS, TOP + row * len(models) + FOOT
    title = "Speed of Arclight over that of other engines, on the same file in the same run"
    page = Drawing(width, height, title)

    page.text(MARGIN, 22, title, 15, weight="bold")
    x = MARGIN
    for engine in peers:
        page.dot(x + DOT, 43, COLOURS[engine], False)
        page.text(x + 12, 47, engine, fill=COLOURS[engine])
        x += 12 + 7.0 * len(engine) + 18
    page.text(width - MARGIN, 47, "a dot per round, hollow where others had more than 5 % of the "
              "machine; bar: median", 11, anchor="end")

    for i in range(0, len(models), 2):
        page.band(MARGIN, TOP + i * row, width - 2 * MARGIN, row)
    for i, (shape, kind) in enumerate(models):
        middle = TOP + (i + 0.5) * row
        page.text(MARGIN + 6, middle - 2, shape, 12.5)
        page.text(MARGIN + 6, middle + 13, kind.upper(), 11)

    for column, test in enumerate(tests):
        left = MARGIN + LABEL + column * (panel + GAP)
        right = left + panel - NUMBER

        def at(ratio: float, left: float = left, right: float = right) -> float:
            return left + (right - left) * log2(ratio / low) / log2(high / low)

        bottom = TOP + row * len(models)
        page.text((left + right) / 2, TOP - 14, test.title, 12, anchor="middle", weight="bold")
        for mark in ticks(low, high):
            one = mark == 1.0
            page.line(at(mark), TOP, at(mark), bottom, width=1.5 if one else 1,
                      opacity=0.9 if one else 0.22, kind="one" if one else "")
            page.text(at(mark), bottom + 15, f"{mark:.2g}", 10.5, anchor="middle")
        for i, (shape, kind) in enumerate(models):
            for lane, engine in enumerate(peers):
                y = TOP + i * row + PAD + (lane + 0.5) * LANE
                standing = cases.get((shape, kind, test), {}).get(engine)
                if standing:
                    draw_lane(page, standing, y, at, left + panel - 5)
    page.text(width - MARGIN, height - 10, "right of the line at 1 Arclight is faster", 11,
              anchor="end")
    return page.end()


def draw_lane(page: Drawing, standing: Standing, y: float, at, edge: float) -> None:
    colour = COLOURS[standing.engine]
    ratio = standing.ratio
    if ratio is None:
        page.text(edge, y + 4, "–", 11, colour, "end")
        return
    page.line(at(ratio.least), y, at(ratio.most), y, colour, 1.2, 0.6)
    for value, disturbed in standing.ratios:
        page.dot(at(value), y, colour, disturbed)
    page.line(at(ratio.median), y - 6, at(ratio.median), y + 6, colour, 2.4, kind="median")
    page.text(edge, y + 4, number(ratio.median), 11, colour, "end",
              "bold" if ratio.median < 1 else "normal")
