"""Figures of the Sandwich paper: objectives, goodput and latencies of a server; ablation and tuning times."""

import json
import re
from collections.abc import Iterator
from statistics import mean

from points import OURS, PEER, PREDICTED, PUBLISHED, Figure, Point, of_kind
from session import Answer, Session, failed, free_port, our_point, serving

SOURCE = "Sandwich"
SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def servers(session: Session) -> Iterator[tuple[str, str, list[str], str]]:
    """Name, kind, command and address of what is measured."""
    port = free_port()
    yield "arclight", OURS, [str(session.arclight), "serve", str(session.serving_model), "--untuned", "--port",
                             str(port), "--no-page"], f"http://127.0.0.1:{port}"
    peer = session.llama / "llama-server" if session.llama else None
    if peer is None or not peer.exists():
        session.left_out.append("llama.cpp: there is no llama-server beside llama-bench")
        return
    port = free_port()
    yield "llama.cpp", PEER, [str(peer), "-m", str(session.serving_model), "--port", str(port), "-np", "8", "-c",
                              "16384", "--no-webui"], f"http://127.0.0.1:{port}"


def load(session: Session, url: str, slo: tuple[float, float], *words: object) -> tuple[list[dict], Answer]:
    """The levels of `bench-serve`, with lengths of ShareGPT as far as the run's time allows."""
    most = session.sizes.answer
    found, answer = session.json("bench-serve", url, "--trace", "sharegpt-short", "--max-output-len", most,
                                 "--max-input-len", 8 * most, "--slo-ttft", slo[0], "--slo-tpot", slo[1], "--slo-scale",
                                 ",".join(map(str, SCALES)), *words, timeout=1800)
    return (found["levels"] if found else []), answer


def one_by_one(session: Session) -> dict[str, tuple[str, dict | None, Answer]]:
    """Requests one by one at every server: measured once, for figures 8, 9, 10 and 12."""
    if "serving" not in session.kept:
        found = {}
        for name, kind, command, url in servers(session):
            with serving(session, command, url):
                # A few tell how many the time is enough for; two servers share it.
                levels, answer = load(session, url, session.slo, "-n", "3", "--seed", "7")
                if levels:
                    seconds = levels[0]["figures"]["seconds"] / 3
                    wanted = int(60 * session.minutes * 0.03 / max(seconds, 1e-3))
                    levels, answer = load(session, url, session.slo, "-n",
                                          max(5, min(session.sizes.requests, wanted)))
            found[name] = (kind, levels[0] if levels else None, answer)
        session.kept["serving"] = found
    return session.kept["serving"]


def slo(session: Session) -> Iterator[Point]:
    bounds = f"TTFT {session.slo[0]:g} ms, TPOT {session.slo[1]:g} ms"
    panel = f"requests one by one that meet {bounds}"
    for name, (kind, level, answer) in one_by_one(session).items():
        if level is None:
            yield failed(panel, name, kind, 1, answer, unit="%")
            continue
        for share in level["attainment"]:
            yield Point(panel, name, kind, f"{share['scale']:g}", 100 * share["both"], "%", **answer.noise())
        yield Point("strictest scale for 90 %", name, kind, "scale", level["strictest_scale"], "of the bounds",
                    note=f"{level['figures']['completed']} requests")
    yield Point(panel, "goal", PUBLISHED, f"{SCALES[0]:g}", 90, "%")
    yield Point(panel, "goal", PUBLISHED, f"{SCALES[-1]:g}", 90, "%")


def slo_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    scales = [f"{p.series}: {p.value:.3g}" for p in points if "strictest" in p.panel and p.value is not None]
    yield "90 % of the requests are met at stricter bounds than OpenVINO's and vLLM's", \
        "strictest scale for 90 %: " + (", ".join(scales) or "none reaches it")


