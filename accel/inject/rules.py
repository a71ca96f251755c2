"""Say how the form of scores changes with each operation that programs apply to scores.

A rule takes the arguments of the operation, at least one of which is Scores. It returns the new
form, or None if the operation leads to something that our attention does not compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.inject import form as forms
from gpudeck.accel.inject.form import Form
from gpudeck.accel.inject.layout import Layout

Rule = Callable[..., Form | None]


def _of(value: Any) -> Form | None:
    """Return the form of Scores whose tensor has not been computed."""
    return value.form if hasattr(value, "form") and value.value is None else None


def _other(value: Any) -> Any:
    """Return an operand; one that is Scores, too, is computed and counts as a bias."""
    return value.tensor() if hasattr(value, "form") else value


def _symmetric(operation: Callable[[Form, Any], Form | None]) -> Rule:
    def rule(a: Any, b: Any, **options: Any) -> Form | None:
        form, other = (_of(a), b) if _of(a) else (_of(b), a)
        return None if form is None or options else operation(form, _other(other))

    return rule


def _divide(a: Any, b: Any, **options: Any) -> Form | None:
    form = _of(a)
    return None if form is None or options else forms.multiply(form, _other(b), divide=True)


def _subtract(a: Any, b: Any, **options: Any) -> Form | None:
    form = _of(a)
    return None if form is None or options else forms.add(form, _other(b), subtract=True)


def _reversed(rule: Rule) -> Rule:
    return lambda a, b: rule(b, a)


def _fill(scores: Any, mask: Any, value: Any) -> Form | None:
    form = _of(scores)
    return form and forms.fill(form, mask, value)


def _where(mask: Any, a: Any, b: Any) -> Form | None:
    if form := _of(a):
        return forms.fill(form, mask, b, where=False)
    return (form := _of(b)) and forms.fill(form, mask, a)


def _softmax(scores: Any, dim: int | None = None, dtype: Any = None, **options: Any) -> Form | None:
    options.pop("_stacklevel", None)
    form = _of(scores)
    return None if form is None or options else forms.apply_softmax(form, dim, dtype)


def _dropout(
    scores: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Form | None:
    return _of(scores) if not training or p == 0 else None


def _to(scores: Any, *args: Any, **options: Any) -> Form | None:
    form, wanted = _of(scores), [*args, *options.values()]
    if form is None or options.keys() - {"dtype", "device"}:
        return None
    for value in wanted:
        if isinstance(value, torch.dtype):
            form = form and forms.cast(form, value)
        elif isinstance(value, Tensor):
            same = value.device == form.q.device if form else False
            form = forms.cast(form, value.dtype) if form and same else None
        elif form is None or isinstance(value, bool) or torch.device(value) != form.q.device:
            return None
    return form


def _cast(dtype: torch.dtype) -> Rule:
    def rule(scores: Any) -> Form | None:
        form = _of(scores)
        return form and forms.cast(form, dtype)

    return rule


def _tanh(scores: Any) -> Form | None:
    form = _of(scores)
    return form and forms.take_tanh(form)


def _nan_to_num(scores: Any, nan: float | None = 0.0) -> Form | None:
    form = _of(scores)
    return forms.zero_nan(form) if form and not nan else None


def _same(scores: Any, *_: Any, **options: Any) -> Form | None:
    return None if options else _of(scores)


def _relayout(change: Callable[..., Layout | None]) -> Rule:
    def rule(scores: Any, *args: Any, **options: Any) -> Form | None:
        form = _of(scores)
        if form is None:
            return None
        changed = change(form.layout, *args, **options)
        return None if changed is None else replace(form, layout=changed)

    return rule


def _sizes(args: Sequence[Any]) -> list[int] | None:
    listed = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    return list(listed) if all(isinstance(size, int) for size in listed) else None


def _view(layout: Layout, *args: Any, **options: Any) -> Layout | None:
    sizes = _sizes([*args, *options.values()])
    return None if sizes is None else layout.viewed(sizes)


def _permute(layout: Layout, *args: Any, dims: Any = None) -> Layout | None:
    order, n = _sizes(args or (dims,)), len(layout.shape)
    if order is None or sorted(axis % n for axis in order) != list(range(n)):
        return None
    return layout.permuted(order)


def _transpose(layout: Layout, dim0: int, dim1: int) -> Layout | None:
    order = list(range(len(layout.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return layout.permuted(order)


def _unsqueeze(layout: Layout, dim: int) -> Layout | None:
    shape = list(layout.shape)
    shape.insert(dim % (len(shape) + 1), 1)
    return layout.viewed(shape)


def _squeeze(layout: Layout, dim: int) -> Layout | None:
    shape = list(layout.shape)
    if shape[dim] == 1:
        del shape[dim]
    return layout.viewed(shape)


def _flatten(layout: Layout, start_dim: int = 0, end_dim: int = -1) -> Layout | None:
    shape, n = layout.shape, len(layout.shape)
    first, last = start_dim % n, end_dim % n
    return layout.viewed([*shape[:first], -1, *shape[last + 1 :]])


def _unflatten(layout: Layout, dim: int, sizes: Sequence[int]) -> Layout | None:
    shape, at = layout.shape, dim % len(layout.shape)
    return layout.viewed([*shape[:at], *sizes, *shape[at + 1 :]])


_multiply, _add = _symmetric(forms.multiply), _symmetric(forms.add)
_LAYOUT: dict[str, Callable[..., Layout | None]] = {
    "view": _view, "reshape": _view, "permute": _permute, "transpose": _transpose,
    "swapaxes": _transpose, "swapdims": _transpose, "unsqueeze": _unsqueeze,
    "squeeze": _squeeze, "flatten": _flatten, "unflatten": _unflatten,
}  # fmt: skip
RULES: dict[str, Rule] = {
    "mul": _multiply, "__mul__": _multiply, "__rmul__": _multiply, "multiply": _multiply,
    "add": _add, "__add__": _add, "__radd__": _add,
    "div": _divide, "__truediv__": _divide, "true_divide": _divide, "divide": _divide,
    "sub": _subtract, "__sub__": _subtract, "subtract": _subtract,
    "__rsub__": _reversed(_subtract), "__rdiv__": _reversed(_divide),
    "__rtruediv__": _reversed(_divide),
    "masked_fill": _fill, "where": _where, "softmax": _softmax, "dropout": _dropout,
    "to": _to, "type": _to, "type_as": _to, "float": _cast(torch.float32),
    "half": _cast(torch.float16), "bfloat16": _cast(torch.bfloat16), "tanh": _tanh,
    "nan_to_num": _nan_to_num, "contiguous": _same, "clone": _same,
    **{name: _relayout(change) for name, change in _LAYOUT.items()},
}  # fmt: skip
"""The rules, by the names of operations."""
LAYOUT = frozenset((*_LAYOUT, "contiguous", "float", "half", "bfloat16", "to", "type", "type_as"))
"""Operations whose result may share its elements with the scores."""
IN_PLACE = {
    "__imul__": "mul", "__iadd__": "add", "__itruediv__": "div", "__idiv__": "div",
    "__isub__": "sub", "mul_": "mul", "add_": "add", "div_": "div", "sub_": "sub",
    "masked_fill_": "masked_fill",
}  # fmt: skip
PRODUCTS = frozenset(("matmul", "__matmul__", "__rmatmul__", "bmm", "einsum"))
"""Operations that multiply weights with values."""
