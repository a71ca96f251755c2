"""Word answers about processes, alerts, the queue, capacity, settings and models."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.answers.notes import wanted_job
from gpudeck.assistant.answers.values import cell, label, sheet, times, value_text
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows, number
from gpudeck.assistant.query.setting_units import BELOW_SLOWDOWN, shown
from gpudeck.assistant.writing.template.sentences import table
from gpudeck.language.numbers import capitalized
from gpudeck.language.words import Words


def processes(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return how many processes use the GPUs, and which."""
    if any(note.kind == "unseen" for note in rows.notes):
        return [
            words.text(
                "Which processes use the GPUs is not known: the readings are a recording, which "
                "holds no processes."
            )
        ]
    if not rows.rows and query.text:
        return [words.text("No process with the PID {pid} uses a GPU.", pid=query.text)]
    if not rows.rows:
        return [words.text("No process uses a GPU." if not query.user else
                           "No process of that user uses a GPU.")]  # fmt: skip
    if query.by == "user":
        best = max(rows.rows, key=lambda row: number(row.values[0]))
        first = words.text(
            "{who} uses the most memory: {value}.",
            who=label(best, words),
            value=cell(best, 0, rows, words),
        )
        return [first, sheet(rows, words, "User") if len(rows.rows) > 1 else ""]
    if rows.best:
        first = words.text(
            "{who} uses the most memory: {value}.",
            who=label(rows.rows[0], words),
            value=cell(rows.rows[0], 0, rows, words),
        )
        return [first, sheet(rows, words, "Process") if len(rows.rows) > 1 else ""]
    if rows.total is not None and query.aggregate != "count":
        value = value_text(rows.total, rows.columns[0].unit, words, rows.time)
        return [words.text("Memory of these processes, together: {value}.", value=value),
                sheet(rows, words, "Process")]  # fmt: skip
    first = words.count("{n} process uses a GPU.", "{n} processes use a GPU.", len(rows.rows))
    return [first, sheet(rows, words, "Process")]


