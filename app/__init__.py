"""Contain the window and the command line. Nothing here imports torch, NVML or SQL."""

DESKTOP_ID = "io.github.gpudeck.GPUDeck"
"""The name by which desktops know the program's entry in the menu, its icon and its windows."""
