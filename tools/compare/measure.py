"""Runs one measured command and says how quiet the machine was meanwhile."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

WATCH = Path(__file__).with_name("watch.py")

# More of the machine than this in other hands, and a figure is marked.
DISTURBED_PERCENT = 5.0

# Seconds in which a command that is told to end may do so by itself.
GRACE = 10.0


@dataclass(frozen=True)
class Load:
    """What others had of the machine, in percent of all its processors' time."""
    foreign: float  # other programs here
    steal: float    # other machines of the same host

    @property
    def disturbed(self) -> bool:
        return max(self.foreign, self.steal) > DISTURBED_PERCENT

    @staticmethod
    def of(report: dict) -> "Load":
        whole = report["seconds"] * report["cpus"]
        # Ticks against exact times: a short, quiet run can come out a little below zero.
        foreign = max(0.0, report["busy"] - report["own"])
        return Load(100 * foreign / whole, 100 * report["steal"] / whole)


@dataclass(frozen=True)
class Run:
    stdout: str
    stderr: str
    load: Load | None   # None where the command did not come to its end
    error: str | None   # what went wrong, in a line


def run(command: list[str], wrap: list[str], work: Path, timeout: float, server: int | None = None) -> Run:
    """Runs a command; what the process `server` works meanwhile counts as the command's."""
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        report = Path(scratch) / "load.json"
        served = ["--with", str(server)] if server else []
        whole = [*wrap, sys.executable, str(WATCH), str(report), *served, "--", *command]
        process = subprocess.Popen(whole, cwd=scratch, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException as stopped:
            stop(process)
            if isinstance(stopped, subprocess.TimeoutExpired):
                return Run("", "", None, f"stopped after {timeout:.0f} s")
            raise
        load = Load.of(json.loads(report.read_text())) if report.exists() else None
        if process.returncode == 0:
            return Run(stdout, stderr, load, None)
        return Run(stdout, stderr, load, reason(process.returncode, stderr, stdout))


def stop(process: subprocess.Popen) -> None:
    """Ends a whole session: the command is a grandchild, and would disturb what follows. A
    wrapper may have something to put in order, so it is asked first."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE)
            return


def reason(code: int, stderr: str, stdout: str) -> str:
    """Why a command failed, in a line that names no path of this machine."""
    if code > 128 and code - 128 in {s.value for s in signal.Signals}:
        how = f"killed by {signal.Signals(code - 128).name}"
    else:
        how = f"exit code {code}"
    lines = [line.strip() for line in (stdout + "\n" + stderr).splitlines() if line.strip()]
    named = [line for line in lines if line.lower().startswith("error")]
    last = (named or lines or [""])[-1]
    words = (Path(w).name if w.strip("'\"(").startswith("/") else w for w in last.split())
    text = " ".join(words)[:200]
    return f"{how}: {text}" if text else how
