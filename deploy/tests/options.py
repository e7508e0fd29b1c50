"""The example of a configuration names every option of `arclight serve`, and no other.

    options.py ARCLIGHT FILE
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

# Options that are of no use without another.
NEEDS = {
    ("kv-events-replay", "kv-events-pod"): 'kv-events = "tcp://*:5557"',
    ("files-bytes", "file-bytes", "batch-requests"): 'files-dir = "/nowhere"',
    ("stage-listen", "stage-key-file", "stage-without-key"): 'stage = "1/2"',
    ("stages",): 'stage = "2/2"',
    ("stage", "stage-key-file", "stage-without-key"): 'stage-listen = "10.0.0.1:7001"',
    ("manage-models",): 'models-dir = "/nowhere"',
    ("slot-save-bytes",): 'slot-save-path = "/nowhere"',
    ("max-managed-models",): 'models-dir = "/nowhere"\nmanage-models = true',
}
program, path = sys.argv[1:]
usage = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
# Those of every command are no keys of the file.
options = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", usage, re.M)) - {"config", "help", "verbose", "quiet", "color"}
text = Path(path).read_text()
tomllib.loads(text)
named = set(re.findall(r"^#?([a-z-]+) = ", text, re.M))
assert named == options, f"not in the file: {sorted(options - named)}; no option: {sorted(named - options)}"
# What is behind a comment is a value that the program takes: with it the next fault is that there is no such model.
with tempfile.TemporaryDirectory() as folder:
    config = Path(folder) / "arclight.toml"
    for line, key in re.findall(r"^#(([a-z-]+) = .*)$", text, re.M):
        if key in ("models-dir", "pin"):
            continue  # Of several models, which have to be there.
        # Some go with another.
        with_it = "".join(f"{other}\n" for keys, other in NEEDS.items() if key in keys)
        config.write_text(f'model = "/nowhere.gguf"\n{with_it}{line}\n')
        done = subprocess.run([program, "serve", "--config", config], capture_output=True, text=True, timeout=30)
        assert "/nowhere.gguf" in done.stderr, f"{line}: {done.stderr}"
print(f"options: {len(named)}")
