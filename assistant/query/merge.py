"""Put the answers to questions about several measures of the same things into one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows
from gpudeck.assistant.query.table import ROWS

_MOST_SENTENCES = 3
"""Things of which each measure is told in a sentence of its own."""


def in_tables(
    queries: Sequence[Query], run: Callable[[Query], Rows]
) -> list[tuple[Query, Rows | None]]:
    """Return the queries with their rows, and those about the same things as one.

    Args:
        queries: What is asked at once.
        run: Executes a query.
    """
    made: list[tuple[Query, Rows | None]] = []
    for query in queries:
        rows = run(query) if query.subject in ROWS else None
        joined = _joined(*made[-1], query, rows) if made else None
        if joined is not None:
            made[-1] = joined
        else:
            made.append((query, rows))
    return made


def _joined(
    first: Query, there: Rows | None, query: Query, rows: Rows | None
) -> tuple[Query, Rows] | None:
    """Return two queries as one, with the columns of both; None if they are about other things."""
    whole = replace(first, measure="")
    if there is None or rows is None or replace(query, measure="") != whole:
        return None
    alone = query.aggregate or query.by or query.other or query.where or query.extreme
    same = [row.key for row in there.rows] == [row.key for row in rows.rows]
    if alone or not same or len(rows.rows) <= _MOST_SENTENCES:
        return None
    return whole, beside(there, rows)


def beside(there: Rows, rows: Rows) -> Rows:
    """Return rows with the columns of others about the same things, those that both have."""
    known = {column.name for column in there.columns}
    new = [at for at, column in enumerate(rows.columns) if column.name not in known]
    others = {row.key: row for row in rows.rows}
    lines = tuple(
        replace(
            left,
            values=(*left.values, *(right.values[at] for at in new)),
            absent=(*left.absent, *(right.absent[at] for at in new if right.absent)),
        )
        for left in there.rows
        if (right := others.get(left.key)) is not None
    )
    columns = (*there.columns, *(rows.columns[at] for at in new))
    notes = tuple(dict.fromkeys((*there.notes, *rows.notes)))
    return replace(there, rows=lines, columns=columns, notes=notes)
