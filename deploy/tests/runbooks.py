"""Every alert has a heading of its runbook, and says how urgent it is."""

import re
from pathlib import Path

import yaml

root = Path(__file__).resolve().parent.parent.parent
page = (root / "docs/operation.md").read_text()
anchors = {re.sub(r"[^a-z0-9\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", page, re.M)}
rules = yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text())["groups"][0]["rules"]
tested = (root / "deploy/prometheus/alerts.test.yaml").read_text()
for rule in rules:
    name, notes = rule["alert"], rule["annotations"]
    where, _, anchor = notes["runbook"].partition("#")
    assert where == "docs/operation.md" and anchor in anchors, f"{name}: no heading #{anchor}"
    assert f"`{name}`" in page, f"{name}: docs/operation.md does not name it"
    assert rule["labels"]["severity"] in ("critical", "warning", "info") and notes["summary"] and "for" in rule, name
    assert tested.count(f"alertname: {name}\n") == 2, f"{name}: no test that it fires, and one that it does not"
print(f"runbooks: {len(rules)} alerts")
