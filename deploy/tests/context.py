"""Copies what a .dockerignore lets through, and checks that sources include nothing else.

    context.py ROOT TARGET

Of the file's language: `*`, `!PATH`, `**/NAME`.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

root, target = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
rules = [line for line in (root / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
assert rules[0] == "*", "the first line leaves everything out"
allowed = [Path(rule[1:]) for rule in rules if rule.startswith("!")]
banned = {rule[3:] for rule in rules if rule.startswith("**/")}
assert len(allowed) + len(banned) + 1 == len(rules), "a rule of another kind"
for path in allowed:
    assert (root / path).exists(), f"no {path}"
files = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
kept = [Path(f) for f in files if f and any(Path(f).is_relative_to(a) for a in allowed) and not banned & set(Path(f).parts)]
for path in kept:
    to = target / path
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / path, to)
for path in kept:
    if path.suffix == ".rs" and "tests" not in path.parts:
        for name in re.findall(r'include_(?:bytes|str)!\(\s*"([^"]+)"', (root / path).read_text()):
            assert (target / path).parent.joinpath(name).exists(), f"{path} includes {name}, which the context has not"
        for name in re.findall(r'include_(?:bytes|str)!\(\s*concat!\(env!\("CARGO_MANIFEST_DIR"\),\s*"([^"]+)"', (root / path).read_text()):
            crate = next(p for p in (target / path).parents if (p / "Cargo.toml").exists())
            assert (crate / name.lstrip("/")).exists(), f"{path} includes {name}, which the context has not"
print(f"context: {len(kept)} files")
