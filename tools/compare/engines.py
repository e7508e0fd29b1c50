"""The engines: how each is asked for a test, and how its answer is read.

A contestant is an engine with one choice of flags. An engine with several of them counts with
the one that is fastest in a test.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from workload import BATCH_PROMPT, BATCH_TOKENS, DEPTH_TOKENS, Test

ARCLIGHT, LLAMA, IK, OPENVINO = "arclight", "llama.cpp", "ik_llama.cpp", "openvino-genai"


# What engines call keys and values of so many bits each. Those of OpenVINO are what is fastest of its own.
KV_BITS = (8, 16)
GGML_KV = {8: "q8_0", 16: "f16"}
OPENVINO_KV = {8: "u8", 16: "bf16"}


class AnswerError(Exception):
    """An engine's output is not of the form that it is known for."""


@dataclass(frozen=True)
class Figure:
    """A speed in tokens per second; from Arclight also what the machine allowed."""
    tokens_per_second: float
    limit: float | None = None      # tokens per second
    read: float | None = None       # bytes per second
    int8: float | None = None       # multiply-accumulates per second
    bf16: float | None = None       # the same, where the processor has an instruction for them


class Contestant(Protocol):
    engine: str
    flags: str      # what distinguishes it from others of the same engine
    version: str

    def command(self, file: Path, tests: list[Test], threads: int) -> list[str]:
        """Takes all tests of one group."""

    def figures(self, stdout: str, tests: list[Test], stderr: str = "") -> dict[Test, Figure]:
        """Speeds of all tests, or AnswerError."""


def of_all(tests: list[Test], found: dict[Test, Figure]) -> dict[Test, Figure]:
    missing = [str(t) for t in tests if t not in found]
    if missing:
        raise AnswerError(f"no figure for {', '.join(missing)} in the output")
    return {t: found[t] for t in tests}


def sizes(tests: list[Test], kind: str) -> str:
    return ",".join(str(t.size) for t in tests if t.kind == kind) or "0"


@dataclass(frozen=True)
class Arclight:
    binary: Path
    version: str
    engine: str = ARCLIGHT
    kv_bits: int | None = None  # of keys and values; None: its own default

    @property
    def kv_flags(self) -> list[str]:
        return ["--kv-type", GGML_KV[self.kv_bits]] if self.kv_bits else []

    @property
    def flags(self) -> str:
        return " ".join(self.kv_flags)

    def command(self, file: Path, tests: list[Test], threads: int) -> list[str]:
        head = [str(self.binary), "bench", str(file)]
        tail = ["-r", "1", "-t", str(threads), "-o", "json", *self.kv_flags]
        match tests[0]:
            case Test("b", n):
                return [*head, "-p", "0", "-n", str(BATCH_TOKENS), "-d", str(BATCH_PROMPT),
                        "-b", str(n), *tail]
            case Test("d", n):
                return [*head, "-p", "0", "-n", str(DEPTH_TOKENS), "-d", str(n), *tail]
        return [*head, "-p", sizes(tests, "pp"), "-n", sizes(tests, "tg"), *tail]

    def figures(self, stdout: str, tests: list[Test], stderr: str = "") -> dict[Test, Figure]:
        try:
            found = {}
            for row in json.loads(stdout)["results"]:
                macs = row["macs_per_second"]
                figure = Figure(row["mean"], row["limit"], row["read_bytes_per_second"],
                                macs["int8"], macs.get("bf16"))
                key = row["kind"], row["tokens"], row["depth"], row["batch"]
                found[key] = figure
        except (ValueError, KeyError, TypeError) as e:
            raise AnswerError(f"not the JSON of arclight bench: {e!r}") from e
        keys = {
            "pp": lambda n: ("prompt", n, 0, 1),
            "tg": lambda n: ("decode", n, 0, 1),
            "b": lambda n: ("decode", BATCH_TOKENS, BATCH_PROMPT, n),
            "d": lambda n: ("decode", DEPTH_TOKENS, n, 1),
        }
        named = {t: keys[t.kind](t.size) for t in tests}
        return of_all(tests, {t: found[k] for t, k in named.items() if k in found})


