"""Show the buttons that choose the stretch of time in the charts."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.dashboard.time_axis import TimeAxis
from gpudeck.app.dashboard.timeline import JobSpan
from gpudeck.app.format.values import clock
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, choice_box, elided, row, set_text
from gpudeck.app.widgets.segments import Segments

SPANS = {
    "1 min": 60.0,
    "10 min": 600.0,
    "1 h": 3600.0,
    "6 h": 21600.0,
    tr_noop("1 d"): 86400.0,
    tr_noop("7 d"): 604800.0,
    tr_noop("30 d"): 2592000.0,
}
"""Seconds of each button."""


_WIDTH, _LINE = 16, 2


class LineKey(QWidget):
    """Paint a short line; hidden while it has no colour."""

    def __init__(self) -> None:
        super().__init__()
        self.color = ""
        self.setFixedWidth(theme.px(_WIDTH))

    def show_color(self, color: str) -> None:
        """Paint the line in this colour; hide it if that is empty."""
        self.setVisible(bool(color))
        if color != self.color:
            self.color = color
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        middle = (self.height() - _LINE) // 2
        QPainter(self).fillRect(0, middle, self.width(), _LINE, QColor(self.color))


class TimeBar(QWidget):
    """Choose the time that the charts show."""

    chosen = Signal(float)
    """Carries the seconds before now that the user wants to see."""
    followed = Signal()
    compared = Signal(bool)
    exported = Signal()
    folded = Signal(bool)
    """The user wants the strip of GPUs collapsed (True), or shown again."""
    job_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.position = elided(size="small", meaning="muted")
        self.key = LineKey()
        self.key.hide()
        self.jobs = choice_box(tr("Go to a job's time"), [tr_noop("Go to job")])
        self.jobs.setToolTip(tr("Show the time of a job (J: next, Shift+J: previous)"))
        self.jobs.setFixedWidth(theme.px(130))
        self.jobs.activated.connect(self._choose_job)
        self.compare = button(
            tr("Compare"),
            self.compared,
            kind="quiet",
            checkable=True,
            tooltip=tr("Keep these curves, faded, behind another time (B)"),
        )
        self.export = button(
            tr("Export…"),
            self.exported,
            kind="quiet",
            tooltip=tr("Save what is shown as CSV, Parquet or PNG (Ctrl+E)"),
        )
        self.spans = [
            button(
                tr(text),
                lambda _=False, s=seconds: self.chosen.emit(s),
                tooltip=tr("Show the last {time}", time=tr(text)),
                checkable=True,
            )
            for text, seconds in SPANS.items()
        ]
        self.live = button(
            tr("Live"),
            self.followed,
            kind="quiet",
            tooltip=tr("Go live (L)"),
            checkable=True,
        )
        self.fold = button(
            tr("Hide GPUs"),
            self.folded,
            kind="quiet",
            checkable=True,
            tooltip=tr("Collapse the GPUs above to one line (Ctrl+G)"),
        )
        self.span = choice_box(tr("Time range"), SPANS)
        self.span.activated.connect(lambda at: self.chosen.emit(list(SPANS.values())[at]))
        self.span.setPlaceholderText(tr("Custom"))
        self.span.hide()
        self._others = (self.fold, self.compare, self.export, self.live)
        self._range = Segments(tr("Time range"), *self.spans)
        before, after = (self.span, self._range, self.live), (self.jobs, self.compare)
        parts = (*before, self.key, Stretch(self.position), *after, self.export, self.fold)
        self.setLayout(row(*parts, spacing=theme.S))

    def minimumSizeHint(self) -> QSize:
        return QSize(self._width_of(self.span), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Choose between a button for each span and a list of them."""
        super().resizeEvent(event)
        wide = self.width() >= self._width_of(self.jobs, *self.spans)
        if wide == self.span.isVisibleTo(self):
            self.span.setVisible(not wide)
            self._range.setVisible(wide)
        self._offer_jobs()

    def _offer_jobs(self) -> None:
        """List the jobs, unless their room is needed to say what is compared; J does the same."""
        self.jobs.setVisible(self._range.isVisibleTo(self) and not self.compare.isChecked())

    def _width_of(self, *spans: QWidget) -> int:
        """Return the pixels that these editors of the span need, with all other buttons."""
        parts = (*self._others, *spans)
        hints = (p.sizeHint().expandedTo(p.minimumSize()).boundedTo(p.maximumSize()) for p in parts)
        return sum(hint.width() + theme.S for hint in hints)

    def show_axis(self, axis: TimeAxis, position: str, key: str) -> None:
        """Check the buttons of what is shown; `position` describes it further.

        Args:
            key: The colour of the time that is compared; empty if there is none.
        """
        self.key.show_color(key)
        self._offer_jobs()
        set_text(self.position, position)
        self.live.setChecked(axis.live)
        for made, seconds in zip(self.spans, SPANS.values(), strict=True):
            made.setChecked(axis.seconds == seconds)
        lengths = list(SPANS.values())
        at = lengths.index(axis.seconds) if axis.seconds in lengths else -1
        if at != self.span.currentIndex():
            self.span.setCurrentIndex(at)

    def show_folded(self, folded: bool) -> None:
        """Show whether the strip of GPUs is collapsed."""
        self.fold.setChecked(folded)
        self.fold.setText(tr("Show GPUs") if folded else tr("Hide GPUs"))

    def show_jobs(self, spans: tuple[JobSpan, ...], now: float) -> None:
        """List the jobs to go to, newest first, unless the list is open."""
        wanted = [(f"{s.label}, {clock(s.start, now)}", s.job) for s in reversed(spans)]
        listed = [(self.jobs.itemText(i), self.jobs.itemData(i)) for i in range(self.jobs.count())]
        if listed[1:] == wanted or self.jobs.view().isVisible():
            return
        while self.jobs.count() > 1:
            self.jobs.removeItem(1)
        for text, job in wanted:
            self.jobs.addItem(text, job)

    def _choose_job(self, index: int) -> None:
        job = self.jobs.itemData(index)
        self.jobs.setCurrentIndex(0)
        if job is not None:
            self.job_chosen.emit(job)
