"""A job that waits or runs, in three lines: what, how far, a bar."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.format.job_rows import Row
from app.widgets import theme
from app.widgets.controls import ProgressLine, label, row, set_text


class RunLine(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.title = label(strong=True)
        self.state = label()
        self.doing = label(meaning="muted", wrap=True)
        self.bar = ProgressLine()
        header = row(self.title, self.state, spacing=theme.M)
        header.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(header)
        layout.addWidget(self.doing)
        layout.addWidget(self.bar)

    def show_job(self, job: Row) -> None:
        set_text(self.title, f"Job {job.id} · {job.name}")
        set_text(self.state, job.state)
        theme.mark(self.state, "meaning", job.meaning)
        set_text(self.doing, job.doing)
        self.bar.set_share(job.share)
