"""Raise and clear alerts with hysteresis. The functions are pure: they map a state, a level and
thresholds to the next state.

An alert is raised once the level has been at or above `raise_at` for `raise_s` without a break, and
cleared once it has been below `clear_at` for `clear_s`. Between the two nothing changes, so a level
that wavers around the limit causes one alert only. An unknown level changes nothing. After a gap
between two evaluations (a suspended laptop, a replaced probe) both times are counted anew.
"""

from __future__ import annotations

from typing import NamedTuple


class Thresholds(NamedTuple):
    """Define when an alert is raised, and when it is cleared."""

    raise_at: float
    clear_at: float
    """The level below which the alert is cleared, at most `raise_at`."""
    raise_s: float = 0.0
    clear_s: float = 0.0


class Calm(NamedTuple):
    """Describe an alert that is not raised."""

    over: float | None = None
    """When the level reached the limit; None while it is below."""
    evaluated: float = 0.0
    """When the level was last known."""


class Raised(NamedTuple):
    """Describe an alert that is raised."""

    since: float
    """When its cause began."""
    under: float | None = None
    """When the level fell below the limit; None while it is above."""
    evaluated: float = 0.0


AlertState = Calm | Raised


def advance(
    state: AlertState, level: float | None, now: float, thresholds: Thresholds, gap_s: float
) -> AlertState:
    """Return the state after one evaluation.

    Args:
        state: The state before.
        level: The level now; None if it is not known.
        now: Seconds of any clock.
        thresholds: The limits of the rule.
        gap_s: The longest time between two evaluations that does not count as a gap.
    """
    if level is None:
        return state
    together = 0 <= now - state.evaluated <= gap_s
    if isinstance(state, Raised):
        if level >= thresholds.clear_at:
            return Raised(state.since, None, now)
        under = state.under if together and state.under is not None else now
        cleared = now - under >= thresholds.clear_s
        return Calm(None, now) if cleared else Raised(state.since, under, now)
    if level < thresholds.raise_at:
        return Calm(None, now)
    over = state.over if together and state.over is not None else now
    return Raised(over, None, now) if now - over >= thresholds.raise_s else Calm(over, now)
