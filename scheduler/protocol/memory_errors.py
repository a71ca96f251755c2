"""What a log says about a GPU whose memory was full, and how much a job needs instead. Pure."""

from __future__ import annotations

import math
import re

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.units import parse_bytes

OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED: Out of memory"
)
_TRIED = re.compile(r"Tried to allocate (\d+(?:\.\d+)? [KMGT]iB)")
_HAS = re.compile(r"(?:[Tt]his process|Process \d+) has (\d+(?:\.\d+)? [KMGT]iB) memory in use")
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
"""GiB; each a half to a third more than the one before it, as GPUs come."""
_SHARE = 0.95
"""Of a GPU's memory; a job that needs more gets the GPU to itself."""


def out_of_memory(log: str) -> bool:
    """Return whether a log's end shows that CUDA, or a library on it, ran out of memory."""
    return OUT_OF_MEMORY.search(log) is not None


def needed_memory(log: str, peak: float) -> float:
    """Return the bytes that the job needed at least.

    That is what it had and asked for, where PyTorch printed it, or else the most that it was
    observed to have.
    """
    tried, has = _TRIED.findall(log), _HAS.findall(log)
    if not tried or not has:
        return peak
    return max(float(parse_bytes(tried[-1]) + max(map(parse_bytes, has))), peak)


def next_memory(reserved: int, need: float, largest: float | None) -> int:
    """Return the bytes that the next attempt reserves; 0 for a GPU to itself.

    That is what the job needed, or else the next size, unless hardly any GPU has more.

    Args:
        largest: bytes of the largest GPU; None where no device was read yet.
    """
    larger = next((size * GIB for size in _SIZES if size * GIB > reserved), 2 * reserved)
    new = math.ceil(need / GIB) * GIB if need > reserved else larger
    return 0 if largest is None or new > _SHARE * largest else new
