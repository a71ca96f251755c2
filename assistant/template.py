"""The template writer: a brief or an answer in plain Markdown, put together from facts and nothing else.

It computes no number and adds none: every figure in its text is the `said` of a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assistant.facts import Fact, named
from assistant.selection import JOB_TOPICS, TOPICS, asked_devices, asked_jobs, topics

_METRICS = (("Utilisation", "util"), ("Memory used", "mem_used"), ("TFLOP/s", "tflops"), ("Temperature", "temp"), ("Power", "power"))
_WHEN = (("now", ""), ("mean", ".mean"), ("highest", ".max"))
_STATES = ("running", "starting", "stopping", "queued", "failed", "lost", "done", "cancelled")
_DETAILS = (
    ("Verdict", "verdict"), ("Reason", "reason"), ("Exit status", "code"), ("Doing", "doing"), ("Measured on", "device"),
    ("Inputs", "shape"), ("Backend", "backend"), ("Why this backend", "choice"), ("Rate", "tflops"), ("Sustained rate", "sustained"),
    ("Memory bandwidth", "bandwidth"), ("Median of one call", "median"), ("P95 of one call", "p95"), ("P99 of one call", "p99"),
    ("Calls measured", "calls"), ("Result", "result"), ("Ended", "ended"),
)  # fmt: skip
"""What the account of one job lists: title, and the name of the fact."""
_LISTED = 12
"""Jobs told one by one; of more, the newest of each state."""

_NOT_UNDERSTOOD = "I did not find out what this asks about, so here is all there is to tell."


class _Book:
    """Facts by name and subject."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        self._named = named(facts)

    def said(self, name: str) -> str | None:
        """The value in words; None where the fact is missing or says that there is no value."""
        fact = self._named.get(name)
        return fact.said if fact is not None and fact.value is not None else None

    def missing(self, name: str) -> str | None:
        """Why there is no value: `N/A (reason)`."""
        fact = self._named.get(name)
        return fact.said if fact is not None and fact.value is None else None

    def partial(self, device: str) -> bool:
        """Whether the device's readings leave a noticeable part of the span out."""
        covered, length = (self._named[name].value if name in self._named else None for name in (f"{device}.covered", "span.length"))
        return isinstance(covered, float) and isinstance(length, float) and covered < 0.9 * length

    def starting(self, prefix: str) -> list[str]:
        return [fact.said for name, fact in self._named.items() if name.startswith(prefix)]

    def subjects(self, suffix: str) -> list[str]:
        return [name.removesuffix(suffix) for name in self._named if name.endswith(suffix)]


def template(facts: Sequence[Fact], question: str | None = None) -> str:
    """A brief of all `facts`, or the answer to `question` from them. Markdown; every number in it is from the facts."""
    book = _Book(facts)
    if not facts:
        return "There is nothing to tell: no facts were gathered."
    parts = _brief(book) if question is None else _answer(book, question)
    return "\n\n".join(filter(None, [*(parts or [_NOT_UNDERSTOOD, *_brief(book)]), _contradictions(facts)]))


def _answer(book: _Book, question: str) -> list[str]:
    """Empty where the question names nothing that there are facts about."""
    about_devices, about_jobs = topics(question)
    if jobs := asked_jobs(question):
        known = [job for job in jobs if book.said(f"{job}.state")]
        unknown = [f"I know of no job {job.removeprefix('job')}." for job in jobs if job not in known]
        return [*(_job_detail(book, job) for job in known), *unknown]
    parts = [_devices_on(book, question, about_devices)] if about_devices else []
    if about_jobs and not (about_devices - {"use"} and about_jobs <= {"running"}):  # "the temperature now" is not about jobs
        parts.append(_jobs_in(book, {state for topic in about_jobs for state in JOB_TOPICS[topic][1]}))
    return parts


def _devices_on(book: _Book, question: str, about: Iterable[str]) -> str:
    lines = []
    for device in asked_devices(question, book.facts):
        told = [words for topic in TOPICS if topic in about for words in _topic(book, device, topic)]
        lines.append(f"- **{_called(book, device)}**: {'; '.join(told) if told else 'no data'}.")
    return "\n".join(lines) or "There is no such device here."


