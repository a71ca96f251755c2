"""Out of memory on a GPU: recognised in what the job printed last, and what the next attempt reserves. Pure."""

from __future__ import annotations

import math
import re

from scheduler.protocol.units import GIB, parse_bytes

_SAID = re.compile(
    r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory"
)
_TRIED = re.compile(r"Tried to allocate (\d+(?:\.\d+)? [KMGT]iB)")
_HAS = re.compile(r"(?:[Tt]his process|Process \d+) has (\d+(?:\.\d+)? [KMGT]iB) memory in use")
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
"""GiB; each a half to a third more than the one before it, as GPUs come."""
_SHARE = 0.95
"""Of a GPU's memory; a job that needs more gets the GPU for itself."""


def out_of_memory(log: str) -> bool:
    """Whether the end of a job's log says that CUDA, or a library on it, had no memory left."""
    return _SAID.search(log) is not None


def needed(log: str, peak: float) -> float:
    """Bytes it needed at least: what it had and asked for, as PyTorch tells it; else the most it was seen to have."""
    tried, has = _TRIED.findall(log), _HAS.findall(log)
    said = parse_bytes(tried[-1]) + max(parse_bytes(text) for text in has) if tried and has else 0
    return max(float(said), peak)


def next_memory(reserved: int, need: float, largest: float | None) -> int:
    """Bytes that the next attempt reserves: what it needed, else the next size; 0, a GPU for itself, where hardly any has more.

    `largest`: bytes of the largest; None where no device has been read yet.
    """
    larger = next((size * GIB for size in _SIZES if size * GIB > reserved), 2 * reserved)
    new = math.ceil(need / GIB) * GIB if need > reserved else larger
    return 0 if largest is None or new > _SHARE * largest else new
