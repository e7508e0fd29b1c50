"""Figures 6 and 7 of the Sandwich paper: products of a layer's matrices beside other libraries, and beside other
searches that have the same micro-kernels."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

import peers
from points import OURS, PEER, PUBLISHED, Figure, Point, of_kind
from session import Session

SOURCE = "Sandwich"
# Hidden width and that of the feed-forward network: those of Llama 3.2 1B, of the paper's models.
HIDDEN, FFN = 2048, 8192
TOKENS, QUICK_TOKENS = (1, 8, 32, 128, 512), (1, 32)
TYPES = ("bf16", "f32", "q8_0")
PACKAGES = ["onednn-cpu-gomp==2023.2.*", "mkl==2026.*", "numpy==2.*"]
FILES = {"onednn": "lib/libdnnl.so.3", "mkl": "lib/libmkl_rt.so.*",
         "openblas": "lib/python*/site-packages/numpy.libs/libscipy_openblas*"}
SEARCHES = {"default": "arclight, no search", "sandwich": "arclight, tuned", "roller": "like Roller",
            "model": "by a model alone"}
SPEED, GAIN, SEARCHED = "G multiply-accumulates/s, {}", "speed over no search", "seconds of searching a matrix"


def lines(text: str) -> list[dict]:
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    # A schedule that cannot be run takes for ever, which JSON has no number for.
    return [row for row in rows if "error" in row or row["seconds"]]


def rate(row: dict) -> dict:
    """A point's value and range: billions of multiply-accumulates a second."""
    work = row["rows"] * row["cols"] * row["tokens"] / 1e9
    return {"value": work / row["seconds"], "low": work / row["high"], "high": work / row["low"]}


def ours(session: Session, of: str) -> tuple[list[dict], str, dict]:
    """The products of our four ways."""
    if f"products {of}" not in session.kept:
        quick = session.sizes.repetitions == 1
        hidden, ffn = (512, 1024) if quick else (HIDDEN, FFN)
        tokens = ",".join(map(str, QUICK_TOKENS if quick else TOKENS))
        words = ["type", of, "hidden", hidden, "ffn", ffn, "tokens", tokens, "threads", session.cluster.cores[0],
                 "rounds", 3 if quick else 7, "seconds", 2 if quick else 12]
        answer = session.run(["cargo", "bench", "--quiet", "--manifest-path", str(peers.ROOT / "Cargo.toml"), "-p",
                              "arclight-tune", "--bench", "products", "--", *map(str, words)], timeout=1800)
        session.kept[f"products {of}"] = lines(answer.stdout), answer.error, answer.noise()
    return session.kept[f"products {of}"]


def libraries(session: Session) -> tuple[Path, dict[str, Path]]:
    """Python with the packages, and the libraries that they carry."""
    if "libraries" not in session.kept:
        python = peers.environment(session.work / "libraries", PACKAGES)
        found = {name: next(python.parent.parent.glob(pattern), None) for name, pattern in FILES.items()}
        session.left_out += [f"{name}: its package has no {FILES[name]}" for name, file in found.items() if not file]
        session.kept["libraries"] = python, {name: file for name, file in found.items() if file}
    return session.kept["libraries"]


def theirs(session: Session, of: str, rows: list[dict]) -> Iterator[tuple[dict, dict]]:
    """The same products by the libraries, with the noise of each."""
    shapes = ",".join(dict.fromkeys(f"{row['rows']}x{row['cols']}" for row in rows))
    tokens = ",".join(dict.fromkeys(str(row["tokens"]) for row in rows))
    threads = rows[0]["threads"]
    python, files = libraries(session)
    for library, file in files.items():
        answer = session.run(["env", f"OMP_NUM_THREADS={threads}", str(python),
                              str(Path(__file__).with_name("libraries.py")), library, str(file), of, str(threads),
                              shapes, tokens, "5"])
        if answer.error:
            session.left_out.append(f"{library}, {of}: {answer.error}")
        for row in lines(answer.stdout):
            if "error" in row:
                session.left_out.append(f"{library}, {of}: {row['error']}")
            else:
                yield row, answer.noise()


def products(session: Session) -> Iterator[Point]:
    for of in TYPES:
        if session.late(of):
            continue
        own, error, noise = ours(session, of)
        if not own:
            session.left_out.append(f"{of}: {error}")
            continue
        names = {(row["rows"], row["cols"]): row["matrix"] for row in own}
        for row in own:
            if row["way"] in ("default", "sandwich"):
                yield Point(SPEED.format(f"{of}, {row['matrix']}"), SEARCHES[row["way"]], OURS, str(row["tokens"]),
                            unit="G/s", **rate(row), **noise, threads=row["threads"])
        for row, disturbed in theirs(session, of, own):
            matrix = names[row["rows"], row["cols"]]
            yield Point(SPEED.format(f"{of}, {matrix}"), row["library"], PEER, str(row["tokens"]), unit="G/s",
                        **rate(row), **disturbed, threads=row["threads"])


