#!/usr/bin/env python3
"""Random configurations of every family: a folder of `transformers` is right, or refused.

    pip install -r requirements.txt
    python check.py --program PATH                          # all decoder families, seeds 0 to 19
    python check.py --program PATH --families gemma2 --seeds 7
    python check.py --program PATH --families llama --field # each field changed alone

Each case is a tiny model whose configuration is drawn from a seed. `transformers` saves it, `arclight convert --type f32`
converts the folder, and log-probabilities of 150 prompt tokens and 12 decoded ones are compared with those of
`transformers` (float32, eager attention); the KV cache is F32. A case is `right` (to 1e-4), `refused`, `DIFFERS` or `PANIC`;
`unable` where `transformers` does not take the configuration, `unsaved` where it does not read its own folder back,
`unsteady` where float32 is not enough for the reference itself. Ends with status 1 if a case differs or panics."""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import draw
from parts import Family

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Case:
    family: str
    seed: int
    change: tuple[tuple[str, object], ...] = ()  # the fields that are not as usual

    @property
    def name(self) -> str:
        changed = " ".join(f"{key}={said(value)}" for key, value in self.change)
        return f"{self.family} {changed or self.seed}"


def said(value: object) -> str:
    return "(left out)" if value is draw.STATED_NOT else str(value).replace(" ", "")


def seeds(text: str) -> list[int]:
    """`0..20` (the last one is left out), `3`, or `1,5,9`."""
    first, dots, last = text.partition("..")
    return list(range(int(first), int(last))) if dots else [int(n) for n in text.split(",")]


def families(options: argparse.Namespace) -> dict[str, Family]:
    if options.images:
        from pictures import FAMILIES
    elif options.encoders:
        from encoders import FAMILIES
    else:
        from decoders import FAMILIES
    return {family.name: family for family in FAMILIES}


def drawn_for(family: Family, case: Case) -> tuple[dict, str]:
    """Values of the fields, and the form of the folder."""
    if case.change:
        fixed = dict(case.change)
        return {**draw.with_usual(family.fields, fixed), **fixed}, "today"
    form = "published" if random.Random(f"form {case.family} {case.seed}").random() < 0.3 else "today"
    return draw.draw(family.fields, f"{case.family} {case.seed}"), form


def changes(family: Family) -> list[dict]:
    """Fields with their other values: those of the family's table, and those that the class has besides."""
    import reference

    found = list(draw.changes(family.fields))
    if not isinstance(family, Family):  # of images: all are in its table
        return found
    config = reference.configuration(family, draw.with_usual(family.fields))
    config = getattr(config, family.part) if family.part else config
    known = {key.split(".")[0] for key in family.fields}
    for key, value in config.to_dict().items():
        if key not in known and not key.startswith("_"):
            found += [{key: other} for other in draw.other_values(key, value)]
    return found


def run(options: argparse.Namespace, case: Case) -> tuple[Case, object]:
    import case as cases

    family = families(options)[case.family]
    tools = cases.Tools(options.program, Path(options.work), options.llama_cpp, options.tokenizer_model, bool(options.keep))
    values, form = drawn_for(family, case)
    if options.images:
        import pictures

        outcome = pictures.run(tools, family, values, case.seed)
    else:
        outcome = cases.run(tools, family, values, options.form or form, case.seed)
    if not options.images:
        outcome.detail = f"{outcome.detail} [{options.form or form}]".strip()
    if outcome.verdict in cases.FAILING and not case.change:
        others = draw.unusual(family.fields, values)
        outcome.detail += "".join(f" {key}={said(value)}" for key, value in others.items())
    if case.change and outcome.rows is not None:
        outcome.detail = f"{outcome.detail} {effect(tools, family, case, outcome)}".strip()
    outcome.rows = None
    return case, outcome


def effect(tools, family: Family, case: Case, outcome) -> str:
    """Whether the change has an effect on the reference, of the same weights where shapes are the same."""
    import case as cases
    import reference

    usual = draw.with_usual(family.fields)
    model = reference.build(family, usual, case.seed)
    if family.encoder or any("vocab_size" in key for key, _ in case.change):
        return ""
    rows = reference.logits(model, outcome.tokens)
    changed = rows.shape != outcome.rows.shape or abs(rows - outcome.rows).max() > cases.NOTHING
    return "" if changed else "(changes nothing)"


