"""What attention learned in a test: read it, and forget it."""

from __future__ import annotations

from gpudeck.accel.attention import choose, lessons
from gpudeck.accel.attention.api import _PLANS
from gpudeck.accel.attention.lessons import STORE
from gpudeck.accel.lessons.records import Measured, decode_learned
from gpudeck.accel.runtime import state_files


def forget() -> None:
    """Forget what this process learned, as a new process would begin."""
    STORE.forget()
    lessons.USAGE.forget()
    choose.cache_clear()
    _PLANS.clear()


def kept() -> list[Measured]:
    """Return what is on disk."""
    return decode_learned(state_files.read(STORE.file))
