"""Say what energy costs, at a price that is asked with or at that of the settings."""

from __future__ import annotations

import math

import msgspec

from gpudeck.assistant.query.request import COST, Query
from gpudeck.assistant.query.rows import Note, Rows
from gpudeck.scheduler.protocol.snapshot import Snapshot

_JOULES_A_KWH = 3.6e6


def with_cost(query: Query, found: Rows, snapshot: Snapshot) -> Rows:
    """Return rows of energy with a note of their cost, if that is asked for."""
    if COST not in (query.text, query.to):
        return found
    values = [row.values[0] for row in found.rows if row.values]
    joules = math.fsum(value for value in values if isinstance(value, int | float))
    price = query.amount or snapshot.settings.energy_price
    currency = "" if query.amount else snapshot.settings.currency
    note = Note("cost", (joules / _JOULES_A_KWH, price, currency))
    return msgspec.structs.replace(found, notes=(*found.notes, note))
