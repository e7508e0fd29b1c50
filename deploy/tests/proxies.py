"""Two servers behind nginx, and behind the litellm proxy, while one is killed and the other is stopped and started.

    proxies.py ARCLIGHT LITELLM FOLDER

Clients ask without a pause, for streams and for whole answers. Only requests that were under way when a server was killed may be
lost; at a stop by SIGTERM none may. A server that refuses (503 while it loads, 429 when it is full) is passed over.
"""

import http.server
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from servers import Client, Server, ended, free_port, post

arclight, litellm, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
examples = Path(__file__).resolve().parent.parent / "examples"
folder.mkdir(parents=True, exist_ok=True)
KEY, MASTER = "key-of-the-servers", "sk-key-of-the-proxy"
CLIENTS = 4


def answers(server):
    """How many answers a server has ended."""
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as page:
        text = page.read().decode()
    return sum(float(n) for n in re.findall(r'^vllm:request_success_total\{finished_reason="length".* (\S+)$', text, re.M))


def try_proxy(name, base, key, model, servers):
    done = threading.Event()
    headers = {"authorization": f"Bearer {key}"}

    def body(stream):
        return lambda _: {"model": model, "messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 400,
                          "ignore_eos": True, "stream": stream}

    clients = [Client(f"{base}/v1/chat/completions", body(i % 2 == 0), done, headers) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    first, second = servers
    time.sleep(3)
    killed = time.monotonic()
    first.kill()
    time.sleep(3)
    first.start()
    back = time.monotonic()
    # Long enough for the proxy to see it again, so that there is one to go to while the other stops.
    time.sleep(5)
    stopped = time.monotonic()
    code = second.stop()
    assert code == 0, f"{name}: a stop ends with code {code}"
    time.sleep(2)
    second.start()
    time.sleep(4)
    asked = ended(clients, done)
    lost = [one for one in asked if not one[2]]
    # What ended a moment after the kill was under way on the killed server; each client has one request at a time.
    beyond = [one for one in lost if not one[0] <= killed <= one[1]]
    assert not beyond, f"{name}: {len(beyond)} lost beside those under way: {beyond[0][0] - killed:.2f} s after the kill: {beyond[0][3]}"
    assert len(lost) <= CLIENTS, f"{name}: {len(lost)} lost"
    after = [one for one in asked if killed < one[0] < back]
    assert len(after) >= 3, f"{name}: {len(after)} answers while a server was away"
    assert [one for one in asked if one[0] > stopped], name
    counts = [answers(server) for server in servers]
    assert all(counts), f"{name}: a server that came back gets nothing: {counts}"
    print(f"proxies: {name}: {len(asked)} requests, {len(lost)} lost with the server that was killed, none at a stop")


class Refusing(http.server.ThreadingHTTPServer):
    """A server that refuses every request with the same status."""

    def __init__(self, status):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.server.asked += 1
                text = b'{"error": {"message": "not now", "type": "server_error"}}'
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


def try_refusal(name, base, key, model, refusing):
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    # A proxy may choose by chance.
    for asked in range(80):
        if asked >= 8 and refusing.asked:
            break
        status, text = post(f"{base}/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
        assert status == 200, f"{name}: {status} though the other server answers: {text}"
        time.sleep(0.4)
    assert refusing.asked > 0, f"{name}: the refusing server was never asked"


def wait_for(url, process, log):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if post(url, {}, timeout=5)[0] not in (0, 502, 503):
            return
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.3)
    raise AssertionError(f"{url} does not answer: {log.read_text()[-3000:]}")


def nginx(ports):
    port = free_port()
    text = (examples / "nginx/nginx.conf").read_text()
    for old, new in (("listen 8080", f"listen 127.0.0.1:{port}"), ("127.0.0.1:8081", f"127.0.0.1:{ports[0]}"),
                     ("127.0.0.1:8082", f"127.0.0.1:{ports[1]}"), ("/run/nginx.pid", f"{folder}/nginx.pid"),
                     ("/var/log/nginx/", f"{folder}/nginx-"), ("worker_processes auto", "worker_processes 1")):
        assert old in text, old
        text = text.replace(old, new)
    config = folder / "nginx.conf"
    config.write_text(text)
    subprocess.run(["nginx", "-q", "-t", "-c", config], check=True)
    log = folder / "nginx.out"
    with log.open("w") as out:
        return port, subprocess.Popen(["nginx", "-c", config, "-g", "daemon off;"], stdout=out, stderr=out), log


def proxy(ports):
    port = free_port()
    text = (examples / "litellm/config.yaml").read_text()
    for old, new in zip(("127.0.0.1:8081", "127.0.0.1:8082"), ports):
        assert old in text, old
        text = text.replace(old, f"127.0.0.1:{new}")
    config, log = folder / "litellm.yaml", folder / "litellm.log"
    config.write_text(text)
    env = {**os.environ, "ARCLIGHT_KEY": KEY, "LITELLM_MASTER_KEY": MASTER}
    command = [litellm, "--config", config, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as out:
        return port, subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=folder), log


def run(name, start, path, key, ports, check):
    """Runs a proxy before these ports, and a check of its address."""
    port, process, log = start(ports)
    try:
        base = f"http://127.0.0.1:{port}"
        wait_for(base + path, process, log)
        check(base)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


options = ["--api-key", KEY, "--chat-format", "hermes", "--drain-timeout", "60"]
PROXIES = (
    ("nginx", nginx, "/tokenize", KEY, "demo", (503, 429)),
    ("litellm", proxy, "/v1/chat/completions", MASTER, "chat", (503,)),
)
for name, start, path, key, model, refusals in PROXIES:
    servers = [Server(arclight, folder / f"{name}-{i}.log", free_port(), options) for i in (1, 2)]
    with servers[0], servers[1]:
        ports = [server.port for server in servers]
        run(name, start, path, key, ports, lambda base: try_proxy(name, base, key, model, servers))
        for status in refusals:
            refusing = Refusing(status)
            ports = [refusing.server_address[1], servers[1].port]
            run(name, start, path, key, ports, lambda base: try_refusal(name, base, key, model, refusing))
            refusing.shutdown()
