"""Play GPUs that see each other's memory, on a CPU: the driver's calls and streams, nothing else.

Each rank's memory is a file that the others map, too. What a stream would do later is done at once.
"""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.distributed import direct, driver


class Stream:
    """A stream on which everything is done already."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_event(self, event: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        pass

    def record_event(self) -> Stream:
        return self

    def query(self) -> bool:
        return True


def play(patch: pytest.MonkeyPatch, folder: str) -> None:
    """Let `Direct` run on this process and its peers."""
    patch.setattr(driver, "_call", _call)
    patch.setattr(torch.cuda, "Stream", Stream)
    patch.setattr(torch.cuda, "current_stream", Stream)
    patch.setattr(torch.cuda, "synchronize", lambda *_: None)
    patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    patch.setattr(Tensor, "record_stream", lambda *_: None)
    made: list[int] = []

    def empty(size: int, **_: Any) -> Tensor:
        made.append(size)
        return _mapped(folder, len(made), dist.get_rank(), size)

    def rendezvous(memory: Tensor, _: Any) -> Any:
        dist.barrier()
        ranks = range(dist.get_world_size())
        maps = [_mapped(folder, len(made), rank, made[-1]) for rank in ranks]
        maps[dist.get_rank()] = memory
        return SimpleNamespace(buffer_ptrs=[m.data_ptr() for m in maps], kept=maps)

    handles: list[Any] = []
    patch.setattr(direct.symmetric, "empty", empty)
    patch.setattr(
        direct.symmetric, "rendezvous", lambda *a: handles.append(rendezvous(*a)) or handles[-1]
    )


def _mapped(folder: str, number: int, rank: int, size: int) -> Tensor:
    path = f"{folder}/memory-{number}-{rank}"
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)


def _call(name: str, *given: Any) -> None:
    if name == "cuMemcpyDtoDAsync_v2":
        ctypes.memmove(given[0].value, given[1].value, given[2].value)
    elif name == "cuMemcpy2DAsync_v2":
        copy = given[0]._obj
        for row in range(copy.height):
            ctypes.memmove(
                copy.dst + row * copy.dst_pitch, copy.src + row * copy.src_pitch, copy.width
            )
    elif name == "cuStreamWriteValue32_v2":
        ctypes.c_uint32.from_address(given[1].value).value = given[2].value
    else:
        assert name == "cuStreamBatchMemOp_v2"
        wait, write = given[2]
        end = time.monotonic() + 30
        while ctypes.c_uint32.from_address(wait.address).value < wait.value:
            time.sleep(0.0005)
            assert time.monotonic() < end, "a rank waits for ever"
        ctypes.c_uint32.from_address(write.address).value = write.value
