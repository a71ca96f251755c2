"""List the implementations of attention by name."""

from __future__ import annotations

from gpudeck.accel.attention.backends.base import Backend, Direction, Gradients, Run
from gpudeck.accel.attention.backends.fa3 import VllmFlashAttention3
from gpudeck.accel.attention.backends.fa4 import FlashAttention4
from gpudeck.accel.attention.backends.math import Math
from gpudeck.accel.attention.backends.own import Decoding, Hopper, Portable
from gpudeck.accel.attention.backends.reference import Reference
from gpudeck.accel.attention.backends.torch_kernels import Cudnn, Efficient, Flash

__all__ = ["BACKENDS", "Backend", "Direction", "Gradients", "Run"]

_ALL: tuple[Backend, ...] = (
    Hopper(),
    Flash(),
    Cudnn(),
    FlashAttention4(),
    VllmFlashAttention3(),
    Portable(),
    Decoding(),
    Efficient(),
    Math(),
    Reference(),
)
BACKENDS = {backend.name: backend for backend in _ALL}
