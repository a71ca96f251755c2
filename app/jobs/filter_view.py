"""Filter the jobs by words, a state and a time."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.jobs.job_keys import KINDS
from app.jobs.listing import EVERY, TIMES, parse_search
from app.widgets import theme
from app.widgets.controls import Stretch, choice_box, filter_box, row
from scheduler.protocol.search import Search
from scheduler.protocol.snapshot import Snapshot

_WIDEST = 150


class JobFilter(QWidget):
    """Edit the filter."""

    changed = Signal()
    """The user typed or chose something."""

    def __init__(self) -> None:
        super().__init__()
        self.box = filter_box("Search, group:NAME, gpu:0 (Ctrl+F)")
        self.box.setToolTip("Search the names, commands, notes, tags and parameters of all jobs")
        self.box.textChanged.connect(self.changed)
        self.kinds, self.times = choice_box("State", (EVERY, *KINDS)), choice_box("Time", TIMES)
        self.times.setToolTip(
            "List jobs that ended within this time, and those that have not ended"
        )
        for choice in (self.kinds, self.times):
            choice.currentIndexChanged.connect(self.changed)
            choice.setMaximumWidth(theme.px(_WIDEST))
        layout = row(Stretch(self.box, 1000), self.kinds, self.times, Stretch(), spacing=theme.M)
        self.setLayout(layout)

    def search(self, snapshot: Snapshot) -> Search:
        """Return the search; its times count back from the snapshot."""
        return parse_search(
            self.box.text(), self.kinds.currentText(), TIMES[self.times.currentText()], snapshot
        )

    def clear(self) -> None:
        """List all jobs."""
        self.box.clear()
        self.kinds.setCurrentIndex(0)
        self.times.setCurrentIndex(0)
