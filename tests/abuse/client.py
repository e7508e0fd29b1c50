"""A server under abuse, and requests to it."""

import asyncio
import contextlib
import ctypes
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUEUE, SLOTS = 64, 8
CHAT = "/v1/chat/completions"


def with_parent():
    """The process ends with its parent (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Server:
    def __init__(self, program, *options, before=(), env=None, name="abuse"):
        """A server with these options beside the usual ones, which `before` stands before on the command line."""
        self.log = open(ROOT / "target" / f"{name}.log", "wb")
        command = [*before, program, "serve", "--port", "0", "--queue", str(QUEUE), "--parallel", str(SLOTS)]
        command += options
        for name in ("--write-timeout", "--read-timeout"):
            command += [] if name in options else [name, "5"]
        env = {**os.environ, **(env or {})}
        # It does not outlive this one.
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log, env=env, preexec_fn=with_parent)
        self.port = self.find_port()

    @property
    def pid(self):
        """The server's own process, which may be below others."""
        pid = self.process.pid
        while True:
            below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if not below:
                return pid
            pid = int(below[0])

    def alive(self):
        return self.process.poll() is None

    async def ready(self):
        for _ in range(600):
            if self.process.poll() is not None:
                break
            if (await ask(self.port, "/health", b"", "GET"))[0] == 200:
                return self
            await asyncio.sleep(0.1)
        raise AssertionError(f"it is not ready: {self.text()[-500:]}")

    def kill(self):
        # It may have ended, and be gone from /proc.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def find_port(self):
        for _ in range(600):
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"the server does not say where it listens: {self.text()[-300:]}")

    def text(self):
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")

    def rss(self):
        """Anonymous memory in MiB: the model's file may come and go."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024

    def anonymous(self):
        """Anonymous memory in MiB by kind: the heap, glibc's arenas, and mappings: weights, pages, stacks, large
        blocks."""
        sums, kind = {}, None
        for line in Path(f"/proc/{self.pid}/smaps").read_text().splitlines():
            if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line):
                begin, name = int(head[1], 16), head[4]
                # glibc's arenas begin at multiples of 64 MiB and are at most as large.
                arena = not name and begin % (64 << 20) == 0 and int(head[2], 16) - begin <= 64 << 20
                kind = "heap" if name == "[heap]" else "arenas" if arena else "mappings"
            elif line.startswith("Anonymous:"):
                sums[kind] = sums.get(kind, 0) + int(line.split()[1]) / 1024
        return {kind: round(mib, 1) for kind, mib in sorted(sums.items())}

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self):
        return [int(thread) for thread in os.listdir(f"/proc/{self.pid}/task")]

    def cpu(self):
        """Seconds of CPU time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def send(port, path, body, method="POST", headers=()):
    """Opens a connection and sends a request; its reader and writer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}", "", ""]
    writer.write("\r\n".join(lines).encode())
    writer.write(data)
    return reader, writer


async def ask(port, path, body, method="POST", limit=120, opening=contextlib.nullcontext()):
    """The status and the text of an answer; status 0 when the connection was cut. `opening` is held until the request is sent."""
    writer = None
    try:
        async with asyncio.timeout(limit):
            async with opening:
                reader, writer = await send(port, path, body, method)
            answer = await reader.read()
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0, ""
    finally:
        if writer:
            writer.close()
    head, _, text = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1]) if head.startswith(b"HTTP/1.1 ") else 0
    return status, text.decode(errors="replace")


def push(port, path, data):
    """The status of an answer to a body that the server need not read to its end; 0 when cut off."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode())
        view = memoryview(data)
        # The answer may come, and the connection be closed, before all is sent.
        with contextlib.suppress(OSError):
            while len(view) and not select.select([connection], [], [], 0)[0]:
                view = view[connection.send(view[:65536]) :]
        with contextlib.suppress(OSError):
            answer = connection.recv(4096)
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def ask_apart(port, path, body=None, limit=120):
    """Status and text of an answer, in the caller's thread: sent as soon as there is a connection, whatever the event
    loop does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit)
    with contextlib.closing(connection):
        data = json.dumps(body) if body else None
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request("POST" if body else "GET", path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def chat(words="Tell me a story.", **more):
    return {"messages": [{"role": "user", "content": words}], "max_tokens": 24, **more}


async def get(server, path):
    return await ask(server.port, path, b"", "GET")


async def idle(server):
    """Waits until nothing runs or waits any more."""
    for _ in range(300):
        text = (await get(server, "/metrics"))[1]
        busy = re.findall(r"^vllm:num_requests_(?:running|waiting)(?:{.*})? ([\d.]+)", text, re.M)
        if len(busy) >= 2 and not any(float(b) for b in busy):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("requests are stuck:\n" + "\n".join(busy))
