"""Show an array or a group as a whole: how far it is, and which of its jobs failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.format.values import duration
from gpudeck.app.jobs.job_keys import CANCELLED, FAILED, RUNNING, SUCCEEDED, WAITING
from gpudeck.app.jobs.listing import JobLine, JobLines
from gpudeck.app.jobs.run_overlay import RunOverlay
from gpudeck.app.language.texts import tr, tr_count
from gpudeck.app.link.link import Link
from gpudeck.app.widgets.controls import (
    ProgressLine,
    Stretch,
    button,
    card,
    column,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.safe_text import SafeText
from gpudeck.scheduler.protocol.jobs import Job

_MOST_FAILED, _MOST_TIMED = 20, 2000
_RUN_TIME = 6
"""The column of `JobKeys.values` that holds the run time in seconds."""
_KINDS = (RUNNING, WAITING, SUCCEEDED, FAILED, CANCELLED)


class FoldDetails(QWidget):
    """Show the counts and the failed jobs, and cancel or unfold all of them."""

    cancelled = Signal()
    """The user wants all of its jobs cancelled."""
    retried = Signal(tuple)
    """The user wants these failed jobs queued again."""
    toggled = Signal()
    """The user wants its jobs shown, or hidden."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.curves = RunOverlay(link, listed=True)
        self.title = label(strong=True)
        self.counts = label(meaning="muted", wrap=True)
        self.bar = ProgressLine()
        self.unfold = button(tr("Show its jobs"), self.toggled, tooltip=tr("Right, Left"))
        self.cancel = button(tr("Cancel all…"), self.cancelled, tooltip=tr("Del"))
        self.retry = button("", lambda: self.retried.emit(self._failed), kind="primary")
        self._failed: tuple[int, ...] = ()
        self.text = SafeText()
        self.text.setAccessibleName(tr("About the jobs"))
        self._shown: tuple[tuple[str, str], ...] = ()
        inner = column(
            row(self.title, Stretch(self.counts), self.retry, self.unfold, self.cancel),
            self.bar,
            self.curves,
            Stretch(self.text),
        )
        self.setLayout(column(card(inner)))

    def show_fold(
        self, line: JobLine, lines: JobLines, job: Callable[[int], Job | None], now: float
    ) -> None:
        """Show the array or group of a row.

        Args:
            line: Its row.
            lines: All rows.
            job: Returns a job by its number.
            now: Seconds since the epoch.
        """
        assert line.fold is not None
        numbers = lines.members[line.id]
        name = line.fold.name
        array = line.fold.kind == "array"
        set_text(
            self.title, tr("Array {name}", name=name) if array else tr("Group {name}", name=name)
        )
        set_text(self.counts, line.row.doing)
        self.bar.set_share(line.row.share)
        self._failed = tuple(n for n in numbers if lines.line(n).keys.kind == FAILED)
        failed = len(self._failed)
        self.retry.setText(tr_count("Retry the failed job", "Retry the {n} failed", failed))
        self.retry.setVisible(bool(failed))
        unfolded = numbers[0] in lines.indented
        self.unfold.setText(tr("Hide its jobs") if unfolded else tr("Show its jobs"))
        self.cancel.setVisible(line.row.active)
        found = (job(number) for number in numbers[:_MOST_TIMED])
        self.curves.show_jobs([one for one in found if one is not None], now)
        facts = fold_facts([lines.line(number) for number in numbers[:_MOST_TIMED]], job)
        if facts != self._shown:
            self._shown = facts
            self.text.show_table(facts)


def fold_facts(
    members: Sequence[JobLine], job: Callable[[int], Job | None]
) -> tuple[tuple[str, str], ...]:
    """Return captions and values: the counts, the run times, and the jobs that failed."""
    counts = Counter(line.keys.kind for line in members)
    facts = [(tr("Jobs"), tr_count("{n} job", "{n} jobs", len(members)))]
    facts += [(tr(kind), str(counts[kind])) for kind in _KINDS if counts[kind]]
    times = [
        float(line.keys.values[_RUN_TIME])
        for line in members
        if line.keys.kind in (SUCCEEDED, FAILED) and float(line.keys.values[_RUN_TIME]) >= 0
    ]
    if times:
        average, longest = duration(mean(times)), duration(max(times))
        text = tr("{time} on average, {longest} the longest", time=average, longest=longest)
        facts.append((tr("Run time"), text))
    failed = [line for line in members if line.keys.kind == FAILED][:_MOST_FAILED]
    facts += [
        (tr("Job {job}", job=line.id), f"{line.row.name}: {line.row.doing}") for line in failed
    ]
    first = next((found for line in members[:1] if (found := job(line.id)) is not None), None)
    if first is not None:
        facts.insert(1, (tr("Folder"), first.spec.cwd))
    return tuple(facts)
