"""Fill the tables of a report with facts. These are pure functions; every number is a fact's."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.facts import Fact
from assistant.facts.devices import label, subject
from assistant.reports.report import Table
from scheduler.protocol import jobs as j
from scheduler.protocol.snapshot import Alert, DeviceState

_OUTCOME = (
    ("State", "state"),
    ("Why", "reason"),
    ("Exit status", "code"),
    ("Verdict", "verdict"),
    ("On", "devices"),
    ("Submitted", "submitted"),
    ("Waited", "waited"),
    ("Started", "started"),
    ("Ended", "ended"),
    ("Took", "duration"),
    ("Running for", "running"),
    ("Progress", "progress"),
    ("Energy", "used.energy"),
    ("Avg utilisation of its devices", "used.util"),
    ("Peak memory on one device", "used.memory"),
    ("Share of that device's memory", "used.share"),
    ("Sampled for", "used.seconds"),
)
"""The rows of a job's table: a caption, and the name of the fact."""
_ALWAYS = {"state", "waited", "used.energy", "used.util", "used.memory"}
"""Rows that appear even without data; the others are left out if they do not apply."""
_METRICS = (
    ("Utilisation", "util"),
    ("Memory", "mem_used"),
    ("TFLOP/s", "tflops"),
    ("Temperature", "temp"),
    ("Power", "power"),
)
MOST_JOBS = 100
"""The most rows of a table of jobs."""


def outcome(job: j.Job, cells: Cells) -> Table:
    """Return all figures of one job."""
    mine = f"job{job.id}"
    shown = [
        (caption, name)
        for caption, name in _OUTCOME
        if name in _ALWAYS or cells.given(f"{mine}.{name}")
    ]
    rows = tuple((caption, cells.said(f"{mine}.{name}")) for caption, name in shown)
    lacking = [(caption.lower(), f"{mine}.{name}") for caption, name in shown]
    return Table("Outcome", ("", ""), rows, cells.why_not(lacking))


def attempts(job: int, events: Sequence[j.Event], cells: Cells) -> Table:
    """Return each attempt of a job: when it began and ended, and how."""
    rows = []
    for i, event in enumerate(events):
        if event.what == "started":
            rows.append([event.text, cells.said(f"job{job}.event{i}.at"), "–", "–"])
        elif rows and rows[-1][2] == "–":
            rows[-1][2:] = [cells.said(f"job{job}.event{i}.{part}") for part in ("at", "what")]
    return Table("Attempts", ("Attempt", "Began", "Ended", "How"), tuple(map(tuple, rows)))


def timeline(job: int, events: Sequence[j.Event], cells: Cells) -> Table:
    """Return a job's timeline."""
    rows = tuple(
        (cells.said(f"job{job}.event{i}.at"), cells.said(f"job{job}.event{i}.what"))
        for i in range(len(events))
    )
    return Table(
        "Timeline", ("When", "What"), rows, "" if rows else "No data: the timeline is empty."
    )


def jobs(found: Sequence[j.Job], cells: Cells) -> Table:
    """Return what ran, failed and waits, newest first."""
    rows = tuple(_job_row(job, cells) for job in found[:MOST_JOBS])
    more = (
        "There are more jobs: `gpudeck jobs` lists all of them." if len(found) > MOST_JOBS else ""
    )
    note = more if rows else "No job waited, ran or ended in this time."
    head = ("Job", "Name", "State", "Waited", "Took", "On", "Why")
    return Table("Jobs", *_filled(head, rows), note)


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
            f"all of {label(s.device)}",
            cells.said(f"{subject(s.device)}.energy"),
            cells.said(f"{subject(s.device)}.util.mean"),
            "",
        )
        for s in states
    ]
    if cells.given("gpus.energy"):
        rows.append(("all GPUs", cells.said("gpus.energy"), cells.given("gpus.util.mean", "–"), ""))
    lacking = [
        (f"Job {job.id}", f"job{job.id}.used.energy")
        for job in found
        if not isinstance(job.state, j.Queued)
    ]
    lacking += [(label(s.device), f"{subject(s.device)}.energy") for s in states]
    remark = (
        "A job's energy covers its whole run, including any part before this time." if used else ""
    )
    return Table(
        "Energy",
        *_filled(("Of", "Energy", "Avg utilisation", "Peak memory"), rows),
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
            label(s.device),
            cells.said(f"{subject(s.device)}.name"),
            *(_span(cells, f"{subject(s.device)}.{m}") for _, m in _METRICS),
        )
        for s in states
    )
    if len(states) > 1:
        total = (_span(cells, f"gpus.{m}", total=True) for _, m in _METRICS)
        rows = (*rows, ("all GPUs", "–", *total))
    lacking = [
        (f"{title} of {label(s.device)}", _named(cells, f"{subject(s.device)}.{m}"))
        for s in states
        for title, m in _METRICS
    ]
    return Table(
        "Devices, mean and highest",
        *_filled(("Device", "Name", *(title for title, _ in _METRICS)), rows),
        _devices_note(rows, lacking, cells),
    )


