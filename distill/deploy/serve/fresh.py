"""Loads one artifact in a process of its own as a service does, predicts once, and waits to be looked at.

`python -m distill.deploy.serve.fresh FOLDER BACKEND SCHEME DEVICE THREADS` prints the line `READY`, and ends when its
standard input does. It imports nothing that serving the artifact does not need.
"""

from __future__ import annotations

import sys

from distill.deploy.serve import Heads, load, probe
from distill.deploy.serve.model import Model

READY = "predicted"
"""The line that is printed after the first prediction."""


def main(folder: str, backend: str, scheme: str, device: str, threads: str) -> Model:
    """Load the artifact of a folder and predict once. Raises ValueError for a folder with several heads."""
    model = load(folder, backend=backend, scheme=scheme, device=device, threads=int(threads))
    if isinstance(model, Heads):
        raise ValueError(f"folder: got {folder}, with several heads; must have one")
    model.predict(probe(model))
    return model


if __name__ == "__main__":
    serving = main(*sys.argv[1:])  # kept, because a service keeps it in memory
    print(READY, flush=True)  # noqa: T201
    sys.stdin.read()
