"""Word comparisons of two things, or of one thing at two times."""

from __future__ import annotations

from gpudeck.assistant.answers.values import (
    aggregate_title,
    cell,
    column_title,
    label,
    value_text,
    why_absent,
)
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Row, Rows
from gpudeck.assistant.writing.template.sentences import table
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import Text
from gpudeck.language.words import Words

_SAME = 0.005
"""The share below which two values count as about the same."""


def compared(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the first difference as a sentence, and a table of both sides."""
    if len(rows.rows) < 2:
        return [words.text("There is nothing to compare it with.")]
    sides = [_side(row, rows, words) for row in rows.rows]
    lines = _lines(rows, words)
    first = next((line for line in lines if line[3]), lines[0])
    of_all = query.aggregate == "mean" and rows.subject == "devices"
    of_all = of_all and all(row.key == rows.subject for row in rows.rows)
    title = f"{first[0]}, {aggregate_title('mean', words)}" if of_all else first[0]
    head = words.text(
        "{measure}: {first} for {one}, {second} for {other}; {difference}.",
        measure=title,
        first=first[1],
        one=sides[0],
        second=first[2],
        other=sides[1],
        difference=first[3] or words.text("no difference is known"),
    )
    more = table(["", *sides, words.text("Difference")], lines) if len(lines) > 1 else ""
    unknown = {
        why_absent(row, 0, words): side
        for row, side in zip(rows.rows, sides, strict=True)
        if row.values[0] is None and row.absent and isinstance(row.absent[0], Text)
    }
    told = [words.text("{who}: {why}.", who=capitalized(side), why=why)
            for why, side in unknown.items()]  # fmt: skip
    return [head, more, " ".join(told)]


def differences(rows: Rows, words: Words) -> list[str]:
    """Return the differences of two rows in words; none of rows that are no comparison."""
    if len(rows.rows) != 2:
        return []
    return [f"{line[0]}: {line[3]}" for line in _lines(rows, words) if line[3]]


def _lines(rows: Rows, words: Words) -> list[list[str]]:
    """Return a line for each column: its title, both values, and the difference."""
    lines = []
    for place, column in enumerate(rows.columns):
        first, second = (row.values[place] for row in rows.rows)
        shown = [cell(row, place, rows, words) for row in rows.rows]
        title = column_title(column, rows.subject, words)
        lines.append([title, *shown, _difference(first, second, column.unit, words)])
    return lines


def _side(row: Row, rows: Rows, words: Words) -> str:
    spans = {(span.since, span.until) if (span := other.span) else None for other in rows.rows}
    if len(spans) > 1:
        told = row.span
        return words.span(told.since, told.until, rows.time) if told else words.text("this moment")
    return words.text("the others") if row.label == "the others" else label(row, words)


def _difference(first: object, second: object, unit: str, words: Words) -> str:
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return ""
    if unit == "moment":
        return ""
    if first == second or abs(first - second) < _SAME * abs(second):
        return words.text("about the same")
    size = value_text(abs(first - second), unit, words, 0.0)
    if second and unit not in ("°C", "%") and 1 < first / second < 1000 and first >= 2 * second:
        ratio = words.numbers(phrases.significant(first / second))
        return words.text("{ratio} times as much", ratio=ratio)
    return words.text("{size} more" if first > second else "{size} less", size=size)
