"""Word conversions of units."""

from __future__ import annotations

from gpudeck.assistant.facts.phrases import significant
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows
from gpudeck.language.words import Words


def answer(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return `20 GB = 18.6 GiB.`"""
    first, second = (
        f"{words.numbers(_number(float(value)))} {column.name}"
        for value, column in zip(rows.rows[0].values, rows.columns, strict=True)
        if isinstance(value, int | float)
    )
    return [words.text("{first} = {second}.", first=first, second=second)]


def _number(value: float) -> str:
    if value == round(value) and abs(value) < 1e15:
        return str(round(value))
    return significant(value, 4)
