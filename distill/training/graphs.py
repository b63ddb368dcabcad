"""CUDA graphs of training steps: a step whose shapes came before is replayed, as one launch.

A GPU computes a step of a small model on a short batch in less time than Python takes to launch its kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from distill.losses.objective import Objective
from distill.losses.shared_encoder import Trainable
from distill.models import families
from distill.training.fixed_shapes import fixed

AFTER = 2
"""Steps of a shape before it is recorded, because recording takes as long as a few steps."""
MOST = 64
"""Maximum number of graphs of a training. Each graph keeps its inputs and some memory of the driver."""

Backward = Callable[[dict[str, Tensor], Tensor], Tensor]
"""(batch, factors [terms]) -> values [terms]; adds to the gradients of parameters."""
Shapes = tuple[tuple[str, torch.Size], ...]


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    batch: dict[str, Tensor]
    factors: Tensor
    values: Tensor
    gradients: list[tuple[nn.Parameter, Tensor]]


class Graphs:
    """Runs `backward`: as a CUDA graph for batch shapes that have come more than `AFTER` times, else step by step.

    Random numbers are the same either way. If a recording fails, no other is tried, and `log` gets a line. `parameters`
    are those that `backward` gives gradients, which must be None before each call; `prepared` gives each batch, on the
    host, one of few shapes.
    """

    def __init__(
        self,
        backward: Backward,
        parameters: Sequence[nn.Parameter],
        log: Callable[[str], None] = lambda text: None,
        prepared: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
    ) -> None:
        self._backward, self._parameters, self._log, self._prepared = backward, parameters, log, prepared
        self._seen: Counter[Shapes] = Counter()
        self._recorded: dict[Shapes, _Recorded] = {}
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._pool: Any = None
        self.replayed = 0
        """Number of calls that replayed a graph."""
        self.failure: str | None = None
        """Why a recording failed."""

    def __call__(self, batch: dict[str, Tensor], factors: Tensor) -> Tensor:
        """The values [terms] of a batch, whose tensors may be on the host. Read them before the next call."""
        batch = self._prepared(batch)
        shapes = shapes_of(batch)
        self._seen[shapes] += 1
        new = shapes not in self._recorded and self._seen[shapes] > AFTER
        if new and self.failure is None and len(self._recorded) < MOST:
            self._try_to_record(shapes, batch, factors)
        if shapes not in self._recorded:
            return self._backward(batch, factors)
        recorded = self._recorded[shapes]
        for name, tensor in batch.items():
            recorded.batch[name].copy_(pinned(tensor), non_blocking=True)
        recorded.factors.copy_(factors)
        for parameter, gradient in recorded.gradients:
            parameter.grad = gradient
        recorded.graph.replay()
        self.replayed += 1
        return recorded.values

    def freed(self) -> bool:
        """Free the memory of all recordings, and make no more. Returns whether there were any."""
        had = bool(self._recorded)
        self._recorded, self._gradients, self._pool = {}, {}, None
        self.failure = self.failure or "the memory is needed for steps"
        return had

    def _try_to_record(self, shapes: Shapes, batch: dict[str, Tensor], factors: Tensor) -> None:
        state = torch.cuda.get_rng_state()
        try:
            self._recorded[shapes] = self._record({n: sent(t, factors.device) for n, t in batch.items()}, factors)
        except RuntimeError as error:
            self.failure = str(error).split("\n")[0]
            self._log(f"steps are not recorded as CUDA graphs, and take longer: {self.failure}")
            for parameter in self._parameters:
                parameter.grad = None
            # A recording that failed leaves the generator in a state in which eager code cannot draw from it.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
        torch.cuda.set_rng_state(state)

    def _record(self, batch: dict[str, Tensor], factors: Tensor) -> _Recorded:
        factors, stream = factors.clone(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries allocate their memory before the recording
            self._backward(batch, factors)
        torch.cuda.current_stream().wait_stream(stream)
        used = [parameter for parameter in self._parameters if parameter.grad is not None]
        for parameter in used:
            if parameter not in self._gradients:
                self._gradients[parameter] = torch.zeros_like(parameter)
            parameter.grad = self._gradients[parameter]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            torch._foreach_zero_([self._gradients[parameter] for parameter in used])
            values = self._backward(batch, factors)
        self._pool = graph.pool()
        return _Recorded(graph, batch, factors, values, [(p, self._gradients[p]) for p in used])


def shapes_of(batch: Mapping[str, Tensor]) -> Shapes:
    """What the batches of a graph have in common: the shapes of all their tensors."""
    return tuple((name, tensor.shape) for name, tensor in sorted(batch.items()))


def graphs_of(
    run: Backward, objective: Trainable, accelerator: Accelerator, log: Callable[[str], None]
) -> Graphs | None:
    """The graphs of a training, or None where steps cannot be recorded.

    They cannot on a CPU; with several processes, which send gradients while they compute others; with gates, whose
    masks depend on the step; and with a model whose code cannot be recorded.
    """
    if accelerator.device.type != "cuda" or accelerator.num_processes > 1 or objective.gates is not None:
        return None
    if not all(map(families.recordable, objective.models)):
        return None
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    padded = isinstance(objective, Objective) and not any(term.of_batch for term in objective.terms.values())
    return Graphs(run, parameters, log, fixed if padded else dict)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """`values`, of any shape, on a device. A copy to a GPU from pinned memory does not wait for the work before it."""
    return (pinned(values) if device.type == "cuda" else values).to(device, non_blocking=True)


def pinned(values: Tensor) -> Tensor:
    """`values`, of any shape, in memory from which a copy to a GPU does not wait; unchanged on a GPU."""
    return values if values.is_cuda else values.pin_memory()
