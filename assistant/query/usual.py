"""Say what is usual for a value of a GPU: its mean of the past, and its limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpudeck.assistant.facts.devices import subject
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Note, Rows
from gpudeck.assistant.query.shape import finite
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot, label

_PAST_S = 7 * 86400.0
_POINTS = 500
_LIMITS = {"temp": "temp_limit", "power": "power_limit", "mem_used": "mem_total", "util": "",
           "fan": "", "clock_sm": "", "bandwidth": ""}  # fmt: skip
"""Measures with something usual, and the reading that is the limit of each."""


def with_usual(
    daemon: Client, query: Query, found: Rows, states: Sequence[DeviceState], snapshot: Snapshot
) -> tuple[Note, ...]:
    """Return a note of what is usual, if one value of one GPU is what was asked for.

    Whoever asks whether a card is too hot gets the value, and what to judge it by.
    """
    alone = not (query.time or query.where or query.states or query.to or query.by)
    keys = [found.best] if found.best else [row.key for row in found.rows]
    if query.measure not in _LIMITS or not alone or len(keys) != 1 or query.other is not None:
        return ()
    state = next(one for one in states if subject(one.device) == keys[0])
    span = snapshot.time - _PAST_S, snapshot.time
    history = daemon.history(state.device.id, (query.measure,), *span, _POINTS)
    known = [float(v) for v in history.columns.get(query.measure, []) if v and finite(v)]
    if not known:
        return ()
    reading = state.reading.values if state.reading is not None else {}
    limit = reading.get(_LIMITS[query.measure])
    mean = math.fsum(known) / len(known)
    return (Note("usual", (label(state.device), query.measure, mean, limit)),)
