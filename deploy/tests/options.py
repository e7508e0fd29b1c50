"""The example of a configuration names every option of `arclight serve`, and no other.

    options.py ARCLIGHT FILE
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

program, path = sys.argv[1:]
usage = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
options = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", usage, re.M)) - {"config", "help"}
text = Path(path).read_text()
tomllib.loads(text)
named = set(re.findall(r"^#?([a-z-]+) = ", text, re.M))
assert named == options, f"not in the file: {sorted(options - named)}; no option: {sorted(named - options)}"
# What is behind a comment is valid as well.
tables = re.split(r"^\[models\.\w+\]$", text, flags=re.M)
for table in tables:
    tomllib.loads(re.sub(r"^#(?=[a-z-]+ = )", "", table, flags=re.M))
print(f"options: {len(named)}")
