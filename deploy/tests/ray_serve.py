"""Two nodes of a local Ray cluster that serve the demo model, as deploy/examples/ray has it, while a server and then a node
are killed.

    ray_serve.py ARCLIGHT BIN FOLDER

BIN has the programs of Ray. Streams must come in parts, what was killed must be there again, and only requests that were under
way at the kill of a server may be lost, or came within 15 s of the kill of a node, which Ray has to notice.
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import yaml
from servers import DEMO, Client, ended, free_port, post

arclight, bin, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
example = Path(__file__).resolve().parent.parent / "examples" / "ray"
folder.mkdir(parents=True, exist_ok=True)
port, gcs = free_port(), free_port()
base = f"http://127.0.0.1:{port}"
# Ray keeps sockets in its folder, whose names must be short.
temp = Path("/tmp") / f"arclight-ray-{os.getpid()}"
env = {
    **os.environ,
    "PATH": f"{bin}:/usr/bin:/bin",
    "PYTHONPATH": str(example),
    "RAY_ADDRESS": f"127.0.0.1:{gcs}",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def ray(*command, check=True):
    done = subprocess.run([*command], env=env, cwd=folder, capture_output=True, text=True, timeout=180)
    assert not check or done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


def node(*options):
    """A node that lives as long as its process."""
    log = (folder / f"node-{len(nodes)}.log").open("w")
    command = ["ray", "start", *options, "--block", "--num-cpus", "2", "--object-store-memory", "80000000", "--disable-usage-stats"]
    nodes.append(subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True))


def joins():
    """Starts a second node if none runs: on a busy machine Ray gives up after 30 s."""
    if len(nodes) < 2 or nodes[-1].poll() is not None:
        node("--address", f"127.0.0.1:{gcs}")
    return True


def servers():
    """Numbers of the processes that serve."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == str(arclight).encode() and any(b"arclight-ray-" in word for word in words):
                found.append(int(entry.name))
    return found


def family(pid):
    """A process and all that it has started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def story(at):
    """Requests of a client."""
    return lambda number: {"model": "demo", "prompt": f"Story {number} of {at}.", "max_tokens": 200, "ignore_eos": True,
                           "stream": at % 2 == 0}


def until(what, seconds, true):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} took longer than {seconds} s; {ray('serve', 'status', check=False)[-1500:]}"
        time.sleep(0.3)


nodes = []
try:
    config = yaml.safe_load((example / "arclight.yaml").read_text())
    config["http_options"]["port"] = port
    # One machine: one address for both nodes.
    config["proxy_location"] = "HeadOnly"
    config["applications"][0]["args"].update(
        program=str(arclight), options=[str(DEMO), "--alias", "demo", "--threads", "1"], start_seconds=60
    )
    (folder / "arclight.yaml").write_text(yaml.safe_dump(config))
    node("--head", "--port", str(gcs), "--temp-dir", str(temp), "--include-dashboard", "true", "--dashboard-port", str(free_port()))
    until("the first node", 60, lambda: subprocess.run(["ray", "status"], env=env, capture_output=True).returncode == 0)
    joins()
    until("the second node", 120, lambda: joins() and ray("ray", "status").count("node_") >= 2)
    print("ray: two nodes", flush=True)
    # `serve run` needs no dashboard; it ends by itself once all is there with --non-blocking.
    ray("serve", "run", "--non-blocking", "--address", env["RAY_ADDRESS"], "arclight.yaml")
    until("two servers", 120, lambda: len(servers()) == 2)
    until("the first answer", 60, lambda: post(f"{base}/health", {})[0] in (200, 405))

    # A stream comes in parts, as the server sends it.
    body = json.dumps({"model": "demo", "prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True}).encode()
    request = urllib.request.Request(f"{base}/v1/completions", body, {"content-type": "application/json"})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
        times = [time.monotonic() for line in answer if line.startswith(b"data:")]
    # Were it kept until its end, its first part would come near the end.
    first, last = times[0] - begin, times[-1] - begin
    assert len(times) > 1000 and first < 0.5 * last, f"a stream came at once: {len(times)} parts from {first} to {last} s"
    # Faults are the server's own.
    status, text = post(f"{base}/v1/completions", {"model": "demo", "prompt": 7.5})
    assert status == 400 and "prompt" in text, (status, text)

    done = threading.Event()
    # Of what Ray needs to start a node these must leave something.
    clients = [Client(f"{base}/v1/completions", story(at), done, pause=0.02) for at in range(4)]
    for client in clients:
        client.start()
    time.sleep(4)
    first = set(servers())
    assert len(first) == 2, first
    kills = [time.monotonic()]
    os.kill(min(first), 9)
    until("a server in the place of the one killed", 60, lambda: len(servers()) == 2 and set(servers()) != first)
    time.sleep(4)
    kills.append(time.monotonic())
    for pid in family(nodes[-1].pid):
        os.kill(pid, 9)
    until("one server on the node that is left", 60, lambda: len(servers()) == 1)
    time.sleep(6)
    joins()
    until("a server on a new node", 240, lambda: joins() and len(servers()) == 2)
    time.sleep(4)
    asked = ended(clients, done)
    lost = [one for one in asked if not one[2]]
    server, machine = kills
    at_server = [one for one in lost if one[0] <= server <= one[1]]
    at_node = [one for one in lost if one[0] < machine + 15 and one[1] > machine]
    beyond = [one for one in lost if one not in at_server and one not in at_node]
    assert not beyond, f"{len(beyond)} lost beside: {beyond[0][0] - server:.2f} s after the first kill: {beyond[0][3]}"
    print(f"ray: {len(asked)} requests; {len(at_server)} lost with a server that was killed, {len(at_node)} with a node", flush=True)
finally:
    subprocess.run(["ray", "stop", "--force"], env=env, capture_output=True)
    for one in nodes:
        try:
            os.killpg(one.pid, 9)
        except ProcessLookupError:
            pass
        one.wait()
    for pid in servers():
        os.kill(pid, 9)
    subprocess.run(["rm", "-rf", str(temp)])
