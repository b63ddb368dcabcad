"""Loads one artifact in a process of its own, predicts once, and prints how much memory the process then has.

`python -m distill.deploy.serve.fresh FOLDER BACKEND SCHEME DEVICE THREADS` prints one line of JSON, such as
`{"memory_mib": 512.3}`.
"""

from __future__ import annotations

import json
import sys

import psutil

from distill.deploy.serve import Heads, load, probe


def main(folder: str, backend: str, scheme: str, device: str, threads: str) -> float:
    """Resident memory in MiB after the first prediction of the artifact of a folder.

    Raises:
        ValueError: for a folder with several heads.
    """
    model = load(folder, backend=backend, scheme=scheme, device=device, threads=int(threads))
    if isinstance(model, Heads):
        raise ValueError(f"folder: got {folder}, with several heads; must have one")
    model.predict(probe(model))
    return float(psutil.Process().memory_info().rss) / 2**20


if __name__ == "__main__":
    print(json.dumps({"memory_mib": main(*sys.argv[1:])}), flush=True)  # noqa: T201
