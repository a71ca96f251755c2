"""Attention kernels in Triton for compute capability 8.0 and newer, with every option."""

from gpudeck.accel.attention.kernels.portable.backward import backward
from gpudeck.accel.attention.kernels.portable.forward import forward

__all__ = ["backward", "forward"]
