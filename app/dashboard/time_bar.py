"""The row of buttons that says which stretch of time the charts show."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QWidget

from app.dashboard.job_spans import Span
from app.dashboard.time_axis import TimeAxis
from app.format.values import clock
from app.widgets import theme
from app.widgets.controls import button, elided, row, set_text

SPANS = (
    ("1 min", 60.0),
    ("10 min", 600.0),
    ("1 h", 3600.0),
    ("6 h", 21600.0),
    ("1 d", 86400.0),
    ("7 d", 604800.0),
    ("30 d", 2592000.0),
)
_NO_JOB = "Go to job"


class TimeBar(QWidget):
    """Emits what the user wants to see."""

    chosen = Signal(float)
    """The last so many seconds."""
    followed = Signal()
    compared = Signal(bool)
    exported = Signal()
    job_wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.where = elided(size="small", meaning="muted")
        self.jobs = QComboBox()
        self.jobs.setAccessibleName("Go to a job's time")
        self.jobs.setToolTip("Show the time of a job (J, Shift+J: the next, the one before)")
        self.jobs.addItem(_NO_JOB)
        self.jobs.setFixedWidth(150)
        self.jobs.activated.connect(self._job_chosen)
        self.compare = button(
            "Compare",
            kind="quiet",
            checkable=True,
            tooltip="Keep this stretch, pale, under any other (B)",
        )
        self.compare.clicked.connect(self.compared)
        self.export = button(
            "Export",
            kind="quiet",
            tooltip="Write what is shown to a file: CSV, Parquet or PNG (Ctrl+E)",
        )
        self.export.clicked.connect(self.exported)
        self.spans = [
            button(text, kind="quiet", tooltip=f"Show the last {text}", checkable=True)
            for text, _ in SPANS
        ]
        for made, (_, seconds) in zip(self.spans, SPANS, strict=True):
            made.clicked.connect(lambda _=False, s=seconds: self.chosen.emit(s))
        self.live = button(
            "Live", kind="quiet", tooltip="Follow the newest reading (L)", checkable=True
        )
        self.live.clicked.connect(self.followed)
        layout = row(
            self.where,
            self.jobs,
            self.compare,
            self.export,
            *self.spans,
            self.live,
            spacing=theme.XS,
        )
        layout.setStretch(0, 1)
        self.setLayout(layout)

    def show_span(self, span: TimeAxis, words: str) -> None:
        """`words`: what else is to be said of it."""
        set_text(self.where, words)
        self.live.setChecked(span.live)
        for made, (_, seconds) in zip(self.spans, SPANS, strict=True):
            made.setChecked(span.seconds == seconds)

    def show_jobs(self, spans: tuple[Span, ...], now: float) -> None:
        """The jobs that can be gone to, the newest first."""
        wanted = [(f"{s.label}, {clock(s.start, now)}", s.job) for s in reversed(spans)]
        if [
            (self.jobs.itemText(i), self.jobs.itemData(i)) for i in range(1, self.jobs.count())
        ] == wanted or self.jobs.view().isVisible():
            return
        while self.jobs.count() > 1:
            self.jobs.removeItem(1)
        for text, job in wanted:
            self.jobs.addItem(text, job)

    def _job_chosen(self, index: int) -> None:
        job = self.jobs.itemData(index)
        self.jobs.setCurrentIndex(0)
        if job is not None:
            self.job_wanted.emit(job)