def repeat(options: argparse.Namespace, case: Case) -> str:
    """The command that runs one case again."""
    more = [f"--families {case.family}"]
    more += [f"--field {case.change[-1][0]}"] if case.change else [f"--seeds {case.seed}"]
    more += [f"--{name}" for name in ("encoders", "images") if getattr(options, name)]
    more += [f"--llama-cpp {options.llama_cpp}"] if options.llama_cpp else []
    more += ["--tokenizer-model"] if options.tokenizer_model else []
    more += [f"--form {options.form}"] if options.form else []
    return f"python tools/golden/random/check.py --program {options.program} {' '.join(more)}"


def table(outcomes: list[tuple[Case, object]]) -> str:
    """Markdown: families, and their numbers of cases by verdict."""
    counts: dict[str, Counter] = {}
    for case, outcome in outcomes:
        counts.setdefault(case.family, Counter())[outcome.verdict] += 1
    rows = ["| family | right | refused | differ | panic | no reference |", "|---|---|---|---|---|---|"]
    total = Counter()
    for name, of in [*counts.items(), ("all", total)]:
        known = [of["right"], of["refused"], of["DIFFERS"], of["PANIC"]]
        rows.append(f"| {name} | {' | '.join(str(n) for n in (*known, sum(of.values()) - sum(known)))} |")
        total.update(of)
    return "\n".join(rows) + "\n"


def report(options: argparse.Namespace, outcomes: Iterable[tuple[Case, object]]) -> int:
    """Prints each case as it ends, failing ones again at the end; the exit status."""
    from case import FAILING, VERDICTS, line

    all_of_them = []
    for case, outcome in outcomes:
        all_of_them.append((case, outcome))
        print(line(case.name, outcome), flush=True)
    failing = [(case, outcome) for case, outcome in all_of_them if outcome.verdict in FAILING]
    if failing:
        print("\nfailing:")
    for case, outcome in failing:
        print(f"{line(case.name, outcome)}\n    {repeat(options, case)}")
    counts = Counter(outcome.verdict for _, outcome in all_of_them)
    print(f"\n{len(all_of_them)} cases:", ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v]))
    if options.table:
        Path(options.table).write_text(table(all_of_them))
    return 1 if failing else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=__doc__.split("\n", 2)[2])
    add = parser.add_argument
    add("--program", default=str(ROOT / "target" / "release" / "arclight"), help="arclight to test")
    add("--families", help="these alone, as in gemma2,llama")
    add("--seeds", type=seeds, default=seeds("0..20"), help="0..20 for 0 to 19, or 3, or 1,5 [default: 0..20]")
    add("--field", nargs="?", const="", metavar="NAME", help="change each field of the usual configuration alone, or this one")
    add("--form", choices=("today", "published"), help="of folders [default: published for three of ten seeds]")
    add("--tokenizer-model", action="store_true", help="write tokenizer.model wherever the family has one")
    add("--encoders", action="store_true", help="encoders by their vectors, not decoders")
    add("--images", action="store_true", help="models that read images, with their processors' limits")
    add("--llama-cpp", metavar="CONVERTER", help="convert with this convert_hf_to_gguf.py of llama.cpp")
    add("--jobs", type=int, default=1, help="cases at once [default: 1]")
    add("--table", metavar="FILE", help="write a table by family in Markdown")
    add("--keep", metavar="FOLDER", help="leave the cases' folders and files here")
    add("--list", action="store_true", help="name the families")
    options = parser.parse_args()
    known = families(options)
    options.families = options.families.split(",") if options.families else list(known)
    if unknown := set(options.families) - set(known):
        parser.error(f"no family is called {', '.join(sorted(unknown))}; --list names them")
    return options


def main() -> int:
    options = parsed()
    known = families(options)
    if options.list:
        print("\n".join(known))
        return 0
    if options.field is None:
        cases = [Case(name, seed) for name in options.families for seed in options.seeds]
    else:
        cases = [Case(name, 0, tuple(change.items())) for name in options.families for change in changes(known[name])
                 if not options.field or options.field in change]
    with tempfile.TemporaryDirectory(prefix="random-") as scratch:
        options.work = options.keep or scratch
        if options.jobs > 1:
            with ProcessPoolExecutor(options.jobs) as pool:
                return report(options, pool.map(run, [options] * len(cases), cases))
        return report(options, (run(options, case) for case in cases))


if __name__ == "__main__":
    sys.exit(main())