def _topic(book: _Book, device: str, topic: str) -> list[str]:
    keys = TOPICS[topic][1]
    if topic == "use":
        use = [book.said(f"{device}.use") or "whether it is idle is not known"]
        processes = book.starting(f"{device}.process")
        holder = book.said(f"{device}.holder")
        return use + ([f"held by {holder}"] if holder else []) + ([f"processes: {', '.join(processes)}"] if processes else [])
    if topic == "name":
        return [words for key in keys if (words := book.said(f"{device}.{key}"))]
    title = next(title for title, field in _METRICS if field == keys[0])
    values = [f"{when} {words}" for when, suffix in _WHEN if (words := book.said(f"{device}.{keys[0]}{suffix}"))]
    if not values:
        return [f"{title.lower()} {book.missing(f'{device}.{keys[0]}') or 'no data'}"]
    limit = {"temp": None, "power": ("limit", "power_limit"), "memory": ("of", "mem_total")}.get(topic)
    if limit and (words := book.said(f"{device}.{limit[1]}")):
        values[-1] += f" ({limit[0]} {words})"
    return [f"{title if title.isupper() or '/' in title else title.lower()} {', '.join(values)}"]


def _jobs_in(book: _Book, states: set[str]) -> str:
    jobs = [job for job in _jobs(book) if book.said(f"{job}.state") in states]
    if not jobs:
        return f"No job is {' or '.join(state for state in _STATES if state in states)}."
    return "\n".join(_job_line(book, job) for job in jobs[:_LISTED])


def _brief(book: _Book) -> list[str]:
    jobs = _jobs(book)
    span, length = book.said("span.when"), book.said("span.length")
    head = "## What happened" + (f"\n\n{span}{f' ({length})' if length else ''}." if span else "")
    parts = [head, *_deck(book)]
    if len(jobs) == 1:
        parts += [_job_detail(book, jobs[0])]
    else:
        parts += ["### Jobs", _counts(book), "\n".join(_job_line(book, job) for job in jobs[:_LISTED])]
    return [*parts, *_devices(book)]


def _deck(book: _Book) -> list[str]:
    parts = [f"> {words}" for words in book.starting("deck.notice")]
    if source := book.said("deck.source"):
        parts.append(f"Readings come from {source}.{' The queue is paused: nothing new starts.' if book.said('deck.paused') else ''}")
    return parts


def _counts(book: _Book) -> str:
    counts = [f"{n} {state}" for state in _STATES if (n := book.said(f"jobs.{state}"))]
    return f"{', '.join(counts)}." if counts else "No job waited, ran or ended in this time."


def _jobs(book: _Book) -> list[str]:
    """Subjects of the jobs, by state: what runs, waits or failed before what is done."""
    order = {state: i for i, state in enumerate(_STATES)}
    return sorted(book.subjects(".state"), key=lambda job: order.get(book.said(f"{job}.state") or "", len(order)))


def _job_line(book: _Book, job: str) -> str:
    def said(what: str) -> str | None:
        return book.said(f"{job}.{what}")

    clauses = [said("state") or "in a state nobody told"]
    for word, what in (("after", "duration"), ("for", "running"), ("for", "waiting"), ("on", "devices")):
        if words := said(what):
            clauses[0] += f" {word} {words}"
    if words := said("progress"):
        clauses.append(words + (f", about {left} left" if (left := said("left")) else ""))
    clauses += [words for words in (said("reason"), said("verdict")) if words]
    if backend := said("backend"):
        speeds = [f"{words}{after}" for what, after in (("tflops", ""), ("bandwidth", ""), ("median", " median")) if (words := said(what))]
        clauses.append(f"backend {backend}{': ' if speeds else ''}{', '.join(speeds)}")
    return f"- **{_title(job)}** ({said('name') or 'no name'}): {'; '.join(clauses)}."