def latency(session: Session) -> Iterator[Point]:
    for name, (kind, level, answer) in one_by_one(session).items():
        if level is None:
            yield failed("TTFT", name, kind, "mean", answer, unit="ms")
            continue
        figures = level["figures"]
        for panel, value, unit in (("TTFT (figure 9)", figures["ttft_ms"]["mean"], "ms"),
                                   ("TPOT", figures["tpot_ms"]["mean"], "ms"),
                                   ("throughput (figure 10)", figures["output_tokens_per_second"], "tokens/s")):
            yield Point(panel, name, kind, "mean", value, unit, **answer.noise())


def latency_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    rates = {p.series: p.value for p in points if p.panel.startswith("throughput") and p.value is not None}
    words = ", ".join(f"{name} {rate:.1f} tokens/s" for name, rate in rates.items()) or "not measured"
    if len(rates) == 2:
        words += f": {rates['arclight'] / rates['llama.cpp']:.2f} times"
    yield "throughput 2.01 times that of the best other on average, TTFT alike", words


def cdf(session: Session) -> Iterator[Point]:
    for name, (kind, level, answer) in one_by_one(session).items():
        times = sorted(r["e2e_ms"] / 1000 for r in level["requests"] if r["outcome"] == "done") if level else []
        if not times:
            yield failed("latency of a request", name, kind, 0, answer, unit="%")
        for i, seconds in enumerate(times, 1):
            yield Point("latency of a request", name, kind, f"{seconds:.4g}", 100 * i / len(times), "%")


def cdf_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    def median(kind: str) -> str:
        found = [float(p.x) for p in of_kind(points, kind) if p.value >= 50]
        return f"{min(found):.2f} s" if found else "not measured"
    yield "Sandwich's distribution lies left of vLLM's and OpenVINO's", \
        f"median: arclight {median(OURS)}, llama.cpp {median(PEER)}"


def goodput(session: Session) -> Iterator[Point]:
    """Rates from half of what one request at a time makes, doubling: the open loop finds where it breaks."""
    alone = one_by_one(session)
    for name, kind, command, url in servers(session):
        level = alone.get(name, ("", None, None))[1]
        if level is None:
            continue
        base = 1000 / level["figures"]["e2e_ms"]["mean"]
        session.until(0.05)     # of each server
        with serving(session, command, url):
            for times in (0.5, 1, 2, 4, 8):
                rate = float(f"{base * times:.2g}")
                # So many that the rate's share of the time is enough, arrivals taking 1/rate each.
                wanted = int(60 * session.minutes * 0.01 * rate)
                count = max(6, min(session.sizes.arrivals, wanted))
                if session.late(f"{name}, {rate:g} requests/s"):
                    break
                levels, answer = load(session, url, session.slo_batch, "--rate", rate, "-n", count, "--seed",
                                      int(10 * times))
                if not levels:
                    yield failed("requests that meet both bounds", name, kind, rate, answer, unit="%")
                    break
                figures = levels[0]["figures"]
                both = next(a["both"] for a in levels[0]["attainment"] if a["scale"] == 1)
                for panel, value, unit in (("requests that meet both bounds", 100 * both, "%"),
                                           ("90th percentile of TTFT", figures["ttft_ms"]["p90"], "ms"),
                                           ("90th percentile of TPOT", figures["tpot_ms"]["p90"], "ms")):
                    yield Point(panel, name, kind, f"{rate:g}", value, unit, **answer.noise())
                if both < 0.5:
                    break
    for panel, value, unit in (("requests that meet both bounds", 90, "%"),
                               ("90th percentile of TTFT", session.slo_batch[0], "ms"),
                               ("90th percentile of TPOT", session.slo_batch[1], "ms")):
        places = sorted({float(p.x) for p in session.kept.get("goodput", [])})
        for x in (places[0], places[-1]) if places else ():
            yield Point(panel, "goal", PUBLISHED, f"{x:g}", value, unit)


