"""Compute the tables about the program itself, of the README and the manual, from measured rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.benchmarks.comparisons import Row, rows

_BLIND = ("fifteenth judge 1", "fifteenth judge 2", "sixteenth judge 1", "sixteenth judge 2")
"""The newest sets of requests whose writers did not know the assistant."""
_HEAD = """\
| the program, two CPU cores | value | measured |
|---|---|---|"""


class ProgramFigure(NamedTuple):
    """Describe one line: what was measured, in which file, and how its value is computed."""

    what: str
    file: str
    value: Callable[[], str]
    counts: Callable[[Row], bool] = lambda row: True
    """Which of the file's rows it is computed from."""


def _first_chart() -> str:
    """Return the median and the longest time of the starts, with a daemon and without one."""
    found = {row["figure"]: row for row in rows("window")}
    both = [
        found[f"window start to first live chart, {how}"] for how in ("daemon running", "no daemon")
    ]
    return "; ".join(
        f"{float(row['median']):.2f} s (at most {float(row['max']):.2f})" for row in both
    )


def _lost_jobs() -> str:
    return ", ".join(
        f"{row['tool']} {row['version']}: {row['lost']}/{row['acknowledged']}"
        for row in rows("queue_losses")
    )


def _right_requests() -> str:
    """Return the share of right answers of each set, as each of two judges found it."""
    found = {name: Counter[str]() for name in _BLIND}
    for row in filter(_is_blind, rows("assistant_held_out")):
        found[row["set"]][row["verdict"]] += 1
    return ", ".join(f"{100 * each['right'] / each.total():.0f}" for each in found.values()) + " %"


def _meant_requests() -> str:
    """Return the share of labelled requests that have a meaning, that of queries and orders, and
    that of those that are refused with the name of a command."""
    row = {row["set"]: row for row in rows("meanings")}["held-out profiles"]
    parts = int(row["query"]) + int(row["order"]), int(row["command"])
    made, refused = (round(100 * part / int(row["requests"])) for part in parts)
    whole = f"{100 * float(row['share']):.1f} %"
    return f"{whole} ({made} % a query or an order, {refused} % refused with a command)"


def _is_blind(row: Row) -> bool:
    return row["set"] in _BLIND


TABLES = {
    "program": (
        ProgramFigure(
            "First live chart; without a daemon",
            "window",
            _first_chart,
        ),
        ProgramFigure(
            "Acknowledged jobs lost, daemon killed right after",
            "queue_losses",
            _lost_jobs,
        ),
        ProgramFigure(
            "Blind requests answered correctly, two sets, two judges (all language models)",
            "assistant_held_out",
            _right_requests,
            _is_blind,
        ),
    ),
    "assistant": (
        ProgramFigure(
            "Held-out requests, read as labelled, with a meaning or a command",
            "meanings",
            _meant_requests,
        ),
    ),
}
"""The tables by the names of their marks."""


def program_table(name: str) -> str:
    """Return one of TABLES as Markdown."""
    lines = [_HEAD]
    for figure in TABLES[name]:
        days = sorted({row["date"][:10] for row in rows(figure.file) if figure.counts(row)})
        lines.append(f"| {figure.what} | {figure.value()} | {figure.file}.csv, {days[-1]} |")
    return "\n".join(lines) + "\n"
