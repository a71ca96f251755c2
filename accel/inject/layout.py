"""Follow the axes of a tensor of scores through permutations and views.

The canonical shape of scores is [batch..., queries, keys]. A layout is the list of changes that
lead from there to the shape in which a program holds its scores. Tensors that are combined with
the scores (masks, biases, values) are brought into the canonical shape by undoing them, and the
output is brought back. An axis of size 1 is broadcast throughout, and is not expanded unless a view
mixes it with others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

Axis = str
"""`q`, `k`, or another letter for a batch axis, or for one that a view has mixed."""


@dataclass(frozen=True)
class Permute:
    """Reorder axes; `order[i]` is the former place of axis i."""

    order: tuple[int, ...]

    def undo(self, t: Tensor) -> Tensor:
        """Bring a tensor of the new order, with any number of further axes, into the old one."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return t.permute(*back, *range(len(self.order), t.ndim))

    def redo(self, t: Tensor) -> Tensor:
        """Bring a tensor of the old order, with any number of further axes, into the new one."""
        return t.permute(*self.order, *range(len(self.order), t.ndim))


@dataclass(frozen=True)
class View:
    """Split and merge the axes between the first `left` and the last `right` ones."""

    old: tuple[int, ...]
    new: tuple[int, ...]
    old_axes: tuple[Axis, ...]
    left: int
    right: int

    def undo(self, t: Tensor) -> Tensor:
        """Bring a tensor of the new shape, or broadcast to it, into the old one."""
        return self._reshape(t, self.new, self.old)

    def redo(self, t: Tensor) -> Tensor:
        """Bring a tensor of the old shape, or broadcast to it, into the new one."""
        return self._reshape(t, self.old, self.new)

    def _reshape(self, t: Tensor, source: tuple[int, ...], target: tuple[int, ...]) -> Tensor:
        first, last = self.left, len(source) - self.right
        shape, middle = list(t.shape), source[first:last]
        wanted: Sequence[int] = target[first : len(target) - self.right]
        if all(size == 1 for size in shape[first:last]):
            wanted = [1] * len(wanted)
        else:
            t = t.expand(*shape[:first], *middle, *shape[last:])
        return t.reshape(*shape[:first], *wanted, *shape[last:])


@dataclass(frozen=True)
class Layout:
    """Describe the axes that a program sees, and how they came about."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    steps: tuple[Permute | View, ...] = ()

    def permuted(self, order: Sequence[int]) -> Layout:
        """Return the layout after a permutation."""
        order = tuple(i % len(self.shape) for i in order)
        return Layout(
            tuple(self.shape[i] for i in order),
            tuple(self.axes[i] for i in order),
            (*self.steps, Permute(order)),
        )

    def viewed(self, sizes: Sequence[int]) -> Layout | None:
        """Return the layout after a view or reshape, of which one size may be -1; None if the
        sizes do not fit."""
        total, known = math.prod(self.shape), math.prod([s for s in sizes if s != -1])
        new = tuple(total // known if s == -1 and known else s for s in sizes)
        if math.prod(new) != total:
            return None
        if self.steps and isinstance(last := self.steps[-1], View) and new == last.old:
            return Layout(new, last.old_axes, self.steps[:-1])
        shortest, left, right = min(len(new), len(self.shape)), 0, 0
        while right < shortest and new[-1 - right] == self.shape[-1 - right]:
            right += 1
        while left < shortest - right and new[left] == self.shape[left]:
            left += 1
        kept = self.axes[:left], self.axes[len(self.axes) - right :]
        axes = (*kept[0], *("m" * (len(new) - left - right)), *kept[1])
        return Layout(new, axes, (*self.steps, View(self.shape, new, self.axes, left, right)))

    def canonical(self, t: Tensor) -> Tensor:
        """Bring a tensor of these axes (sizes may be 1), and further ones, into canonical order."""
        for step in reversed(self.steps):
            t = step.undo(t)
        return t

    def restored(self, t: Tensor) -> Tensor:
        """Bring a tensor of canonical axes (sizes may be 1), and further ones, into these."""
        for step in self.steps:
            t = step.redo(t)
        return t

    def broadcast(self, t: Tensor) -> Tensor | None:
        """Bring a tensor that is broadcast to these axes into canonical order; None if it is not
        broadcastable without making the scores larger."""
        if t.ndim > len(self.shape):
            return None
        t = t.reshape(*[1] * (len(self.shape) - t.ndim), *t.shape)
        if any(size not in (1, whole) for size, whole in zip(t.shape, self.shape, strict=True)):
            return None
        return self.canonical(t)