def goodput_points(session: Session) -> Iterator[Point]:
    # The goal is drawn as far as rates go.
    seen = session.kept.setdefault("goodput", [])
    for point in goodput(session):
        if point.kind != PUBLISHED and point.value is not None:
            seen.append(point)
        yield point


def goodput_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    rates: dict[str, list[tuple[float, bool]]] = {}
    for p in points:
        if p.panel.startswith("requests that") and p.kind in (OURS, PEER) and p.value is not None:
            rates.setdefault(p.series, []).append((float(p.x), p.value >= 90))
    found = []
    for name, tried in rates.items():
        met = max((rate for rate, good in tried if good), default=None)
        # Where the highest rate is met, the true one may be higher.
        at_least = "at least " if met == max(tried)[0] else ""
        found.append(f"{name} none of the rates" if met is None else f"{name} {at_least}{met:g}")
    words = ", ".join(found)
    yield "90 % of requests meet their bounds at 1.84 and 0.92 requests/s; vLLM's never", \
        f"requests/s with 90 %: {words or 'not measured'}"


def ablated(session: Session) -> tuple[list[dict], Answer]:
    """The rows of `tune --ablation`: measured once, for tables 1 to 3."""
    if "ablation" not in session.kept:
        # Ten searches for matrices and more, by the plans that there are for k of up to 20, share the time of the figure;
        # loads and the cores have the rest. With a model of 4B and
        # long prompts they took more than 20 minutes of two cores.
        seconds = max(1, int(60 * session.minutes * 0.004))
        trace = session.work / "ablation.jsonl"
        short = ({"prompt_tokens": 40 + 2 * n, "output_tokens": 40 + 8 * n} for n in range(24))
        trace.write_text("".join(json.dumps(request) + "\n" for request in short))
        model = ["--synth", session.sizes.ablation_model] if session.sizes.ablation_model else [session.model]
        found, answer = session.json("tune", *model, "--ablation", "--trace", trace, "--top-k", 20, "-r",
                                     max(5, session.sizes.repetitions), "--kv-type", session.kv_type, "--matrices", seconds, timeout=3600)
        session.kept["ablation"] = (found["rows"] if found else []), answer
    return session.kept["ablation"]


def tuned(session: Session, kind: str) -> tuple[dict | None, Answer]:
    """A search of this run: `quick`, `cores` or `whole`, which figures share."""
    key = f"tune {kind}"
    if key not in session.kept:
        options = {"quick": ["--quick"], "cores": ["--matrices", "0"], "whole": []}[kind]
        profile = session.work / f"tune-{kind}.toml"
        profile.unlink(missing_ok=True)
        seconds = min(session.sizes.tune_seconds, max(10, int(60 * session.minutes * 0.065)))
        # As Ctrl-C: a search that is stopped keeps what it has found.
        answer = session.run(["timeout", "--signal=INT", "--preserve-status", str(seconds),
                              str(session.arclight), "tune", str(session.model), "--profile-file", str(profile),
                              "--kv-type", session.kv_type, "-o", "json", *options], 4 * seconds)
        text = profile.read_text() if profile.exists() else ""
        seconds = re.search(r"^seconds = ([\d.]+)$", text, re.M)
        complete = re.search(r"^complete = (true|false)$", text, re.M)
        found = {"profile": profile, "seconds": float(seconds[1]), "complete": complete[1] == "true"} \
            if seconds and complete else None
        session.kept[key] = found, answer
    return session.kept[key]


def ablation(session: Session) -> Iterator[Point]:
    rows, answer = ablated(session)
    for batch in (1, 8):
        panel = f"measured: batch of {batch}"
        if not rows:
            yield failed(panel, "arclight", OURS, "tune --ablation", answer)
        for row in rows:
            if row["table"] == 1:
                yield Point(panel, "arclight", OURS, row["way"], row[f"batch_{batch}"], **answer.noise(),
                            note="" if row["complete"] else "the search ended with its time")


