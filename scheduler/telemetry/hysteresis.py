"""When a level is too high for too long, and when it is well again. Pure: state, level and limits in, state out.

Raised once the level stood at or above `raise_at` for `raise_s` without a break; calm again once it stood below `clear_at` for
`clear_s`. Between the two nothing changes, so that a level that wavers about the limit is one alert. A level that cannot be told, and
a gap between two looks (a suspended laptop, a probe that was replaced), count for neither side.
"""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    raise_at: float
    clear_at: float
    """At most `raise_at`."""
    raise_s: float = 0.0
    clear_s: float = 0.0


class Calm(NamedTuple):
    """`over`: since when the level has been at or above the limit; None: it is not."""

    over: float | None = None
    seen: float = 0.0
    """When the level was told last."""


class Raised(NamedTuple):
    """`under`: since when the level has been well again; None: it is not."""

    since: float
    """When what was raised began."""
    under: float | None = None
    seen: float = 0.0


State = Calm | Raised


def step(state: State, level: float | None, now: float, limits: Limits, gap_s: float) -> State:
    """One look at `now` (seconds, any clock). `gap_s`: two looks further apart than this do not belong together."""
    if level is None:
        return state
    together = 0 <= now - state.seen <= gap_s
    if isinstance(state, Raised):
        if level >= limits.clear_at:
            return Raised(state.since, None, now)
        under = state.under if together and state.under is not None else now
        return Calm(None, now) if now - under >= limits.clear_s else Raised(state.since, under, now)
    if level < limits.raise_at:
        return Calm(None, now)
    over = state.over if together and state.over is not None else now
    return Raised(over, None, now) if now - over >= limits.raise_s else Calm(over, now)
