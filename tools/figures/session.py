"""A run: what is measured with, for how long, and what every command said."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import measure
from machines import Cluster
from measure import Load
from points import OURS, PEER, Point


class Skip(Exception):
    """A figure cannot be shown here; says why."""


def plain(command: list[str]) -> str:
    """A command without paths of this machine."""
    return " ".join(Path(w).name if w.startswith("/") else w for w in command)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""
    tokens: int             # that are decoded for a point
    repetitions: int
    counts: int             # numbers of threads on a node
    rounds: int             # of waits
    requests: int           # one by one, at most
    arrivals: int           # of each rate, at most
    prompts: tuple[int, int]    # ArcLight's two lengths
    answer: int             # tokens of an answer at most, when serving
    tune_seconds: int       # of one search, at most
    ablation_model: str     # what the ablation measures; the run's model, if there is none
    decoded: int            # tokens of ArcLight's figures


FULL = Sizes(48, 3, 8, 9, 90, 60, (15, 300), 128, 200, "qwen3-0.6b:q4_0", 256)
QUICK = Sizes(8, 1, 2, 2, 6, 6, (15, 40), 24, 30, "", 8)


@dataclass(frozen=True)
class Answer:
    """What a command gave."""
    stdout: str
    stderr: str
    load: Load | None
    error: str

    def noise(self) -> dict:
        if self.load is None:
            return {}
        return {"foreign_pct": self.load.foreign, "steal_pct": self.load.steal,
                "disturbed": "yes" if self.load.disturbed else ""}


@dataclass
class Session:
    arclight: Path
    llama: Path | None      # folder of llama.cpp's programs
    model: Path
    serving_model: Path
    plan_model: str         # as `plan` takes it
    cluster: Cluster
    sizes: Sizes
    work: Path
    minutes: float
    kv_type: str = "q4_0"   # ArcLight's commands have -ctk q4_0 -ctv q4_0
    slo: tuple[float, float] = (2200.0, 70.0)
    slo_batch: tuple[float, float] = (2000.0, 280.0)
    kept: dict = field(default_factory=dict)        # results that several figures share
    commands: list[str] = field(default_factory=list)   # of the figure at hand
    left_out: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    shared: float = 0.0     # of the time, by the figures that have begun
    deadline: float = 0.0
    server: int | None = None       # the process that commands ask

    def begin(self, share: float) -> None:
        """A figure begins, which has this share of the time and what those before it have left."""
        self.commands, self.left_out = [], []
        self.shared += share
        self.until(share)
        self.deadline = max(self.deadline, self.started + 60 * self.minutes * self.shared)

    def until(self, share: float) -> None:
        """The figure has this share of the time from now on."""
        self.deadline = time.monotonic() + 60 * self.minutes * share

    def late(self, what: str) -> bool:
        """Whether the figure's time is over; then this is left out, and the page says so."""
        if time.monotonic() < self.deadline:
            return False
        self.left_out.append(f"{what}: its time was over")
        return True

    def environment(self) -> None:
        """Profiles that a user has tuned do not count, and no search begins by itself."""
        os.environ["XDG_CACHE_HOME"] = str(self.work / "cache")

    def run(self, command: list[str], timeout: float = 900) -> Answer:
        self.commands.append(plain(command))
        print(f"  {self.commands[-1]}", file=sys.stderr)
        ran = measure.run(command, [], self.work, timeout, self.server)
        if ran.error:
            print(f"    {ran.error}", file=sys.stderr)
        return Answer(ran.stdout, ran.stderr, ran.load, ran.error or "")

    def ours(self, *words: object, timeout: float = 900) -> Answer:
        return self.run([str(self.arclight), *map(str, words)], timeout)

    def json(self, *words: object, timeout: float = 900) -> tuple[dict | None, Answer]:
        """The JSON of one of our commands; None where it failed."""
        answer = self.ours(*words, "-o", "json", timeout=timeout)
        if answer.error:
            return None, answer
        return json.loads(answer.stdout), answer

    def bench(self, *words: object, kv_type: str = "") -> tuple[list[dict], Answer]:
        """The results of `arclight bench` of the model, with the default cores and no profile."""
        found, answer = self.json("bench", self.model, "--untuned", "-r", self.sizes.repetitions,
                                  "--kv-type", kv_type or self.kv_type, *words)
        return (found["results"] if found else []), answer

    def peer_bench(self, *words: object) -> tuple[list[dict], Answer]:
        """The results of llama-bench of the model, with keys and values as ours."""
        if self.llama is None:
            return [], Answer("", "", None, "no llama.cpp")
        answer = self.run([str(self.llama / "llama-bench"), "-m", str(self.model), "-r",
                           str(self.sizes.repetitions), "-ctk", self.kv_type, "-ctv", self.kv_type,
                           "-fa", "on", "-o", "json", *map(str, words)])
        if answer.error:
            return [], answer
        start, end = answer.stdout.find("["), answer.stdout.rfind("]")
        return json.loads(answer.stdout[start:end + 1]), answer

    def plan(self, *words: object) -> dict | None:
        found, _ = self.json("plan", "--kv-type", self.kv_type, *words)
        return found


def our_point(panel: str, series: str, row: dict, answer: Answer, **more) -> Point:
    """A result of `arclight bench` over its threads, unless `x` says otherwise."""
    samples = row["samples"]
    values = {"x": str(row["threads"]), "nodes": row["nodes"], "threads": row["threads"],
              "low": min(samples), "high": max(samples), **answer.noise(), **more}
    return Point(panel, series, OURS, value=row["mean"], **values)


def peer_point(panel: str, series: str, row: dict, answer: Answer, **more) -> Point:
    """A result of llama-bench over its threads."""
    samples = row.get("samples_ts") or [row["avg_ts"]]
    values = {"x": str(row["n_threads"]), "threads": row["n_threads"], "low": min(samples),
              "high": max(samples), **answer.noise(), **more}
    return Point(panel, series, PEER, value=float(row["avg_ts"]), **values)


def failed(panel: str, series: str, kind: str, x: object, answer: Answer, **more) -> Point:
    return Point(panel, series, kind, str(x), None, error=answer.error or "no figure", **more)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def serving(session: Session, command: list[str], url: str, timeout: float = 300) -> Iterator[None]:
    """A server while it answers."""
    session.commands.append(f"{plain(command)} &")
    print(f"  {session.commands[-1]}", file=sys.stderr)
    log = session.work / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            end = time.monotonic() + timeout
            while not answers(f"{url}/health"):
                if server.poll() is not None:
                    said = log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise Skip(f"the server ended: {' '.join(said)}")
                if time.monotonic() > end:
                    raise Skip(f"the server was not ready after {timeout:.0f} s")
                time.sleep(0.1)
            session.server = server.pid
            yield
        finally:
            session.server = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=20)
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False
