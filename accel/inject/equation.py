"""Read products of two tensors as equations between named axes, as torch.einsum writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Equation(NamedTuple):
    """Name the axes of two factors and of their product."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    out: tuple[str, ...]

    @property
    def summed(self) -> set[str]:
        """Return the axes over which products are summed."""
        return (set(self.a) & set(self.b)) - set(self.out)

    @property
    def plain(self) -> bool:
        """Return True if no axis is named twice in one tensor or lost on the way."""
        tensors = (self.a, self.b, self.out)
        lost = (set(self.a) ^ set(self.b)) - set(self.out)
        return all(len(set(t)) == len(t) for t in tensors) and not lost


def of_matmul(a: int, b: int) -> Equation | None:
    """Return the equation of torch.matmul for tensors of `a` and `b` axes; None below two."""
    if a < 2 or b < 2:
        return None
    batch = tuple(f".{i}" for i in reversed(range(max(a, b) - 2)))
    of_a, of_b = batch[len(batch) - (a - 2) :], batch[len(batch) - (b - 2) :]
    return Equation((*of_a, "i", "d"), (*of_b, "d", "j"), (*batch, "i", "j"))


def of_einsum(text: str, a: int, b: int) -> Equation | None:
    """Return the equation of torch.einsum for tensors of `a` and `b` axes.

    None if it is not one of two factors with an explicit output.
    """
    inputs, arrow, out = text.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if not arrow or len(parts) != 2:
        return None
    named = [_axes(part, n) for part, n in zip(parts, (a, b), strict=True)]
    dots = max([len([axis for axis in axes or () if axis[0] == "."]) for axes in named])
    product = _axes(out, len(out.replace("...", "")) + dots * ("..." in out))
    if named[0] is None or named[1] is None or product is None:
        return None
    return Equation(named[0], named[1], product)


def _axes(text: str, n: int) -> tuple[str, ...] | None:
    before, dots, after = text.partition("...")
    letters = (*before, *after)
    if any(not c.isalpha() for c in letters):
        return None
    extra = n - len(letters)
    if extra < 0 or (extra and not dots):
        return None
    return (*before, *(f".{i}" for i in reversed(range(extra))), *after)


def order(axes: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the permutation that brings `axes` into the order `wanted`."""
    return [list(axes).index(axis) for axis in wanted]
