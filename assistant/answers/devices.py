"""Word answers about devices."""

from __future__ import annotations

from gpudeck.assistant.answers.values import (
    HEADS,
    aggregate_title,
    cell,
    column_title,
    label,
    names,
    sheet,
    times,
    value_text,
    why_absent,
)
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Row, Rows, number
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.language.words import Words

_IN_STATE = {
    "idle": ("{n} GPU is idle: {who}.", "{n} GPUs are idle: {who}."),
    "busy": ("{n} GPU is busy: {who}.", "{n} GPUs are busy: {who}."),
}
_TEXTS = frozenset({"holder", "throttle", "name", "driver", "health"})
"""Measures whose values are words, which several GPUs share."""
_IN_A_LINE = 4
"""Devices whose values fit a sentence."""


def answer(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the answer, one sentence first."""
    if not rows.rows:
        return [_none(query, rows, words)]
    if query.by:
        return _by_time(query, rows, words)
    if told := _plainly(query, rows, words):
        return [told]
    if query.aggregate == "count" and not (query.where or query.measure):
        found = words.count("There is {n} device.", "There are {n} devices.", len(rows.rows))
        return [f"{found} {_many(query, rows, words)}".rstrip(), sheet(rows, words, "Device")]
    if query.aggregate == "count":
        return [words.count("{n} device matches.", "{n} devices match.", len(rows.rows)),
                _line(query, rows, words)]  # fmt: skip
    known = [row for row in rows.rows if row.values and row.values[0] is not None]
    if not known and query.measure:
        return [_no_data(query, rows, words)]
    if query.when and rows.span is not None:
        return [_moment(query, rows, known, words), _rest(query, rows, words)]
    if rows.best and query.measure and (query.extreme or len(rows.rows) > 1):
        return [_winner(query, rows, words), _rest(query, rows, words)]
    if rows.total is not None and len(rows.rows) > 1:
        return [_total(query, rows, words), _rest(query, rows, words)]
    if query.states and len(rows.rows) > 1 and query.measure in ("", "use"):
        return [_in_state(query, rows, words)]
    if query.measure and len(rows.columns) == 1 and len(rows.rows) <= _IN_A_LINE:
        return [_line(query, rows, words)]
    if len(rows.rows) == 1:
        return [_one(query, rows, rows.rows[0], words)]
    first = _many(query, rows, words)
    alike = len({row.values for row in rows.rows}) == 1
    return [first, "" if first and alike else sheet(rows, words, "Device")]


def _plainly(query: Query, rows: Rows, words: Words) -> str:
    """Return the answer to what one sentence tells whole, or an empty text."""
    if query.aggregate == "count" and query.states:
        return _in_state(query, rows, words)
    if query.measure == "uptime" and rows.rows[0].values[0] is not None:
        moment = cell(rows.rows[0], 0, rows, words)
        return words.text("This machine was switched on or restarted {moment}.", moment=moment)
    if query.measure == "use" and len(rows.rows) == 1:
        state = cell(rows.rows[0], 0, rows, words)
        return words.text("{who} is {state}.", who=label(rows.rows[0], words), state=state)
    values = {row.values[0] for row in rows.rows}
    several = len(values) > 1 or query.measure == "holder"
    return _by_value(rows, words) if query.measure in _TEXTS and several else ""


def _by_time(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the values of days or hours, behind the highest or lowest if that is asked for."""
    title = column_title(rows.columns[0], "devices", words)
    table = sheet(rows, words, HEADS[query.by])
    best = next((row for row in rows.rows if row.key == rows.best), None)
    if best is None:
        return [words.text("{measure}{when}:", measure=title, when=times(rows, words)), table]
    first = words.text(
        "{who} has the lowest value: {measure} {value}."
        if query.aggregate == "min"
        else "{who} has the highest value: {measure} {value}.",
        who=label(best, words),
        measure=words.title(title),
        value=cell(best, 0, rows, words),
    )
    return [first, table]


def _by_value(rows: Rows, words: Words) -> str:
    """Return which GPUs have which holder, reason or version."""
    holders: dict[str, list[Row]] = {}
    for row in rows.rows:
        holders.setdefault(cell(row, 0, rows, words), []).append(row)
    parts = [f"{names(each, words)} – {holder}" for holder, each in holders.items()]
    return f"{column_title(rows.columns[0], 'devices', words)}: {'; '.join(parts)}."


def _title(query: Query, rows: Rows, words: Words) -> str:
    return column_title(rows.columns[0], "devices", words).partition(",")[0]


def _none(query: Query, rows: Rows, words: Words) -> str:
    if query.states:
        return words.text("No GPU is idle now." if "idle" in query.states else "No GPU is busy.")
    if query.where:
        return words.text("No device matches.")
    return words.text("No device has been read yet.")


def _no_data(query: Query, rows: Rows, words: Words) -> str:
    reason = why_absent(rows.rows[0], 0, words)
    if rows.span is not None:
        return words.text(
            "There is no data{when}: {measure} of {who} was not read in this time.",
            when=times(rows, words),
            measure=words.title(SUBJECTS["devices"].measures[query.measure].title),
            who=names(rows.rows, words),
        )
    return words.text(
        "{measure} of {who}: N/A, {why}.",
        measure=_title(query, rows, words),
        who=names(rows.rows, words),
        why=reason,
    )


def _moment(query: Query, rows: Rows, known: list[Row], words: Words) -> str:
    down = query.aggregate != "min"
    row = sorted(known, key=lambda row: number(row.values[0]), reverse=down)[0]
    return words.text(
        "{measure} of {who} was {extreme} {moment}: {value}.",
        measure=_title(query, rows, words),
        who=label(row, words),
        extreme=aggregate_title(query.aggregate or "max", words),
        moment=cell(row, len(row.values) - 1, rows, words),
        value=cell(row, 0, rows, words),
    )


def _winner(query: Query, rows: Rows, words: Words) -> str:
    row = next((row for row in rows.rows if row.key == rows.best), rows.rows[0])
    return words.text(
        "{who} has the lowest value of all: {measure} {value}{when}."
        if query.aggregate == "min"
        else "{who} has the highest value of all: {measure} {value}{when}.",
        who=label(row, words),
        measure=words.title(SUBJECTS["devices"].measures[query.measure].title),
        value=cell(row, 0, rows, words),
        when=times(rows, words),
    )


def _total(query: Query, rows: Rows, words: Words) -> str:
    return words.text(
        "{measure} of {who}, {aggregate}{when}: {value}.",
        measure=_title(query, rows, words),
        who=names(sorted(rows.rows, key=lambda row: row.key), words),
        aggregate=aggregate_title(query.aggregate, words),
        when=times(rows, words),
        value=value_text(rows.total, rows.columns[0].unit, words, rows.time),
    )


def _rest(query: Query, rows: Rows, words: Words) -> str:
    """Return the values that a winner or an aggregate is made from."""
    return sheet(rows, words, "Device") if len(rows.rows) > 1 and query.limit != 1 else ""


def _stat(query: Query, words: Words) -> str:
    return f", {aggregate_title(query.aggregate, words)}" if query.aggregate else ""


def _line(query: Query, rows: Rows, words: Words) -> str:
    """Return `Temperature: GPU 0 71 °C, GPU 1 65 °C.`"""
    if len(rows.rows) == 1 and len(rows.columns) == 1:
        return words.text(
            "{measure} of {who}{when}: {value}.",
            measure=column_title(rows.columns[0], "devices", words),
            who=label(rows.rows[0], words),
            when=_stat(query, words) + times(rows, words),
            value=cell(rows.rows[0], 0, rows, words),
        )
    values = ", ".join(f"{label(row, words)} {cell(row, 0, rows, words)}" for row in rows.rows)
    return words.text(
        "{measure}{when}: {values}.",
        measure=column_title(rows.columns[0], "devices", words),
        when=times(rows, words),
        values=values,
    )


def _figure(title: str, value: str) -> str:
    return value if value.endswith(title) else f"{title} {value}"


def _one(query: Query, rows: Rows, row: Row, words: Words) -> str:
    parts = [
        _figure(words.title(column_title(column, "devices", words)), cell(row, i, rows, words))
        for i, column in enumerate(rows.columns)
        if column.name != "use" and row.values[i] is not None
    ]
    if rows.columns[0].name == "use":
        state = cell(row, 0, rows, words)
        return words.text(
            "{who} is {state}: {values}.",
            who=label(row, words),
            state=state,
            values=", ".join(parts),
        )
    return words.text(
        "{who}{when}: {values}.",
        who=label(row, words),
        when=times(rows, words),
        values=", ".join(parts),
    )


def _many(query: Query, rows: Rows, words: Words) -> str:
    if rows.columns[0].name == "use":
        idle = sum(row.values[0] == "idle" for row in rows.rows)
        return words.text(
            "{idle} of {n} GPUs are idle.", idle=words.number(idle), n=words.number(len(rows.rows))
        )
    about = {
        "measure": _title(query, rows, words),
        "who": names(rows.rows, words),
        "when": times(rows, words),
    }
    said = {row.values[0] for row in rows.rows if isinstance(row.values[0], str)}
    if len(said) == 1:
        value = cell(rows.rows[0], 0, rows, words)
        return words.text("{measure} of {who}{when}: {value}.", **about, value=value)
    unit = rows.columns[0].unit
    places = [i for i, column in enumerate(rows.columns) if column.unit == unit]
    found = [row.values[i] for row in rows.rows for i in places]
    values = [value for value in found if isinstance(value, int | float)]
    if not values:
        return ""
    low, high = (value_text(end, unit, words, rows.time) for end in (min(values), max(values)))
    if low == high:
        return words.text("{measure} of {who}{when}: {value}.", **about, value=low)
    return words.text("{measure} of {who}{when}: {low} to {high}.", **about, low=low, high=high)


def _in_state(query: Query, rows: Rows, words: Words) -> str:
    one, many = _IN_STATE["idle" if "idle" in query.states else "busy"]
    return words.count(one, many, len(rows.rows), who=names(rows.rows, words))
