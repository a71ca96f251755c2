"""Cut a graph into steps: what a template computes as one kernel, and what the library computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, fx

from gpudeck.accel.search.fusion.expressions import ELEMENTWISE, PLACED, ROW_OPERATORS

Kind = Literal["product", "rows", "flat", "library"]
Lie = Literal["full", "column", "row", "scalar"]
"""How a tensor lies along a group's shape: everywhere, along the last dimension, along all others,
or nowhere."""
_PRODUCTS = ("linear.default", "matmul.default", "mm.default", "bmm.default")
_WIDEST = 32768
"""The longest row that a program keeps in registers."""
_LONGEST = 65536
"""The longest inner dimension of a product: longer ones need more programs than there are tiles."""


@dataclass(frozen=True)
class Step:
    """Describe one step."""

    kind: Kind
    nodes: tuple[fx.Node, ...]
    """In order; of a product, the first is the product."""
    shape: tuple[int, ...]
    """Of the elements that are computed; of rows, the last dimension is the row."""

    @property
    def exit(self) -> fx.Node:
        """Return the node whose value the step returns."""
        return self.nodes[-1]

    @property
    def outside(self) -> tuple[fx.Node, ...]:
        """Return the tensors that it reads, each once."""
        inside = set(self.nodes)
        read = [n for node in self.nodes for n in node.all_input_nodes if n not in inside]
        return tuple(dict.fromkeys(read))


def operator(node: fx.Node) -> str:
    """Return the name of a node's operator, empty if it is none of torch's."""
    name = str(node.target)
    return name.removeprefix("aten.") if name.startswith("aten.") else ""


def steps_of(nodes: Sequence[fx.Node]) -> list[Step]:
    """Return the steps of a graph in order; every operator belongs to one."""
    found: list[Step] = []
    done: set[fx.Node] = set()
    for place, node in enumerate(nodes):
        if node.op != "call_function" or node in done:
            continue
        step = _begun(
            nodes[place:], [n for n in nodes[:place] if n.op == "placeholder" or n in done]
        )
        done |= set(step.nodes)
        found.append(step)
    return found


def _begun(nodes: Sequence[fx.Node], ready: Sequence[fx.Node]) -> Step:
    """Return the step that begins with the first node."""
    first = nodes[0]
    have = set(ready)
    if operator(first) in _PRODUCTS and _is_product(first):
        shape = _shape(first)
        return Step("product", _grown(nodes, have, shape, _is_placed_elementwise), shape)
    shape = max((_shape(n) for n in first.all_input_nodes), key=math.prod, default=())
    if not _is_elementwise(first) and operator(first) not in ROW_OPERATORS:
        return Step("library", (first,), _shape(first))
    grown: tuple[fx.Node, ...] = ()
    if shape and shape[-1] <= _WIDEST:
        grown = _grown(nodes, have, shape, lambda n: _is_elementwise(n) or _is_of_rows(n, shape))
    if any(operator(n) in ROW_OPERATORS for n in grown):
        return Step("rows", grown, shape)
    grown = _grown(nodes, have, shape, _is_elementwise)
    return Step("flat", grown, shape) if grown else Step("library", (first,), _shape(first))


def _grown(
    nodes: Sequence[fx.Node],
    ready: set[fx.Node],
    shape: tuple[int, ...],
    is_taken: Callable[[fx.Node], bool],
) -> tuple[fx.Node, ...]:
    """Return the longest group from the first node whose values are used outside of it once."""
    inside: list[fx.Node] = []
    best: tuple[fx.Node, ...] = ()
    for node in nodes:
        first = not inside
        if not first and not _belongs(node, inside):
            continue
        known = all(n in ready or n in inside for n in node.all_input_nodes)
        if operator(node) in _PRODUCTS:
            taken = first
        else:
            taken = is_taken(node) and all(
                n in inside or (lie(n, shape) is not None and _value(n).is_contiguous())
                for n in node.all_input_nodes
            )
        if not (known and taken and lie(node, shape) is not None):
            if first:
                return ()
            continue
        inside.append(node)
        exits = [n for n in inside if any(u not in inside for u in n.users)]
        if exits == [node] and (lie(node, shape) == "full" or _is_row_result(node, inside)):
            best = tuple(inside)
    return best


def _belongs(node: fx.Node, inside: Sequence[fx.Node]) -> bool:
    """Return whether a node reads what a group computes, or reads the same as it."""
    read = {n for member in inside for n in member.all_input_nodes} | {*inside}
    return not read.isdisjoint(node.all_input_nodes)


def _is_row_result(node: fx.Node, inside: Sequence[fx.Node]) -> bool:
    return lie(node, _shape(inside[0].all_input_nodes[0])) == "row" and any(
        operator(n) in ROW_OPERATORS for n in inside
    )


def lie(node: fx.Node, shape: tuple[int, ...]) -> Lie | None:
    """Return how a tensor lies along a shape, None if otherwise."""
    own = _shape(node)
    if own == shape:
        return "full"
    if math.prod(own) == 1:
        return "scalar"
    if len(own) > len(shape):
        return None
    padded = (1,) * (len(shape) - len(own)) + own
    if padded[-1] == 1 and padded[:-1] == shape[:-1]:
        return "row"
    if padded[-1] == shape[-1] and math.prod(padded[:-1]) == 1:
        return "column"
    return None


def _is_elementwise(node: fx.Node) -> bool:
    return operator(node) in ELEMENTWISE and _is_written(node)


def _is_placed_elementwise(node: fx.Node) -> bool:
    return _is_elementwise(node) or (operator(node) in PLACED and len(_shape(node)) == 2)


def _is_written(node: fx.Node) -> bool:
    """Return whether the arguments are such that an expression can be written."""
    if operator(node) == "pow.Tensor_Scalar":
        return node.args[1] in (2, 3, 0.5)
    if operator(node) == "softplus.default":
        return len(node.args) == 1
    return "rounding_mode" not in node.kwargs and node.kwargs.get("alpha", 1) is not None


def _is_of_rows(node: fx.Node, shape: tuple[int, ...]) -> bool:
    """Return whether an operator works along the last dimension, and keeps it if it reduces.

    What it reads has that dimension whole: a tile would repeat what was reduced before.
    """
    name, args = operator(node), node.args
    if name not in ROW_OPERATORS or _shape(node.all_input_nodes[0]) != shape:
        return False
    last = (-1, len(shape) - 1)
    if name in ("softmax.int", "log_softmax.int"):
        return args[1] in last and len(args) == 2
    if name == "layer_norm.default":
        return args[1] == [shape[-1]] and len(args) >= 4
    if name == "linalg_vector_norm.default":
        dims = args[2] if len(args) == 4 else None
        return args[1] in (2, 2.0) and isinstance(dims, list) and dims[0] in last and bool(args[3])
    along = args[1] if isinstance(args[1], list) else [args[1]]
    return len(along) == 1 and along[0] in last and len(args) > 2 and args[2] is True


def _is_product(node: fx.Node) -> bool:
    """Return whether the operands are matrices, or as many matrices."""
    x, y = (_value(n) for n in node.args[:2])
    if operator(node) == "bmm.default":
        return x.shape[-1] <= _LONGEST
    flat = x.dim() == 2 or (x.dim() > 2 and x.is_contiguous())
    return flat and y.dim() == 2 and min(y.shape) > 1 and x.shape[-1] <= _LONGEST


def _value(node: Any) -> Tensor:
    found = node.meta["val"]
    assert isinstance(found, Tensor)
    return found


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, Tensor) else ()