def alerts(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return how many alerts there are, and which, or what raises one."""
    if query.measure == "rules":
        return [words.text("Alerts are raised by these settings:"), _rules(rows, words)]
    if not rows.rows:
        when = times(rows, words) if query.time else " " + words.text("now")
        return [words.text("There are no alerts{when}.", when=when)]
    first = words.count(
        "There is {n} alert{when}.", "There are {n} alerts{when}.", len(rows.rows),
        when=times(rows, words),
    )  # fmt: skip
    return [first, sheet(rows, words, "Alert")]


def _rules(rows: Rows, words: Words) -> str:
    shown_rows = [
        msgspec.structs.replace(row, values=(shown(row.label, str(row.values[0])),))
        for row in rows.rows
    ]
    return sheet(msgspec.structs.replace(rows, rows=tuple(shown_rows)), words, "Setting")


def queue(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return how many jobs wait and run, and whether the queue is paused."""
    row = rows.rows[0]
    waiting, running, state = (cell(row, place, rows, words) for place in range(3))
    if row.key == "queue":
        first = words.text("The queue is {state}: {waiting} waiting, {running} running.",
                           state=state, waiting=waiting, running=running)  # fmt: skip
    else:
        first = words.text("{who} is {state}: {waiting} waiting, {running} running.",
                           who=capitalized(label(row, words)), state=state, waiting=waiting,
                           running=running)  # fmt: skip
    return [first, sheet(rows, words, "Group") if len(rows.rows) > 1 else ""]


def limits(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return how much users may use."""
    if not rows.rows:
        return [words.text("No limits are set, so nobody's use is limited. Administrators set them "
                           "with `gpudeck limits`.")]  # fmt: skip
    if query.user:
        gpus, hours = (cell(rows.rows[0], place, rows, words) for place in range(2))
        return [words.text("{user} may use at once this many GPUs: {gpus}; and GPU hours in seven "
                           "days: {hours}.", user=phrases.escaped(query.user, 40), gpus=gpus,
                           hours=hours)]  # fmt: skip
    return [words.text("These limits are set:"), sheet(rows, words, "User")]


def events(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return what was done with jobs, and who may have done it."""
    unsaid = words.text("GPU Deck does not record who did it: only the user of a job and "
                        "administrators may change it.")  # fmt: skip
    if not rows.rows:
        none = words.text("Nothing that somebody did with jobs is recorded{when}.",
                          when=times(rows, words))  # fmt: skip
        return [f"{none} {unsaid}"]
    newest = rows.rows[0]
    first = words.text(
        "{who} of {user}: {what} {moment}.", who=capitalized(label(newest, words)),
        user=cell(newest, 3, rows, words), what=cell(newest, 1, rows, words),
        moment=cell(newest, 0, rows, words),
    )  # fmt: skip
    return [f"{first} {unsaid}", sheet(rows, words, "Job") if len(rows.rows) > 1 else ""]


def bookings(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return for whom which GPUs are kept, and when."""
    if not rows.rows:
        when = times(rows, words)
        if query.user:
            who = phrases.escaped(query.user, 40)
            return [words.text("{user} has no booking{when}.", user=who, when=when)]
        if query.devices:
            gpus = words.listed([f"GPU {index}" for index in query.devices])
            return [words.text("No booking keeps {gpus}{when}.", gpus=gpus, when=when)]
        return [words.text("No GPU is kept for anybody{when}.", when=when)]
    lines = [
        [phrases.escaped(row.label, 120), *(cell(row, place, rows, words) for place in range(3))]
        for row in rows.rows
    ]  # fmt: skip
    if len(lines) == 1:
        (gpus, holder, *_), (_, *ends) = lines[0], rows.rows[0].values
        begin, end = map(number, ends)
        return [words.text("{gpus}: kept for {holder}, {when}.", gpus=gpus, holder=holder,
                           when=words.span(begin, end, rows.time))]  # fmt: skip
    first = words.count("There is {n} booking{when}.", "There are {n} bookings{when}.", len(lines),
                        when=times(rows, words))  # fmt: skip
    return [first, table(words.captions("GPUs", "For", "From", "Until"), lines)]


def machines(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the other machines that are watched."""
    if not rows.rows:
        return [words.text("No other machine is watched. To add one: `gpudeck host add`.")]
    return [sheet(rows, words, "Machine")]


def capacity(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return whether, where and when such a job would start."""
    start, where, reason = rows.rows[0].values
    kept = {note.kind: note.values for note in rows.notes}
    if "recording" in kept:
        return []  # its note says so, behind that of the free memory
    wanted, (now, count) = wanted_job(kept["wanted"], words), kept["wanted"][2:]
    if isinstance(count, int) and count > 1:
        wanted = words.text("the last of {n} such jobs ({job})", n=count, job=wanted)
    why = value_text(reason or "", "", words, rows.time)
    if rows.rows[0].absent:
        return [words.text("No: {job} can never start here: {why}.", job=wanted, why=why)]
    if isinstance(start, int | float) and isinstance(now, int | float) and start <= now + 1:
        on = words.text(" on {devices}", devices=where) if where else ""
        return [words.text("Yes: {job} would start at once{on}.", job=wanted, on=on)]
    if start is None:
        return [
            words.text("Not now: {job} would wait; start time unknown: {why}.", job=wanted, why=why)
        ]
    return [
        words.text(
            "Not now: {job} should start {moment}: {why}.",
            job=wanted,
            moment=value_text(start, "moment", words, rows.time),
            why=why,
        )
    ]


def settings(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the value of a setting, or all settings."""
    if len(rows.rows) > 1:
        return [words.text("These are the settings:"), sheet(rows, words, "Setting")]
    name = rows.rows[0].label
    first = words.text(
        "The setting {name} is {value}.",
        name=phrases.escaped(name),
        value=shown(name, cell(rows.rows[0], 0, rows, words)),
    )
    below = words.text("It counts down from the temperature at which the GPU slows itself down.")
    return [first, below if name in BELOW_SLOWDOWN else ""]


def models(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the model in use and all models, those that are served, or the largest that fits."""
    if query.measure == "served":
        return _served(rows, words)
    if query.measure == "largest":
        return _needed(rows, words) if query.amount else _largest(rows, words)
    (note,) = [note for note in rows.notes if note.kind == "model"]
    name = phrases.escaped(str(note.values[0]))
    used = (
        words.text("The assistant uses the model {name}.", name=name)
        if note.values[0]
        else words.text("The assistant uses no model: templates write its texts.")
    )
    return [used, sheet(rows, words, "Model") if len(rows.rows) > 1 else ""]


def _served(rows: Rows, words: Words) -> list[str]:
    if not rows.rows:
        return [words.text("No model is served now. Start one with: `gpudeck serve FOLDER`")]
    named = [
        words.text("{name} on port {port}", name=label(row, words), port=row.values[0])
        for row in rows.rows
    ]
    return [
        words.count(
            "{n} model is served: {names}.", "{n} models are served: {names}.", len(named),
            names=words.listed(named),
        )
    ]  # fmt: skip


def _needed(rows: Rows, words: Words) -> list[str]:
    if not all(isinstance(row.values[0], int) for row in rows.rows):
        return [words.text("There is no GPU whose free memory is known.")]
    (note,) = [note for note in rows.notes if note.kind == "needed"]
    parameters, there = (number(value) for value in note.values)
    *kept, trained = (
        words.count(
            "{n} GPU in {precision} ({memory})", "{n} GPUs in {precision} ({memory})",
            int(number(row.values[0])), precision=row.label,
            memory=phrases.quantity(number(row.values[1]), "B"),
        )
        for row in rows.rows
    )  # fmt: skip
    size = words.numbers(f"{parameters / 1e9:g}")
    return [
        words.text(
            "A model of {size} billion parameters takes {gpus}, if a fifth of the memory is left "
            "for the cache. Training all of it takes {trained}. This machine has {n}.",
            size=size, gpus=words.listed(kept), trained=trained, n=int(there),
        )
    ]  # fmt: skip


def _largest(rows: Rows, words: Words) -> list[str]:
    if not all(isinstance(row.values[0], int | float) for row in rows.rows):
        return [words.text("There is no GPU whose free memory is known.")]
    named = [
        words.text("{size} billion parameters in {precision}",
                   size=words.numbers(f"{number(row.values[0]) / 1e9:.0f}"),
                   precision=row.label)
        for row in rows.rows
    ]  # fmt: skip
    sizes = words.listed(named)
    first = words.text(
        "One GPU takes a model of about {sizes}, if a fifth of its memory is left for the cache.",
        sizes=sizes,
    )
    return [first]