@dataclass(frozen=True)
class LlamaBench:
    """llama-bench and llama-batched-bench, of llama.cpp or of a fork. The two tools of a fork
    may spell the same choice differently."""
    binaries: Path
    version: str
    engine: str = LLAMA
    bench_flags: list[str] = field(default_factory=list)
    batched_flags: list[str] = field(default_factory=list)
    kv_bits: int | None = None

    @property
    def kv_flags(self) -> list[str]:
        kind = GGML_KV.get(self.kv_bits)
        return ["-ctk", kind, "-ctv", kind] if kind else []

    @property
    def flags(self) -> str:
        return " ".join([*self.bench_flags, *self.kv_flags])

    def command(self, file: Path, tests: list[Test], threads: int) -> list[str]:
        threads = str(threads)
        bench = [str(self.binaries / "llama-bench"), "-m", str(file), "-r", "1", "-t", threads,
                 "-o", "json", *self.bench_flags, *self.kv_flags]
        match tests[0]:
            case Test("b", n):
                return [str(self.binaries / "llama-batched-bench"), "-m", str(file),
                        "-c", str(n * (BATCH_PROMPT + BATCH_TOKENS)), "-npp", str(BATCH_PROMPT),
                        "-ntg", str(BATCH_TOKENS), "-npl", str(n), "-t", threads, "-tb", threads,
                        *self.batched_flags, *self.kv_flags]
            case Test("d", n):
                if self.engine == IK:
                    # Its llama-bench has no -d, but times decoding after a prompt as -gp.
                    return [*bench, "-p", "0", "-n", "0", "-gp", f"{n},{DEPTH_TOKENS}"]
                return [*bench, "-p", "0", "-n", str(DEPTH_TOKENS), "-d", str(n)]
        return [*bench, "-p", sizes(tests, "pp"), "-n", sizes(tests, "tg")]

    def figures(self, stdout: str, tests: list[Test], stderr: str = "") -> dict[Test, Figure]:
        if tests[0].kind == "b":
            # A fork writes the table to stderr.
            return of_all(tests, batched_table(f"{stdout}\n{stderr}"))
        return of_all(tests, bench_json(stdout))


def bench_json(stdout: str) -> dict[Test, Figure]:
    """The JSON array of llama-bench; what a fork prints before and after it is passed over."""
    start, end = stdout.find("[\n"), stdout.rfind("]")
    try:
        rows = json.loads(stdout[start:end + 1])
        found = {}
        for row in rows:
            prompt, new, depth = row["n_prompt"], row["n_gen"], row.get("n_depth", 0)
            # A fork's -gp P,N has both: N tokens timed after P.
            depth = depth or (prompt if new else 0)
            kind = ("d", depth) if depth else ("tg", new) if new else ("pp", prompt)
            found[Test(*kind)] = Figure(float(row["avg_ts"]))
        return found
    except (ValueError, KeyError, TypeError) as e:
        raise AnswerError(f"not the JSON of llama-bench: {e!r}") from e


def batched_table(stdout: str) -> dict[Test, Figure]:
    """The table of llama-batched-bench, by its column titles: B is the number of sequences,
    S_TG the speed of decoding."""
    rows = [[c.strip() for c in line.strip().strip("|").split("|")]
            for line in stdout.splitlines() if line.lstrip().startswith("|")]
    head = next((r for r in rows if "S_TG t/s" in r and "B" in r), None)
    if head is None:
        raise AnswerError("no table with B and S_TG in the output of llama-batched-bench")
    batch, speed = head.index("B"), head.index("S_TG t/s")
    found = {}
    for row in rows:
        if len(row) == len(head) and re.fullmatch(r"\d+", row[batch]):
            try:
                found[Test("b", int(row[batch]))] = Figure(float(row[speed]))
            except ValueError as e:
                raise AnswerError(f"llama-batched-bench: {e}") from e
    return found


@dataclass(frozen=True)
class OpenVino:
    """Its Python package in an environment of its own; reads GGUF itself."""
    python: Path
    version: str
    backend: str    # PA: paged attention, with continuous batching; SDPA: the plain one
    engine: str = OPENVINO
    kv_bits: int | None = None

    @property
    def flags(self) -> str:
        return " ".join([self.backend, *filter(None, [OPENVINO_KV.get(self.kv_bits)])])

    def command(self, file: Path, tests: list[Test], threads: int) -> list[str]:
        script = Path(__file__).with_name("openvino_bench.py")
        return [str(self.python), str(script), str(file), str(threads), self.backend,
                OPENVINO_KV.get(self.kv_bits, "-"), *map(str, tests)]

    def figures(self, stdout: str, tests: list[Test], stderr: str = "") -> dict[Test, Figure]:
        # Libraries may print, too: ours is the last line.
        last = (stdout.strip().splitlines() or [""])[-1]
        try:
            found = {str(k): Figure(float(v)) for k, v in json.loads(last).items()}
        except (ValueError, AttributeError, TypeError) as e:
            raise AnswerError(f"not the JSON of openvino_bench.py: {e!r}") from e
        return of_all(tests, {t: found[str(t)] for t in tests if str(t) in found})