def ablation_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    for batch, said in ((1, "4.09, 13.46, 14.90, 17.54, split-K 17.09"), (8, "2.35, 3.66, 5.40, 8.16, split-K 8.78")):
        values = [f"{p.value:.1f}" for p in of_kind(points, OURS, panel=f"batch of {batch}")]
        yield f"batch of {batch}: {said} tokens/s", ", ".join(values) + " tokens/s" if values else "not measured"


SEARCHES = "measured: tokens/s by seconds of tuning"


def tuning(session: Session) -> Iterator[Point]:
    for kind, name in (("quick", "quick"), ("cores", "cores alone"), ("whole", "whole search")):
        if session.late(name):
            continue
        found, answer = tuned(session, kind)
        if not found:
            yield failed(SEARCHES, name, OURS, 0, answer)
            continue
        bench, after = session.json("bench", session.model, "-r", session.sizes.repetitions, "--kv-type",
                                    session.kv_type, "-p", "0", "-n", session.sizes.tokens, "-d", "64",
                                    "--profile-file", found["profile"])
        if bench:
            yield our_point(SEARCHES, name, bench["results"][0], after, x=f"{found['seconds']:.4g}",
                            note="" if found["complete"] else "stopped: its time was over")
        else:
            yield failed(SEARCHES, name, OURS, found["seconds"], after)
    # Measured already where the figure of the ablation is wanted.
    if "ablation" not in session.kept and session.late("by k and by window"):
        return
    rows, answer = ablated(session)
    # Of another model than the searches above.
    model = session.sizes.ablation_model.partition(":")[0] or "the same model"
    for panel, key, unit in ((f"measured: tokens/s, {model}", "batch_1", "tokens/s"),
                             (f"measured: seconds of tuning, {model}", "tuning_seconds", "s")):
        for row in rows:
            if row["table"] > 1:
                yield Point(panel, "arclight", OURS, row["way"], row[key], unit, **answer.noise(),
                            note="" if row["complete"] else "the search ended with its time")


def tuning_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    published = [p.value for p in of_kind(points, PUBLISHED, panel="seconds of tuning") if p.unit == "s"]
    cores = [p.value for p in points if p.kind == PUBLISHED and p.series == "cores"]
    kernels = [p.value for p in points if p.kind == PUBLISHED and p.series == "kernels"]
    ours = [f"{p.series} {float(p.x):.0f} s{' (stopped)' if p.note else ''}: {p.value:.1f} tokens/s"
            for p in of_kind(points, OURS, panel=SEARCHES)]
    if published:
        said = f"configurations take {min(cores):.0f} to {max(cores):.0f} s, {mean(cores):.0f} on average; kernels " \
            f"{min(kernels):.0f} to {max(kernels):.0f} s, {mean(kernels):.0f} on average"
        yield said, "; ".join(ours) or "not measured"


SEARCHED = ("xeon-8272cl", "epyc-7h12", "kunpeng-920-8")
SIZES = ("llama-160m", "sheared-llama-1.3b", "llama3.2-3b", "llama3-8b")
CROWDED = "cores:4 fill:2 crowd:0.2"


def configurations(session: Session) -> Iterator[Point]:
    """What the search finds on machines that are not at hand, by the model of time."""
    for planted in ("", CROWDED):
        panel = "simulated: decoding over the default's" + (", clusters of 4 crowded" if planted else "")
        for machine in SEARCHED:
            for size in SIZES:
                x = f"{machine}, {size.removeprefix('llama')}"
                words = ["--contention", planted] if planted else []
                found, answer = session.json("tune", "--machine", machine, "--synth", f"{size}:bf16", *words)
                if not found:
                    yield failed(panel, "remove", PREDICTED, x, answer, unit="x")
                    continue
                won = found["decoding_won"]
                for series, value in (("remove, as the machine shows", won["remove"]), ("group and remove", won["group"])):
                    yield Point(panel, series, PREDICTED, x, value, "x",
                                note=f"{found['steps_timed']} steps, {found['seconds']:.2g} s; they would have taken "
                                     f"{found['seconds_of_steps_there']:.3g} s there")


