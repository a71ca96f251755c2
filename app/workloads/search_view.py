"""Show what a search of a kernel tried, how its best became faster, and use its winner."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QWidget

from gpudeck.accel.search.code import written
from gpudeck.app.charts.overlay_chart import OverlaidCurve, OverlayChart
from gpudeck.app.format.results import result_of
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.code_panes import code_pane
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    column,
    label,
    row,
    set_text,
    set_tooltip,
    show_if_any,
)
from gpudeck.app.widgets.list_table import RowTable, TableColumn, height_of_rows, list_table
from gpudeck.app.workloads.search_record import (
    ReadSearch,
    RemoveWinner,
    SearchRecord,
    UseWinner,
    VariantRow,
    config_text,
    request_of,
)
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.jobs import Job

_COLUMNS = (
    TableColumn(tr_noop("µs"), 56, right=True, help=tr_noop("The median time of a call")),
    TableColumn(tr_noop("Configuration"), 150),
    TableColumn(tr_noop("Outcome"), 0, help=tr_noop("If it was correct, or why it was refused")),
)
_LISTED = 12
"""The most rows that are shown without scrolling."""
_LEAST = 6
"""The rows for which there is always room, so that the chart is high enough."""
_KNOWN = tr_noop(
    "The best so far over the seconds of the search; the grey line is what the hardware allows"
    " (roofline). Times include a share of the copies of inputs and results."
)
_UNKNOWN = tr_noop(
    "The best so far over the seconds of the search; what the hardware allows (roofline) is not"
    " known. Times include a share of the copies of inputs and results."
)
_USE, _REMOVE = tr_noop("Use this kernel"), tr_noop("Remove")


class SearchView(QWidget):
    """Show the search that a job left; hidden while there is none."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._job: int | None = None
        self._asked: ReadSearch | None = None
        self._record: SearchRecord | None = None
        self._reason: Message | None = None
        """What the job's own result says, which is shown with it."""
        self.chart = OverlayChart(tr("Thousand calls a second"), tr("seconds"), from_zero=True)
        self.caption = label(size="small", meaning="muted", wrap=True)
        self.model = RowTable[VariantRow](_COLUMNS)
        self.table = list_table(self.model, [c.width for c in _COLUMNS], tr_noop("Variants"))
        self.verdict = label(wrap=True)
        self.use = button(tr(_USE), self._use_or_remove)
        self.note = label(meaning="failed", wrap=True)
        self.note.hide()
        self.code = button(
            tr("Code"), self._show_code, checkable=True,
            tooltip=tr("Source and machine code of what was tried first and of the winner"),
        )  # fmt: skip
        self.panes = code_pane(tr("Tried first")), code_pane(tr("Winner"))
        self.compared = label(size="small", meaning="muted", wrap=True)
        charts = row(Stretch(self.chart, 2), Stretch(self.table, 3), spacing=theme.M)
        winner = row(Stretch(self.verdict), self.code, self.use, spacing=theme.M)
        panes = row(*map(Stretch, self.panes), spacing=theme.M)
        self.setLayout(column(winner, self.note, charts, self.caption, self.compared, panes))
        self._show_code()
        self.hide()

    def show_job(self, job: Job | None) -> None:
        """Show the search of an ended job; None or a job without a Result shows nothing."""
        result = None if job is None else result_of(job)
        if job is None or result is None:
            self._job = self._asked = self._record = None
            self.hide()
        elif job.id != self._job:
            self._job, self._asked = job.id, request_of(result)
            self._reason = result.reason
            self.hide()
            self._read()

    def _read(self) -> None:
        if (asked := self._asked) is not None:
            self._link.send(
                self, asked, lambda record: self._take(asked, record), self._fail, background=True
            )

    def _take(self, asked: ReadSearch, record: SearchRecord | None) -> None:
        if asked != self._asked:
            return  # of a job that is no longer shown
        self._record = record
        show_if_any(self.note, "")
        if record is not None:
            self._show(record)
        self.setVisible(record is not None)

    def _fail(self, problem: str) -> None:
        show_if_any(self.note, problem)
        self._enable()
        self.show()

    def _show(self, record: SearchRecord) -> None:
        self._paint()
        set_text(self.caption, tr(_UNKNOWN if record.roofline is None else _KNOWN))
        self.model.show_rows(record.rows)
        rows = min(max(len(record.rows), _LEAST), _LISTED)
        self.table.setFixedHeight(height_of_rows(self.table, rows))
        self.chart.setFixedHeight(self.table.height())
        verdict, kernel = record.verdict, record.kernel
        said = phrase("The winner was not judged.") if verdict is None else verdict.text
        set_text(self.verdict, "" if said == self._reason else tr_text(said))
        self.use.setText(tr(_USE if kernel is None else _REMOVE))
        set_tooltip(
            self.use,
            tr("Programs use this kernel for these sizes from now on")
            if kernel is None
            else tr("{name} is used; remove it, and all is as before", name=kernel.name),
        )
        self.code.setVisible(record.codes is not None)
        self._show_code()
        self._enable()

    def _show_code(self) -> None:
        """Show the code of the first and the best configuration side by side if it is wanted."""
        codes = self._record.codes if self._record else None
        wanted = codes is not None and self.code.isChecked()
        for pane in self.panes:
            pane.setVisible(wanted)
        if codes is None or not wanted:
            show_if_any(self.compared, "")
            return
        self.panes[0].setPlainText(written(codes.first_code))
        self.panes[1].setPlainText(written(codes.winner_code))
        for pane in self.panes:
            pane.setFixedHeight(self.table.height() * 2)
        first, winner = config_text(codes.first), config_text(codes.winner)
        text = tr("Left: tried first ({first}). Right: the winner ({winner}).",
                  first=first, winner=winner)  # fmt: skip
        show_if_any(self.compared, text)

    def _enable(self) -> None:
        record = self._record
        faster = record is not None and record.verdict is not None and record.verdict.is_faster
        self.use.setEnabled(faster or (record is not None and record.kernel is not None))

    def _use_or_remove(self) -> None:
        record = self._record
        if record is None or record.verdict is None:
            return
        self.use.setEnabled(False)  # until it is done
        kernel = record.kernel
        request = UseWinner(record.verdict) if kernel is None else RemoveWinner(kernel.name)
        self._link.send(self, request, lambda _: self._read(), self._fail)

    def _paint(self) -> None:
        if self._record is None:
            return
        colors, (seconds, speeds) = theme.tokens(), self._record.speeds
        curves = []
        if speeds:
            curves.append(OverlaidCurve(seconds, speeds, colors.series[0], strong=True))
            if (most := self._record.roofline) is not None:
                ends = (0.0, seconds[-1])
                curves.append(OverlaidCurve(ends, (most, most), colors.muted))
        self.chart.show_curves(tuple(curves))

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self._paint()
        super().changeEvent(event)
