"""The answer to a question: about the devices, the metrics and the jobs that it names."""

from __future__ import annotations

from assistant.facts.selection import JOB_TOPICS, TOPICS, asked_devices, asked_jobs, topics
from assistant.writing.template import devices, jobs
from assistant.writing.template.book import STATES, Book
from assistant.writing.template.words import given, listed, sentence

_TOLD = 12
"""Jobs told in one answer, each in a paragraph."""
_LIMITS = {"mem_used": ("of {}", "mem_total"), "power": ("limit {}", "power_limit")}


def answer(book: Book, question: str) -> list[str]:
    """Part by part; empty where the question names nothing that there are facts about."""
    if asked := asked_jobs(question):
        return [part for job in asked for part in _job(book, job)]
    about_devices, about_jobs = topics(question)
    parts = _devices(book, question, about_devices) if about_devices else []
    if about_jobs and not (
        about_devices - {"use"} and about_jobs <= {"running"}
    ):  # "the temperature now" is not about jobs
        parts += _jobs(book, {state for topic in about_jobs for state in JOB_TOPICS[topic][1]})
    return parts


def _job(book: Book, job: str) -> list[str]:
    known = book.said(f"{job}.state") is not None
    return jobs.chapter(book, job) if known else [f"I know of no job {job.removeprefix('job')}."]


def _jobs(book: Book, states: set[str]) -> list[str]:
    found = book.jobs(*states)
    if not found:
        return [f"No job is {' or '.join(state for state in STATES if state in states)}."]
    return [
        jobs.account(book, job, f"**{jobs.title(job)}**" + given(" ({})", book.said(f"{job}.name")))
        for job in found[:_TOLD]
    ]


def _devices(book: Book, question: str, about: set[str]) -> list[str]:
    asked = asked_devices(question, book.facts)
    told = [
        of_device(book, device, topic) for device in asked for topic in TOPICS if topic in about
    ]
    return told or ["There is no such device here."]


def of_device(book: Book, device: str, topic: str) -> str:
    """A topic of `selection.TOPICS`, of one device."""
    who = f"**{devices.called(book, device)}**"
    if topic == "use":
        return _use(book, device, who)
    if topic == "name":
        notes = given("; {}", book.said(f"{device}.note"))
        return sentence(who, " is ", book.said(f"{device}.name") or "of a kind nobody told", notes)
    metric = TOPICS[topic][1][0]
    return sentence(who, f" {devices.in_sentence(metric)}: ", _values(book, device, metric))


def _use(book: Book, device: str, who: str) -> str:
    holder = given("; it is held by {}", book.said(f"{device}.holder"))
    processes = given("; on it: {}", listed(book.starting(f"{device}.process")))
    kind = given(" ({})", book.said(f"{device}.name"))
    return sentence(who, kind, " ", devices.use(book, device), holder, processes)


def _values(book: Book, device: str, metric: str) -> str:
    """now 71 °C, mean 65 °C, highest 72 °C; or why there are none."""
    values = [
        given(f"{when} {{}}", book.said(f"{device}.{metric}{suffix}"))
        for when, suffix in devices.WHEN.items()
    ]
    if not any(values):
        return f"N/A, {book.missing(f'{device}.{metric}') or 'no data'}"
    form, limit = _LIMITS.get(metric, ("{}", "none"))
    free = given("; {} is free", book.said(f"{device}.mem_free")) if metric == "mem_used" else ""
    return (
        ", ".join(filter(None, values)) + given(f" ({form})", book.said(f"{device}.{limit}")) + free
    )
