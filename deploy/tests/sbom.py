"""The list of what the program is made of has every crate that Cargo links into it, with its version and licence.

    sbom.py FILE
"""

import json
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent.parent
bom = json.loads(Path(sys.argv[1]).read_text())
assert bom["bomFormat"] == "CycloneDX", bom.get("bomFormat")
listed = {(one["name"], one["version"]) for one in bom["components"]}
tree = ["cargo", "tree", "--package", "arclight", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--locked"]
out = subprocess.run(tree, cwd=root, capture_output=True, text=True, check=True).stdout
linked = {tuple(line.split()[:2]) for line in out.splitlines() if line and "(/" not in line}
linked = {(name, version.removeprefix("v")) for name, version in linked}
missing = sorted(linked - listed)
assert len(linked) > 100 and not missing, f"not in the list: {missing[:5]}"
bare = [one["name"] for one in bom["components"] if not one.get("licenses") and (one["name"], one["version"]) in linked]
assert not bare, f"without a licence: {bare[:5]}"
print(f"sbom: {len(listed)} components")
