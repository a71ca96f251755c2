"""Word the notes on which GPUs are free, which are held until when, and what is free later."""

from __future__ import annotations

from collections.abc import Callable

from gpudeck.assistant.answers.values import value_text
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows, Value, number
from gpudeck.language.words import Words


def _now(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    parts = []
    for place in range(0, len(values), 4):
        name, holder, begin, end = values[place : place + 4]
        gpu = phrases.escaped(str(name), 40)
        if holder is not None:
            gpu = words.text(
                "{gpu} (kept for {holder}, {when})", gpu=gpu,
                holder=value_text(holder, "", words, rows.time),
                when=words.span(number(begin), number(end), rows.time),
            )  # fmt: skip
        parts.append(gpu)
    if not parts:
        return "" if query.devices else words.text("No GPU is free now.")
    return words.text("Free now: {gpus}.", gpus=words.listed(parts))


def _held(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    holder, until, runs, *names = values
    gpus = words.listed([phrases.escaped(str(name), 40) for name in names])
    if not isinstance(holder, int):
        why = value_text(holder, "", words, rows.time)
        return words.text("In use: {gpus} ({why}).", gpus=gpus, why=why)
    if until is None:
        return words.text("Job {job} holds {gpus}; when it ends is not known.", job=holder,
                          gpus=gpus)  # fmt: skip
    basis = words.text("its progress so far")
    if runs:
        basis = words.count("{n} earlier run", "{n} earlier runs", int(number(runs)))
    return words.text(
        "Job {job} holds {gpus} and should end {moment} (from {basis}).", job=holder, gpus=gpus,
        moment=value_text(until, "moment", words, rows.time), basis=basis,
    )  # fmt: skip


def _then(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    since, until, wanted, *names = values
    when = (
        words.span(number(since), number(until), rows.time)
        if number(until) > number(since)
        else value_text(since, "moment", words, rows.time)
    )
    gpus = words.listed([phrases.escaped(str(name), 40) for name in names])
    if busy := [name for name in _named(query) if name not in names]:
        return words.count(
            "No: {gpus} is not known to be free then ({when}).",
            "No: {gpus} are not known to be free then ({when}).", len(busy),
            gpus=words.listed(busy), when=when,
        )  # fmt: skip
    if not names:
        return words.text("No GPU is known to be free then ({when}).", when=when)
    return words.text(
        "Yes: these GPUs should be free then ({when}): {gpus}."
        if len(names) >= number(wanted)
        else "No: only these GPUs are known to be free then ({when}): {gpus}.",
        when=when, gpus=gpus,
    )  # fmt: skip


def _from(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    at, wanted = values
    n = int(number(wanted))
    if named := _named(query):
        gpus = words.listed(named)
        if at is None:
            return words.count("When {gpus} will be free is not known.",
                               "When {gpus} will be free at once is not known.", len(named),
                               gpus=gpus)  # fmt: skip
        free = value_text(at, "moment", words, rows.time)
        return words.count("{gpus} should be free {moment}.",
                           "{gpus} should all be free {moment}.", len(named),
                           gpus=gpus, moment=free)  # fmt: skip
    if at is None:
        return words.count("When {n} GPU will be free is not known.",
                           "When {n} GPUs will be free at once is not known.", n)  # fmt: skip
    moment = value_text(at, "moment", words, rows.time)
    return words.count("{n} GPU should be free {moment}.", "{n} GPUs should be free {moment}.", n,
                       moment=moment)  # fmt: skip


def _named(query: Query) -> list[str]:
    """Return the GPUs that are asked about; none where any may do."""
    return [f"GPU {index}" for index in query.devices]


def _wanted(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    return words.count(
        "{n} job waits for GPUs and may take some of them first.",
        "{n} jobs wait for GPUs and may take some of them first.", int(number(values[0])),
    )  # fmt: skip


FREE_GPUS: dict[str, Callable[[Query, tuple[Value, ...], Rows, Words], str]] = {
    "gpus now": _now,
    "gpus held": _held,
    "gpus then": _then,
    "gpus from": _from,
    "gpus wanted": _wanted,
}
"""By the kinds of notes."""
