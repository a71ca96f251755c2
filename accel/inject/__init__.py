"""Find attention in people's own code, link the accelerated path in, prove it and undo it.

Everything that only reads sources needs no torch. What changes the running program is imported with
the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudeck.accel.inject.hook import off, on
    from gpudeck.accel.inject.live import patch
    from gpudeck.accel.inject.record import report
    from gpudeck.accel.inject.scan import scan

__all__ = ["off", "on", "patch", "report", "scan"]

_HOME = {"off": "hook", "on": "hook", "patch": "live", "report": "record", "scan": "scan"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
