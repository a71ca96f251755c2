"""Say what energy costs, at a price that is asked with or at that of the settings."""

from __future__ import annotations

import math

import msgspec

from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Note, Row, Rows
from gpudeck.scheduler.protocol.snapshot import Snapshot

MONEY = "money"
"""The unit of a cost, before the currency."""
_JOULES_A_KWH = 3.6e6


def with_cost(query: Query, found: Rows, snapshot: Snapshot) -> Rows:
    """Return rows of energy with what each costs, and a note of the whole."""
    price = query.amount or snapshot.settings.energy_price
    currency = query.unit if query.amount else snapshot.settings.currency
    values = [row.values[0] for row in found.rows if row.values]
    kwh = math.fsum(value for value in values if isinstance(value, int | float)) / _JOULES_A_KWH
    if price and len(found.rows) > 1:
        column = Column("cost", f"{MONEY} {currency}".strip())
        columns = (found.columns[0], column, *found.columns[1:])
        rows = tuple(_costing(row, price) for row in found.rows)
        found = msgspec.structs.replace(found, columns=columns, rows=rows)
    if query.other is not None and price:
        return found
    other = query.unit if query.unit.casefold() != currency.casefold() else ""
    known = any(isinstance(value, int | float) for value in values)
    note = Note("cost", (kwh if known else None, price, currency, other))
    return msgspec.structs.replace(found, notes=(*found.notes, note))


def _costing(row: Row, price: float) -> Row:
    energy, *rest = row.values
    cost = energy / _JOULES_A_KWH * price if isinstance(energy, int | float) else None
    absent = (row.absent[0], *row.absent) if row.absent else ()
    return msgspec.structs.replace(row, values=(energy, cost, *rest), absent=absent)
