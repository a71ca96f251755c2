"""Word single values, titles and times of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.facts.fact import Fact
from gpudeck.assistant.query.costs import MONEY
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Row, Rows, Value
from gpudeck.assistant.query.table import AGGREGATES, SUBJECTS
from gpudeck.assistant.writing.template.sentences import table
from gpudeck.language import numbers as units
from gpudeck.language.numbers import capitalized, duration
from gpudeck.language.rendering import render
from gpudeck.language.text import Text
from gpudeck.language.words import Words

Answerer = Callable[[Query, Rows, Words], list[str]]

TERMS = {
    "idle": "idle", "busy": "busy", "open": "open", "paused": "paused", "usable": "usable",
    "queued": "waiting", "held": "on hold", "starting": "starting", "running": "running",
    "stopping": "stopping",
    "done": "done", "rejected": "done, and not passed", "failed": "failed", "cancelled":
    "cancelled", "lost": "lost", "stuck": "stuck", "not stuck": "not stuck", "nobody": "nobody",
    "no errors": "no errors", "none": "none", "not set": "not set",
    "not reported by this device": "not reported by this device", "connected": "connected",
    "any": "any number", "True": "on", "False": "off", "on": "on", "off": "off",
}  # fmt: skip
"""Values that are words of ours; all other texts are foreign and shown as they are."""
_TITLES = {"mean": "mean", "max": "highest", "min": "lowest"}
HEADS = {"": "Job", "user": "User", "name": "Name", "group": "Group", "day": "Day", "hour": "Hour"}
"""The heads of the first column, by what rows are grouped by."""
_NAMES = ("user ", "name ", "group ")
_SHOWN = 31
"""Rows of a table."""


def value_text(value: Value, unit: str, words: Words, now: float) -> str:
    """Return a value with its unit, as Markdown."""
    if value is None:
        return words.text("N/A")
    if isinstance(value, Text):
        return phrases.escaped(render(value, words.language), 400)
    if isinstance(value, str):
        return words.text(TERMS[value]) if value in TERMS else phrases.escaped(value, 400)
    if unit == "moment":
        return words.moment(value, now)
    if unit.startswith(MONEY):
        currency = phrases.escaped(unit.removeprefix(MONEY).strip(), 12)
        return f"{words.numbers(f'{value:.2f}')} {currency}".strip()
    if unit == "s":
        return words.numbers(duration(value))
    if unit == "J":
        return words.numbers(units.energy(value))
    return words.numbers(phrases.quantity(value, unit))


def cell(row: Row, place: int, rows: Rows, words: Words) -> str:
    """Return a value of a row."""
    return value_text(row.values[place], rows.columns[place].unit, words, rows.time)


def label(row: Row, words: Words) -> str:
    """Return the label of a row as Markdown."""
    text = phrases.escaped(row.label, 120)
    if row.key.startswith("day "):
        return words.date(datetime.fromisoformat(row.label).timestamp())
    for noun in ("job", "process", "queue", "group", "alert"):
        if text.startswith(f"{noun} "):
            return words.text(noun) + text[len(noun) :]
    return text


def why_absent(row: Row, place: int, words: Words) -> str:
    """Return why a value is missing."""
    reason = row.absent[place] if place < len(row.absent) else ""
    if isinstance(reason, Text):
        return phrases.escaped(render(reason, words.language), 400)
    return words.text(reason) if reason else words.text("nothing was read in this time")


def column_title(column: Column, subject: str, words: Words) -> str:
    """Return the heading of a column."""
    name, _, stat = column.name.partition(".")
    if name in ("at", "cost"):
        return words.text("When" if name == "at" else "Cost")
    found = SUBJECTS[subject].measures.get(name)
    title = words.text(found.title) if found is not None else words.text(name)
    return f"{title}, {words.text(_TITLES[stat])}" if stat else title


def aggregate_title(name: str, words: Words) -> str:
    """Return `total` or `highest`."""
    return words.text(AGGREGATES[name])


def times(rows: Rows, words: Words) -> str:
    """Return the time that the rows are about, to follow a name; empty for now."""
    if rows.span is None:
        return ""
    if rows.span.point:
        return ", " + words.point(rows.span.since)
    return ", " + words.span(rows.span.since, rows.span.until, rows.time)


def sheet(rows: Rows, words: Words, head: str, first: int = 0) -> str:
    """Return the rows as a table."""
    titles = [column_title(column, rows.subject, words) for column in rows.columns[first:]]
    lines = [
        [label(row, words) if row.key.startswith(_NAMES) else capitalized(label(row, words))]
        + [cell(row, place, rows, words) for place in range(first, len(row.values))]
        for row in rows.rows[:_SHOWN]
    ]
    shown = table([words.text(head), *titles], lines)
    left_out = rows.left_out + max(len(rows.rows) - _SHOWN, 0)
    more = words.count("{n} more is not shown.", "{n} more are not shown.", left_out)
    return f"{shown}\n\n{more}" if left_out else shown


def facts(rows: Rows, words: Words, notes: Sequence[str] = ()) -> tuple[Fact, ...]:
    """Return each value, the count, the span and the notes as facts with their source."""
    found = [
        _fact(row.key, label(row, words), column, row.values[i], rows, words)
        for row in rows.rows
        for i, column in enumerate(rows.columns[: len(row.values)])
    ]
    if rows.total is not None and rows.columns:
        found.append(_fact("all", "", rows.columns[0], rows.total, rows, words))
    jobs = rows.subject == "jobs"
    head = words.text("Jobs") if jobs else capitalized(aggregate_title("count", words))
    told = [("all.count", f"{head}: {len(rows.rows) + rows.left_out}")]
    names = [column.name for column in rows.columns]
    if jobs and "state" in names:
        states = Counter(str(row.values[names.index("state")]) for row in rows.rows)
        told += [
            (
                f"jobs.{state}",
                f"{words.text('Jobs')} {value_text(state, '', words, rows.time)}: {n}",
            )
            for state, n in states.items()
        ]
    told += [(f"note{i}.text", text) for i, text in enumerate(notes)]
    if rows.span is not None:
        told.append(("span.when", times(rows, words).removeprefix(", ")))
    found += [Fact(name, text, "", text, rows.source, rows.time, text) for name, text in told]
    return tuple(found)


def _fact(key: str, name: str, column: Column, value: Value, rows: Rows, words: Words) -> Fact:
    said = value_text(value, column.unit, words, rows.time)
    text = f"{name} {column_title(column, rows.subject, words)}: {said}".strip()
    unit = "s" if column.unit == "moment" else column.unit
    plain = render(value) if isinstance(value, Text) else value
    return Fact(f"{key}.{column.name}", plain, unit, said, rows.source, rows.time, text)


def names(rows: Sequence[Row], words: Words) -> str:
    """Return the labels of rows: GPU 0, GPU 3 and GPU 4, or GPU 2 to 5."""
    labels = [label(row, words) for row in rows]
    numbers = [int(text[4:]) for text in labels if text.startswith("GPU ") and text[4:].isdigit()]
    if len(numbers) == len(labels) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return words.text("GPU {first} to {last}", first=numbers[0], last=numbers[-1])
    return words.listed(labels)
