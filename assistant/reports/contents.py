"""Compose a report: decide which sections it has, and in which order.

These are pure functions of what `material` read from the daemon and what the writer wrote.
"""

from __future__ import annotations

from assistant.facts import phrases
from assistant.facts.devices import subject
from assistant.language.remedies import advice
from assistant.language.words import words
from assistant.reports import charts, tables
from assistant.reports.material import Material, extra_facts
from assistant.reports.report import Block, Chart, Excerpt, Prose, Report, Section
from assistant.reports.tables import Cells
from assistant.writing.writer import Written
from scheduler.protocol.jobs import Job, Queued
from scheduler.protocol.snapshot import DeviceState

MOST_CHARTED = 8
"""The most devices in a chart, as there are colours; the busiest are chosen."""
MOST_LINES = 40
"""The most lines of a job's log."""
_JOB_FIELDS = ("util", "mem_used", "tflops", "temp", "power")
_SPAN_FIELDS = ("temp", "power")


def compose(material: Material, written: Written) -> Report:
    """Return the report that begins with `written`, the prose about `material.facts`."""
    facts = (*material.facts, *extra_facts(material))
    cells = Cells(facts)
    middle = (
        _job_sections(material, cells)
        if material.kind == "job"
        else _span_sections(material, cells)
    )
    sections = (
        Section("", (Prose(written.text),)),
        *_advice(material),
        *middle,
        Section("Sources", (tables.sources(facts),)),
    )
    number = material.jobs[0].id if material.kind == "job" else None
    return Report(
        material.kind,
        _title(material),
        material.since,
        material.until,
        material.snapshot.time,
        written.writer,
        sections,
        facts,
        number,
    )


def _title(material: Material) -> str:
    """Return the title as plain text."""
    if material.kind == "job":
        job = material.jobs[0]
        return f"Report on job {job.id}: {phrases.plain(job.spec.name, 80)}"
    if material.kind == "daily":
        return f"Daily report, {phrases.date((material.since + material.until) / 2)}"
    return f"Report, {phrases.stretch(material.since, material.until)}"


def _job_sections(material: Material, cells: Cells) -> tuple[Section, ...]:
    job = material.jobs[0]
    figures = [tables.outcome(job, cells)]
    if job.tries:
        figures.append(tables.attempts(job.id, material.events, cells))
    figures.append(tables.timeline(job.id, material.events, cells))
    sections = [
        Section("Figures", tuple(figures)),
        Section(
            "Its devices meanwhile" if _held(job) else "Devices meanwhile, of which it held none",
            (
                *_by_field(material, _JOB_FIELDS, cells),
                tables.devices(material.snapshot.devices, cells),
            ),
        ),
        Section("The end of its log", (_log(material),)),
    ]
    if material.alerts:
        sections.insert(2, Section("Alerts", (tables.alerts(material.alerts, cells),)))
    return tuple(sections)


def _held(job: Job) -> bool:
    """Return True if the job has, or had, a device."""
    return not isinstance(job.state, Queued) and bool(job.state.devices)


def _span_sections(material: Material, cells: Cells) -> tuple[Section, ...]:
    states = material.snapshot.devices
    charted = tuple(sorted(_busiest(states, cells)[:MOST_CHARTED], key=lambda s: s.device.index))
    blocks: list[Block] = [*_by_field(material, ("util",), cells, charted, always=True)]
    if len(states) > len(charted):
        blocks.append(Prose("Only the busiest devices are drawn; the table lists all."))
    return (
        Section("Jobs", (tables.jobs(material.jobs, cells),)),
        Section("Energy", (tables.energy(material.jobs, states, cells),)),
        Section("Utilisation", tuple(blocks)),
        Section(
            "Devices",
            (*_by_field(material, _SPAN_FIELDS, cells, charted), tables.devices(states, cells)),
        ),
        Section("Alerts", (tables.alerts(material.alerts, cells),)),
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


def _advice(material: Material) -> tuple[Section, ...]:
    """Return what the logs of failed jobs show, and what helps."""
    found = [advice(job, *failure, words("en")) for job, failure in material.failures]
    if not found:
        return ()
    blocks = [Prose("\n\n".join(parts)) for parts in found]
    return (Section("Why it failed" if len(found) == 1 else "Why they failed", tuple(blocks)),)


def _log(material: Material) -> Excerpt:
    lines = [line for line in phrases.log_lines(material.log) if line][-MOST_LINES:]
    return Excerpt("", "\n".join(lines), f"log of job {material.jobs[0].id}")
