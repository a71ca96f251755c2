"""Emulate a kernel's values: numbers, blocks in registers, and pointers into global memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.emulation.machine import Defect, Race


class Whole(int):
    """A whole number known at run time only: of 32 or 64 bits, and divided as in C, towards zero.
    Overflow is a defect."""

    bits: int

    def __new__(cls, value: int, bits: int = 32) -> Whole:
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise Defect(f"{int(value)} does not fit {bits} bits")
        self = super().__new__(cls, value)
        self.bits = bits
        return self

    def to(self, dtype: torch.dtype) -> Whole | float:
        """Converted to a torch dtype."""
        return float(self) if dtype.is_floating_point else Whole(int(self), torch.iinfo(dtype).bits)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a - b * _quotient(a, b)


def _on_whole(act: Callable[[int, int], int], swap: bool) -> Callable[..., Any]:
    def method(self: Whole, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        a, b = (int(other), int(self)) if swap else (int(self), int(other))
        return Whole(act(a, b), max(self.bits, getattr(other, "bits", 32)))

    return method


class Block:
    """A tensor in registers. `data` is there once what computes it was waited for."""

    type = SimpleNamespace(layout=None)

    def __init__(self, data: Tensor | None) -> None:
        self.arrived = data

    @property
    def data(self) -> Tensor:
        """Its elements; a defect while a product still writes them."""
        if self.arrived is None:
            raise Race("the result of a product (wgmma) is used before it was waited for")
        return self.arrived

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> Block:
        """Converted, or with the same bits."""
        return Block(self.data.view(dtype) if bitcast else self.data.to(dtype))

    def reshape(self, shape: list[int]) -> Block:
        return Block(self.data.reshape(shape))

    def permute(self, order: list[int]) -> Block:
        return Block(self.data.permute(order))

    def __getitem__(self, at: Any) -> Block:
        return Block(self.data[at])

    def __neg__(self) -> Block:
        return Block(-self.data)

    def __invert__(self) -> Block:
        return Block(~self.data)

    def __bool__(self) -> bool:
        raise Defect("a whole block in a condition")


def raw(x: Any, like: Tensor | None = None) -> Any:
    """The tensor of a block, or the number, as wide as it makes its partner `like`."""
    if isinstance(x, Block):
        return x.data
    if (
        isinstance(x, Whole)
        and x.bits == 64
        and like is not None
        and not like.dtype.is_floating_point
    ):
        return torch.full([1] * like.ndim, int(x))
    return x if isinstance(x, float | bool) else int(x)


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands, one a block: of one rank, as in Triton, or the other a number."""
    x, y = raw(a), raw(b)
    ranks = [t.ndim for t in (x, y) if isinstance(t, Tensor) and t.ndim]
    if len(set(ranks)) > 1:
        raise Defect(f"blocks of ranks {ranks} do not go together")
    return (x, raw(b, x)) if isinstance(x, Tensor) else (raw(a, y), y)


def _on_block(act: Callable[[Any, Any], Any], swap: bool) -> Callable[..., Any]:
    def method(self: Block, other: Any) -> Any:
        if isinstance(other, Pointer):
            return NotImplemented
        a, b = pair(other, self) if swap else pair(self, other)
        return Block(act(a, b))

    return method


def _block_quotient(a: Any, b: Any) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


_BITS = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
_PLAIN = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, **_BITS}
_OF_WHOLES: dict[str, Callable[..., Any]] = {**_PLAIN, "floordiv": _quotient, "mod": _remainder}
_OF_BLOCKS: dict[str, Callable[..., Any]] = {
    **_PLAIN,
    "truediv": operator.truediv,
    "floordiv": _block_quotient,
    "mod": torch.fmod,
}
for _name, _act in _OF_WHOLES.items():
    setattr(Whole, f"__{_name}__", _on_whole(_act, swap=False))
    setattr(Whole, f"__r{_name}__", _on_whole(_act, swap=True))
for _name, _act in _OF_BLOCKS.items():
    setattr(Block, f"__{_name}__", _on_block(_act, swap=False))
    setattr(Block, f"__r{_name}__", _on_block(_act, swap=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Block, f"__{_name}__", _on_block(getattr(operator, _name), swap=False))


class Pointer:
    """A place, or a block of places, in the memory behind a tensor. What lies outside of that
    memory is a defect."""

    def __init__(self, memory: Tensor, offset: Any = 0) -> None:
        self.memory, self.offset = memory, offset

    @classmethod
    def to_first(cls, x: Tensor) -> Pointer:
        """To the first element of a tensor of any strides."""
        behind = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        return cls(torch.as_strided(x, (behind,), (1,), x.storage_offset()))

    @property
    def dtype(self) -> SimpleNamespace:
        return SimpleNamespace(element_ty=self.memory.dtype)

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.memory, self.offset + offset)

    __radd__ = __add__

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> Any:
        """Its address."""
        if dtype != torch.int64 or not bitcast:
            raise Defect("a pointer can be made an int64 by bitcast only")
        return Whole(self.memory.data_ptr(), 64) + self.offset * self.memory.element_size()

    def load(self, mask: Any, other: Any) -> Any:
        """Return the values there; `other` where `mask` is false."""
        if not isinstance(self.offset, Block):
            if mask is not None and not mask:
                return Block(torch.tensor(other, dtype=self.memory.dtype))
            at = self._checked(torch.tensor([int(self.offset)]))
            value = self.memory[at[0]]
            return (
                Block(value.clone())
                if value.dtype.is_floating_point
                else Whole(int(value), torch.iinfo(value.dtype).bits)
            )
        at, allowed = self._places(mask)
        found = torch.full(at.shape, 0 if other is None else other, dtype=self.memory.dtype)
        found[allowed] = self.memory[self._checked(at[allowed])]
        return Block(found)

    def store(self, value: Any, mask: Any) -> None:
        """Write where `mask` is true."""
        at, allowed = self._places(mask)
        values = torch.as_tensor(raw(value)).to(self.memory.dtype).expand(at.shape)
        self.memory[self._checked(at[allowed])] = values[allowed]

    def add(self, value: int) -> Whole:
        """Add a number atomically; what lay there before."""
        before = int(self.load(None, None))
        self.memory[int(self.offset)] += value
        return Whole(before)

    def raise_to(self, value: int) -> Whole:
        """Raise a number atomically to another if that is larger; what lay there before."""
        before = int(self.load(None, None))
        self.memory[int(self.offset)] = max(before, int(raw(value)))
        return Whole(before)

    def _places(self, mask: Any) -> tuple[Tensor, Tensor]:
        at = self.offset.data.long()
        return at, torch.ones_like(at, dtype=torch.bool) if mask is None else raw(mask).expand(
            at.shape
        )

    def _checked(self, at: Tensor) -> Tensor:
        if at.numel() and not 0 <= int(at.min()) <= int(at.max()) < len(self.memory):
            raise Defect(
                f"elements {int(at.min())} to {int(at.max())} of memory that has {len(self.memory)}"
            )
        return at
