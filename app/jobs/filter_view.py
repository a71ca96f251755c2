"""What the jobs page lists: words that are searched for, a state, a time."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QWidget

from app.jobs.listing import EVERY, KINDS, TIMES, search_for
from app.widgets import theme
from app.widgets.controls import filter_box, row
from scheduler.protocol.search import Search
from scheduler.protocol.snapshot import Snapshot


class JobFilter(QWidget):
    """Emits `changed` with every keystroke and choice."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.box = filter_box("Search words, group:NAME, gpu:0 (Ctrl+F)")
        self.box.setToolTip(
            "Looks into names, commands, notes, tags and parameters of all jobs there ever were"
        )
        self.box.textChanged.connect(self.changed)
        self.kinds, self.times = _choice("State", [EVERY, *KINDS]), _choice("Time", list(TIMES))
        self.times.setToolTip("Jobs that have not ended before")
        for choice in (self.kinds, self.times):
            choice.currentIndexChanged.connect(self.changed)
        layout = row(self.box, self.kinds, self.times, spacing=theme.M)
        self.setLayout(layout)

    def search(self, snapshot: Snapshot) -> Search:
        """What is looked for, as of the snapshot's moment."""
        return search_for(
            self.box.text(), self.kinds.currentText(), TIMES[self.times.currentText()], snapshot
        )

    def clear(self) -> None:
        """List all jobs."""
        self.box.clear()
        self.kinds.setCurrentIndex(0)
        self.times.setCurrentIndex(0)


def _choice(name: str, choices: list[str]) -> QComboBox:
    box = QComboBox()
    box.addItems(choices)
    box.setAccessibleName(name)
    return box
