"""Word the notes of rows: forecasts, estimates, causes of failures, gaps and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpudeck.assistant.answers.free_gpus import FREE_GPUS
from gpudeck.assistant.answers.values import TERMS, value_text
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.language.remedies import advice
from gpudeck.assistant.query.costs import MONEY
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Note, Rows, Value, number
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.language.numbers import capitalized
from gpudeck.language.words import Words


def notes(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the text of each note that the answer has not used itself."""
    return _worded(rows.notes, query, rows, words)


_LEADING = frozenset({"cost", "deadline", "then", "gpus then"})
"""Kinds of notes that are what was asked for, so that they stand first."""


def leading(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the notes that answer the question, for the beginning of the answer."""
    found = [note for note in rows.notes if note.kind in _LEADING]
    return _worded(found, query, rows, words)


def _worded(found: Iterable[Note], query: Query, rows: Rows, words: Words) -> list[str]:
    texts = (
        _NOTES[note.kind](query, note.values, rows, words) for note in found if note.kind in _NOTES
    )
    return list(dict.fromkeys(filter(None, texts)))


def _duration(value: Value, words: Words) -> str:
    return value_text(value, "s", words, 0.0)


def _forecast(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, ahead, at, where = values
    queued = words.count("{n} job is ahead of it.", "{n} jobs are ahead of it.", int(number(ahead)))
    if not ahead:
        queued = words.text("No job is ahead of it.")
    if at is None:
        start = words.text("The start time of job {job} is unknown.", job=job)
    elif isinstance(at, int | float) and at <= rows.time + 1:
        start = words.text("Job {job} starts any moment now.", job=job)
    else:
        moment = value_text(at, "moment", words, rows.time)
        on = words.text(" on {devices}", devices=where) if where else ""
        start = words.text("Job {job} should start {moment}{on}.", job=job, moment=moment, on=on)
    return f"{start} {queued}"


def _waits(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, why = values
    if not why:
        return ""
    reason = value_text(why, "", words, rows.time).rstrip(".")
    return words.text("Job {job} has not started: {why}.", job=job, why=reason)


def _estimate(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, seconds, low, high, runs, now = values
    spread = {
        "seconds": _duration(seconds, words),
        "low": _duration(low, words),
        "high": _duration(high, words),
    }
    if runs:
        basis = words.count("{n} earlier run", "{n} earlier runs", int(number(runs)))
    else:
        basis = words.text("its progress so far")
    end = value_text(number(now) + number(seconds), "moment", words, number(now))
    return words.text(
        "Job {job} needs about {seconds} more ({low} to {high}, from {basis}) and should end "
        "{end}.",
        job=job,
        basis=basis,
        end=end,
        **spread,
    )


def _runs(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, seconds, low, high, runs = values
    return words.count(
        "Jobs like job {job} take about {seconds} ({low} to {high}, from {n} run).",
        "Jobs like job {job} take about {seconds} ({low} to {high}, from {n} runs).",
        int(number(runs)),
        job=job,
        seconds=_duration(seconds, words),
        low=_duration(low, words),
        high=_duration(high, words),
    )


def _failure(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, kind, line = values
    return "\n\n".join(advice(job, str(kind), str(line), words))


def _retry(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    """Return the words that run a job again with the memory that it needed."""
    job, option, amount = values
    if option != "memory" or not amount:
        return ""
    size = words.numbers(phrases.quantity(number(amount), "B"))
    return words.text(
        'To run it with more memory, say: "retry job {job} with {size}".', job=job, size=size
    )


def _liveness(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    _, output, progress, util, read = values
    parts = [
        words.text("last output {time} ago", time=_duration(output, words))
        if output is not None
        else words.text("no output yet"),
        words.text("last progress {time} ago", time=_duration(progress, words))
        if progress is not None
        else words.text("it reports no progress"),
    ]
    if util is not None:
        parts.append(
            words.text(
                "its GPUs were {util} busy over the last {time}",
                util=value_text(util, "%", words, 0.0),
                time=_duration(read, words),
            )
        )
    text = "; ".join(parts)
    return f"{capitalized(text)}."


def _replay(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    return words.text("These readings are a recording (REPLAY of {file}).", file=_file(values[0]))


def _file(value: Value) -> str:
    return phrases.escaped(str(value).rpartition("/")[2])


def _missing(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    return words.text("There is no GPU {index} on this machine.", index=values[0])


def _uncertain(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    error = value_text(values[0], "%", words, 0.0)
    return words.text(
        "The rate is from hardware counters, ±{error} for FP16 and BF16; FP8 would be twice and "
        "TF32 half of it.",
        error=error,
    )


def _busy(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    if query.measure != "use" and len(rows.rows) != 1:
        return ""
    who, why, loaded = values
    if loaded and query.measure != "use":
        return ""
    reason = value_text(why, "", words, rows.time)
    return words.text("{who} is busy: {why}.", who=who, why=reason)


def _usual(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    who, measure, mean, highest, limit, why, since = values
    unit = SUBJECTS["devices"].measures[str(measure)].unit
    usual = words.text(
        "Over the last seven days, {who} has {mean} at the mean and {highest} at most."
        if since is None
        else "Readings begin {moment}. Since then, {who} has {mean} at the mean and {highest} at "
        "most.",
        who=who,
        mean=value_text(mean, unit, words, rows.time),
        highest=value_text(highest, unit, words, rows.time),
        moment=value_text(since, "moment", words, rows.time),
    )
    told = [usual]
    if limit is not None and measure in _LIMITED:
        ends = value_text(limit, unit, words, rows.time)
        told.append(words.text(_LIMITED[str(measure)], limit=ends))
    if why:
        reason = value_text(why, "", words, rows.time)
        told.append(words.text("{who} is busy: {why}.", who=who, why=reason))
    else:
        told.append(words.text("{who} is {state}.", who=who, state=words.text(TERMS["idle"])))
    return " ".join(told)


_LIMITED = {
    "temp": "It slows itself down from {limit} on.",
    "power": "Its limit is {limit}.",
    "mem_used": "It has {limit}.",
}


def _course(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, first, last, count = values
    ends = {"first": value_text(first, "", words, 0.0), "last": value_text(last, "", words, 0.0)}
    return words.text(
        "Over the last {n} values that job {job} printed, it stayed at {last}."
        if ends["first"] == ends["last"]
        else "Over the last {n} values that job {job} printed, it went from {first} to {last}.",
        job=job, n=words.number(number(count)), **ends,
    )  # fmt: skip


def _so_far(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    told = words.text("Job {job} is running: its value is that of its GPUs so far.", job=values[0])
    return told if any(row.key == f"job{values[0]}" for row in rows.rows) else ""


def _group(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    name, limit, paused = values
    said = {"group": phrases.escaped(str(name), 60)}
    told = words.text("Group {group} is paused: none of its jobs starts.", **said) if paused else ""
    most = words.count(
        "At most {n} job of group {group} runs at once.",
        "At most {n} jobs of group {group} run at once.", int(number(limit)), **said,
    )  # fmt: skip
    return " ".join(filter(None, [told, most if limit else ""]))


def _other_booking(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    gpus, holder, begin, end = values
    return words.text(
        "There is this booking: {gpus} for {holder}, {when}.", gpus=phrases.escaped(str(gpus), 120),
        holder=value_text(holder, "", words, rows.time),
        when=words.span(number(begin), number(end), rows.time),
    )  # fmt: skip


def _others_jobs(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    """Return the jobs that there are without one condition of the query."""
    condition, count, jobs = values
    one, many = _BESIDES[str(condition)]
    return words.count(one, many, int(number(count)), jobs=phrases.escaped(str(jobs), 300))


_BESIDES = {
    "user": ("{n} such job is of another user: {jobs}.",
             "{n} such jobs are of other users: {jobs}."),
    "group": ("{n} such job is not in this group: {jobs}.",
              "{n} such jobs are not in this group: {jobs}."),
    "tag": ("{n} such job does not have this tag: {jobs}.",
            "{n} such jobs do not have this tag: {jobs}."),
    "devices": ("{n} such job is not on these GPUs: {jobs}.",
                "{n} such jobs are not on these GPUs: {jobs}."),
}  # fmt: skip


def _held(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    return words.count(
        "{n} of those waiting is held.", "{n} of those waiting are held.", int(number(values[0]))
    )


def _held_besides(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    return words.count("{n} more is on hold.", "{n} more are on hold.", int(number(values[0])))


def _since(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    moment = value_text(values[0], "moment", words, rows.time)
    return words.text("Readings begin {moment}; there is no data before that.", moment=moment)


def _free_memory(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    """Return the free memory of each GPU, and where what is asked about would fit."""
    pairs = list(zip(values[::2], values[1::2], strict=True))
    found = [f"{name} {value_text(value, 'B', words, rows.time)}" for name, value in pairs]
    if not found:
        return ""
    told = words.text("Free memory now: {gpus}.", gpus=words.listed(found))
    if not query.amount:
        return told
    fits = [str(name) for name, value in pairs if number(value) >= query.amount]
    first = words.text("No GPU has that much free memory now.")
    if fits:
        first = words.text("By free memory it would fit on {gpus}.", gpus=words.listed(fits))
    return f"{first} {told}"


def wanted_job(values: tuple[Value, ...], words: Words) -> str:
    """Return in words the job of the note `wanted`: its GPUs, and the memory on each."""
    gpus, amount = values[:2]
    wanted = words.count("a job for {n} GPU", "a job for {n} GPUs", int(number(gpus)))
    if isinstance(amount, int | float) and amount:
        size = words.numbers(phrases.quantity(amount, "B"))
        return words.text("{job} with {memory} on each", job=wanted, memory=size)
    return wanted


def _fit(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    name, where, size, tokens = values
    return words.text(
        "{name} fits on {where}: its weights take {size}, and its cache could hold {n} tokens."
        if tokens
        else "{name} does not fit on {where}: its weights take {size}.",
        name=phrases.escaped(str(name), 80), where=where,
        size=value_text(size, "B", words, rows.time), n=words.number(number(tokens)),
    )  # fmt: skip


def _recording(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    (asked,) = [note.values for note in rows.notes if note.kind == "wanted"]
    wanted = wanted_job(asked, words)
    return words.text(
        "{job} cannot start, though: a recording is shown (REPLAY), which runs no GPU jobs.",
        job=capitalized(wanted),
    )


def _cost(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    kwh, price, currency, other = values
    if not isinstance(price, int | float) or not price:
        return words.text(
            "The cost is unknown: the price of a kWh is not set. Set it on the page Settings."
        )
    if not isinstance(kwh, int | float):
        return words.text("The cost is unknown, as the energy is.")
    unit = f"{MONEY} {currency}".strip()
    said = {
        "cost": value_text(kwh * price, unit, words, 0.0),
        "energy": words.numbers(f"{kwh:.3g}"),
        "price": words.numbers(f"{price:g}"),
    }
    days = next((_days(note.values) for note in rows.notes if note.kind == "past"), 0)
    told = words.count(
        "The cost of the past 24 hours is {cost}: {energy} kWh at {price} for each.",
        "The cost of the past {n} days is {cost}: {energy} kWh at {price} for each.",
        days, **said,
    ) if days else words.text(
        "The cost is {cost}: {energy} kWh at {price} for each.", **said
    )  # fmt: skip
    if not other:
        return told
    wanted = phrases.escaped(str(other), 20)
    unchanged = words.text("I do not convert it to {currency}.", currency=wanted)
    return f"{told} {unchanged}"


def _days(values: tuple[Value, ...]) -> int:
    """Return the days of the note `past`."""
    return round(number(values[0]) / 86400.0)


def _past(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    """Return the time that is told where none was asked for, unless the cost has told it."""
    if any(note.kind == "cost" and note.values[0] and note.values[1] for note in rows.notes):
        return ""
    return words.count(
        "This is about the past 24 hours.", "This is about the past {n} days.", _days(values)
    )


def _deadline(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    job, ends, deadline, now = values
    end, limit = (value_text(one, "moment", words, number(now)) for one in (ends, deadline))
    return words.text(
        "Yes: job {job} should end {end}, and the time that you name is {deadline}."
        if number(ends) <= number(deadline)
        else "No: job {job} should end {end}, and the time that you name is {deadline}.",
        job=job,
        end=end,
        deadline=limit,
    )


def _then(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    moment = value_text(values[0], "moment", words, rows.time)
    if not rows.rows:
        return words.text("No job will probably run {moment}.", moment=moment)
    return words.count(
        "{n} job will probably run {moment}, or is not known to end before.",
        "{n} jobs will probably run {moment}, or are not known to end before.",
        len(rows.rows),
        moment=moment,
    )


def _ahead(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    power, seconds = values
    return words.text(
        "This is a forecast: {power} as now, for {time}.",
        power=value_text(power, "W", words, rows.time),
        time=value_text(seconds, "s", words, rows.time),
    )


def _idle_ahead(query: Query, values: tuple[Value, ...], rows: Rows, words: Words) -> str:
    power, seconds, since = values
    return words.text(
        "This is a forecast: {power}, the lowest of the last week, for {time}."
        if since is None
        else "This is a forecast: {power}, the lowest since readings begin, which is {moment}, "
        "for {time}.",
        power=value_text(power, "W", words, rows.time),
        time=value_text(seconds, "s", words, rows.time),
        moment=value_text(since, "moment", words, rows.time),
    )


_NOTES: dict[str, Callable[[Query, tuple[Value, ...], Rows, Words], str]] = {
    "forecast": _forecast,
    "waits": _waits,
    "estimate": _estimate,
    "runs": _runs,
    "failure": _failure,
    "retry": _retry,
    "liveness": _liveness,
    "replay": _replay,
    "no device": _missing,
    "uncertain": _uncertain,
    "busy": _busy,
    "so far": _so_far,
    "usual": _usual,
    "course": _course,
    "group": _group,
    "other booking": _other_booking,
    "others' jobs": _others_jobs,
    "held": _held,
    "held besides": _held_besides,
    "past": _past,
    "since": _since,
    "free": _free_memory,
    "recording": _recording,
    "fit": _fit,
    "cost": _cost,
    "deadline": _deadline,
    "then": _then,
    "ahead": _ahead,
    "idle ahead": _idle_ahead,
    **FREE_GPUS,
}
