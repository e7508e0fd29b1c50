"""Reads an SBOM in CycloneDX's form from standard input and prints it without what differs from run to run.

    sbom.py SECONDS FOLDER

SECONDS is the time of the commit, FOLDER where it was built.
"""

import datetime
import json
import sys
import uuid

time = datetime.datetime.fromtimestamp(int(sys.argv[1]), datetime.timezone.utc)
bom = json.loads(sys.stdin.read().replace(sys.argv[2], "/arclight"))
bom["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
for key in ("components", "dependencies"):
    bom[key].sort(key=lambda one: one.get("bom-ref") or one["ref"])
for one in bom["dependencies"]:
    one.get("dependsOn", []).sort()
bom.pop("serialNumber", None)
bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True)).urn
print(json.dumps(bom, indent=1, sort_keys=True))
