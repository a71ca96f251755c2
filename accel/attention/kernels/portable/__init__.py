"""Attention kernels in Triton for compute capability 8.0 and newer, with all that the operation can do."""

from accel.attention.kernels.portable.backward import backward
from accel.attention.kernels.portable.forward import forward

__all__ = ["backward", "forward"]
