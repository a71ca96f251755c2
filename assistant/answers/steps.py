"""The steps that help with what an answer tells: orders to propose, and pages to open."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.rows import Note, Rows, Value, number
from gpudeck.assistant.query.steps import ShowManual, ShowPage, Step
from gpudeck.language.text import Bytes, Span, phrase

MOST = 3
"""Steps that an answer offers."""
_PAGES = {
    "alerts": phrase("Alerts"),
    "cleanup": phrase("Clean up"),
    "dashboard": phrase("Dashboard"),
    "hosts": phrase("Machines"),
    "jobs": phrase("Jobs"),
    "models": phrase("Models"),
    "processes": phrase("Processes"),
    "settings": phrase("Settings"),
}
"""The titles of pages, as the window has them."""


def page_step(page: str) -> Step:
    """Return the step that opens a page of the window."""
    return Step(phrase("Open {page}", page=_PAGES[page]), ShowPage(page))


def manual_step(page: str, heading: str = "") -> Step:
    """Return the step that opens a section of the manual."""
    title = phrase("Manual: {section}", section=heading or page)
    return Step(title, ShowManual(page, heading))


def steps_of(rows: Rows) -> tuple[Step, ...]:
    """Return what helps with what the notes of rows tell: orders first, then pages."""
    found = [step for note in rows.notes if note.kind in _STEPS for step in _steps(note)]
    return chosen(sorted(found, key=lambda step: not isinstance(step.does, Order)))


def chosen(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the first of some steps, each once."""
    found: list[Step] = []
    for step in steps:
        found += [step] if step not in found else []
    return tuple(found[:MOST])


def _steps(note: Note) -> Iterable[Step]:
    return filter(None, [_STEPS[note.kind](*note.values)])


def _of_failure(job: Value, kind: Value, line: Value) -> Step | None:
    """Return what helps against a kind of `gpudeck.scheduler.protocol.failures`."""
    if page := {"disk": "cleanup", "driver": "alerts"}.get(str(kind)):
        return page_step(page)
    shown = int(number(job))
    return Step(phrase("Show job {job}", job=shown), ShowPage("jobs", shown))


def _retry(job: Value, option: Value, value: Value) -> Step:
    """Return the step that runs a job again with the value of an option; empty for as it was."""
    amount, again = number(value), int(number(job))
    jobs = (again,)
    if option == "timeout":
        title = phrase("Retry job {job} with a limit of {time}", job=again, time=Span(amount))
        return Step(title, Order("retry", jobs=jobs, options={"timeout": f"{amount:.0f}s"}))
    if option == "memory" and amount:
        title = phrase("Retry job {job} with {size}", job=again, size=Bytes(amount))
        size = f"{amount / 2**20:.0f}MiB"
        return Step(title, Order("retry", jobs=jobs, options={"memory": size}))
    if option == "memory":
        title = phrase("Retry job {job} with a whole GPU", job=again)
        return Step(title, Order("retry", jobs=jobs, options={"memory": "0"}))
    return Step(phrase("Retry job {job}", job=again), Order("retry", jobs=jobs))


def _obstacle(kind: Value, subject: Value) -> Step | None:
    """Return what lets a job start; `subject` is a job, a group or a GPU."""
    named = int(number(subject))
    match kind:
        case "held":
            title = phrase("Release {jobs}", jobs=phrase("job {job}", job=named))
            return Step(title, Order("release", jobs=(named,)))
        case "queue paused":
            return Step(phrase("Resume the queue"), Order("resume"))
        case "group paused":
            title = phrase("Resume the group {group}", group=str(subject))
            return Step(title, Order("resume", group=str(subject)))
        case "first failed":
            return _retry(subject, "", 0)
        case "drained":
            title = phrase("Use {gpus} again", gpus=f"GPU {named}")
            return Step(title, Order("undrain", devices=(named,)))
        case _:
            return page_step("processes")


def _cost(kwh: Value, price: Value, *others: Value) -> Step | None:
    """Return where the price of a kWh is set, if it is not."""
    return None if price else page_step("settings")


_STEPS: dict[str, Callable[..., Step | None]] = {
    "retry": _retry,
    "failure": _of_failure,
    "obstacle": _obstacle,
    "cost": _cost,
    "none": lambda page: page_step(str(page)),
}
"""By the kinds of notes; those of `none` name the page where there would be something."""
_ELSEWHERE = {
    "order serve": page_step("models"),
    "order unserve": page_step("models"),
    "order download": page_step("models"),
    "order power": page_step("dashboard"),
    "order free": page_step("processes"),
    "order limits": manual_step("shared"),
    "order account": manual_step("shared"),
    "notify": page_step("settings"),
    "setting": page_step("settings"),
    "how quiet": page_step("settings"),
    "how notify": page_step("settings"),
    "how results": page_step("jobs"),
    "how reserve": page_step("jobs"),
    "how charts": page_step("dashboard"),
}
"""Where the window does what the assistant does not do itself, or only tells of."""


def steps_elsewhere(why: str) -> tuple[Step, ...]:
    """Return the page for what is not answered or only explained, by its name in `help_texts`."""
    return (_ELSEWHERE[why],) if why in _ELSEWHERE else ()
