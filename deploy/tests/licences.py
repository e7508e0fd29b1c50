"""What deny.toml says of licences, sources and bans, where cargo-deny is not at hand: the same rules on `cargo metadata`.
"""

import json
import re
import subprocess
import tomllib
from pathlib import Path

root = Path(__file__).resolve().parent.parent.parent
rules = tomllib.loads((root / "deny.toml").read_text())
allowed = set(rules["licenses"]["allow"])


def open_to_us(expression):
    """Whether an SPDX expression can be met by licences that are allowed."""
    # Old forms of OR.
    words = re.findall(r"\(|\)|AND|OR|[\w.-]+(?: WITH [\w.-]+)?", expression.replace("/", " OR ").replace(" or ", " OR "))

    def either():
        value = both()
        while words and words[0] == "OR":
            words.pop(0)
            value = both() or value
        return value

    def both():
        value = single()
        while words and words[0] == "AND":
            words.pop(0)
            value = single() and value
        return value

    def single():
        word = words.pop(0)
        if word == "(":
            value = either()
            assert words.pop(0) == ")"
            return value
        return word in allowed

    value = either()
    assert not words, expression
    return value


assert open_to_us("GPL-3.0 OR MIT") and not open_to_us("GPL-3.0 AND MIT") and not open_to_us("(MIT AND GPL-2.0) OR SSPL-1.0")
# All that the lock file has, for any system and feature.
command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
metadata = json.loads(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout)
faults = []
for package in metadata["packages"]:
    name = f"{package['name']} {package['version']}"
    source = package["source"]
    if not package["license"]:
        faults.append(f"{name}: no licence")
    elif not open_to_us(package["license"]):
        faults.append(f"{name}: {package['license']}")
    if source and source.partition("+")[2] not in rules["sources"]["allow-registry"]:
        faults.append(f"{name}: from {source}")
    if package["name"] in {ban["crate"] for ban in rules["bans"]["deny"]}:
        faults.append(f"{name} is banned")
    if not source:
        for dependency in package["dependencies"]:
            if dependency["req"] == "*" and not dependency.get("path"):
                faults.append(f"{name}: any version of {dependency['name']}")
assert not faults, "\n".join(faults)
print(f"licences: {len(metadata['packages'])} packages")
