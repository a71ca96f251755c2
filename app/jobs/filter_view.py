"""Filter the jobs by words, a state and a time."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.jobs.job_keys import KINDS
from gpudeck.app.jobs.listing import EVERY, TIMES, parse_search
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, choice_box, filter_box, row
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.snapshot import Snapshot

_WIDEST, _LEAST = 150, 320
"""Pixels of width of a box at most, and of the filter from which on it has room for times."""


class JobFilter(QWidget):
    """Edit the filter."""

    changed = Signal()
    """The user typed or chose something."""

    def __init__(self) -> None:
        super().__init__()
        self.box = filter_box(tr("Search, group:NAME, gpu:0 (Ctrl+F)"))
        self.box.setToolTip(
            tr("Search the names, commands, notes, tags and parameters of all jobs")
        )
        self.box.textChanged.connect(self.changed)
        self.kinds = choice_box(tr("State"), (EVERY, *KINDS))
        self.times = choice_box(tr("Time"), TIMES)
        self.times.setToolTip(
            tr("List jobs that ended within this time, and those that have not ended")
        )
        for choice in (self.kinds, self.times):
            choice.currentIndexChanged.connect(self.changed)
            choice.setMaximumWidth(theme.px(_WIDEST))
        self.cleared = button(
            tr("Clear filter"), self.clear, kind="link", tooltip=tr("List all jobs")
        )
        self.cleared.hide()
        self.changed.connect(self._offer_clearing)
        shown = (self.kinds, self.times, self.cleared)
        self.setLayout(row(Stretch(self.box, 1000), *shown, Stretch(), spacing=theme.M))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the box of times where there is little room; "Any time" is usual."""
        super().resizeEvent(event)
        room = self.width() >= theme.px(_LEAST)
        self.times.setVisible(room or self.times.currentIndex() > 0)

    def _offer_clearing(self) -> None:
        chosen = self.kinds.currentIndex() > 0 or self.times.currentIndex() > 0
        self.cleared.setVisible(chosen or bool(self.box.text()))

    def minimumSizeHint(self) -> QSize:
        times = self.times.sizeHint().width() + theme.M if self.times.isVisibleTo(self) else 0
        hint = super().minimumSizeHint()
        return QSize(hint.width() - times, hint.height())

    def search(self, snapshot: Snapshot) -> Search:
        """Return the search; its times count back from the snapshot."""
        return parse_search(
            self.box.text(), self.kinds.currentData(), TIMES[self.times.currentData()], snapshot
        )

    def clear(self) -> None:
        """List all jobs."""
        self.box.clear()
        self.kinds.setCurrentIndex(0)
        self.times.setCurrentIndex(0)
