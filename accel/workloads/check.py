"""Check answers of attention against the float64 oracle.

The rule is near that of flash-attention's own tests: at most twice the error of the plain
computation in the inputs' dtype, plus ATOL; here for the relative errors in the Euclidean and in
the maximum norm. In the maximum norm, the bound also includes the error of rounding the exact
answer once. flash-attention's tests add twice the rounding error of numbers near 0.3.
Attention in FP8 may have twice the error of its emulation, of which everything but the roundings to
E4M3 is in float32.
Of large problems only some heads are checked, and only some of their rows in the forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import torch
from torch import Tensor

from gpudeck.accel.attention.fp8 import fp8_attention
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.result import Check, Direction, not_finite
from gpudeck.accel.workloads.grid import Shape
from gpudeck.accel.workloads.inputs import Tensors
from gpudeck.language.text import Message, Text, mark_phrase

WHOLE_UP_TO = 1 << 24
"""The (query, key) pairs of the checked heads up to which all their rows are checked."""
MOST_HEADS, FEWEST_HEADS = 64, 8
MOST_GROUPS, FEWEST_GROUPS = 32, 2
"""The number of key/value heads whose gradients are checked, in all rows."""
SAMPLED_ROWS = 64
PAIRS_AT_ONCE = 1 << 24
ATOL = 4e-6
"""The relative error allowed in addition: fused float32 kernels may use an exponential that is
accurate to 20 units in the last place."""
_RELATIVE = mark_phrase("{name}: relative error")
_LARGEST = mark_phrase("{name}: largest error")
_NORMS = {_RELATIVE: 2.0, _LARGEST: float("inf")}
_VANISHING = 1e-6
"""A gradient smaller than this share of dout is 0 except for rounding; its error is relative to
dout."""

Answers = Mapping[str, Tensor]
"""`out` [B,H,S,D] and `lse` [B,H,S], or `dq`, `dk` and `dv`."""


class Oracle:
    """Hold the correct answers of a problem at the sampled places, to check many backends."""

    def __init__(self, x: Tensors, shape: Shape, direction: Direction) -> None:
        self._x, self._shape = x, shape
        self._parts = list(_forward(x, shape) if direction == "forward" else _backward(x, shape))

    def check(self, answers: Answers, *, fp8: bool = False) -> tuple[Check, ...]:
        """Return two Checks for each answer, or a single one if an element is not finite.

        Args:
            answers: those of one contender.
            fp8: whether they were computed in FP8, which only the forward pass can be.
        """
        broken = sum(int((~torch.isfinite(a)).sum()) for a in answers.values()) / sum(
            a.numel() for a in answers.values()
        )
        if broken:
            return (not_finite(broken),)
        parts = self._in_fp8 if fp8 else self._parts
        return tuple(
            check for name in answers for check in self._checks(name, answers[name], parts)
        )

    @cached_property
    def _in_fp8(self) -> list[Part]:
        return list(_emulated(self._x, self._shape, self._parts))

    def _checks(self, name: str, answer: Tensor, all_parts: list[Part]) -> Iterator[Check]:
        parts = [
            (answer[where].double(), truth, plain)
            for part, where, truth, plain in all_parts
            if part == name
        ]
        got, truth, plain = (torch.stack(column) for column in zip(*parts, strict=True))
        rounding = float((truth.to(answer.dtype).double() - truth).abs().max())
        for norm, order in _NORMS.items():
            size, error, allowed = (
                float(torch.linalg.vector_norm(t, ord=order))
                for t in (truth, got - truth, plain - truth)
            )
            if name[0] == "d":
                usual = float(
                    torch.linalg.vector_norm(self._x.dout, ord=order, dtype=torch.float64)
                )
                size = size if size > _VANISHING * usual else usual
            size = size or 1.0
            said = Text(norm, (("name", name),))
            bound = 2 * allowed + (rounding if norm == _LARGEST else 0.0)
            yield Check(said, error / size, bound / size + ATOL, name)


def nearest(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Return for each answer the Check that is nearest to its bound, or farthest beyond it."""
    worst: dict[Message, Check] = {}
    for check in checks:
        answer = check.answer or check.name
        if answer not in worst or share(check) > share(worst[answer]):
            worst[answer] = check
    return tuple(worst.values())


def worst_error(checks: Iterable[Check]) -> float:
    """Return the largest of the relative errors; 0 if there is none."""
    names = {check: Text(_RELATIVE, (("name", check.answer),)) for check in checks}
    return max((c.error for c, relative in names.items() if c.name == relative), default=0.0)


def share(check: Check) -> float:
    """Return the error as a share of its bound."""
    return check.error / check.bound if check.bound else float("inf") if check.error else 0.0


Place = tuple[int, int | slice] | tuple[int, int, Tensor]
"""The place of a part in an answer: sequence, head or heads, and rows."""
Part = tuple[str, Place, Tensor, Tensor]
"""The answer's name, the place, the truth and the plain computation's answer, both float64."""


def _forward(x: Tensors, shape: Shape) -> Iterator[Part]:
    heads, rows = _sample(shape)
    rows = rows.to(x.q.device)
    seen = _seen(shape, rows)
    for head in heads:
        b, h = divmod(head, shape.heads)
        truth, plain = (_solve(x, b, h, rows, seen, dtype) for dtype in (torch.float64, x.q.dtype))
        for at, name in enumerate(("out", "lse")):
            yield name, (b, h, rows), truth[at].double(), plain[at].double()


