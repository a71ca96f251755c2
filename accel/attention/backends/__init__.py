"""Find the implementations of attention by name."""

from __future__ import annotations

from importlib import import_module

from gpudeck.accel.attention.backend_table import TABLE
from gpudeck.accel.attention.backends.base import Backend, Gradients, Run

__all__ = ["BACKENDS", "Backend", "Gradients", "Run"]

BACKENDS: dict[str, Backend] = {
    row.name: getattr(import_module(f"{__name__}.{row.home}"), row.kind)() for row in TABLE
}