def _job_detail(book: _Book, job: str) -> str:
    lines = []
    for title, what in _DETAILS:
        if words := book.said(f"{job}.{what}") or book.missing(f"{job}.{what}"):
            lines.append(f"- {title}: {words}")
    lines += [f"- Check {words}" for words in book.starting(f"{job}.check")]
    state = [book.said(f"{job}.state") or "in a state nobody told"]
    for word, what in (("after", "duration"), ("for", "running"), ("for", "waiting"), ("on", "devices")):
        if words := book.said(f"{job}.{what}"):
            state.append(f"{word} {words}")
    progress, left = book.said(f"{job}.progress"), book.said(f"{job}.left")
    more = f", {progress} done{f', about {left} left' if left else ''}" if progress else ""
    return f"### {_title(job)}: {book.said(f'{job}.name') or 'no name'}\n\nIt is {' '.join(state)}{more}.\n\n" + "\n".join(lines)


def _title(job: str) -> str:
    return f"Job {job.removeprefix('job')}"


def _called(book: _Book, device: str) -> str:
    return book.said(f"{device}.label") or device


def _devices(book: _Book) -> list[str]:
    devices = book.subjects(".label")
    if not devices:
        return ["### Devices", "No device has been read yet."]
    parts = ["### Devices", "\n".join(_device_line(book, device) for device in devices)]
    parts.append(_by_metric(book, devices[0]) if len(devices) == 1 else _by_device(book, devices))
    parts.append("\n".join(filter(None, (_absences(book, device) for device in devices))))
    return parts


def _device_line(book: _Book, device: str) -> str:
    clauses = [book.said(f"{device}.name") or "name not known", book.said(f"{device}.use") or "whether it is idle is not known"]
    clauses += [words for words in (book.said(f"{device}.note"),) if words]
    if (covered := book.said(f"{device}.covered")) and book.partial(device):
        clauses.append(f"there are readings from {covered} only")
    return f"- **{_called(book, device)}**: {'; '.join(clauses)}"


def _by_metric(book: _Book, device: str) -> str:
    rows = [f"| {title} | {' | '.join(_cell(book, f'{device}.{field}{suffix}') for _, suffix in _WHEN)} |" for title, field in _METRICS]
    return "\n".join(["| | now | mean | highest |", "|---|---|---|---|", *rows])


def _by_device(book: _Book, devices: list[str]) -> str:
    head = ["| now / mean / highest | " + " | ".join(title for title, _ in _METRICS) + " |", "|---" * (1 + len(_METRICS)) + "|"]
    rows = []
    for device in devices:
        cells = [" / ".join(_cell(book, f"{device}.{field}{suffix}") for _, suffix in _WHEN) for _, field in _METRICS]
        rows.append(f"| {_called(book, device)} | {' | '.join(cells)} |")
    return "\n".join(head + rows)


def _cell(book: _Book, name: str) -> str:
    return book.said(name) or "N/A"


def _absences(book: _Book, device: str) -> str:
    """Why there are N/A in the table, each reason once; what has no value now is not said to lack its mean, too."""
    reasons: dict[str, list[str]] = {}
    for title, field in _METRICS:
        for what, names in ((title, (field,)), (f"{title}, mean and highest", (f"{field}.mean", f"{field}.max"))):
            missing = [words for name in names if (words := book.missing(f"{device}.{name}"))]
            if missing:
                reasons.setdefault(missing[0].removeprefix("N/A (").removesuffix(")"), []).append(what)
                break
    told = [f"{'; '.join(what)}: {reason}" for reason, what in reasons.items()]
    return "\n".join(f"- {_called(book, device)}, N/A: {line}." for line in told)


def _contradictions(facts: Sequence[Fact]) -> str:
    """Facts of one name that say different things: both are told."""
    sayings: dict[str, dict[str, Fact]] = {}
    for fact in facts:
        sayings.setdefault(fact.name, {}).setdefault(fact.said, fact)
    lines = [" but ".join(f"{fact.text} ({fact.source})" for fact in said.values()) for said in sayings.values() if len(said) > 1]
    return "**The sources disagree:**\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""
