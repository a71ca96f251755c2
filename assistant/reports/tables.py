"""Fill the tables of a report with facts. These are pure functions; every number is a fact's."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.facts.devices import subject
from gpudeck.assistant.reports.cells import NO_DATA, Cells
from gpudeck.assistant.reports.report import Table
from gpudeck.language.rendering import render
from gpudeck.language.text import Message
from gpudeck.language.words import Words
from gpudeck.scheduler.protocol import jobs as j
from gpudeck.scheduler.protocol.snapshot import Alert, DeviceState, full_label

_OUTCOME = {
    "state": "State",
    "reason": "Why",
    "code": "Exit status",
    "verdict": "Verdict",
    "devices": "On",
    "submitted": "Submitted",
    "waited": "Waited",
    "started": "Started",
    "ended": "Ended",
    "duration": "Took",
    "running": "Running for",
    "progress": "Progress",
    "used.energy": "Energy",
    "used.util": "Avg utilisation of its devices",
    "used.memory": "Peak memory on one device",
    "used.share": "Share of that device's memory",
    "used.seconds": "Sampled for",
}
"""The rows of a job's table: the name of the fact, and a caption."""
_ALWAYS = {"state", "waited", "used.energy", "used.util", "used.memory"}
"""Rows that appear even without data; the others are left out if they do not apply."""
_METRICS = {
    "util": "Utilisation",
    "mem_used": "Memory",
    "tflops": "TFLOP/s",
    "temp": "Temperature",
    "power": "Power",
}
_SUBJECTS = {
    "deck": "GPU Deck", "span": "this time", "jobs": "the jobs", "all": "the jobs",
    "gpus": "all GPUs", "cpu": "CPU",
    "job": "Job {number}", "alert": "Alert {number}", "gpu": "GPU {number}",
    "replay": "REPLAY GPU {number}",
}  # fmt: skip
"""The subjects of facts, by their names without numbers."""
MOST_JOBS = 100
"""The most rows of a table of jobs."""


def outcome(job: j.Job, cells: Cells) -> Table:
    """Return all figures of one job."""
    mine = f"job{job.id}"
    shown = [
        (caption, name)
        for name, caption in _OUTCOME.items()
        if name in _ALWAYS or cells.given(f"{mine}.{name}")
    ]
    text = cells.words.text
    rows = tuple((text(caption), cells.said(f"{mine}.{name}")) for caption, name in shown)
    lacking = [(cells.words.title(caption), f"{mine}.{name}") for caption, name in shown]
    return Table(cells.words.text("Outcome"), ("", ""), rows, cells.why_not(lacking))


def attempts(job: int, events: Sequence[j.Event], cells: Cells) -> Table:
    """Return each attempt of a job: when it began and ended, and how."""
    rows = []
    for i, event in enumerate(events):
        if event.what == "started":
            rows.append([cells.message(event.text), cells.said(f"job{job}.event{i}.at"), "–", "–"])
        elif rows and rows[-1][2] == "–":
            rows[-1][2:] = [cells.said(f"job{job}.event{i}.{part}") for part in ("at", "what")]
    head = cells.words.captions("Attempt", "Began", "Ended", "How")
    return Table(cells.words.text("Attempts"), head, tuple(map(tuple, rows)))


def timeline(job: int, events: Sequence[j.Event], cells: Cells) -> Table:
    """Return a job's timeline."""
    rows = tuple(
        (cells.said(f"job{job}.event{i}.at"), cells.said(f"job{job}.event{i}.what"))
        for i in range(len(events))
    )
    text = cells.words.text
    note = "" if rows else text("No data: the timeline is empty.")
    return Table(text("Timeline"), cells.words.captions("When", "What"), rows, note)


def jobs(found: Sequence[j.Job], cells: Cells) -> Table:
    """Return what ran, failed and waits, newest first."""
    rows = tuple(_job_row(job, cells) for job in found[:MOST_JOBS])
    text, note = cells.words.text, ""
    if not rows:
        note = text("No job waited, ran or ended in this time.")
    elif len(found) > MOST_JOBS:
        note = text("There are more jobs: `gpudeck jobs` lists all of them.")
    head = cells.words.captions("Job", "Name", "State", "Waited", "Took", "On", "Why")
    return Table(text("Jobs"), *_filled(head, rows, cells), note)


def _job_row(job: j.Job, cells: Cells) -> tuple[str, ...]:
    mine = f"job{job.id}"
    took = cells.given(f"{mine}.duration") or cells.given(f"{mine}.running", "–")
    waited = cells.given(f"{mine}.waited") or cells.given(f"{mine}.waiting", "–")
    verdict = cells.given(f"{mine}.verdict")
    state = cells.said(f"{mine}.state") + (f", {verdict}" if verdict else "")
    return (
        cells.said(f"{mine}.called"),
        cells.said(f"{mine}.name"),
        state,
        waited,
        took,
        cells.given(f"{mine}.devices", "–"),
        cells.given(f"{mine}.reason", "–"),
    )


