"""Say what is usual for a value of a GPU: its past and its limit; and what it does now."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpudeck.assistant.facts.devices import subject
from gpudeck.assistant.query.readings import POINTS, begun_late
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Note, Rows
from gpudeck.assistant.query.shape import finite
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.busy_causes import JobWaits, QuietHours, Settling
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Snapshot, label

_PAST_S = 7 * 86400.0
_QUIET = (Settling, JobWaits, QuietHours)
"""Causes that keep only the assistant from a GPU."""
_LIMITS = {"temp": "temp_limit", "power": "power_limit", "mem_used": "mem_total", "util": "",
           "fan": "", "clock_sm": "", "bandwidth": ""}  # fmt: skip
"""Measures with something usual, and the reading that is the limit of each."""


def with_usual(
    daemon: Client, query: Query, found: Rows, states: Sequence[DeviceState], snapshot: Snapshot
) -> tuple[Note, ...]:
    """Return a note of what is usual, if one value of one GPU is what was asked for.

    Whoever asks whether a card is too hot, or why, gets the value, what to judge it by, and what
    the card does.
    """
    alone = not (query.time or query.where or query.states or query.to or query.by)
    keys = [found.best] if found.best else [row.key for row in found.rows]
    if query.measure not in _LIMITS or not alone or len(keys) != 1 or query.other is not None:
        return ()
    state = next(one for one in states if subject(one.device) == keys[0])
    span = snapshot.time - _PAST_S, snapshot.time
    history = daemon.history(state.device.id, (query.measure,), *span, POINTS)
    known = [float(v) for v in history.columns.get(query.measure, []) if v and finite(v)]
    if not known:
        return ()
    reading = state.reading.values if state.reading is not None else {}
    limit = reading.get(_LIMITS[query.measure])
    highest = [float(v) for v in history.high.get(query.measure, []) if v and finite(v)] or known
    mean, used = math.fsum(known) / len(known), state.use
    why = used.reason if isinstance(used, Busy) and not isinstance(used.cause, _QUIET) else ""
    since = begun_late(daemon, state.device.id, query.measure, *span)
    values = (label(state.device), query.measure, mean, max(highest), limit, why, since)
    return (Note("usual", values),)
