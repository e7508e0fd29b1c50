"""The page of results: tables of medians and their spread, and what was not measured."""

import textwrap

from engines import ARCLIGHT, IK, LLAMA, OPENVINO
from results import Case, Results, Spread, Standing

ORDER = [LLAMA, IK, OPENVINO]


def speed(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def between(spread: Spread, write) -> str:
    least, most = write(spread.least), write(spread.most)
    return least if least == most else f"{least}–{most}"


def our_cells(standing: Standing | None) -> str:
    if standing is None or standing.speed is None:
        return "– | –"
    spread = f" ({between(standing.speed, speed)})" if len(standing.speed.values) > 1 else ""
    share = f"{100 * standing.of_limit.median:.0f} %" if standing.of_limit else "–"
    return f"{speed(standing.speed.median)}{spread} | {share}"


def their_cells(standing: Standing | None) -> str:
    if standing is None or standing.speed is None:
        return "– | –"
    if standing.ratio is None:
        return f"{speed(standing.speed.median)} | –"
    middle = f"{standing.ratio.median:.2f}"
    # Where we lose stands out.
    middle = f"**{middle}**" if standing.ratio.median < 1 else middle
    spread = between(standing.ratio, lambda r: f"{r:.2f}")
    spread = f" ({spread})" if len(standing.ratio.values) > 1 else ""
    mark = "\\*" if standing.disturbed else ""
    return f"{speed(standing.speed.median)} | {middle}{spread}{mark}"


def table(cases: dict[Case, dict[str, Standing]], model: tuple[str, str],
          peers: list[str]) -> list[str]:
    titles = "".join(f" {p} | ratio |" for p in peers)
    lines = [f"| {model[0]} {model[1].upper()} | Arclight | of limit |{titles}",
             "|---|---:|---:|" + "---:|---:|" * len(peers)]
    for (shape, kind, test), engines in cases.items():
        if (shape, kind) == model:
            cells = [test.title, our_cells(engines.get(ARCLIGHT)),
                     *(their_cells(engines.get(p)) for p in peers)]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def limits(found: Results) -> list[str]:
    """How far the machine itself was from being the same all the time."""
    ours = [r for r in found.rows if r.engine == ARCLIGHT and r.read_gb_s and r.int8_gmac_s]
    if not ours:
        return []
    read = Spread(tuple(r.read_gb_s for r in ours))
    int8 = Spread(tuple(r.int8_gmac_s for r in ours))
    return [f"Limits that Arclight's runs measured: memory {between(read, speed)} GB/s "
            f"(median {speed(read.median)}), int8 {between(int8, speed)} GMAC/s "
            f"(median {speed(int8.median)})."]


def disturbances(found: Results) -> list[str]:
    """How much of it all others had a hand in."""
    marked = [r for r in found.rows if r.disturbed]
    if not marked:
        return ["No command was disturbed: others never had more than 5 % of the machine."]
    foreign = max(r.foreign_pct or 0 for r in marked)
    steal = max(r.steal_pct or 0 for r in marked)
    return [f"\\* Others had more than 5 % of the machine in at least one of the rounds. That is "
            f"so of {len(marked)} of all {len(found.rows)} figures (up to {foreign:.0f} % to other "
            f"programs, {steal:.0f} % to other machines of the host); all of them count."]


def dashes(cases: dict[Case, dict[str, Standing]]) -> list[str]:
    """Why figures are missing, each reason once."""
    where: dict[tuple[str, str], list[str]] = {}
    for (shape, kind, test), engines in cases.items():
        for engine, standing in engines.items():
            for failure in standing.failures:
                where.setdefault((engine, failure), []).append(f"{shape} {kind.upper()} {test}")
    return [f"- {engine}, {', '.join(dict.fromkeys(places))}: `{failure.replace('`', chr(39))}`"
            for (engine, failure), places in where.items()]


def flags(cases: dict[Case, dict[str, Standing]], peers: list[str]) -> list[str]:
    """Which flags an engine counted with, where it had a choice."""
    lines = []
    for peer in peers:
        used: dict[str, int] = {}
        for engines in cases.values():
            if (standing := engines.get(peer)) and standing.speed:
                used[standing.flags] = used.get(standing.flags, 0) + 1
        if any(used):
            told = ", ".join(f"{f'`{f}`' if f else 'none'} in {n}" for f, n in used.items())
            lines.append(f"Flags with which {peer} was fastest, by number of cases: {told}.")
    return lines


def machine_of(found: Results) -> str:
    """What the results say of the machine."""
    told = [c.removeprefix("Machine: ").rstrip(".") for c in found.comments if c.startswith("Machine: ")]
    return "; ".join(dict.fromkeys(told))


def held_to(found: Results) -> str:
    """What every engine was held to."""
    return ", every engine held to AVX2" if any("ARCLIGHT_ISA=avx2" in c for c in found.comments) else ""


def section(found: Results, cases: dict[Case, dict[str, Standing]], csv_name: str, figure: str) -> list[str]:
    """The results of one file."""
    present = {e for engines in cases.values() for e in engines}
    peers = [e for e in ORDER if e in present]
    models = list(dict.fromkeys((shape, kind) for shape, kind, _ in cases))
    lines = [
        f"{machine_of(found)}{held_to(found)}. Every figure, versions and commands: "
        f"[benchmarks/{csv_name}](../benchmarks/{csv_name}).",
        "",
        f"![Ratios of speed, by test and model](figures/{figure})",
        "",
    ]
    for model in models:
        lines += [*table(cases, model, peers), ""]
    for notes in (disturbances(found), limits(found), flags(cases, [ARCLIGHT, *peers])):
        if notes:
            lines += [*notes, ""]
    if missing := dashes(cases):
        lines += ["Commands that failed:", "", *missing, ""]
    return lines


# Characters in a line of the page.
WIDTH = 110


def markdown(sections: list[tuple[str, list[str]]]) -> str:
    """The page of one or more sections, each with its title."""
    lines = [
        "# Comparison",
        "",
        "Made by [tools/compare](../tools/compare/README.md), which says what the tests are and "
        "runs them on your machine.",
        "",
        "Tokens per second, medians over the rounds and their range. *Ratio*: Arclight's speed "
        "over the other's in the same round, bold where Arclight is the slower one. *Of limit*: "
        "share of what memory and multipliers allowed in Arclight's own run.",
        "",
    ]
    for title, body in sections:
        lines += [*([f"## {title}", ""] if len(sections) > 1 else []), *body]
    return "\n".join(map(wrapped, lines)).rstrip("\n") + "\n"


def wrapped(line: str) -> str:
    """A paragraph in lines of the width that other pages have; tables, titles and pictures stay as they are."""
    if not line or line[0] in "|#!":
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