def energy(found: Sequence[j.Job], states: Sequence[DeviceState], cells: Cells) -> Table:
    """Return what used how much energy: jobs by their energy, then the devices."""
    used = [job for job in found if cells.number(f"job{job.id}.used.energy") is not None]
    used.sort(key=lambda job: -(cells.number(f"job{job.id}.used.energy") or 0.0))
    rows = [_energy_row(job, cells) for job in used[:MOST_JOBS]]
    rows += [
        (
            cells.words.text("all of {device}", device=full_label(s.device)),
            cells.said(f"{subject(s.device)}.energy"),
            cells.said(f"{subject(s.device)}.util.mean"),
            "",
        )
        for s in states
    ]
    if cells.given("gpus.energy"):
        total = cells.said("gpus.energy"), cells.given("gpus.util.mean", "–")
        rows.append((cells.words.text("all GPUs"), *total, ""))
    lacking = [
        (cells.words.text("Job {job}", job=job.id), f"job{job.id}.used.energy")
        for job in found
        if not isinstance(job.state, j.Queued)
    ]
    lacking += [(full_label(s.device), f"{subject(s.device)}.energy") for s in states]
    remark = cells.words.text(
        "A job's energy covers its whole run, including any part before this time." if used else ""
    )
    head = cells.words.captions("Of", "Energy", "Avg utilisation", "Peak memory")
    return Table(
        cells.words.text("Energy"),
        *_filled(head, rows, cells),
        " ".join(filter(None, (remark, cells.why_not(lacking)))),
    )


def _energy_row(job: j.Job, cells: Cells) -> tuple[str, ...]:
    mine = f"job{job.id}"
    name = cells.given(f"{mine}.name")
    return (
        cells.said(f"{mine}.called") + (f" ({name})" if name else ""),
        *(cells.said(f"{mine}.used.{field}") for field in ("energy", "util", "memory")),
    )


def devices(states: Sequence[DeviceState], cells: Cells) -> Table:
    """Return mean and highest of each metric."""
    rows = tuple(
        (
            full_label(s.device),
            cells.said(f"{subject(s.device)}.name"),
            *(_span(cells, f"{subject(s.device)}.{m}") for m in _METRICS),
        )
        for s in states
    )
    if len(states) > 1:
        total = (_span(cells, f"gpus.{m}", total=True) for m in _METRICS)
        rows = (*rows, (cells.words.text("all GPUs"), "–", *total))
    lacking = [
        (
            cells.words.text(
                "{title} of {device}", title=cells.words.text(title), device=full_label(s.device)
            ),
            _named(cells, f"{subject(s.device)}.{m}"),
        )
        for s in states
        for m, title in _METRICS.items()
    ]
    head = (*cells.words.captions("Device", "Name"), *map(cells.words.text, _METRICS.values()))
    return Table(
        cells.words.text("Devices, mean and highest"),
        *_filled(head, rows, cells),
        _devices_note(states, rows, lacking, cells),
    )


def _devices_note(
    states: Sequence[DeviceState],
    rows: Sequence[tuple[str, ...]],
    lacking: Sequence[tuple[str, str]],
    cells: Cells,
) -> str:
    if not rows:
        return cells.words.text("No data: no device has been read yet.")
    counted = any("±" in cell for row in rows for cell in row)
    types = cells.words.text(
        "TFLOP/s with ± are from hardware counters, which cannot tell the data type: they are "
        "right for FP16 and BF16; FP8 would be twice and TF32 half of it."
    )
    notes = dict.fromkeys(cells.given(f"{subject(s.device)}.note") for s in states)
    told = (*notes, types if counted else "", cells.why_not(lacking))
    return " ".join(part.rstrip(".") + "." for part in told if part)


def _named(cells: Cells, metric: str) -> str:
    """Return the fact that best explains a missing value: without a sensor now, there was none
    before.
    """
    return metric if cells.missing(metric) is not None else f"{metric}.mean"


def _span(cells: Cells, name: str, *, total: bool = False) -> str:
    """Return mean and highest of a metric; a total may have only one of them."""
    values = [cells.given(f"{name}.{part}") for part in ("mean", "max")]
    values = [value for value in values if value] or ["–" if total else cells.words.text(NO_DATA)]
    return ", ".join(dict.fromkeys(values)) + cells.uncertainty(f"{name}.mean")


def _filled(
    head: Sequence[str], rows: Sequence[Sequence[str]], cells: Cells
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return a table without the columns that are empty in every row."""
    empty = ("", "–", cells.words.text(NO_DATA))
    kept = [at for at in range(len(head)) if not rows or any(row[at] not in empty for row in rows)]
    return tuple(head[at] for at in kept), tuple(tuple(row[at] for at in kept) for row in rows)


def alerts(found: Sequence[Alert], cells: Cells) -> Table:
    """Return the alerts."""
    parts = ("raised", "cleared", "rule", "about", "text")
    rows = tuple(tuple(cells.said(f"alert{alert.id}.{part}") for part in parts) for alert in found)
    text = cells.words.text
    return Table(
        text("Alerts"),
        cells.words.captions("Raised", "Cleared", "Rule", "About", "What"),
        rows,
        "" if rows else text("No alert was raised in this time."),
    )


def sources(facts: Sequence[Fact], words: Words) -> Table:
    """Return every source, and the subjects it reported on."""
    subjects_of: dict[Message, list[str]] = {}
    for fact in facts:
        subjects_of.setdefault(fact.source, []).append(fact.subject)
    rows = tuple(
        (
            render(source, words.language),
            ", ".join(_listed(dict.fromkeys(_subject(name, words) for name in subjects), words)),
        )
        for source, subjects in subjects_of.items()
    )
    return Table(words.text("Sources"), words.captions("Source", "Told of"), rows)


def _subject(name: str, words: Words) -> str:
    """Return the subject of facts as people call it: `Job 7` for job7."""
    kind = name.rstrip("0123456789")
    known = _SUBJECTS.get(kind)
    return words.text(known, number=name[len(kind) :]) if known else name


def _listed(subjects: dict[str, None], words: Words, most: int = 12) -> list[str]:
    names = list(subjects)
    return names if len(names) <= most else [*names[:most], words.text("and others")]