def over(points: list[Point], series: str, base: str) -> float | None:
    """The mean of a series over another, product by product."""
    times: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for point in points:
        if point.value:
            times[point.panel, point.x][point.series] = point.value
    both = [of[series] / of[base] for of in times.values() if series in of and base in of]
    return geometric_mean(both) if both else None


def product_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    published = [f"{p.x}: {p.value:g}" for p in points if p.kind == PUBLISHED and p.series == "Sandwich"]
    own = [p for p in points if p.kind != PUBLISHED]
    found = []
    for of in TYPES:
        some = [p for p in own if p.panel.startswith(SPEED.format(of))]
        ratios = [(library, over(some, SEARCHES["sandwich"], library)) for library in FILES]
        found += [f"{of}: {ratio:.2f} times {library}" for library, ratio in ratios if ratio]
    yield "products over MKL (XNNPACK on Arm), on average: " + ", ".join(published), "; ".join(found) or "not measured"


def searches(session: Session) -> Iterator[Point]:
    for of in TYPES[:1]:
        own, error, noise = ours(session, of)
        if not own:
            session.left_out.append(f"{of}: {error}")
            continue
        best: dict[tuple[str, int], float] = {}
        for row in own:
            if row["way"] == "default":
                best[row["matrix"], row["tokens"]] = row["seconds"]
        for row in (row for row in own if row["way"] != "default"):
            product = f"{row['matrix']}, {row['tokens']}"
            base = best[row["matrix"], row["tokens"]]
            yield Point(GAIN, SEARCHES[row["way"]], OURS, product, base / row["seconds"], "x",
                        base / row["high"], base / row["low"], **noise)
        seen = set()
        for row in own:
            if (key := (row["matrix"], row["way"])) not in seen and row["way"] != "default":
                seen.add(key)
                yield Point(SEARCHED, SEARCHES[row["way"]], OURS, row["matrix"], row["search_seconds"], "s",
                            note=f"{row['products_timed']} products timed"
                                 + ("" if row["complete"] else "; it ended with its time"))


def search_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    speed = [p for p in of_kind(points, OURS) if p.panel == GAIN]
    spent = [p for p in of_kind(points, OURS) if p.panel == SEARCHED]

    def words(name: str) -> str:
        ratios = [p.value for p in speed if p.series == SEARCHES[name] and p.value]
        seconds = sum(p.value for p in spent if p.series == SEARCHES[name] and p.value)
        return f"{SEARCHES[name]}: {geometric_mean(ratios):.2f} times no search, {seconds:.1f} s" if ratios else ""
    found = "; ".join(filter(None, map(words, ("sandwich", "roller", "model"))))
    yield "faster to tune than Roller by its quick start and reuse", found or "not measured"
    yield "searches by a cost model are extremely fast and give slower products", found or "not measured"


FIGURES = [
    Figure("products", SOURCE, "figure 6", "Products of a layer beside other libraries", "lines", "tokens",
           "G multiply-accumulates/s",
           ("1.29, 1.33, 2.26 and 1.79 times MKL (x86) and XNNPACK (Arm) on average, by machine.",),
           "Llama 3.2 1B's widths. oneDNN stands for OpenVINO, whose products are its; its weights are laid out "
           "beforehand, as ours are. Weights come from memory. Ours scale blocks of Q8_0, a library's bytes have no "
           "scales. Ours are timed by the thread that works longest, libraries by the clock; one after the other and not "
           "in turns, so that with few tokens a memory that others use, too, may have been another one.", 0.045, products,
           product_verdicts, ("sandwich-figure-6.csv",), log=True),
    Figure("searches", SOURCE, "figure 7", "Searches with the same micro-kernels: result and time", "bars", "", "",
           ("Sandwich tunes in less than 90 % of TVM's time and is faster to tune than Roller; searches by a cost "
            "model are extremely fast and give slower products.",),
           "TVM generates its kernels and is not among them. Roller's and the models' policies are translated, as in "
           "the paper (crates/tune/benches/products/rivals.rs). Ours makes a table of all counts of tokens, of which these "
           "are five; the others search these five.", 0.005, searches, search_verdicts),
]
