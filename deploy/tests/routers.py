"""Three servers behind sglang's and vLLM's routers, as deploy/examples/routers starts them, while one is killed and started
again, and another is stopped and started.

    routers.py ARCLIGHT BIN FOLDER

BIN has the programs of the routers. Only requests that were under way when a server was killed may be lost; at a stop by
SIGTERM none may. A router that leaves a server out for a while has to come back to it.
"""

import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from servers import Client, Server, ended, free_port, post

arclight, bin, folder = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
examples = Path(__file__).resolve().parent.parent / "examples" / "routers"
folder.mkdir(parents=True, exist_ok=True)
# Two servers have four each while the third is away: more than the routers bear before they balance, so that it is found again.
CLIENTS = 8


def answers(server):
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(l.split()[-1]) for l in lines if l.startswith('vllm:request_success_total{finished_reason="length"'))


def wait_for(base, process, log):
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        if post(f"{base}/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1}, timeout=10)[0] == 200:
            return
        time.sleep(0.3)
    raise AssertionError(f"{base} does not answer: {log.read_text()[-2000:]}")


def run(name):
    line = (examples / f"{name}.sh").read_text()
    servers = [Server(arclight, folder / f"{name}-{i}.log", free_port(), ["--drain-timeout", "60"]) for i in (1, 2, 3)]
    port, metrics = free_port(), free_port()
    with servers[0], servers[1], servers[2]:
        for i, server in enumerate(servers):
            assert f"http://127.0.0.1:808{i + 1}" in line, name
            line = line.replace(f"http://127.0.0.1:808{i + 1}", f"http://{server.address}")
        assert "--port 8080" in line and "--prometheus-port 9100" in line, name
        line = line.replace("--port 8080", f"--port {port}").replace("--prometheus-port 9100", f"--prometheus-port {metrics}")
        script, log = folder / f"{name}.sh", folder / f"{name}.log"
        script.write_text(line)
        with log.open("w") as out:
            process = subprocess.Popen(["bash", script], stdout=out, stderr=out, cwd=folder, env={"PATH": f"{bin}:/usr/bin:/bin"})
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(base, process, log)
            try_router(name, base, servers)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def try_router(name, base, servers):
    done = threading.Event()

    def body(at):
        return lambda number: {"model": "demo", "messages": [{"role": "user", "content": f"Story {number} of {at}."}],
                               "max_tokens": 300, "ignore_eos": True, "stream": at % 2 == 0}

    clients = [Client(f"{base}/v1/chat/completions", body(at), done) for at in range(CLIENTS)]
    for client in clients:
        client.start()
    first, second, _ = servers
    time.sleep(3)
    killed = time.monotonic()
    first.kill()
    time.sleep(3)
    first.start()
    time.sleep(6)
    code = second.stop()
    assert code == 0, f"{name}: a stop ends with code {code}"
    time.sleep(2)
    second.start()
    time.sleep(6)
    asked = ended(clients, done)
    lost = [one for one in asked if not one[2]]
    # Each client has one request at a time: what is lost began before the kill and ended after it.
    beyond = [one for one in lost if not one[0] <= killed <= one[1]]
    assert not beyond, f"{name}: {len(beyond)} lost beside those under way: {beyond[0][0] - killed:.2f} s after the kill: {beyond[0][3]}"
    counts = [answers(server) for server in servers]
    assert all(counts), f"{name}: a server that came back gets nothing: {counts}"
    print(f"routers: {name}: {len(asked)} requests, {len(lost)} lost with the server that was killed, none at a stop", flush=True)


failed = []
for name in sys.argv[4:] or ("sglang-router", "vllm-router"):
    try:
        run(name)
    except AssertionError as error:
        failed.append(name)
        print(f"routers: {name}: {error}", flush=True)
sys.exit(f"routers: failed: {', '.join(failed)}" if failed else 0)
