"""Write the Triton kernel of a step: a template with the step's own expressions in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import fx

from gpudeck.accel.search.fusion.expressions import ELEMENTWISE, HELPERS, PLACED, ROW_OPERATORS
from gpudeck.accel.search.fusion.grouping import Step, lie, operator

_HEAD = '''"""Written by GPU Deck from a template."""

import triton
import triton.language as tl

'''

_FLAT = """

@triton.jit
def compute({pointers}out_at, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
{lines}
    tl.store(out_at + at, {exit}, mask=inside)
"""

_ROWS = """

@triton.jit(do_not_specialize=["rows"])
def compute({pointers}out_at, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.arange(0, BLOCK)
    here = row < rows
    inside = here[:, None] & (column < columns)[None, :]
    at = row[:, None] * columns + column[None, :]
{lines}
    tl.store({target}, {exit}, mask={mask})
"""

_PRODUCT = """

@triton.jit(do_not_specialize=["m"])
def compute(
    {operands}, {pointers}out_at, m, n, depth, a_row, a_depth, a_batch, b_column, b_depth, b_batch,
    nothing, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):
    across, along = tl.cdiv(n, BN), tl.cdiv(m, BM)
    number = tl.program_id(0)
    group = number // (GROUP * across)
    height = tl.minimum(along - group * GROUP, GROUP)
    row = (group * GROUP + number % (GROUP * across) % height) * BM + tl.arange(0, BM)
    column = number % (GROUP * across) // height * BN + tl.arange(0, BN)
    batch = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, BK)
    a_to = batch * a_batch + row.to(tl.int64)[:, None] * a_row + k[None, :] * a_depth
    b_to = batch * b_batch + k[:, None] * b_depth + column.to(tl.int64)[None, :] * b_column
    total = tl.zeros((BM, BN), tl.float32)
{loop}
    inside = (row < m)[:, None] & (column < n)[None, :]
    line = batch * m + row
    at = line[:, None] * n + column[None, :]
{lines}
    tl.store(out_at + at, {exit}, mask=inside)
"""

_SPLIT_OPERANDS = "a_high, a_low, b_high, b_low, a_scale, b_scale"
_SPLIT = """    for _ in range(0, depth, BK):
        high, low = tl.load(a_high + a_to), tl.load(a_low + a_to)
        other, rest = tl.load(b_high + b_to), tl.load(b_low + b_to)
        part = tl.dot(low, other)
        part = tl.dot(high, rest, part)
        # tensor cores cut sums off: what they sum is short, and added outside of them
        total += tl.dot(high, other, part)
        a_to += BK * a_depth
        b_to += BK * b_depth
    all_m, all_n = along * BM, across * BN
    total *= tl.load(a_scale + batch * all_m + row)[:, None]
    total *= tl.load(b_scale + batch * all_n + column)[None, :]"""

_WHOLE_OPERANDS = "a_at, b_at"
_WHOLE = """    start = tl.full((BM, BN), nothing, tl.float32)
    for begin in range(0, depth, BK):
        left = (row < m)[:, None] & (begin + k < depth)[None, :]
        right = (begin + k < depth)[:, None] & (column < n)[None, :]
        a = tl.load(a_at + a_to, mask=left, other=0.0)
        b = tl.load(b_at + b_to, mask=right, other=0.0)
        # the sum begins with a zero that the compiler does not know: it adds outside then
        total += tl.dot(a, b, start, input_precision="tf32x3")
        a_to += BK * a_depth
        b_to += BK * b_depth"""

_AT = {
    "flat": {"full": "at", "column": "at % columns", "row": "at // columns"},
    "rows": {"full": "at", "column": "column[None, :]", "row": "row[:, None]"},
    "product": {"full": "at", "column": "column[None, :]", "row": "line[:, None]"},
}
_MASKS = {
    "flat": {"full": "inside", "column": "inside", "row": "inside"},
    "rows": {
        "full": "inside", "column": "(column < columns)[None, :]", "row": "here[:, None]",
    },
    "product": {"full": "inside", "column": "(column < n)[None, :]", "row": "(row < m)[:, None]"},
}  # fmt: skip


def write_kernel(step: Step, *, split: bool = True) -> str:
    """Return the source of the kernel `compute` of a step that no library computes.

    Args:
        step: of the kind flat, rows or product.
        split: whether a product's operands come as two matrices of float16; see `split_kernels`.
    """
    names: dict[fx.Node, str] = {}
    lines: list[str] = []
    read = extras(step)
    for number, node in enumerate(read):
        names[node] = f"x{number}"
        where = lie(node, step.shape)
        if where == "scalar":
            lines.append(f"x{number} = tl.load(x{number}_at).to(tl.float32)")
        else:
            assert where is not None
            at, mask = _AT[step.kind][where], _MASKS[step.kind][where]
            lines.append(
                f"x{number} = tl.load(x{number}_at + {at}, mask={mask}, other=0.0).to(tl.float32)"
            )
    for number, node in enumerate(step.nodes):
        names[node] = f"y{number}"
        lines += _lines_of(node, f"y{number}", names)
    pointers = "".join(f"x{number}_at, " for number in range(len(read)))
    given: dict[str, str] = {
        "pointers": pointers, "lines": "\n".join(f"    {line}" for line in lines),
        "exit": f"{names[step.exit]}.to(out_at.dtype.element_ty)",
    }  # fmt: skip
    helpers = HELPERS if re.search(r"\b(expm1|softplus|mish|tanh)\(", given["lines"]) else ""
    if step.kind == "flat":
        return _HEAD + helpers + _FLAT.format(**given)
    if step.kind == "rows":
        full = lie(step.exit, step.shape) == "full"
        given["target"] = "out_at + at" if full else "out_at + row[:, None]"
        given["mask"] = "inside" if full else "here[:, None]"
        return _HEAD + helpers + _ROWS.format(**given)
    given["operands"] = _SPLIT_OPERANDS if split else _WHOLE_OPERANDS
    given["loop"] = _SPLIT if split else _WHOLE
    return _HEAD + helpers + _PRODUCT.format(**given)


def extras(step: Step) -> tuple[fx.Node, ...]:
    """Return the tensors that a kernel reads, beside the operands of a product."""
    if step.kind != "product":
        return step.outside
    product, *others = step.nodes
    inside = {*step.nodes}
    read = [product.args[2]] if len(product.args) > 2 else []
    read += [n for node in others for n in node.all_input_nodes if n not in inside]
    return tuple(dict.fromkeys(n for n in read if isinstance(n, fx.Node)))


def _lines_of(node: fx.Node, name: str, names: Mapping[fx.Node, str]) -> list[str]:
    """Return the lines that compute a node into a variable."""
    what = operator(node)
    if what in ROW_OPERATORS:
        return _row_lines(node, name, names)
    if what in ELEMENTWISE or what in PLACED:
        write = ELEMENTWISE.get(what) or PLACED[what]
        given = {key: _text(value, names) for key, value in node.kwargs.items()}
        return [f"{name} = {write(*(_text(a, names) for a in node.args), **given)}"]
    bias = node.args[2] if len(node.args) > 2 else None
    return [f"{name} = total" + (f" + {names[bias]}" if isinstance(bias, fx.Node) else "")]


def _row_lines(node: fx.Node, name: str, names: Mapping[fx.Node, str]) -> list[str]:
    args: Sequence[object] = node.args
    given = {"x": _text(args[0], names), "y": name}
    if operator(node) == "layer_norm.default":
        given |= {
            "weight": _text(args[2], names), "bias": _text(args[3], names),
            "eps": repr(args[4]) if len(args) > 4 else "1e-5",
        }  # fmt: skip
    return [f"{name} = {line.format(**given)}" for line in ROW_OPERATORS[operator(node)]]


def _text(value: object, names: Mapping[fx.Node, str]) -> str:
    return names[value] if isinstance(value, fx.Node) else repr(value)
