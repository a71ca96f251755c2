"""Hold whether this process measures backends, and goes by what was measured on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

Mode = Literal["off", "once", "idle"]

_mode: Mode = "once"
_CHOICES: list[Callable[[], None]] = []


def learning(new: Mode | None = None) -> Mode:
    """Set whether `auto` measures shapes that come back, in this process; return the mode.

    It holds for attention and for products.

    Args:
        new: `once` (at first): a shape without a measurement is measured at its second call, and
            the backward pass of attention in the second backward pass. `idle`: shapes are only
            counted, and GPU Deck measures them while the GPU is idle. `off`: neither, and what was
            learned is not used. None leaves the mode as it is.

    A measurement takes at most 30 ms beside the first call of each backend, which may compile its
    kernels, or one call of each where calls are longer. Nothing is measured in a CUDA graph, by
    compiled programs, or where results must be deterministic. Results are kept on disk for later
    programs.

    Raises:
        ValueError: if there is no such mode.
    """
    global _mode  # noqa: PLW0603 - one setting of the process
    if new is not None:
        if new not in get_args(Mode):
            raise ValueError(f"learning is one of {', '.join(get_args(Mode))}; got {new!r}")
        _mode = new
        for forget in _CHOICES:
            forget()
    return _mode


def on_change(forget: Callable[[], None]) -> None:
    """Have choices forgotten that were made in another mode, whenever the mode changes."""
    _CHOICES.append(forget)
