"""Servers of the demo model for the checks."""

import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent.parent / "demo/arclight-demo.gguf"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """`arclight serve`, from the start until it is ready."""

    def __init__(self, program, log, port=0, options=()):
        self.command = [program, "serve", str(DEMO), "--alias", "demo", "--threads", "1", *options]
        self.log, self.port, self.process, self.address = Path(log), port, None, None

    def start(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # A line of text, or the message of a line of JSON.
            ready = re.search(r"""(?:^|")serving .* on http://([^/]*)/v1""", self.log.read_text(), re.M)
            if ready:
                self.address = ready[1]
                self.port = int(self.address.rpartition(":")[2])
                return self
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=90)

    def ask(self, prompt, tokens=8):
        return post(f"http://{self.address}/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": tokens})[0]

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


def post(url, body, headers=None, timeout=60):
    """The status and the body; status 0 and the reason if there is no answer, or not all of it."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as fault:
        return fault.code, fault.read().decode()
    except Exception as fault:  # Refused, reset, cut off.
        return 0, repr(fault)


class Client(threading.Thread):
    """Asks until it is told to stop; what it asked, with times and results. `body` makes the request of a number, which has
    to end by its length; `headers` as of `post`."""

    def __init__(self, url, body, done, headers=None, pause=0.0):
        super().__init__(daemon=True)
        self.url, self.body, self.done, self.headers, self.pause, self.asked = url, body, done, headers, pause, []

    def run(self):
        while not self.done.is_set():
            body = self.body(len(self.asked))
            start = time.monotonic()
            status, text = post(self.url, body, self.headers)
            whole = '"finish_reason":"length"' in text.replace(" ", "") and (not body["stream"] or "[DONE]" in text)
            self.asked.append((start, time.monotonic(), status == 200 and whole, f"{status} {text[-300:]}"))
            time.sleep(self.pause)


def ended(clients, done):
    """All that clients have asked, once they have ended."""
    done.set()
    for client in clients:
        client.join(timeout=90)
    return [one for client in clients for one in client.asked]
