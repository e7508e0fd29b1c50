"""Every query of the dashboard and of the alerts, asked of a Prometheus that reads a running server.

    monitoring.py PROMETHEUS ARCLIGHT FOLDER

A query that Prometheus refuses, and one that finds nothing, fails: so a metric or label that the server does not have
is found. What a panel's legend names has to be a label of what its query finds. Rules give an answer only when something is wrong, so of them each part without its limit is asked.
"""

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from servers import Server, free_port, post

here = Path(__file__).resolve().parent.parent
prometheus, arclight, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)


def queries():
    dashboard = json.loads((here / "grafana/dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), "two panels have the same id"
    variables = {"$job": ".*", "$instance": ".*", "$model": ".*", "$__rate_interval": "10s"}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"]
            for name, value in variables.items():
                text = text.replace(name, value)
            assert "$" not in text, f"{panel['title']}: a variable that is not defined: {text}"
            yield panel["title"], text, re.findall(r"{{(\w+)}}", target["legendFormat"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            yield variable["name"], f"count by ({inner[2]}) ({inner[1].replace('$job', '.*').replace('$instance', '.*')})", [inner[2]]
    for rule in yaml.safe_load((here / "prometheus/alerts.yaml").read_text())["groups"][0]["rules"]:
        for part in rule["expr"].split(" unless "):
            text = re.sub(r" (>=?|==|<) [\d.]+$", "", part)
            yield rule["alert"], re.sub(r"\[\d+[mh]\]", "[10s]", text), []


def ask(base, query, labels):
    """What is wrong with a query."""
    url = f"{base}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as fault:
        return json.load(fault).get("error")
    if not found:
        return "nothing found"
    absent = sorted({label for label in labels for one in found if label not in one["metric"]})
    return f"no label {', '.join(absent)}" if absent else None


with Server(arclight, folder / "monitored.log") as server:
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "arclight", "static_configs": [{"targets": [server.address]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    data = folder / f"data-{port}"
    command = [prometheus, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        base = f"http://127.0.0.1:{port}"
        asked, missing = [], []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert server.ask("Once upon a time", tokens=40) == 200
            # Something that is refused, for the panel of those.
            assert post(f"http://{server.address}/v1/completions", {"model": "no-such-model", "prompt": ""})[0] == 404
            try:
                asked = [(of, text, ask(base, text, labels)) for of, text, labels in queries()]
            except OSError:
                time.sleep(0.5)
                continue
            missing = [(of, text, fault) for of, text, fault in asked if fault]
            if not missing:
                break
            time.sleep(1)
    finally:
        process.terminate()
        process.wait()
for of, text, fault in missing:
    print(f"{of}: {fault}: {text}", file=sys.stderr)
assert asked and not missing
print(f"monitoring: {len(asked)} queries of dashboard and alerts find their metrics")
