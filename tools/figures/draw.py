"""Draws a figure with matplotlib: `draw.py OUT.svg OUT.png < figure.json`.

A program of its own, for it runs in a virtual environment that has matplotlib. Every panel has its own axes. Ours
is a full line, a peer's dashed, what was published black crosses, a prediction dotted, a replay dashed and dotted.
"""

import json
import sys
from textwrap import fill

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

OURS = ["#1f6fc4", "#189a8d", "#6a55c9", "#4a9e2f"]
PEERS = ["#d1701b", "#b9472f", "#b08a14"]
PREDICTED = ["#d1701b", "#189a8d", "#6a55c9", "#1f6fc4", "#4a9e2f"]
PUBLISHED = ["#111111", "#555555", "#999999", "#777777"]
REPLAYED = ["#d1701b", "#1f6fc4", "#6a55c9", "#b9472f"]
COLOURS = {"ours": OURS, "peer": PEERS, "predicted": PREDICTED, "published": PUBLISHED, "replayed": REPLAYED}
STYLES = {
    "ours": {"linestyle": "-", "marker": "o", "linewidth": 2},
    "peer": {"linestyle": "--", "marker": "s", "linewidth": 1.6},
    "predicted": {"linestyle": ":", "marker": "", "linewidth": 1.6},
    "published": {"linestyle": "-", "marker": "x", "linewidth": 0.8},
    "replayed": {"linestyle": "-.", "marker": "^", "linewidth": 1.2},
}


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def words_of(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def grouped(points: list[dict], key: str) -> dict[str, list[dict]]:
    found = {}
    for point in points:
        found.setdefault(point[key], []).append(point)
    return found


def coloured(points: list[dict]) -> list[tuple[str, str, list[dict], str]]:
    """Series with their kind and colour, in their order."""
    counts, found = {}, []
    for (kind, series), of in grouped([{**p, "key": (p["kind"], p["series"])} for p in points], "key").items():
        place = counts.setdefault(kind, 0)
        counts[kind] += 1
        found.append((kind, series, of, COLOURS[kind][place % len(COLOURS[kind])]))
    return found


def lines(axes, points: list[dict], steps: bool, log: bool) -> None:
    if log:
        axes.set_yscale("log")
    for kind, series, of, colour in coloured(points):
        of = sorted(of, key=lambda p: float(p["x"]))
        x, y = [float(p["x"]) for p in of], [p["value"] for p in of]
        style = dict(STYLES[kind])
        if len(x) == 1 and not style["marker"]:
            style["marker"] = "D"
        if steps:
            style["marker"] = ""
        axes.plot(x, y, color=colour, label=series, markersize=5, drawstyle="steps-post" if steps else "default",
                  **style)
        for p in of:
            if p["low"] is not None and p["high"] is not None and p["high"] > p["low"]:
                axes.plot([float(p["x"])] * 2, [p["low"], p["high"]], color=colour, linewidth=1, alpha=0.6)
            if p["disturbed"]:
                axes.plot([float(p["x"])], [p["value"]], "o", color="white", markeredgecolor=colour, markersize=6)
            if p["note"] and kind == "published":
                axes.annotate(p["note"], (float(p["x"]), p["value"]), textcoords="offset points", xytext=(4, 5),
                              fontsize=7, color=colour)
    x = {float(p["x"]) for p in points}
    if all(value.is_integer() for value in x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(x) == 1:
        axes.set_xlim(min(x) - 1, min(x) + 1)
    if not log:
        axes.set_ylim(0, 1.08 * max(max(p["value"], p["high"] or 0) for p in points) or 1)


def bars(axes, points: list[dict]) -> None:
    places = list(dict.fromkeys(p["x"] for p in points))
    series = coloured(points)
    height = 0.8 / len(series)
    for i, (kind, name, of, colour) in enumerate(series):
        y = [places.index(p["x"]) + (i + 0.5) * height - 0.4 for p in of]
        drawn = axes.barh(y, [p["value"] for p in of], height * 0.92, color=colour, label=name,
                          hatch="//" if kind == "predicted" else None, alpha=0.6 if kind == "published" else 1)
        axes.bar_label(drawn, labels=[words_of(p["value"]) for p in of], fontsize=7, padding=2)
    axes.set_yticks(range(len(places)), places)
    axes.invert_yaxis()
    axes.margins(x=0.14, y=0.02)


def matrix(axes, points: list[dict]) -> None:
    rows, columns = (list(dict.fromkeys(p[k] for p in points)) for k in ("series", "x"))
    cells = [[next((p["value"] for p in points if (p["series"], p["x"]) == (r, c)), float("nan"))
              for c in columns] for r in rows]
    axes.imshow(cells, cmap="Blues", vmin=0)
    most = max(p["value"] for p in points)
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            colour = "white" if value > most / 2 else "black"
            axes.text(j, i, words_of(value), ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)


def height_of(points: list[dict], is_bars: bool) -> float:
    """Inches. Bars need room for each."""
    bars_of = len({p["x"] for p in points}) * len({(p["kind"], p["series"]) for p in points})
    return max(3.4, 1.2 + 0.17 * bars_of) if is_bars else 3.4


def draw(figure: dict, svg: str, png: str) -> None:
    pyplot.rcParams.update({"font.size": 9, "svg.hashsalt": figure["name"], "axes.spines.top": False,
                            "axes.spines.right": False, "axes.grid": False})
    panels = grouped([p for p in figure["points"] if p["value"] is not None], "panel")
    if not panels:
        return
    words = {name: any(number(p["x"]) is None for p in of) for name, of in panels.items()}
    columns = min(len(panels), 2 if any(words.values()) else 3)
    rows = [list(panels)[i:i + columns] for i in range(0, len(panels), columns)]
    heights = [max(height_of(panels[name], words[name] and figure["chart"] != "matrix") for name in row)
               for row in rows]
    page, all_axes = pyplot.subplots(len(rows), columns, squeeze=False, layout="constrained",
                                     figsize=(max(5.5, 4.4 * columns), sum(heights)),
                                     gridspec_kw={"height_ratios": heights})
    for axes in all_axes.flat[len(panels):]:
        axes.set_visible(False)
    for axes, (name, points) in zip(all_axes.flat, panels.items(), strict=False):
        axes.set_title(fill(name, 46), fontsize=9.5, loc="left")
        if figure["chart"] == "matrix":
            matrix(axes, points)
            axes.set_xlabel(figure["x"])
            axes.set_ylabel(figure["y"])
            continue
        if words[name]:
            bars(axes, points)
            axes.set_xlabel(points[0]["unit"])
        else:
            lines(axes, points, figure["chart"] == "steps", figure["log"])
            axes.set_xlabel(figure["x"])
            axes.set_ylabel(figure["y"] or points[0]["unit"])
            axes.grid(alpha=0.25, linewidth=0.6)
        names = {p["series"] for p in points}
        several = len(names) > 1
        if words[name] and several:
            # Below: bars leave no room between the axes. In a row only where it is no wider than they are.
            columns_of = len(names) if sum(map(len, names)) < 30 else 1
            axes.legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=4,
                        ncols=columns_of)
        elif not words[name] and (several or points[0]["kind"] != "published"):
            axes.legend(fontsize=7.5, frameon=False)
    for file in (svg, png):
        page.savefig(file, dpi=110, metadata={"Date": None} if file == svg else None)


if __name__ == "__main__":
    draw(json.load(sys.stdin), *sys.argv[1:3])
