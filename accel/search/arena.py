"""Memory that the judge shares with the processes it times: the judge writes inputs into it and
reads results from it, at the same addresses in every call."""

from __future__ import annotations

import math
import mmap
import os
import pickle
from multiprocessing.reduction import ForkingPickler

import torch
from torch import Tensor

from gpudeck.accel.search.candidate_protocol import Bind, Region
from gpudeck.accel.search.tasks import Sizes, Task

_ALIGNMENT = 256
"""Bytes: as torch allocates on a GPU."""
_SHARED = 4 << 30
"""Bytes that inputs and results of all calls may take if there are more than the least calls."""
_LEAST_CALLS = 2


class Arena:
    """Own the shared memory, or a process's view of it."""

    def __init__(self, flat: Tensor, descriptor: int = -1, handle: bytes = b"") -> None:
        self._flat = flat
        self.descriptor = descriptor
        """The file of a CPU's shared memory."""
        self.handle = handle
        """What another process needs to open a GPU's memory."""

    @classmethod
    def create(cls, size: int, device: torch.device) -> Arena:
        """Return new memory on a device."""
        if device.type != "cuda":
            descriptor = os.memfd_create("gpudeck-search")
            os.ftruncate(descriptor, size)
            return cls(_mapped(descriptor, size), descriptor)
        import torch.multiprocessing  # registers how a GPU's tensors are shared

        flat = torch.empty(size, dtype=torch.uint8, device=device)
        return cls(flat, handle=bytes(ForkingPickler.dumps(flat)))

    @classmethod
    def open(cls, size: int, descriptor: int, handle: bytes) -> Arena:
        """Return the memory of another process, which is trusted."""
        if handle:
            return cls(pickle.loads(handle))  # noqa: S301 - the judge made it
        return cls(_mapped(descriptor, size))

    @property
    def size(self) -> int:
        """Return the bytes."""
        return self._flat.numel()

    def tensor(self, region: Region) -> Tensor:
        """Return a plain tensor that lies in the memory."""
        dtype: torch.dtype = getattr(torch, region.dtype)
        made = torch.empty(0, dtype=dtype, device=self._flat.device)
        place = region.offset // dtype.itemsize
        return made.set_(self._flat.untyped_storage(), place, region.shape)  # type: ignore[call-overload, no-any-return]

    def holds(self, address: int) -> bool:
        """Return whether an address lies in the memory."""
        begin = self._flat.data_ptr()
        return begin <= address < begin + self._flat.numel()

    def close(self) -> None:
        """Give the memory back once no tensor uses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _mapped(descriptor: int, size: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


def calls_that_fit(task: Task, sizes: Sizes, most: int) -> int:
    """Return how many calls have inputs and results of their own: fewer where these are large."""
    return max(_LEAST_CALLS, min(most, int(_SHARED // max(1.0, task.moved(sizes)))))


def lay_out(task: Task, sizes: Sizes, calls: int) -> tuple[Bind, int]:
    """Return where inputs and results of up to `calls` calls lie, and the bytes of it all."""
    at = 0
    dtype = str(task.dtype).removeprefix("torch.")

    def region(shape: tuple[int, ...]) -> Region:
        nonlocal at
        made = Region(at, shape, dtype)
        at += -(-math.prod(shape) * task.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        return made

    shapes, result = task.shapes(sizes), task.result(sizes)
    inputs = tuple(map(region, shapes))
    fresh = tuple(tuple(map(region, shapes)) for _ in range(calls))
    return Bind(inputs, fresh, tuple(region(result) for _ in range(calls))), at
