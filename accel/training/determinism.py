"""Make computations equal to the last bit when they are repeated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpudeck.accel.lessons.store import learning


@contextmanager
def determinism(*, wanted: bool) -> Iterator[None]:
    """Fix, while the block runs, what changes results from one run to the next.

    torch has as many threads afterwards as before; the order of sums depends on them on a CPU, and
    a run that continues sets them.

    Args:
        wanted: use kernels that sum in a fixed order, and choose them by tables alone, not by what
            is measured meanwhile.
    """
    had_threads = torch.get_num_threads()
    if not wanted:
        try:
            yield
        finally:
            torch.set_num_threads(had_threads)
        return
    # cuBLAS reads it when it is first used
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    had = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic  # its type has no attributes
    filled, mode = memory.fill_uninitialized_memory, learning()
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    learning("off")
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(had)
        memory.fill_uninitialized_memory = filled
        learning(mode)
        torch.set_num_threads(had_threads)
