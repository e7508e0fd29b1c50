"""The programs that write, what they write, and requests to servers that may end at any moment."""

import hashlib
import http.client
import json
import os
import subprocess
import threading
import time
import uuid
from pathlib import Path

import checkpoint
from client import ROOT, Server, with_parent

DEMO = ROOT / "demo" / "arclight-demo.gguf"
REPO = "Test/Demo-GGUF"
MODEL = f"{REPO}:Q8_0"
# One connection fetches the first, several the second.
FILES = {"Demo-Q8_0-00001-of-00002.gguf": 3 << 20, "Demo-Q8_0-00002-of-00002.gguf": 48 << 20}


class Impossible(Exception):
    """The machine does not allow a round."""


class Bench:
    """Programs, a place for files, and what an undisturbed run gives."""

    def __init__(self, program, hub, folder):
        self.program, self.hub, self.root = program, hub, folder
        self.folder = self.numbers = self.server = self.endpoint = None
        self.count = 0

    def begin(self, name, numbers, count):
        """A round: it has a folder, random numbers, and a number of kills."""
        self.folder, self.numbers, self.count = self.root / name, numbers, count
        self.folder.mkdir()

    def end(self):
        if self.server:
            self.server.kill()
            self.server.wait()

    def environment(self, **more):
        """Nothing of this user's own: neither caches nor options."""
        own = ("ARCLIGHT_", "HF_", "XDG_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        env = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        (self.root / "home").mkdir(exist_ok=True)
        return {**env, "HOME": str(self.root / "home"), **{key: str(value) for key, value in more.items()}}

    def hub_environment(self, cache):
        """The fake hub, and a cache."""
        if not self.server:
            files = []
            for at, (name, size) in enumerate(FILES.items()):
                path = self.root / name
                path.write_bytes(hashlib.shake_256(bytes([at])).digest(size))
                files.append(f"{REPO}/{name}={path}")
            command = [self.hub, "127.0.0.1:0", *files]
            log = open(ROOT / "target" / "crash-hub.log", "wb")
            self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, preexec_fn=with_parent)
            self.endpoint = self.server.stdout.readline().decode().strip()
            # It reports each request; nobody reads that.
            threading.Thread(target=self.server.stdout.read, daemon=True).start()
        return self.environment(HF_ENDPOINT=self.endpoint, HF_HUB_CACHE=cache)

    def checkpoint(self):
        """The folder that is converted."""
        folder = self.root / "checkpoint"
        if not folder.exists():
            checkpoint.write(folder)
        return folder

    def floats(self):
        """The file that is quantised."""
        path = self.root / "floats.gguf"
        if not path.exists():
            self.succeeds(["convert", self.checkpoint(), "-o", path])
        return path

    def run(self, command, env=None, before=()):
        """Exit code and standard error."""
        line = [*before, self.program, *command]
        done = subprocess.run(line, env=env or self.environment(), capture_output=True, timeout=300)
        return done.returncode, done.stderr.decode(errors="replace")

    def succeeds(self, command, env=None, before=()):
        code, text = self.run(command, env, before)
        assert code == 0, f"{command[0]}: exit code {code}: {text[-500:]}"

    def refused(self, command, words, env=None, before=()):
        """It fails with a line that has these words, and no panic."""
        code, text = self.run(command, env, before)
        assert code == 1, f"{command[0]}: exit code {code}: {text[-500:]}"
        missing = [word for word in words if word not in text]
        assert not missing, f"{command[0]}: {missing} not in {text[-500:]}"

    def killed(self, command, moment, env=None):
        """Starts a program and kills it after so many seconds; whether it still ran."""
        line = [self.program, *command]
        null = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(line, env=env or self.environment(), preexec_fn=with_parent, **null)
        try:
            code = process.wait(moment)
            assert code == 0, f"{command[0]}: exit code {code} without a kill"
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return True

    def serve(self, *options, **more):
        env = self.environment()
        return Server(self.program, *options, env=env, **more)


class Doomed(Server):
    """A server that is killed after so many seconds."""

    def __init__(self, program, *options, moment, **more):
        self.moment = moment
        super().__init__(program, *options, **more)

    def find_port(self):
        self.timer = threading.Timer(self.moment, self.kill)
        self.timer.start()
        return super().find_port()

    def die(self):
        """Waits for the kill."""
        self.timer.join()


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree(folder):
    """What is in a folder, but for locks: links by what they lead to, files by their bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(".locks"):
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = digest(path)
    return found


def ask(port, path, body=None, method=None, timeout=60, form=None):
    """Status and body of an answer; status 0 where the server has ended."""
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    if form is not None:
        border = uuid.uuid4().hex
        headers = {"Content-Type": f"multipart/form-data; boundary={border}"}
        data = b"".join(
            f'--{border}\r\nContent-Disposition: form-data; name="{name}"'.encode()
            + (b'; filename="lines.jsonl"' if name == "file" else b"")
            + b"\r\n\r\n"
            + value
            + b"\r\n"
            for name, value in form.items()
        )
        data += f"--{border}--\r\n".encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method or ("GET" if data is None else "POST"), path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (http.client.HTTPException, ConnectionError, TimeoutError, OSError):
        return 0, ""
    finally:
        connection.close()


def ready(server):
    """Waits until the model is loaded; whether the server lived until then."""
    while server.alive():
        if ask(server.port, "/health")[0] == 200:
            return True
        time.sleep(0.02)
    return False


def until(condition, what, seconds=60):
    """Waits for a condition, whose value is given back."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"it did not happen in {seconds} s: {what}")
