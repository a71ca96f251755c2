"""Compose a report: decide which sections it has, and in which order.

These are pure functions of what `material` read from the daemon and what the writer wrote.
"""

from __future__ import annotations

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.facts.devices import subject
from gpudeck.assistant.language.remedies import advice
from gpudeck.assistant.reports import charts, measurement, tables
from gpudeck.assistant.reports.cells import Cells
from gpudeck.assistant.reports.material import Material, extra_facts
from gpudeck.assistant.reports.report import Block, Chart, Excerpt, Prose, Report, Section
from gpudeck.assistant.writing.template.brief import without_devices
from gpudeck.assistant.writing.writer import Written
from gpudeck.language.words import Words
from gpudeck.language.words import words as english
from gpudeck.scheduler.protocol.jobs import Job, Queued
from gpudeck.scheduler.protocol.snapshot import DeviceState

MOST_CHARTED = 8
"""The most devices in a chart, as there are colours; the busiest are chosen."""
MOST_LINES = 40
"""The most lines of a job's log."""
_JOB_FIELDS = ("util", "mem_used", "tflops", "temp", "power")
_SPAN_FIELDS = ("temp", "power")


def compose(material: Material, written: Written, words: Words | None = None) -> Report:
    """Return the report that begins with `written`, the prose about `material.facts`.

    `words`: those of its language, which the prose has, too; None for English.
    """
    facts = (*material.facts, *extra_facts(material))
    words = words or english("en")
    if words.language != "en":
        facts = measurement.as_typed(facts, material.jobs)
    cells = Cells(facts, words, material.snapshot.time)
    middle = (
        _job_sections(material, cells)
        if material.kind == "job"
        else _span_sections(material, cells)
    )
    first = (Prose(without_devices(written.titled or written.text)),)
    sections = (
        Section("", (*first, *_begun(material, words))),
        *_advice(material, written.text, words),
        *middle,
        Section(words.text("Sources"), (tables.sources(facts, words),)),
    )
    number = material.jobs[0].id if material.kind == "job" else None
    return Report(
        material.kind,
        _title(material, words),
        material.since,
        material.until,
        material.snapshot.time,
        written.writer,
        sections,
        facts,
        number,
        words.language,
    )


def _begun(material: Material, words: Words) -> tuple[Prose, ...]:
    """Say when the readings begin, where they do not cover the beginning of the report's time."""
    if material.begun is None:
        return ()
    moment = words.moment(material.begun, material.until)
    return (
        Prose(words.text("Readings begin {moment}; there is no data before that.", moment=moment)),
    )


def _title(material: Material, words: Words) -> str:
    """Return the title as plain text."""
    if material.kind == "job":
        job = material.jobs[0]
        name = phrases.plain(job.spec.name, 80)
        return words.text("Report on job {job}: {name}", job=job.id, name=name)
    if material.kind == "daily":
        middle = (material.since + material.until) / 2
        day = phrases.date(middle) if words.language == "en" else words.date(middle)
        return words.text("Daily report, {date}", date=day)
    span = phrases.stretch(material.since, material.until)
    if words.language != "en":
        span = words.span(material.since, material.until, material.until)
    return words.text("Report, {span}", span=span)


def _job_sections(material: Material, cells: Cells) -> tuple[Section, ...]:
    job, text = material.jobs[0], cells.words.text
    figures = [tables.outcome(job, cells)]
    if job.tries:
        figures.append(tables.attempts(job.id, material.events, cells))
    figures.append(tables.timeline(job.id, material.events, cells))
    sections = [
        Section(text("Figures"), tuple(figures)),
        *measurement.section(job, cells),
        Section(
            text(
                "Its devices meanwhile"
                if _held(job)
                else "Devices meanwhile, of which it held none"
            ),
            (
                *_by_field(material, _JOB_FIELDS, cells),
                tables.devices(material.snapshot.devices, cells),
            ),
        ),
        Section(text("The end of its log"), (_log(material),)),
    ]
    if material.alerts:
        sections.insert(-1, Section(text("Alerts"), (tables.alerts(material.alerts, cells),)))
    return tuple(sections)


def _held(job: Job) -> bool:
    """Return True if the job has, or had, a device."""
    return not isinstance(job.state, Queued) and bool(job.state.devices)


def _span_sections(material: Material, cells: Cells) -> tuple[Section, ...]:
    states, text = material.snapshot.devices, cells.words.text
    charted = tuple(sorted(_busiest(states, cells)[:MOST_CHARTED], key=lambda s: s.device.index))
    blocks: list[Block] = [*_by_field(material, ("util",), cells, charted, always=True)]
    if len(states) > len(charted):
        blocks.append(Prose(text("Only the busiest devices are drawn; the table lists all.")))
    return (
        Section(text("Jobs"), (tables.jobs(material.jobs, cells),)),
        Section(text("Energy"), (tables.energy(material.jobs, states, cells),)),
        Section(text("Utilisation"), tuple(blocks)),
        Section(
            text("Devices"),
            (*_by_field(material, _SPAN_FIELDS, cells, charted), tables.devices(states, cells)),
        ),
        Section(text("Alerts"), (tables.alerts(material.alerts, cells),)),
    )


def _busiest(states: tuple[DeviceState, ...], cells: Cells) -> list[DeviceState]:
    return sorted(states, key=lambda s: -(cells.number(f"{subject(s.device)}.util.mean") or 0.0))


def _by_field(
    material: Material,
    fields: tuple[str, ...],
    cells: Cells,
    states: tuple[DeviceState, ...] | None = None,
    *,
    always: bool = False,
) -> list[Chart]:
    """Return the charts that have readings; the table below them explains what is missing."""
    shown = material.snapshot.devices if states is None else states
    drawn = (
        charts.by_field(field, shown, material.histories, material.since, material.until, cells)
        for field in fields
    )
    return [chart for chart in drawn if chart.lines or always]


def _advice(material: Material, told: str, words: Words) -> tuple[Section, ...]:
    """Return what the logs of failed jobs show, and what helps, unless that was told already."""
    found = [
        parts
        for job, failure in material.failures
        if (parts := advice(job, *failure, words))[0] not in told
    ]
    if not found:
        return ()
    blocks = [Prose("\n\n".join(parts)) for parts in found]
    title = words.text("Why it failed" if len(found) == 1 else "Why they failed")
    return (Section(title, tuple(blocks)),)


def _log(material: Material) -> Excerpt:
    lines = [line for line in phrases.log_lines(material.log) if line][-MOST_LINES:]
    return Excerpt("", "\n".join(lines), f"log of job {material.jobs[0].id}")
