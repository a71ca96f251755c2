"""Describe scores that have not been computed: softmax(cap(q kᵀ · scale) + bias), masked.

Each function here returns the form after one more operation, or None if the operation leads to
something that our attention does not compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpudeck.accel.inject.equation import Equation, order
from gpudeck.accel.inject.layout import Axis, Layout, Permute, View

HIDES = -1e4
"""A score at or below this hides its key: exp(-1e4) is 0 in every precision."""
ABSORBS = -1e8
"""A score at or below this absorbs what is added to it, in float32 and below."""

SHIFTS = 1e3
"""Numbers up to this may be added to all scores; larger ones would come near a fill value."""


@dataclass(frozen=True)
class Form:
    """Describe scores over the canonical axes [batch..., queries, keys]."""

    q: Tensor
    """[batch..., queries, features]; batch axes may be 1 where those of `k` are not."""
    k: Tensor
    """[batch..., keys, features]"""
    layout: Layout
    dtype: torch.dtype
    """What the program's own scores would have."""
    scale: float = 1.0
    factors: tuple[Tensor, ...] = ()
    """Tensors by which the scores are multiplied; they have one key."""
    cap: float | None = None
    """Scores are cap x tanh(q kᵀ · scale)."""
    biases: tuple[Tensor, ...] = ()
    hidden: tuple[tuple[Tensor, float], ...] = ()
    """Masks that are True where a key is hidden, and the score that it gets."""
    normalised: bool = False
    """True after the softmax."""
    blind_is_zero: bool = False
    """True if NaN, which a query without keys gives, is replaced by 0."""


def product(a: Tensor, b: Tensor, by: Equation) -> Form | None:
    """Return the form of a product of queries and keys.

    None if features are not summed over one axis, or no axis belongs to queries or keys alone.
    """
    own_a = [axis for axis in by.a if axis not in by.b]
    own_b = [axis for axis in by.b if axis not in by.a]
    if not by.plain or len(by.summed) != 1 or not own_a or not own_b:
        return None
    if not (a.is_floating_point() and a.dtype == b.dtype and a.device == b.device):
        return None
    (features,), query, key = by.summed, own_a[-1], own_b[-1]
    batch = [axis for axis in by.out if axis not in (query, key)]
    sizes = dict(zip(by.b, b.shape, strict=True))
    for axis, size in zip(by.a, a.shape, strict=True):
        if sizes.get(axis, 1) == 1:
            sizes[axis] = size
        elif size not in (1, sizes[axis]):
            return None
    if dtype := _autocast(a):
        a, b = a.to(dtype), b.to(dtype)
    axes = (*batch, query, key)
    shape = tuple(sizes[axis] for axis in axes)
    layout = Layout(shape, (*("b" for _ in batch), "q", "k"))
    if (moves := order(axes, by.out)) != list(range(len(axes))):
        layout = layout.permuted(moves)
    q, k = arrange(a, by.a, (*batch, query, features)), arrange(b, by.b, (*batch, key, features))
    return Form(q, k, layout, a.dtype)


def arrange(t: Tensor, axes: tuple[str, ...], wanted: tuple[str, ...]) -> Tensor:
    """Bring named axes into another order; those that are missing become axes of size 1."""
    t = t.permute(order(axes, [axis for axis in wanted if axis in axes]))
    for place, axis in enumerate(wanted):
        if axis not in axes:
            t = t.unsqueeze(place)
    return t


def _autocast(t: Tensor) -> torch.dtype | None:
    """Return the dtype that autocast gives to products, or None."""
    kind = t.device.type
    if t.dtype == torch.float64 or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def _wider(form: Form, t: Tensor) -> torch.dtype:
    """Return the dtype of the scores after an operation with `t`; a number keeps theirs."""
    return torch.promote_types(form.dtype, t.dtype) if t.ndim else form.dtype


def multiply(form: Form, by: object, *, divide: bool = False) -> Form | None:
    """Multiply or divide by a number or a tensor."""
    if form.normalised or isinstance(by, bool):
        return None
    if isinstance(by, (int, float)):
        if not math.isfinite(by) or by == 0:
            return None
        return _scale(form, 1 / by if divide else float(by))
    if not isinstance(by, Tensor) or not by.is_floating_point():
        return None
    factor = form.layout.broadcast(by)
    if factor is None or form.cap is not None or form.biases or form.hidden:
        return None
    if factor.ndim and factor.shape[-1] != 1:
        return None
    factor = factor.reciprocal() if divide else factor
    return replace(form, factors=(*form.factors, factor), dtype=_wider(form, by))


