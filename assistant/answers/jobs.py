"""Word answers about jobs."""

from __future__ import annotations

from collections import Counter

from gpudeck.assistant.answers.values import (
    HEADS,
    TERMS,
    aggregate_title,
    cell,
    column_title,
    label,
    sheet,
    times,
    value_text,
    why_absent,
)
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Row, Rows
from gpudeck.assistant.query.table import HELD
from gpudeck.language.numbers import capitalized
from gpudeck.language.words import Words
from gpudeck.scheduler.protocol.search import FAILED

_IN_A_LINE = 3
"""Jobs whose values fit sentences."""
_ALIKE = {
    "running": ("{n} job is running{when}.", "{n} jobs are running{when}."),
    "queued": ("{n} job is waiting{when}.", "{n} jobs are waiting{when}."),
    "held": ("{n} job is on hold{when}.", "{n} jobs are on hold{when}."),
    "done": ("{n} job is done{when}.", "{n} jobs are done{when}."),
    "cancelled": ("{n} job was cancelled{when}.", "{n} jobs were cancelled{when}."),
}
_COUNTED = ("running", "starting", "queued", "failed", "lost", "cancelled", "rejected", "done")


def answer(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the answer, one sentence first, behind the user whose jobs are asked for."""
    first, *rest = _answer(query, rows, words)
    # a job that is named may be somebody else's
    led = _chosen_by(query, rows, words) if first and not query.jobs else ""
    owners = _owners(query, rows, words) if query.user and not led else []
    return [f"{led}: {first}" if led else first, *rest, *owners]


def _chosen_by(query: Query, rows: Rows, words: Words) -> str:
    """Return the user whose jobs are asked for, and where there are none, what else chose them."""
    parts = [phrases.escaped(query.user)] if query.user else []
    if not rows.rows:
        group = words.text("group {group}", group=phrases.escaped(query.group, 60))
        parts += [group] if query.group else []
        parts += [phrases.escaped(query.tag, 60)] if query.tag else []
        parts += [f"GPU {index}" for index in query.devices]
    return ", ".join(parts)


def _owners(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return whose the jobs are, where sentences do not tell it: not that user's."""
    place = next((i for i, column in enumerate(rows.columns) if column.name == "user"), 0)
    if not place or len(rows.rows) > _IN_A_LINE:
        return []
    return [
        words.text(
            "{measure} of {who}: {value}.",
            measure=column_title(rows.columns[place], "jobs", words),
            who=label(row, words),
            value=cell(row, place, rows, words),
        )
        for row in rows.rows
    ]


def _answer(query: Query, rows: Rows, words: Words) -> list[str]:
    if not rows.rows:
        return ["" if query.ahead and not query.measure else _none(query, rows, words)]
    if query.aggregate == "count":
        return [_counted(query, rows, words)]
    if query.aggregate in ("max", "min", "sum", "mean") and rows.total is None and not query.by:
        return [
            words.text(
                "{measure} is not known of any of these {n} jobs{when}: {why}.",
                measure=column_title(rows.columns[0], "jobs", words),
                n=words.number(len(rows.rows)),
                when=times(rows, words),
                why=_why_none(rows, words),
            )
        ]
    if rows.best:
        best = next((row for row in rows.rows if row.key == rows.best), rows.rows[0])
        first = words.text(
            "{who} has the lowest value of all: {measure} {value}{when}."
            if query.aggregate == "min"
            else "{who} has the highest value of all: {measure} {value}{when}.",
            who=(label(best, words) or "?") if query.by else capitalized(label(best, words)),
            measure=words.title(column_title(rows.columns[0], "jobs", words)),
            value=cell(best, 0, rows, words),
            when=times(rows, words),
        )
        return [first, sheet(rows, words, HEADS[query.by]) if len(rows.rows) > 1 else ""]
    if query.by:
        return [_grouped(rows, words), sheet(rows, words, HEADS[query.by])]
    if query.ahead and not query.measure:
        return [sheet(rows, words, "Job")]  # its note says how many there are
    if rows.total is not None and (len(rows.rows) > 1 or not query.jobs):
        first = words.count(
            "{measure} of {n} job, {aggregate}{when}: {value}.",
            "{measure} of {n} jobs, {aggregate}{when}: {value}.",
            len(rows.rows),
            measure=column_title(rows.columns[0], "jobs", words),
            aggregate=aggregate_title(query.aggregate, words),
            when=times(rows, words),
            value=value_text(rows.total, rows.columns[0].unit, words, rows.time),
        )
        return [first, sheet(rows, words, "Job") if len(rows.rows) > 1 else ""]
    if query.measure == "log":
        return [part for row in rows.rows for part in _log(row, rows, words)]
    if len(rows.rows) <= _IN_A_LINE and (query.jobs or query.measure):
        return [_one(query, row, rows, words) for row in rows.rows]
    return [_counted(query, rows, words), sheet(rows, words, "Job")]


def _grouped(rows: Rows, words: Words) -> str:
    """Return what all groups have together, if that can be added up."""
    title, when = column_title(rows.columns[0], "jobs", words), times(rows, words)
    if rows.total is None:
        return words.text("{measure}{when}:", measure=title, when=when)
    value = value_text(rows.total, rows.columns[0].unit, words, rows.time)
    return words.text("{measure}{when}: {value} in all.", measure=title, when=when, value=value)


def _why_none(rows: Rows, words: Words) -> str:
    """Return the reasons for which no row has a value, the most frequent first."""
    reasons = Counter(why_absent(row, 0, words) for row in rows.rows)
    return words.listed([reason for reason, _ in reasons.most_common()])


def _none(query: Query, rows: Rows, words: Words) -> str:
    when = times(rows, words)
    states = [words.text(TERMS[state]) for state in query.states]
    if {"failed", "lost"} <= set(query.states) <= set(FAILED) and not query.where:
        return words.text("No job failed{when}.", when=when)
    if states and not query.where:
        return words.text("No job is {state}{when}.", state=words.listed(states[:1]), when=when)
    if query == Query("jobs", time=query.time):
        return words.text("There are no jobs{when}.", when=when)
    return words.text("There is no such job{when}.", when=when)


def _counted(query: Query, rows: Rows, words: Words) -> str:
    names = [column.name for column in rows.columns]
    states = [str(row.values[names.index("state")]) for row in rows.rows if "state" in names]
    number = len(rows.rows) + (0 if query.limit else rows.left_out)
    if set(query.states) == set(FAILED):
        return words.count(
            "{n} job failed or was lost{when}.",
            "{n} jobs failed or were lost{when}.",
            number,
            when=times(rows, words),
        )
    if len(set(states)) == 1 and query.states and states[0] in _ALIKE:
        one, many = _ALIKE[HELD if query.states == (HELD,) else states[0]]
        return words.count(one, many, number, when=times(rows, words))
    if len(set(states)) == 1 and query.states:
        return words.count(
            "{n} job is {state}{when}.",
            "{n} jobs are {state}{when}.",
            number,
            state=words.text(TERMS.get(HELD if query.states == (HELD,) else states[0], states[0])),
            when=times(rows, words),
        )
    count = Counter(states)
    parts = [f"{words.number(count[s])} {words.text(TERMS[s])}" for s in _COUNTED if count[s]]
    if not parts:
        return words.count("{n} job{when}.", "{n} jobs{when}.", number, when=times(rows, words))
    return words.count(
        "{n} job{when}: {parts}.",
        "{n} jobs{when}: {parts}.",
        number,
        when=times(rows, words),
        parts=", ".join(parts),
    )


def _log(row: Row, rows: Rows, words: Words) -> list[str]:
    if row.values[0] is None:
        return [words.text("{who} printed nothing.", who=capitalized(label(row, words)))]
    title = words.text("The last output of {who}:", who=label(row, words))
    return [title, phrases.fenced(str(row.values[0]))]


_SENTENCES = {
    "start": "{who} started {value}.",
    "end": "{who} ended {value}.",
    "submitted": "{who} was submitted {value}.",
    "duration": "{who} ran for {value}.",
    "waited": "{who} waited for {value}.",
    "energy": "{who} used {value}.",
    "stall": "{who} is {value}.",
    "estimate": "{who} has about {value} left.",
    "progress": "{who} is {value} complete.",
    "devices": "{who} runs or ran on {value}.",
}


def _one(query: Query, row: Row, rows: Rows, words: Words) -> str:
    who, measure = capitalized(label(row, words)), query.measure
    values = dict(zip([column.name for column in rows.columns], row.values, strict=True))
    state = str(values.get("state", ""))
    if not measure:
        return _standing(row, rows, words)
    if measure in ("reason", "failure"):
        return _reason(row, rows, words, state)
    if measure == "estimate" and any(note.kind == "estimate" for note in rows.notes):
        return ""  # its note says when it ends, and how long that is
    if row.values[0] is None:
        if measure in ("start", "end", "estimate", "stall") and rows.notes:
            return ""  # the forecast or the estimate in the notes says it
        return words.text("{who}: {why}.", who=who, why=why_absent(row, 0, words))
    if measure == "duration" and query.aggregate not in ("", "first", "last"):
        return ""
    if measure == "duration" and state == "running":
        return words.text("{who} has been running for {value}.", who=who,
                          value=cell(row, 0, rows, words))  # fmt: skip
    if text := _SENTENCES.get(measure):
        return words.text(text, who=who, value=cell(row, 0, rows, words))
    return words.text(
        "{measure} of {who}: {value}.",
        measure=column_title(rows.columns[0], "jobs", words),
        who=label(row, words),
        value=cell(row, 0, rows, words),
    )


_STANDINGS = {
    "queued": "{who} waits.",
    "starting": "{who} is starting.",
    "running": "{who} is running, for {duration} now.",
    "stopping": "{who} is stopping.",
    "done": "{who} is done; it ran for {duration}.",
    "rejected": "{who} is done, and its result did not pass; it ran for {duration}.",
    "failed": "{who} failed after {duration}.",
    "cancelled": "{who} was cancelled.",
    "lost": "{who} was lost after {duration}.",
}


def _standing(row: Row, rows: Rows, words: Words) -> str:
    state = str(row.values[0])
    duration = cell(row, 1, rows, words) if len(row.values) > 1 else ""
    if state == "running" and (reached := _reached(row, rows, words)):
        return words.text(
            "{who} is running, for {duration} now: {reached}.",
            who=capitalized(label(row, words)),
            duration=duration,
            reached=words.listed(reached),
        )
    place = next((i for i, column in enumerate(rows.columns) if column.name == "reason"), 0)
    if state == "failed" and place and row.values[place] is not None:
        why = str(cell(row, place, rows, words)).rstrip(".")
        return words.text(
            "{who} failed after {duration}: {why}.",
            who=capitalized(label(row, words)),
            duration=duration,
            why=why,
        )
    return words.text(_STANDINGS[state], who=capitalized(label(row, words)), duration=duration)


_REACHED = {"progress": "{value} complete", "loss": "loss {value}"}


def _reached(row: Row, rows: Rows, words: Words) -> list[str]:
    """Return how far a job has come, and the loss that it has reached."""
    return [
        words.text(_REACHED[column.name], value=cell(row, place, rows, words))
        for place, column in enumerate(rows.columns)
        if column.name in _REACHED and row.values[place] is not None
    ]


_REASONS = {
    "queued": "{who} has not started: {why}.",
    "failed": "{who} failed: {why}.",
    "lost": "{who} was lost: {why}.",
}


def _reason(row: Row, rows: Rows, words: Words, state: str) -> str:
    who = capitalized(label(row, words))
    if row.values[0] is None:
        return words.text("{who} is {state}.", who=who, state=words.text(TERMS.get(state, state)))
    text = _REASONS.get(state, "{who}: {why}.")
    return words.text(text, who=who, why=str(cell(row, 0, rows, words)).rstrip("."))
