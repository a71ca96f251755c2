"""What the Hopper kernels use of Gluon, under one name for each thing: Triton renamed some of it between 3.6 and 3.9.

Kernels import everything of Gluon that differs from here, and the rest from Triton itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from triton.experimental.gluon.language.nvidia.hopper import tma

tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
"""`tma_load(descriptor, coordinates, barrier, shared)`: copy a box into shared memory; `barrier` counts its bytes."""

tma_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
"""`tma_store(descriptor, coordinates, shared)`: copy shared memory to a box; `tma.store_wait` waits for it."""

_COMPILED: dict[Hashable, Any] = {}


def launch(kernel: Any, key: Hashable, grid: int, args: tuple[Any, ...], **options: Any) -> None:
    """`kernel[grid](*args, **options)` on the current device and stream, with Triton's own look-up of the compiled code left out.

    That look-up inspects every argument and takes longer than many a kernel runs. `key` must therefore name all that the code depends on:
    data types, boxes, compile-time values and options; whole numbers and the alignment of pointers must not be specialised on.
    """
    place = (kernel, torch.cuda.current_device(), key)
    compiled = _COMPILED.get(place)
    if compiled is None:
        _COMPILED[place] = kernel[(grid,)](*args, **options)
    else:
        compiled[grid, 1, 1](*args)
