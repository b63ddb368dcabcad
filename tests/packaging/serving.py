"""Answers of exported folders in an environment without torch: `python serving.py FOLDERS`, which is JSON on standard
input, folder -> rows. Prints JSON: the answers of each folder, and the message for a name that needs torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import distill

for absent in ("torch", "transformers", "scipy", "pyarrow"):
    assert find_spec(absent) is None, absent

answers, typed = {}, {}
for folder, rows in json.load(sys.stdin).items():
    given = [tuple(row) if isinstance(row, list) else row for row in rows]
    answers[folder] = distill.load(folder, threads=1).predict(given)
    if folder.endswith("/classification"):
        command = [sys.executable, "-I", "-m", "distill.predict", folder, *rows]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        typed[folder] = [json.loads(line) for line in done.stdout.splitlines()]
try:
    distill.run  # noqa: B018
except ImportError as error:
    refused = str(error)
print(json.dumps({"answers": answers, "typed": typed, "refused": refused, "distill": distill.__file__}))