def _devices_note(
    rows: Sequence[tuple[str, ...]], lacking: Sequence[tuple[str, str]], cells: Cells
) -> str:
    if not rows:
        return "No data: no device has been read yet."
    counted = any("±" in cell for row in rows for cell in row)
    types = (
        "TFLOP/s with ± are from hardware counters, which cannot tell the data type: they are "
        "right for FP16 and BF16; FP8 would be twice and TF32 half of it."
    )
    return " ".join(filter(None, (types if counted else "", cells.why_not(lacking))))


def _named(cells: Cells, metric: str) -> str:
    """Return the fact that best explains a missing value: without a sensor now, there was none
    before.
    """
    return metric if cells.missing(metric) is not None else f"{metric}.mean"


def _span(cells: Cells, name: str, *, total: bool = False) -> str:
    """Return mean and highest of a metric; a total may have only one of them."""
    values = [cells.said(f"{name}.{part}") for part in ("mean", "max")]
    if total:
        values = [value for value in values if value != NO_DATA] or ["–"]
    return ", ".join(dict.fromkeys(values)) + cells.uncertainty(f"{name}.mean")


def _filled(
    head: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return a table without the columns that are empty in every row."""
    kept = [
        at
        for at in range(len(head))
        if not rows or any(row[at] not in ("", "–", NO_DATA) for row in rows)
    ]
    return tuple(head[at] for at in kept), tuple(tuple(row[at] for at in kept) for row in rows)


def alerts(found: Sequence[Alert], cells: Cells) -> Table:
    """Return the alerts."""
    parts = ("raised", "cleared", "rule", "about", "text")
    rows = tuple(tuple(cells.said(f"alert{alert.id}.{part}") for part in parts) for alert in found)
    return Table(
        "Alerts",
        ("Raised", "Cleared", "Rule", "About", "What"),
        rows,
        "" if rows else "No alert was raised in this time.",
    )


def sources(facts: Sequence[Fact]) -> Table:
    """Return every source, and the subjects it reported on."""
    subjects_of: dict[str, list[str]] = {}
    for fact in facts:
        subjects_of.setdefault(fact.source, []).append(fact.subject)
    rows = tuple(
        (source, ", ".join(_listed(dict.fromkeys(subjects))))
        for source, subjects in subjects_of.items()
    )
    return Table("Sources", ("Source", "Told of"), rows)


def _listed(subjects: dict[str, None], most: int = 12) -> list[str]:
    names = list(subjects)
    return names if len(names) <= most else [*names[:most], "and others"]


NO_DATA = "no data"


class Cells:
    """Look up facts by name for the cells of tables. Every lookup may find nothing."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._named: dict[str, list[Fact]] = {}
        for fact in facts:
            self._named.setdefault(fact.name, []).append(fact)

    def said(self, name: str) -> str:
        """Return the value in words; values that differ, each with its source; `no data` if there
        is none.
        """
        found = {fact.said: fact for fact in self._named.get(name, ()) if fact.value is not None}
        if len(found) > 1:
            return "sources disagree: " + ", ".join(
                f"{said} ({fact.source})" for said, fact in found.items()
            )
        return next(iter(found), NO_DATA)

    def given(self, name: str, otherwise: str = "") -> str:
        """Return `said`, or `otherwise` if there is no value."""
        return found if (found := self.said(name)) != NO_DATA else otherwise

    def uncertainty(self, name: str) -> str:
        """Return ` (±14 %)` if a source says how far the value may be off, or an empty text."""
        errors = [fact.error for fact in self._named.get(name, ()) if fact.value is not None]
        known = [error for error in errors if error]
        return f" (±{max(known):.0f} %)" if known else ""

    def missing(self, name: str) -> str | None:
        """Return why there is no value; None if there is one."""
        facts = self._named.get(name, [])
        if any(fact.value is not None for fact in facts):
            return None
        return (
            facts[-1].said.removeprefix("N/A (").removesuffix(")")
            if facts
            else "nothing reported it"
        )

    def number(self, name: str) -> float | None:
        """Return the value itself, for sorting only."""
        value = next(
            (
                fact.value
                for fact in self._named.get(name, ())
                if isinstance(fact.value, int | float)
            ),
            None,
        )
        return value

    def why_not(self, wanted: Sequence[tuple[str, str]]) -> str:
        """Return a sentence for each reason why some of `wanted` (a title, the name of a fact) are
        missing.
        """
        reasons: dict[str, list[str]] = {}
        for what, name in wanted:
            if (why := self.missing(name)) is not None:
                reasons.setdefault(why, []).append(what)
        return " ".join(
            f"No data for {', '.join(dict.fromkeys(whats))}: {why}."
            for why, whats in reasons.items()
        )
