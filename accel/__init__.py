"""Tensors in, tensors out: accelerated attention and its workloads.

`import accel` costs nothing; `accel.attention` is imported at first use, and torch with the first operation taken from it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["attention"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
