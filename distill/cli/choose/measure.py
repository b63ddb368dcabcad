"""Milliseconds and MiB of encoders on this machine: of models with random weights, of which times do not depend.

As in a search for a shape, two models with few layers are timed, and the time of a layer is their difference.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from distill.cli.choose.table import Checkpoint, config_of

LAYERS, FIRST = (1, 2), (0, 1)
"""Numbers of layers of the two models that are timed, in torch and of those from ONNX files: to capture a layer takes
seconds, and in torch not every type runs without one."""
ROUNDS, LEAST_MS = 5, 20.0
"""Rounds of a timing, and the least time of one."""
FASTER = 8.0
"""How many times as fast as float32 an int8 model may be, for an estimate that rules a model out."""

QUICKER = 2.0
"""How many times as many multiplications in a millisecond an encoder may do as the quickest one that was timed, for an
estimate that rules it out."""

FLOAT, INT8 = "fp32", "int8"


def mib_of(checkpoint: Checkpoint) -> dict[str, float]:
    """Scheme -> MiB of its weights: all in float32; in int8, as ONNX Runtime's file has them, but for what is neither
    the token embeddings nor the layers, which stays float32."""
    embeddings, layers, every = checkpoint.parameters
    whole = {FLOAT: 4 * every}
    if checkpoint.record.onnx:
        whole[INT8] = embeddings + layers + 4 * (every - embeddings - layers)
    return {scheme: millions * 1e6 / 2**20 for scheme, millions in whole.items()}


def applied(checkpoint: Checkpoint) -> float:
    """Millions of multiplications for each token: the weights of its layers, shared ones once for each layer."""
    return checkpoint.parameters[1] * (checkpoint.shape[0] if checkpoint.record.shared_layers else 1)


class Stopwatch:
    """Times encoders, those of one width once: the first always, and a further one if it would probably end in
    `seconds`: it takes as long as the last one of its type, or else as the longest."""

    def __init__(self, length: int, seconds: float) -> None:
        self.length, self.seconds = length, seconds
        self._began, self._took = time.monotonic(), dict[str, float]()
        self._layers: dict[str, dict[str, tuple[float, float]]] = {}
        self._rates: list[float] = []

    @staticmethod
    def _width(checkpoint: Checkpoint) -> str:
        return repr([checkpoint.type, checkpoint.shape[1:], checkpoint.config])

    def over(self, checkpoint: Checkpoint) -> bool:
        """Whether there is no time for an encoder."""
        return (
            self._width(checkpoint) not in self._layers
            and bool(self._took)
            and time.monotonic() - self._began + self._took.get(checkpoint.type, max(self._took.values()))
            > self.seconds
        )

    @functools.cached_property
    def _millions_in_ms(self) -> float:
        """Millions of multiplications in float32 in a millisecond, of a matrix product of a layer's size."""
        import torch

        rows, weights, best = torch.randn(self.length, 768), torch.randn(768, 3072), float("inf")
        for _ in range(30):
            start = time.perf_counter()
            rows @ weights
            best = min(best, 1000 * (time.perf_counter() - start))
        return self.length * weights.numel() / 1e6 / best

    def at_least(self, checkpoint: Checkpoint) -> float:
        """Milliseconds that it takes at the least, without timing it: at the rate of a matrix product, or of the
        quickest encoder that was timed."""
        most = self._millions_in_ms * (FASTER if checkpoint.record.onnx else 1.0)
        return applied(checkpoint) * self.length / min(most, QUICKER * max(self._rates, default=float("inf")))

    def __call__(self, checkpoint: Checkpoint) -> Mapping[str, float]:
        """Form -> milliseconds of one text of `length` tokens."""
        key = self._width(checkpoint)
        if key not in self._layers:
            self._layers[key] = self._timed(checkpoint)
        found = {form: outside + checkpoint.shape[0] * layer for form, (outside, layer) in self._layers[key].items()}
        self._rates.append(applied(checkpoint) * self.length / max(min(found.values()), 1e-6))
        return found

    def _timed(self, checkpoint: Checkpoint) -> dict[str, tuple[float, float]]:
        """Form -> milliseconds outside of the layers, and of a layer."""
        from dataclasses import replace

        import numpy as np

        from distill.config.schemes import SCHEMES, Form
        from distill.deploy.export import untrained
        from distill.inference import latency
        from distill.runtime.cores import cores
        from distill.runtime.machine import silence

        silence()

        int8 = SCHEMES["onnxruntime"]
        in_onnx = [Form(int8.backend, FLOAT), Form(int8.backend, int8.scheme, int8.name)]

        def config(layers: int) -> Any:
            found = config_of(checkpoint, layers)
            if (found.pad_token_id or 0) >= untrained.VOCABULARY:
                found.pad_token_id = 0  # so that the vocabulary of what is timed can be small
            return found

        began = time.monotonic()
        plain = {n: untrained.runners(config(n), [untrained.TORCH], device="cpu", threads=cores()) for n in LAYERS}
        made = {(n, form): runner for n, found in plain.items() for form, runner in found.items()}
        if checkpoint.record.onnx:
            made |= untrained.encoders(config(max(FIRST)), FIRST, in_onnx, cores())
        models = [replace(runner, name=f"{n} {form.name}") for (n, form), runner in made.items()]
        batch = latency.synthetic((1, self.length), untrained.VOCABULARY)
        times = latency.measure(models, [batch], repeats=ROUNDS, warmup=1, least_ms=LEAST_MS)
        middle = {name: float(np.median(values)) for (name, _), values in times.items()}
        self._took[checkpoint.type] = time.monotonic() - began
        found: dict[str, tuple[float, float]] = {}
        for form in dict.fromkeys(form for _, form in made):
            few, more = (n for n, of in made if of == form)
            layer = max(middle[f"{more} {form.name}"] - middle[f"{few} {form.name}"], 0.0) / (more - few)
            found[form.name] = max(middle[f"{few} {form.name}"] - few * layer, 0.0), layer
        return found
