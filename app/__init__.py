"""Contain the window and the command line. Nothing here imports torch, NVML or SQL."""
