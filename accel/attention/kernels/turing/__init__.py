"""Attention kernels in CUDA C++ for compute capability 7.5.

Triton emits no instructions for the tensor cores of these GPUs.
"""
