"""List the alerts as the window shows them: those that are raised first, each part newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudeck.app.format.values import Meaning, clock, duration
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.snapshot import Alert, Snapshot

AlertState = Literal["active", "acknowledged", "resolved"]
STATES = (
    tr_noop("active"),
    tr_noop("acknowledged"),
    tr_noop("resolved"),
)
"""The words for the states."""
ALL, ACTIVE, RESOLVED = SHOWN = tr_noop("All alerts"), tr_noop("Active"), tr_noop("Resolved")
"""Which alerts the user may list."""
_MEANINGS: dict[str, Meaning] = {
    "too hot": "hot",
    "throttled": "throttled",
    "at its power limit": "throttled",
    "hardware errors": "failed",
    "memory errors": "failed",
}
"""The meanings of rules whose alerts are not just `warm`."""


@dataclass(frozen=True)
class AlertRow:
    """One alert as a row of the table."""

    key: int
    """The alert's id."""
    state: AlertState
    cells: tuple[str, ...]
    meaning: Meaning
    device: str | None
    """Id of the device that the alert is about; None if it is about no device."""
    job: int | None
    text: str = ""
    tooltip: str = ""


def alert_rows(active: Sequence[Alert], log: Sequence[Alert], now: float) -> tuple[AlertRow, ...]:
    """Return the rows of the alerts that are raised and of those that are over.

    Args:
        active: The alerts of the newest snapshot.
        log: The alerts that the daemon remembered when its log was last read.
        now: Seconds since the epoch.
    """
    raised = {alert.id for alert in active}
    over = [alert for alert in log if alert.id not in raised and alert.cleared is not None]
    return tuple(
        _row(alert, now) for part in (active, over) for alert in sorted(part, key=lambda a: -a.id)
    )


def matching(rows: Sequence[AlertRow], search: str, shown: str) -> tuple[AlertRow, ...]:
    """Return the alerts with every word of `search`; `shown` is one of SHOWN."""
    words = search.lower().split()
    return tuple(
        row
        for row in rows
        if all(word in " ".join(row.cells).lower() for word in words)
        and (shown == ALL or (row.state == "resolved") == (shown == RESOLVED))
    )


def newly_raised(snapshot: Snapshot, known: Iterable[int], since: float) -> tuple[Alert, ...]:
    """Return the unacknowledged alerts that were raised after `since` and are not in `known`."""
    known = set(known)
    return tuple(
        a for a in snapshot.alerts if a.id not in known and a.raised >= since and not a.acknowledged
    )


def _row(alert: Alert, now: float) -> AlertRow:
    state: AlertState = "acknowledged" if alert.acknowledged else "active"
    meaning = _MEANINGS.get(alert.rule, "warm")
    if alert.cleared is not None:
        state, meaning = "resolved", ""
    text = tr_text(alert.text)
    lasted = duration((now if alert.cleared is None else alert.cleared) - alert.since)
    return AlertRow(
        alert.id,
        state,
        (
            capitalized(tr(state)),
            clock(alert.since, now),
            lasted,
            capitalized(text),
        ),
        meaning,
        alert.device or None,
        alert.job,
        text,
    )