def _emulated(x: Tensors, shape: Shape, parts: list[Part]) -> Iterator[Part]:
    """Yield the parts of the forward pass with the answers of the emulation in FP8."""
    group = shape.heads // shape.kv_heads
    solved: tuple[Tensor, Tensor]
    for name, place, truth, _ in parts:
        b, h, rows = place  # type: ignore[misc]
        if name == "out":  # the lse of the same rows comes next
            q = x.q[b : b + 1, h : h + 1]
            k, v = (t[b : b + 1, h // group][:, None] for t in (x.k, x.v))
            solved = fp8_attention(
                q, k, v, causal=shape.causal, backend="emulation", return_lse=True
            )
        yield name, place, truth, solved[name == "lse"][0, 0, rows].double()


def _backward(x: Tensors, shape: Shape) -> Iterator[Part]:
    group = shape.heads // shape.kv_heads
    for b, g in _groups(shape):
        heads = slice(g * group, (g + 1) * group)
        truth, plain = (
            _gradients(x, b, g, heads, shape, dtype) for dtype in (torch.float64, x.q.dtype)
        )
        places: tuple[Place, ...] = ((b, heads), (b, g), (b, g))
        for name, where, exact, simple in zip(
            ("dq", "dk", "dv"), places, truth, plain, strict=True
        ):
            yield name, where, exact.double(), simple.double()


def _gradients(
    x: Tensors, b: int, g: int, heads: slice, shape: Shape, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dq of a group's heads, dk and dv of its key/value head, a block of rows at a time."""
    k, v = (t[b, g].to(dtype).requires_grad_() for t in (x.k, x.v))
    dq = []
    dk, dv = (torch.zeros_like(t, dtype=torch.float64) for t in (k, v))
    block = max(1, PAIRS_AT_ONCE // shape.seq)
    for h in range(heads.start, heads.stop):
        for start in range(0, shape.seq, block):
            rows = torch.arange(start, min(start + block, shape.seq), device=k.device)
            q, dout = x.q[b, h, rows].to(dtype).requires_grad_(), x.dout[b, h, rows].to(dtype)
            seen = _seen(shape, rows)
            with torch.enable_grad():
                out = reference(q[None, None], k[None, None], v[None, None], bias=seen, dtype=dtype)
            grads = torch.autograd.grad(out, (q, k, v), dout[None, None])
            dq.append(grads[0])
            dk += grads[1]
            dv += grads[2]
    return torch.cat(dq).view(-1, shape.seq, shape.head_dim), dk.to(dtype), dv.to(dtype)


def _solve(
    x: Tensors, b: int, h: int, rows: Tensor, seen: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return out [n,D] and lse [n] of some rows of one head."""
    g = h // (x.q.shape[1] // x.k.shape[1])
    out, lse = reference(
        x.q[b, h, rows][None, None],
        x.k[b, g][None, None],
        x.v[b, g][None, None],
        bias=seen,
        dtype=dtype,
        return_lse=True,
    )
    return out[0, 0], lse[0, 0]


def _seen(shape: Shape, rows: Tensor) -> Tensor | None:
    """Return the keys that each of the rows sees as bool [1,1,n,S], or None for all."""
    if not shape.causal:
        return None
    return (torch.arange(shape.seq, device=rows.device) <= rows[:, None])[None, None]


def _sample(shape: Shape) -> tuple[list[int], Tensor]:
    """Return the heads (counted over the batch) and rows to check: ends, borders, and random
    ones."""
    heads = _some(shape.batch * shape.heads, shape.seq * shape.seq, FEWEST_HEADS, MOST_HEADS)
    if len(heads) * shape.seq * shape.seq <= WHOLE_UP_TO:
        return heads, torch.arange(shape.seq)
    borders = torch.tensor([0, 1, 63, 64, 127, 128, shape.seq // 2, shape.seq - 1])
    rows = torch.cat([borders, torch.randint(shape.seq, (SAMPLED_ROWS - len(borders),))])
    return heads, torch.tensor(sorted({row for row in rows.tolist() if row < shape.seq}))


def _groups(shape: Shape) -> list[tuple[int, int]]:
    """Return the (sequence, key/value head) pairs to check."""
    pairs = shape.heads // shape.kv_heads * shape.seq * shape.seq
    chosen = _some(shape.batch * shape.kv_heads, pairs, FEWEST_GROUPS, MOST_GROUPS)
    return [divmod(i, shape.kv_heads) for i in chosen]


def _some(every: int, pairs: int, fewest: int, most: int) -> list[int]:
    """Return all indexes, or the first, the last and random ones, as many as WHOLE_UP_TO permits.

    Args:
        every: the number of indexes.
        pairs: the (query, key) pairs of each.
        fewest: the least number to return.
        most: the greatest number to return.
    """
    count = min(every, most, max(fewest, WHOLE_UP_TO // pairs))
    if count == every:
        return list(range(every))
    return sorted({0, every - 1, *torch.randperm(every)[: count - 2].tolist()})
