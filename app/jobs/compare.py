"""Compare two jobs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QCheckBox, QWidget

from gpudeck.app.format.job_rows import details, device_labels, job_row
from gpudeck.app.format.results import result_of
from gpudeck.app.jobs.run_overlay import RunOverlay
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, card, column, label, row, set_text
from gpudeck.app.widgets.safe_text import SafeText
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.snapshot import Snapshot


class JobCompare(QWidget):
    """Show two jobs. Lines that differ stand out, and the others can be hidden."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.curves = RunOverlay(link, listed=False)
        self.title = label(strong=True)
        self.count = label(size="small", meaning="muted")
        self.only = QCheckBox(tr("Only differences"))
        self.only.toggled.connect(self._paint)
        self.text = SafeText()
        self.text.setAccessibleName(tr("Comparison"))
        self._pairs: tuple[JobPair, ...] = ()
        self._heads = ("", "")
        header = row(self.title, Stretch(self.count), self.only, spacing=theme.M)
        inner = column(header, self.curves, Stretch(self.text))
        self.setLayout(column(card(inner)))

    def show_jobs(self, left: Job, right: Job, snapshot: Snapshot) -> None:
        """Compare two jobs of the snapshot."""
        self.curves.show_jobs((left, right), snapshot.time)
        pairs = compare(left, right, snapshot)
        heads = tr("Job {job}", job=left.id), tr("Job {job}", job=right.id)
        if (pairs, heads) == (self._pairs, self._heads):
            return
        at = self.text.verticalScrollBar().value() if heads == self._heads else 0
        self._pairs, self._heads = pairs, heads
        title = tr("Jobs {left} and {right} side by side", left=left.id, right=right.id)
        set_text(self.title, title)
        differing = sum(pair.differs for pair in pairs)
        set_text(self.count, tr("{n} of {total} lines differ", n=differing, total=len(pairs)))
        self._paint()
        self.text.verticalScrollBar().setValue(at)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._paint()
        super().changeEvent(event)

    def _paint(self) -> None:
        muted = theme.tokens().muted
        heads = "".join(f'<td width="42%"><b>{escape(head)}</b></td>' for head in self._heads)
        cells = [f'<tr><td width="16%"></td>{heads}</tr>']
        for pair in self._pairs:
            if pair.differs or not self.only.isChecked():
                color = theme.tokens().text if pair.differs else muted
                values = "".join(
                    f'<td style="color:{color}">{escape(v)}</td>' for v in (pair.left, pair.right)
                )
                style = f"color:{muted}; white-space:nowrap"
                cells.append(f'<tr><td style="{style}">{escape(pair.caption)}</td>{values}</tr>')
        self.text.setHtml(
            f'<table width="100%" cellspacing="0" cellpadding="2">{"".join(cells)}</table>'
        )


@dataclass(frozen=True)
class JobPair:
    """Hold one fact of both jobs; empty for a job without it."""

    caption: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        """Return whether the jobs differ here."""
        return self.left != self.right


def compare(left: Job, right: Job, snapshot: Snapshot) -> tuple[JobPair, ...]:
    """Return all facts of both jobs in the order of a job's details; each parameter is a fact."""
    one, other = _facts(left, snapshot), _facts(right, snapshot)
    captions = dict.fromkeys([*one, *other])
    pairs = [JobPair(c, one.get(c, ""), other.get(c, "")) for c in captions]
    results = result_of(left), result_of(right)
    if results[0] is not None and results[1] is not None and results[0].tflops > 0:
        change = 100 * (results[1].tflops / results[0].tflops - 1)
        pairs = [
            JobPair(p.caption, p.left, f"{p.right} ({tr_decimal(f'{change:+.1f}')} %)")
            if p.caption == "TFLOP/s" and p.differs
            else p
            for p in pairs
        ]
    return tuple(pairs)


def _facts(job: Job, snapshot: Snapshot) -> dict[str, str]:
    made, shown = details(job, snapshot), job_row(job, device_labels(snapshot), snapshot.time)
    params = {f"  {name}": value for name, value in job.spec.params.items()}
    facts = {caption: value for caption, value in made.facts if caption != tr("Parameters")}
    rows = {
        tr("Name"): job.spec.name,
        tr("State"): tr(shown.state),
        tr("Run time"): shown.duration,
        **params,
        **facts,
    }
    return {caption: value for caption, value in rows.items() if value}
