"""What attention learned on this machine; see `gpudeck.accel.lessons`."""

from __future__ import annotations

from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.attention.spot import spot
from gpudeck.accel.lessons.records import Direction, Measured
from gpudeck.accel.lessons.store import Store

STORE = Store("attention")


def found(p: Problem, direction: Direction) -> Measured | None:
    """Return what was measured at the problem's spot; None for deterministic gradients, which must
    not depend on what was measured when."""
    return None if p.deterministic else STORE.found(p.device, direction, spot(p))