def configuration_verdicts(points: list[Point]) -> Iterator[tuple[str, str]]:
    for name, said in (("xeon-8272cl", "Xeon 8272: core reduction is used infrequently, grouping gains inconsistently"),
                       ("epyc-7h12", "EPYC: grouping and reduction are essential"),
                       ("kunpeng-920-8", "Kunpeng: grouping and reduction are essential")):
        own = [p for p in points if p.x.startswith(name) and p.value is not None]
        most = {series: max((p.value for p in own if p.series == series), default=None)
                for series in ("remove, as the machine shows", "group and remove")}
        yield said, ", ".join(f"{series}: up to {value:.2f} x" for series, value in most.items() if value) or "not found"


FIGURES = [
    Figure("slo", SOURCE, "figure 8", "Requests one by one that meet their objective, by its scale", "lines",
           "scale of both bounds", "% of requests",
           ("Bounds: TTFT 2200 ms and TPOT 70 ms for 1.3B, 8000 and 240 for 8B. The goal is 90 %.",
            "The curves are images; the text has no numbers of them."),
           "Lengths of ShareGPT's short first turns, with shorter answers at most; the model is named above.", 0.06,
           slo, slo_verdicts),
    Figure("latency", SOURCE, "figures 9 and 10", "TTFT and token throughput, one request at a time", "bars", "", "",
           ("2.01 times the throughput of the best vendor's or open solution on average, TTFT alike.",),
           "The same requests as figure 8.", 0.005, latency, latency_verdicts),
    Figure("cdf", SOURCE, "figure 12", "Distribution of latencies, one request at a time", "steps", "seconds",
           "% of requests", ("The distribution lies left of vLLM's and OpenVINO's.",),
           "The same requests as figure 8; another model than Llama 3 8B.", 0.005, cdf, cdf_verdicts),
    Figure("goodput", SOURCE, "figure 11", "Requests that arrive by chance: who meets the objective", "lines",
           "requests/s", "", ("TTFT 200 ms and TPOT 100 ms for 160M, 2000 and 280 for 1.3B, at the 90th percentile.",
                              "1.84 and 0.92 requests/s."),
           "Rates begin at half of what one request at a time makes, and double.", 0.08, goodput_points,
           goodput_verdicts),
    Figure("ablation", SOURCE, "table 1", "One technique after the other", "bars", "", "tokens/s",
           ("Communication, configuration and kernels each gain; split-K gains in batches.",),
           "Our steps differ: placement and waits by node in the place of communication. The model is Qwen3-0.6B in Q4_0, and "
           "requests are short: the ten searches would take the others' time (--quick: the run's model).", 0.07,
           ablation, ablation_verdicts, ("sandwich-table-1.csv",)),
    Figure("tuning", SOURCE, "tables 2 to 4", "What tuning takes and gives", "lines", "seconds of tuning", "tokens/s",
           ("More candidates or a wider window give more throughput, for more time.",
            "Configurations take 79 to 3280 s, kernels 2023 to 23115 s."),
           "The quick search, cores alone, the whole search; then k of one and two and the windows of the paper, "
           "with little time for each (tune --ablation of Qwen3-0.6B).", 0.09, tuning, tuning_verdicts,
           ("sandwich-table-2.csv", "sandwich-tuning-times.csv")),
    Figure("configurations", SOURCE, "figure 13", "Simulated: which configuration wins where", "bars", "", "times as fast",
           ("Xeon 8272: reduction infrequently, grouping inconsistently. AMD and Kunpeng: both are essential.",
            "The figure is an image; the text has no numbers of it."),
           "By the model of time on those machines, not measured. What cores share is assumed of EPYC alone; in the "
           "second panel clusters of four cores are planted, of which two fill what they share.", 0.01, configurations,
           configuration_verdicts),
]
