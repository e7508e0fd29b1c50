"""The program under test: it converts a folder, and answers with log-probabilities or vectors."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60  # seconds for a step of a tiny model
CONTINUED, LIKELIEST = 12, 20  # tokens that are decoded, and entries of a position: the server's most
REFERENCE = Path(__file__).resolve().parents[3] / "tests" / "convert" / "reference.py"


class Refused(Exception):
    """The program says what it does not take."""


class Panicked(Exception):
    """The program ends in a way in which none should."""


@dataclass
class Answer:
    """What stands at each position from the second on: the token, its log-probability and those of the likeliest."""
    tokens: list[str]
    own: list[float]
    likeliest: list[dict[str, float]]


def judge(status: int, text: str) -> None:
    """Raises what a failed command means."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    panic = next((line for line in lines if "panicked at" in line), None)
    if panic or status < 0 or status == 101:
        raise Panicked(panic or f"ended by signal {-status}")
    if status:
        fault = next((line for line in reversed(lines) if line.startswith("error")), lines[-1] if lines else f"status {status}")
        raise Refused(fault.removeprefix("error: "))


def convert(program: str, folder: Path, out: Path, encoder: Path | None = None) -> None:
    """Makes the file, and that of an image encoder if it is given a name."""
    images = ["--mmproj", str(encoder)] if encoder else ["--no-mmproj"]
    made = subprocess.run([program, "convert", str(folder), "-o", str(out), "--type", "f32", *images, "-t", "1"],
                          capture_output=True, text=True, timeout=PATIENCE)
    judge(made.returncode, made.stderr)


def convert_by_llama_cpp(converter: str, folder: Path, out: Path, kind: str) -> None:
    """The same by llama.cpp's converter, in the folder of which `converter` is."""
    home = Path(converter)
    home = home if home.is_dir() else home.parent
    pre = {"bytes": "gpt-2", "glm": "gpt-2"}.get(kind, "default")
    made = subprocess.run([sys.executable, str(REFERENCE), str(home), str(folder), str(out), "f32", pre],
                          capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if made.returncode:
        lines = [line for line in made.stderr.splitlines() if line.strip()]
        raise Refused(f"llama.cpp's converter: {lines[-1] if lines else made.returncode}")


@contextmanager
def serving(program: str, model: Path, *options: str) -> Iterator[str]:
    """The address of a server of the model, which ends with the block."""
    with tempfile.TemporaryFile("w+") as log:
        images = [] if "--mmproj" in options else ["--no-mmproj"]
        command = [program, "serve", str(model), "--port", "0", "--no-page", "--untuned", "--parallel", "1", "-t", "2",
                   "--kv-type", "f32", "--no-pin", *images, *options]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield awaited(server, log)
        except (ConnectionError, urllib.error.URLError):
            server.wait(PATIENCE)
            judge(server.returncode, written(log))
            raise
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            text = written(log)
            if "panicked at" in text:
                judge(101, text)


def written(log) -> str:
    log.seek(0)
    return log.read()


def awaited(server: subprocess.Popen, log) -> str:
    """The server's address, once it serves."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status, text = server.poll(), written(log)
        if found := re.search(r"serving .* on (http://[^/\s]+)/v1", text):
            return found[1]
        if status is not None:
            judge(status or 1, text)
        time.sleep(0.02)
    raise Panicked(f"no server after {PATIENCE} s")


def ask(address: str, path: str, body: dict) -> dict:
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)
    except urllib.error.HTTPError as fault:
        raise Refused(f"{path}: {fault.read().decode(errors='replace')[:300]}") from None


def answer(program: str, model: Path, prompt: list[int]) -> Answer:
    with serving(program, model) as address:
        body = {"prompt": prompt, "echo": True, "logprobs": LIKELIEST, "max_tokens": CONTINUED, "temperature": 0, "ignore_eos": True}
        logprobs = ask(address, "/v1/completions", body)["choices"][0]["logprobs"]
    return Answer(logprobs["tokens"][1:], logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:])


def vectors(program: str, model: Path, texts: list[list[int]], pooling: str) -> list[list[float]]:
    with serving(program, model, "--pooling", pooling) as address:
        got = ask(address, "/v1/embeddings", {"input": texts})["data"]
    return [entry["embedding"] for entry in got]
