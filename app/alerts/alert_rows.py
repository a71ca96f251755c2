"""Alerts as the window lists them: what is raised first, the newest on top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.format.values import clock, duration
from app.strip.tile_model import Meaning
from scheduler.protocol.snapshot import Alert, Snapshot

_MEANINGS: dict[str, Meaning] = {
    "too hot": "hot",
    "slowed down": "throttled",
    "at its power limit": "throttled",
    "hardware errors": "failed",
    "memory errors": "failed",
}
"""Of rules, where it is not `warm`."""


@dataclass(frozen=True)
class Line:
    id: int
    state: str
    """raised; seen, where somebody acknowledged it; over, once it was cleared."""
    since: str
    lasted: str
    what: str
    meaning: Meaning
    device: str
    """Id of the device it is about; empty: of none."""
    job: int | None


def lines(active: Sequence[Alert], log: Sequence[Alert], now: float) -> tuple[Line, ...]:
    """`active`: those of the newest snapshot; `log`: what the daemon remembered when it was asked last, which may be a while ago."""
    raised = {alert.id for alert in active}
    over = [alert for alert in log if alert.id not in raised and alert.cleared is not None]
    return tuple(
        _line(alert, now)
        for alert in (*sorted(active, key=lambda a: -a.id), *sorted(over, key=lambda a: -a.id))
    )


def unseen(snapshot: Snapshot | None) -> int:
    """How many are raised that nobody has acknowledged."""
    return sum(not alert.acknowledged for alert in snapshot.alerts) if snapshot else 0


def fresh(snapshot: Snapshot, known: Iterable[int], since: float) -> tuple[Alert, ...]:
    """Those that were raised after `since`, are not among `known`, and that nobody has seen."""
    seen = set(known)
    return tuple(
        a for a in snapshot.alerts if a.id not in seen and a.raised >= since and not a.acknowledged
    )


def _line(alert: Alert, now: float) -> Line:
    over = alert.cleared is not None
    state = "over" if over else "seen" if alert.acknowledged else "raised"
    lasted = duration((now if alert.cleared is None else alert.cleared) - alert.since)
    meaning: Meaning = "" if over else _MEANINGS.get(alert.rule, "warm")
    return Line(
        alert.id,
        state,
        clock(alert.since, now),
        lasted,
        alert.text,
        meaning,
        alert.device,
        alert.job,
    )
