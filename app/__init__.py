"""Contain the window and the command line. Nothing here imports torch, NVML or SQL."""

__version__ = "0.1.0"
