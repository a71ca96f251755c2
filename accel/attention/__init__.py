"""Exact attention. `from accel.attention import attention`; torch is imported when a name is first taken from here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel.attention.api import BACKENDS, attention, choose
    from accel.attention.problem import Candidate, Choice, Problem, describe

__all__ = ["BACKENDS", "Candidate", "Choice", "Problem", "attention", "choose", "describe"]

_HOME = {
    "BACKENDS": "api",
    "attention": "api",
    "choose": "api",
    "Candidate": "problem",
    "Choice": "problem",
    "Problem": "problem",
    "describe": "problem",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
