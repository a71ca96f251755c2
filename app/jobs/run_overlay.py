"""Show the curves of several runs on one scale, and their values as a table to sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QLabel, QWidget

from gpudeck.app.charts.overlay_chart import OverlaidCurve, OverlayChart
from gpudeck.app.format.values import precise
from gpudeck.app.language.texts import tr_noop
from gpudeck.app.link.call import Call
from gpudeck.app.link.link import Link
from gpudeck.app.runs.run_curves import Run, read_run
from gpudeck.app.runs.run_table import RunRow, overlaid_names, overlaid_rows, sorted_rows
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, column, grid_layout, row
from gpudeck.app.widgets.list_table import RowTable, TableColumn, height_of_rows, list_table
from gpudeck.scheduler.protocol.jobs import Job

MOST_RUNS = 32
"""Runs whose curves are read: the newest."""
_MOST_CHARTS, _ACROSS, _LISTED = 4, 2, 8
"""Charts, charts side by side, and rows of the table that have room."""
_AGAIN_S = 5.0
"""Seconds after which the curves of runs that are not over are read again."""
_WIDTH = 84
"""Pixels of a column."""


class ReadRuns(msgspec.Struct, frozen=True):
    """Read the curves of jobs."""

    jobs: tuple[int, ...]

    def carry_out(self, call: Call) -> tuple[Run, ...]:
        """Return the runs in the order of the jobs."""
        with call.client() as client:
            return tuple(read_run(client, job) for job in self.jobs)


@dataclass(frozen=True)
class _Cells:
    key: int
    cells: tuple[str, ...]
    tooltip: str = ""


class _Table(RowTable[_Cells]):
    """List runs; its columns are the parameters and values that they have."""

    colors: Mapping[int, str] = MappingProxyType({})
    """The colour of the curves of each job."""

    def color(self, row: _Cells, column: int) -> str | None:
        return None if column else self.colors.get(row.key)

    def show_runs(self, names: Sequence[str], rows: Sequence[RunRow]) -> None:
        titles = (tr_noop("Job"), *names)
        if titles != tuple(column.title for column in self.columns):
            self.beginResetModel()
            self.columns = [TableColumn(title, _WIDTH, right=True) for title in titles]
            self.rows = ()
            self.endResetModel()
        self.show_rows(tuple(_Cells(r.job.id, _texts(r, names)) for r in rows))


def _texts(shown: RunRow, names: Sequence[str]) -> tuple[str, ...]:
    values = {name: precise(value) for name, value in shown.values.items()}
    texts = shown.parameters | values
    return (str(shown.job.id), *(texts.get(name, "–") for name in names))


class RunOverlay(QWidget):
    """Overlay the curves of runs; hidden while none of them has a curve."""

    def __init__(self, link: Link, *, listed: bool) -> None:
        """Show charts, and with `listed` a table; the run that is chosen there stands out."""
        super().__init__()
        self._link = link
        self._jobs: tuple[Job, ...] = ()
        self._asked: tuple[float, tuple[int, ...]] = (0.0, ())
        self._runs: tuple[Run, ...] = ()
        self._sort: tuple[str, bool] | None = None
        """What the table is sorted by, and if the highest comes first."""
        self.charts: dict[str, OverlayChart] = {}
        self.legend = [QLabel() for _ in range(len(theme.tokens().series))]
        self._grid = grid_layout()
        self.model = _Table([])
        self.table = list_table(self.model, (), tr_noop("Runs"))
        self.table.horizontalHeader().setSectionsClickable(True)
        self.table.horizontalHeader().setDefaultSectionSize(theme.px(_WIDTH))
        self.table.horizontalHeader().sectionClicked.connect(self._sort_by)
        self.table.selectionModel().currentRowChanged.connect(self._paint)
        self._listed = listed
        legend = row(*self.legend, Stretch(), spacing=theme.M)
        self.setLayout(column(legend, self._grid, self.table))
        self.table.setVisible(listed)  # not before it has a parent: it would be a window
        self.hide()

    def show_jobs(self, jobs: Sequence[Job], now: float) -> None:
        """Show these jobs; read their curves if that was not just done.

        Args:
            now: Seconds since the epoch.
        """
        self._jobs = tuple(sorted(jobs, key=lambda job: job.id)[-MOST_RUNS:])
        numbers = tuple(job.id for job in self._jobs)
        at, before = self._asked
        if numbers != before:
            self._runs = ()
            self._show()
        if numbers != before or (any(j.active for j in self._jobs) and now - at >= _AGAIN_S):
            self._asked = now, numbers
            self._link.send(self, ReadRuns(numbers), self._take, _ignore, background=True)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._paint()
        super().changeEvent(event)

    def _take(self, runs: tuple[Run, ...]) -> None:
        if tuple(run.job for run in runs) == self._asked[1]:
            self._runs = runs
            self._show()

    def _show(self) -> None:
        """Show what was read."""
        names = overlaid_names(self._runs)[:_MOST_CHARTS]
        if names != list(self.charts):
            for chart in self.charts.values():
                self._grid.removeWidget(chart)
                chart.deleteLater()
            self.charts = {name: OverlayChart(name) for name in names}
            for at, chart in enumerate(self.charts.values()):
                self._grid.addWidget(chart, *divmod(at, _ACROSS))
        rows = overlaid_rows(self._jobs, self._runs)
        if self._sort is not None:
            rows = sorted_rows(rows, *self._sort)
        given = dict.fromkeys(name for one in rows for name in one.parameters)
        values = dict.fromkeys(name for one in rows for name in one.values)
        self.model.show_runs(tuple({**given, **values}), rows)
        bar = self.table.horizontalScrollBar().sizeHint().height()
        self.table.setFixedHeight(height_of_rows(self.table, min(len(rows), _LISTED)) + bar)
        self._paint()
        self.setVisible(bool(names))

    def _paint(self) -> None:
        """Give every run its colour, the same in all charts and in the legend."""
        palette, chosen = theme.tokens().series, self._chosen()
        colors = {run.job: palette[at % len(palette)] for at, run in enumerate(self._runs)}
        self.model.colors = colors
        self.table.viewport().update()
        for name, chart in self.charts.items():
            found = [(run.job, run.curves[name]) for run in self._runs if name in run.curves]
            chart.show_curves(
                tuple(
                    OverlaidCurve(curve.steps, curve.values, colors[job], job == chosen)
                    for job, curve in found
                )
            )
        few = len(self._runs) <= len(self.legend)
        for at, label in enumerate(self.legend):
            shown = few and at < len(self._runs)
            label.setVisible(shown)
            if shown:
                label.setText(f"{self._runs[at].job}")
                label.setStyleSheet(
                    f"color: {palette[at]}; border-left: 8px solid {palette[at]}; padding-left: 5px"
                )

    def _chosen(self) -> int | None:
        at = self.table.currentIndex().row()
        return self.model.rows[at].key if self._listed and 0 <= at < len(self.model.rows) else None

    def _sort_by(self, section: int) -> None:
        """Sort by a column; the other way round if it is sorted by it already."""
        name = self.model.columns[section].title
        self._sort = (name, self._sort == (name, False)) if section else None
        self._show()


def _ignore(problem: str) -> None:
    """Show no curves of jobs that cannot be read, as those of other users."""
