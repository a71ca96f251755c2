"""Answer a question about the devices, metrics and jobs that it names."""

from __future__ import annotations

from assistant.facts.index import STATES, FactIndex
from assistant.facts.selection import JOB_TOPICS, TOPICS, asked_devices, asked_jobs, topics
from assistant.writing.template import devices, jobs
from assistant.writing.template.sentences import given, listed, sentence

_TOLD = 12
"""The most jobs in one answer, each in a paragraph."""
_LIMITS = {"mem_used": ("of {}", "mem_total"), "power": ("limit {}", "power_limit")}


def answer(index: FactIndex, question: str) -> list[str]:
    """Return the answer part by part; nothing if the question names nothing that facts
    are about.
    """
    if asked := asked_jobs(question):
        return [part for job in asked for part in _job(index, job)]
    about_devices, about_jobs = topics(question)
    parts = _devices(index, question, about_devices) if about_devices else []
    if about_jobs and not (
        about_devices - {"use"} and about_jobs <= {"running"}
    ):  # "the temperature now" is not about jobs
        parts += _jobs(index, {state for topic in about_jobs for state in JOB_TOPICS[topic][1]})
    return parts


def _job(index: FactIndex, job: str) -> list[str]:
    known = index.text(f"{job}.state") is not None
    return jobs.chapter(index, job) if known else [f"I know of no job {job.removeprefix('job')}."]


def _jobs(index: FactIndex, states: set[str]) -> list[str]:
    found = index.jobs(*states)
    if not found:
        return [f"No job is {' or '.join(state for state in STATES if state in states)}."]
    return [
        jobs.account(
            index, job, f"**{jobs.title(job)}**" + given(" ({})", index.text(f"{job}.name"))
        )
        for job in found[:_TOLD]
    ]


def _devices(index: FactIndex, question: str, about: set[str]) -> list[str]:
    asked = asked_devices(question, index.facts)
    sentences = [
        of_device(index, device, topic) for device in asked for topic in TOPICS if topic in about
    ]
    return sentences or ["There is no such device here."]


def of_device(index: FactIndex, device: str, topic: str) -> str:
    """Return a sentence on a topic of `selection.TOPICS`, for one device."""
    who = f"**{devices.called(index, device)}**"
    if topic == "use":
        return _use(index, device, who)
    if topic == "name":
        notes = given("; {}", index.text(f"{device}.note"))
        return sentence(who, " is ", index.text(f"{device}.name") or "of an unknown kind", notes)
    metric = TOPICS[topic][1][0]
    return sentence(who, f" {devices.in_sentence(metric)}: ", _values(index, device, metric))


def _use(index: FactIndex, device: str, who: str) -> str:
    holder = given("; it is held by {}", index.text(f"{device}.holder"))
    processes = given("; on it: {}", listed(index.texts(f"{device}.process")))
    kind = given(" ({})", index.text(f"{device}.name"))
    return sentence(who, kind, " ", devices.use(index, device), holder, processes)


def _values(index: FactIndex, device: str, metric: str) -> str:
    """Return `now 71 °C, mean 65 °C, highest 72 °C`, or why there are no values."""
    values = [
        given(f"{when} {{}}", index.text(f"{device}.{metric}{suffix}"))
        for when, suffix in devices.WHEN.items()
    ]
    if not any(values):
        return f"N/A, {index.why_absent(f'{device}.{metric}') or 'no data'}"
    form, limit = _LIMITS.get(metric, ("{}", "none"))
    free = given("; {} is free", index.text(f"{device}.mem_free")) if metric == "mem_used" else ""
    return (
        ", ".join(filter(None, values))
        + given(f" ({form})", index.text(f"{device}.{limit}"))
        + free
    )
