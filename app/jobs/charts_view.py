"""Two small charts of a job's devices during its time: utilisation and memory."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QWidget

from app.charts.chart_card import ChartCard
from app.charts.chart_model import title
from app.charts.chart_source import ChartContents
from app.charts.job_usage import FIELDS
from app.jobs.charts import OWN, job_charts
from app.state import State
from app.widgets import theme
from app.widgets.controls import row
from scheduler.protocol.jobs import Job

_HEIGHT = 132


class JobCharts(QWidget):
    """Hidden where there is nothing to draw."""

    def __init__(self) -> None:
        super().__init__()
        self.cards = {field: ChartCard(title(field)) for field in FIELDS}
        self.setLayout(row(*(made.frame for made in self.cards.values())))
        self.setFixedHeight(_HEIGHT)
        self._recolor()

    def show_job(self, job: Job, state: State) -> None:
        """Draw what is known of it now."""
        snapshot = state.snapshot
        made = job_charts(job, state, min(card.view.pixels for card in self.cards.values()))
        self.setVisible(bool(made))
        if snapshot is None:
            return
        palette = theme.tokens().series
        colors = {s.device.id: palette[i % len(palette)] for i, s in enumerate(snapshot.devices)}
        colors |= {device + OWN: theme.tokens().text for device in list(colors)}
        for one in made:
            here = {name: color for name, color in colors.items() if name in one.series}
            card = self.cards[one.chart.field]
            card.show_chart(one.chart, here)
            card.show_contents(one.chart, one.limits, ChartContents(one.series), here)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()
        super().changeEvent(event)

    def _recolor(self) -> None:
        for made in self.cards.values():
            made.view.recolor()
