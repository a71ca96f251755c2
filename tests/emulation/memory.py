"""Shared memory whose every access is checked: is what it needs there, is nothing else done with
it, was it fenced."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.emulation.machine import Clock, Defect, Race, current, join
from tests.emulation.values import Block

TensorBox = tuple[tuple[int, int], ...]
"""Of each dimension of an allocation, from where to where."""


@dataclass(frozen=True)
class Access:
    """Record an access: partition, kind, region and clock; `count` 0 means that it is under way."""

    what: str
    writes: bool
    box: TensorBox
    who: object
    count: int = 0

    def meets(self, box: TensorBox) -> bool:
        """Return True if both access a common element."""
        return all(
            low < end and first < high
            for (low, high), (first, end) in zip(self.box, box, strict=True)
        )


@dataclass
class Allocation:
    """Represent one allocation of shared memory."""

    name: str
    done: dict[object, Access] = field(default_factory=dict)
    """The last access of each kind."""
    flying: list[Access] = field(default_factory=list)
    unfenced: list[Access] = field(default_factory=list)
    """The regions of plain stores that no fence has published to the asynchronous engines."""

    def check(
        self, what: str, box: TensorBox, clock: Clock, *, writes: bool, asynchronous: bool
    ) -> None:
        """Raises `Race` unless all that this access conflicts with has happened before, as far as
        `clock` knows."""
        for old in [*self.flying, *self.done.values()]:
            if (
                (writes or old.writes)
                and old.meets(box)
                and (not old.count or old.count > clock.get(old.who, 0))
            ):
                raise Race(
                    f"{what} of {self.place(box)} while {old.what} of {self.place(old.box)} may be"
                    " under way"
                )
        if asynchronous and any(old.meets(box) for old in self.unfenced):
            raise Race(f"{what} of {self.place(box)}, stored to without fence_async_shared")

    def finish(self, access: Access, who: object, count: int) -> None:
        """An access that was under way, or one done at once, is over."""
        if access in self.flying:
            self.flying.remove(access)
        self.done[access.what, access.box, who] = Access(
            access.what, access.writes, access.box, who, count
        )

    def place(self, box: TensorBox) -> str:
        return f"{self.name}[{', '.join(f'{low}:{high}' for low, high in box)}]"


class Shared:
    """A view of shared memory, as Gluon's `shared_memory_descriptor`."""

    def __init__(
        self, owner: Allocation, data: Tensor, box: TensorBox, dims: tuple[int, ...]
    ) -> None:
        self.owner, self.data, self.box, self.dims = owner, data, box, dims

    @classmethod
    def allocate(cls, name: str, dtype: torch.dtype, shape: list[int]) -> Shared:
        """New memory, full of NaN or, of whole numbers, of nonsense."""
        data = torch.full(
            shape, float("nan") if dtype.is_floating_point else -0x55555555, dtype=dtype
        )
        shared = cls(Allocation(name), data, tuple((0, n) for n in shape), tuple(range(len(shape))))
        current().cta.allocate(shared, data.numel() * data.element_size())
        return shared

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def index(self, i: int) -> Shared:
        """The i-th of the first dimension."""
        return self._part(i, 1, 0, drop=True)

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        return self._part(start, length, dim, drop=False)

    def permute(self, order: tuple[int, ...]) -> Shared:
        return Shared(
            self.owner, self.data.permute(order), self.box, tuple(self.dims[i] for i in order)
        )

    def _part(self, start: int, length: int, dim: int, *, drop: bool) -> Shared:
        start = int(start)
        if not 0 <= start <= start + length <= self.data.shape[dim]:
            raise Defect(
                f"{start} to {start + length} of {self.owner.name}, which has"
                f" {self.data.shape[dim]} there"
            )
        box = list(self.box)
        first = box[self.dims[dim]][0] + start
        box[self.dims[dim]] = (first, first + length)
        data = self.data.narrow(dim, start, length)
        if drop:
            return Shared(
                self.owner, data.squeeze(dim), tuple(box), (*self.dims[:dim], *self.dims[dim + 1 :])
            )
        return Shared(self.owner, data, tuple(box), self.dims)

    def load(self, layout: object) -> Block:
        """Into registers."""
        del layout
        self._at_once("a load", writes=False)
        return Block(self.data.clone())

    def store(self, value: Block) -> None:
        """From registers."""
        if value.dtype != self.dtype or value.shape != self.shape:
            raise Defect(
                f"{value.dtype} {value.shape} is stored to {self.owner.name}, {self.dtype}"
                f" {self.shape}"
            )
        access = self._at_once("a store", writes=True)
        self.owner.unfenced.append(access)
        self.data.copy_(value.data)

    def _at_once(self, what: str, *, writes: bool) -> Access:
        task = current()
        self.owner.check(what, self.box, task.clock, writes=writes, asynchronous=False)
        access = Access(what, writes, self.box, task, task.clock[task])
        self.owner.finish(access, task, access.count)
        return access

    def begin(self, what: str, *, writes: bool) -> Access:
        """An asynchronous access, under way until `end`. What it writes is poison from here to
        there."""
        self.owner.check(what, self.box, current().clock, writes=writes, asynchronous=True)
        access = Access(what, writes, self.box, object())
        self.owner.flying.append(access)
        if writes:
            self.data.fill_(float("nan"))
        return access

    def end(self, access: Access) -> None:
        """The partition that runs has waited for it."""
        task = current()
        self.owner.finish(access, task, task.clock[task])

    def land(self, access: Access, value: Tensor, began: Clock) -> Clock:
        """A copy into it is complete: what those who are told of that know. Those of one place come
        one after the other."""
        who = (id(self.owner), self.box)
        count = began.get(who, 0) + 1
        self.data.copy_(value.reshape(self.data.shape))
        self.owner.finish(access, who, count)
        known: Clock = {who: count}
        join(known, began)
        return known


def fence() -> None:
    """fence.proxy.async: what this partition stored is seen by the asynchronous engines."""
    task = current()
    for shared in task.cta.memory:
        if isinstance(shared, Shared):
            shared.owner.unfenced = [old for old in shared.owner.unfenced if old.who is not task]
