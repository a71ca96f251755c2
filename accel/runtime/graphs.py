"""Replay a fixed sequence of GPU work as one CUDA graph, which costs the host almost no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

_Result = TypeVar("_Result")
_WARM_UP = 3


class Replay(Generic[_Result]):
    """Capture `fn` on example inputs, and replay it on inputs of the same shapes and dtypes.

    `replay(*inputs)` copies the inputs into the graph's own buffers, runs the graph on the current
    stream and returns what `fn` returned when it was captured: the same tensors each time, which
    the next replay overwrites (clone what must last). An input that is one of `replay.inputs`
    itself is not copied, so a caller that writes into those buffers saves the copy.

    The graph is what the GPU did during one call. Whatever the host decides in `fn` is decided
    once: Python's branches, sizes, scalars, the memory of tensors other than the inputs. `fn` must
    not read results back (`item`, `cpu`, printing), or allocate outside PyTorch's caching
    allocator. Kernels are compiled in three calls before the captured one. `fn` runs without
    autograd. Two threads must not share a replay, as its buffers exist once.
    """

    def __init__(self, fn: Callable[..., _Result], *examples: Tensor) -> None:
        """Run `fn` three times on copies of the examples on a side stream, then capture it.

        Raises:
            ValueError: if the examples are not on one CUDA GPU, or there are none.
            RuntimeError: if `fn` does something that a graph cannot record.
        """
        devices = {example.device for example in examples}
        if len(devices) != 1 or next(iter(devices)).type != "cuda":
            found = ", ".join(sorted(map(str, devices))) or "none"
            raise ValueError(f"a CUDA graph needs example inputs on one CUDA GPU; got {found}")
        self.inputs = tuple(example.detach().clone() for example in examples)
        """The buffers that the graph reads."""
        self._graph, self._result = record(lambda: fn(*self.inputs), self.inputs[0].device)

    def __call__(self, *inputs: Tensor) -> _Result:
        """Replay on `inputs`.

        Raises:
            ValueError: if number, shapes, dtypes or device differ from the examples.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(f"captured with {len(self.inputs)} inputs; got {len(inputs)}")
        for i, (buffer, given) in enumerate(zip(self.inputs, inputs, strict=True)):
            if given is buffer:
                continue
            if (
                given.shape != buffer.shape
                or given.dtype != buffer.dtype
                or given.device != buffer.device
            ):
                raise ValueError(
                    f"input {i} was captured as {_describe(buffer)}; got {_describe(given)}"
                )
            buffer.copy_(given)
        self._graph.replay()
        return self._result


class Captured:
    """Capture what `fn` does on the GPU, and replay it on the current stream.

    `fn` lives as long as its graph, because the kernels read the memory of the tensors that it
    refers to.
    """

    def __init__(self, fn: Callable[[], object], device: torch.device) -> None:
        """Run `fn` three times on a side stream, then capture it.

        Raises:
            RuntimeError: if `fn` does something that a graph cannot record.
        """
        self._fn = fn
        self._graph, self._result = record(fn, device)

    def __call__(self) -> None:
        """Replay."""
        self._graph.replay()


def record(fn: Callable[[], _Result], device: torch.device) -> tuple[torch.cuda.CUDAGraph, _Result]:
    """Run `fn` three times on a side stream, then capture it; return the graph and its result.

    Raises:
        RuntimeError: if `fn` does something that a graph cannot record.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.no_grad():
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                fn()
        torch.cuda.current_stream().wait_stream(aside)
        try:
            with torch.cuda.graph(graph):
                result = fn()
        except RuntimeError as error:
            raise RuntimeError(
                f"this function cannot be captured in a CUDA graph: {error}"
            ) from error
    return graph, result


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"
