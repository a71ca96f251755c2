"""The glass: the window and the command line. Never imports torch, NVML or SQL."""

__version__ = "0.1.0"
