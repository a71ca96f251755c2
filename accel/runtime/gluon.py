"""Import Gluon's functions under one name each: Triton renamed some between 3.6 and 3.9.

Kernels import from here everything that Gluon renamed, and the rest from Triton itself.
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

tma_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
"""`tma_load(descriptor, coordinates, barrier, shared)`: copy a box into shared memory; `barrier`
counts its bytes."""

thread_barrier = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
"""`thread_barrier()`: wait for the other threads of the CTA, or of the partition of warps."""

tma_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
"""`tma_store(descriptor, coordinates, shared)`: copy shared memory to a box; `tma.store_wait` waits
for it."""
