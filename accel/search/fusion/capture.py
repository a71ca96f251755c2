"""Write a module down as a function of tensors in a file, and read its graph for given shapes.

Parameters become inputs, so that nothing is known before a call. The function consists of torch's
own operators: eager torch, torch.compile and the templates all begin from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from gpudeck.accel.runtime import state_files
from gpudeck.accel.search.measures import SLACK
from gpudeck.accel.search.verdict import Source
from gpudeck.accel.search.worker import load

ENTRY = "reference"
_RELEASED = re.compile(r";  [\w = ]+ = None")
_SIGNATURE = re.compile(r"def forward\(self, ")
_CHANGING = re.compile(r"aten\.(\w*dropout\w*|add_|copy_|\w*rand\w*|bernoulli\w*)\.")
_TEXT = '''"""A module as a function of its parameters and buffers, then its inputs."""

import torch
from torch import device

STATE = {!r}
SHAPES = {!r}


{}
'''
_RETURNED = re.compile(r"return \((\w+),\)")


class Captured(NamedTuple):
    """Describe the function that was written down."""

    source: Source
    shapes: tuple[tuple[int, ...], ...]
    """Of its inputs: parameters, then the module's own inputs."""
    free: tuple[int, ...]
    """The inputs whose first dimension may have any size, the same for all: the batch."""
    result: tuple[int, ...]


def capture(module: nn.Module, inputs: Sequence[Any], folder: Path) -> Captured:
    """Write the function of a module to a file.

    Args:
        module: of any device, also of torch's `meta`: no values are read.
        inputs: tensors that the module is called with.
        folder: where the file is written; its name tells functions and shapes apart.

    Raises:
        ValueError: if the module changes its buffers or inputs, draws random numbers, has other
            inputs than tensors of one floating dtype, or returns anything but one tensor.
    """
    program = torch.export.export(module, tuple(inputs))
    specs = program.graph_signature.input_specs
    if odd := [
        s.kind.name for s in specs if s.kind.name not in ("PARAMETER", "BUFFER", "USER_INPUT")
    ]:
        raise ValueError(f"a module with an input of the kind {odd[0]} is not taken")
    code = program.graph_module.code
    if not (returned := _RETURNED.search(code)):
        raise ValueError("the module returns several tensors")
    if changing := _CHANGING.search(code):
        raise ValueError(f"the module changes state or draws numbers ({changing[1]})")
    values = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"]
    if any(not isinstance(v, Tensor) or v.dtype != values[0].dtype for v in values):
        raise ValueError("the inputs must be tensors of one dtype")
    if values[0].dtype not in SLACK:
        raise ValueError("the inputs must be float32, float16 or bfloat16")
    shapes = tuple(tuple(v.shape) for v in values)
    body = _RETURNED.sub(rf"return {returned[1]}", _RELEASED.sub("", code))
    text = _SIGNATURE.sub(f"def {ENTRY}(", body.strip())
    state = tuple(str(spec.target) for spec in specs if spec.kind.name != "USER_INPUT")
    source = _written(folder / type(module).__name__, _TEXT.format(state, shapes, text))
    own = [i for i, s in enumerate(specs) if s.kind.name == "USER_INPUT"]
    result = graph_of(source, shapes, values[0].dtype).result
    return Captured(source, shapes, _free(source, shapes, own, values[0].dtype), result)


def _written(begin: Path, text: str) -> Source:
    """Write a file whose name begins like this and ends with the hash of the text."""
    digest = sha256(text.encode()).hexdigest()[:16]
    file = begin.with_name(f"{begin.name}-{digest}.py")
    state_files.replace(file, text.encode())
    return Source(str(file), ENTRY)


def bind(
    function: Callable[..., Tensor], module: nn.Module, source: Source
) -> Callable[..., Tensor]:
    """Return a captured module's function of the module's inputs alone.

    Args:
        function: computes what was captured, and no gradients.
        module: holds the parameters and buffers; changes of them count.
        source: the file into which the module was written.
    """
    names: tuple[str, ...] = load(source).__globals__["STATE"]
    held = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }

    def call(*inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return function(*(held[name] for name in names), *inputs)

    return call


def _free(
    source: Source, shapes: Sequence[tuple[int, ...]], own: Sequence[int], dtype: torch.dtype
) -> tuple[int, ...]:
    """Return the inputs that form a batch: all of the module's own, or else the first one."""
    for chosen in (tuple(own), tuple(own[:1])):
        if any(not shapes[i] for i in chosen) or len({shapes[i][0] for i in chosen}) != 1:
            continue
        try:
            graph_of(source, with_batch(shapes, chosen, 3), dtype)
        except Exception:  # noqa: BLE001, S112 - torch's shape errors have many kinds
            continue
        return chosen
    return ()


def with_batch(
    shapes: Sequence[tuple[int, ...]], free: Sequence[int], batch: int
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes with another size of the batch."""
    return tuple((batch, *s[1:]) if i in free else s for i, s in enumerate(shapes))


class Graph(NamedTuple):
    """Hold the operators of a function in order; each node's `meta["val"]` is a tensor without
    memory that has its shape and strides."""

    nodes: list[fx.Node]
    result: tuple[int, ...]


def graph_of(source: Source, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> Graph:
    """Return the graph of a captured function for inputs of these shapes.

    Raises:
        Exception: what torch raises if the function does not take the shapes.
    """
    nodes = list(fx.symbolic_trace(load(source)).graph.nodes)
    given = iter(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
    for node in nodes:
        if node.op == "placeholder":
            node.meta["val"] = next(given)
        elif node.op == "call_function":
            args = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            node.meta["val"] = node.target(*args[0], **args[1])
    (result,) = (n.args[0].meta["val"] for n in nodes if n.op == "output")
    return Graph(nodes, tuple(result.shape))