def _scale(form: Form, by: float) -> Form | None:
    if by < 0 and (form.hidden or form.cap is not None):
        return None
    hidden = tuple((mask, fill * by) for mask, fill in form.hidden)
    if any(fill > HIDES for _, fill in hidden):
        return None
    biases = tuple(bias * by for bias in form.biases)
    if form.cap is not None:
        return replace(form, cap=form.cap * by, biases=biases, hidden=hidden)
    return replace(form, scale=form.scale * by, biases=biases, hidden=hidden)


def add(form: Form, other: object, *, subtract: bool = False) -> Form | None:
    """Add or subtract a bias. A number is added to all scores of a row, which softmax ignores."""
    if form.normalised or isinstance(other, bool):
        return None
    if isinstance(other, (int, float)):
        return form if abs(other) <= SHIFTS and not form.hidden else None
    if not isinstance(other, Tensor) or not other.is_floating_point():
        return None
    if any(fill > ABSORBS for _, fill in form.hidden):
        return None
    bias = form.layout.broadcast(other)
    if bias is None:
        return None
    bias = -bias if subtract else bias
    return replace(form, biases=(*form.biases, bias), dtype=_wider(form, other))


def fill(form: Form, mask: object, value: object, *, where: bool = True) -> Form | None:
    """Give the score `value` where the mask is `where`, which must be low enough to hide a key."""
    fill = _number(value)
    if form.normalised or fill is None or not fill <= HIDES:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        return None
    hidden = form.layout.broadcast(mask)
    if hidden is None:
        return None
    return replace(form, hidden=(*form.hidden, (hidden if where else ~hidden, fill)))


def _number(value: object) -> float | None:
    if isinstance(value, Tensor):
        on_host = value.ndim == 0 and value.device.type == "cpu" and not value.requires_grad
        return float(value.item()) if on_host and not torch.compiler.is_compiling() else None
    return float(value) if isinstance(value, (int, float)) else None


def take_tanh(form: Form) -> Form | None:
    """Take the hyperbolic tangent of scores that nothing has been added to."""
    if form.normalised or form.cap is not None or form.biases or form.hidden:
        return None
    return replace(form, cap=1.0)


def apply_softmax(form: Form, dim: int | None, dtype: torch.dtype | None) -> Form | None:
    """Normalise over the keys; where the axis is that of the queries, both change their roles."""
    if form.normalised or dim is None or not -len(form.layout.axes) <= dim < len(form.layout.axes):
        return None
    axis = form.layout.axes[dim]
    if axis not in ("q", "k"):
        return None
    turned = form if axis == "k" else _swap(form)
    return turned and replace(turned, normalised=True, dtype=dtype or form.dtype)


def _swap(form: Form) -> Form | None:
    """Exchange queries and keys; None if a factor differs from query to query."""
    n, old = form.q.ndim, form.layout
    turn = Permute((*range(n - 2), n - 1, n - 2))
    factors = tuple(turn.undo(t) for t in form.factors)
    if any(t.shape[-1] != 1 for t in factors):
        return None
    steps = (
        replace(step, old_axes=_rename(step.old_axes)) if isinstance(step, View) else step
        for step in old.steps
    )
    return replace(
        form,
        q=form.k,
        k=form.q,
        layout=Layout(old.shape, _rename(old.axes), (turn, *steps)),
        factors=factors,
        biases=tuple(turn.undo(t) for t in form.biases),
        hidden=tuple((turn.undo(t), fill) for t, fill in form.hidden),
    )


def _rename(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    names = {"q": "k", "k": "q"}
    return tuple(names.get(axis, axis) for axis in axes)


def cast(form: Form, dtype: torch.dtype) -> Form | None:
    """Change the dtype of the scores, other than to float64, in which we would not compute."""
    if not dtype.is_floating_point or (dtype == torch.float64 != form.dtype):
        return None
    return replace(form, dtype=dtype)


def zero_nan(form: Form) -> Form | None:
    """Replace NaN by 0 after the softmax."""
    return replace(form, blind_is_zero=True) if form.normalised else None
