"""Compute exact attention.

torch is imported with the first name taken from here. As an attribute, `accel.attention` is the
operation itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudeck.accel.attention.api import attention, explain
    from gpudeck.accel.attention.backends import BACKENDS
    from gpudeck.accel.attention.dispatch import Candidate, Choice, choose
    from gpudeck.accel.attention.inputs import describe
    from gpudeck.accel.attention.problem import Problem
    from gpudeck.accel.attention.ragged import Ragged

__all__ = [
    "BACKENDS",
    "Candidate",
    "Choice",
    "Problem",
    "Ragged",
    "attention",
    "choose",
    "describe",
    "explain",
]

_HOME = {
    "BACKENDS": "backends",
    "attention": "api",
    "choose": "dispatch",
    "describe": "inputs",
    "explain": "api",
    "Candidate": "dispatch",
    "Choice": "dispatch",
    "Problem": "problem",
    "Ragged": "ragged",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
