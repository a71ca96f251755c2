"""A Result's cells, in three ways: heat map, comparison, roofline; what is chosen in them is told below. The fourth tab is for others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QButtonGroup,
    QComboBox,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from accel.result import Result
from app.widgets import theme
from app.widgets.controls import button, label, row, set_text
from app.widgets.mark_chart import MarkChart
from app.workloads import cells as c
from app.workloads.comparison import contest
from app.workloads.comparison_view import ComparisonView
from app.workloads.heat_map import heat, quantities
from app.workloads.heat_map_view import HeatMapView
from app.workloads.roofline import roofline
from app.workloads.roofline_view import RooflineView

HINT = "Click on a mark, or reach it with Tab and the arrow keys: its figures appear here."
VIEWS = ("Heat map", "Comparison", "Roofline", "Details")
HEAT, CONTEST, ROOF, DETAILS = range(4)
_PREFERRED = QSizePolicy.Policy.Preferred
_TOLD_LINES, _WIDE = 4, 600


class CellCharts(QWidget):
    """Emits `viewed` when another view is chosen. DETAILS leaves the room to what stands below it."""

    viewed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._result: Result | None = None
        self._others: tuple[Result, ...] = ()
        self.direction, self.contender, self.quantity, self.rows = (QComboBox() for _ in range(4))
        self._used = {
            self.direction: (HEAT, CONTEST, ROOF),
            self.contender: (HEAT, ROOF),
            self.quantity: (HEAT,),
            self.rows: (CONTEST,),
        }
        names = {
            self.direction: "Direction",
            self.contender: "Backend",
            self.quantity: "Quantity",
            self.rows: "Head size and mask",
        }
        for box, name in names.items():
            box.setAccessibleName(name)
            box.setToolTip(name)
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(self._draw)
        self.heat, self.contest, self.roofline = HeatMapView(), ComparisonView(), RooflineView()
        self.charts: tuple[MarkChart, ...] = (self.heat, self.contest, self.roofline)
        self.tabs = {name: button(name, kind="quiet", checkable=True) for name in VIEWS}
        group = QButtonGroup(self)
        self.note = label(meaning="muted", wrap=True)
        self.told = label(HINT, size="small", meaning="muted", wrap=True)
        self.told.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.told.setAlignment(Qt.AlignmentFlag.AlignTop)
        for at, made in enumerate(self.tabs.values()):
            group.addButton(made)
            made.clicked.connect(lambda _=False, i=at: self.choose(i))
        for chart in self.charts:
            chart.pointed.connect(lambda text: set_text(self.told, text))
        self._views = {False: DETAILS, True: HEAT}
        """What was chosen last for one cell, and for several."""
        self._lay_out()

    @property
    def view(self) -> int:
        """Index of VIEWS."""
        return self._views[self._result is not None and len(self._result.cells) > 1]

    def choose(self, index: int) -> None:
        """Go to one of VIEWS."""
        self._views[self._result is not None and len(self._result.cells) > 1] = index
        self._draw()
        self.viewed.emit()

    def show_result(self, result: Result, others: Iterable[Result]) -> None:
        """A Result with cells; `others`: results of the same machine, the newest first, for the ceilings of the roofline."""
        others = tuple(others)
        if result is not self._result:
            keep = self._result is not None and self._result.workload == result.workload
            self._result, self._others = result, others
            cells = result.cells
            _fill(self.direction, c.directions(cells), keep)
            _fill(self.contender, c.contenders(cells), keep)
            _fill(self.quantity, [q.name for q in quantities(cells)], keep)
            _fill(self.rows, [c.row_label(r) for r in c.rows(cells)], keep)
            self._draw()
        elif others != self._others:
            self._others = others
            self._draw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        way = (
            QBoxLayout.Direction.LeftToRight
            if self.width() > _WIDE
            else QBoxLayout.Direction.TopToBottom
        )
        self._bar.setDirection(way)
        super().resizeEvent(event)

    def _draw(self) -> None:
        if self._result is None:
            return
        several, at = len(self._result.cells) > 1, self.view
        for i, made in enumerate(self.tabs.values()):
            made.setVisible(several or i in (ROOF, DETAILS))
            made.setChecked(i == at)
        for box, views in self._used.items():
            box.setVisible(at in views and box.count() > 1)
        self.stack.setVisible(at != DETAILS)
        self.told.setVisible(at != DETAILS)
        said = ""
        if at != DETAILS:
            self.stack.setCurrentIndex(at)
            for chart in (
                self.charts
            ):  # the stack is to be as high as what it shows, not as the highest it could
                wanted = chart is self.charts[at]
                chart.setSizePolicy(
                    _PREFERRED, _PREFERRED if wanted else QSizePolicy.Policy.Ignored
                )
            said = (self._draw_heat, self._draw_contest, self._draw_roofline)[at](self._result)
            set_text(self.told, self.charts[at].accessibleDescription() or HINT)
        set_text(self.note, said)
        self.note.setVisible(bool(said))

    def _draw_heat(self, result: Result) -> str:
        """Returns what is to be said beside it."""
        quantity = next(
            q for q in quantities(result.cells) if q.name == self.quantity.currentText()
        )
        made = heat(
            result.cells, self.contender.currentText(), self.direction.currentText(), quantity
        )
        self.heat.show_heat(made)
        return "" if made.highest else quantity.absent

    def _draw_contest(self, result: Result) -> str:
        row = c.rows(result.cells)[self.rows.currentIndex()]
        made = contest(result.cells, row, self.direction.currentText())
        self.contest.show_contest(made)
        return (
            made.summary
            if len(made.contenders) > 1
            else "One backend was measured. To see all side by side, run Compare."
        )

    def _draw_roofline(self, result: Result) -> str:
        made = roofline(
            result, self._others, self.contender.currentText(), self.direction.currentText()
        )
        self.roofline.show_roofline(
            made, tuple(x for x in c.contenders(result.cells) if x != c.FASTEST)
        )
        return f"No ceiling: {'; '.join(made.missing)}." if made.missing else ""

    def _lay_out(self) -> None:
        tabs, boxes = (
            row(*self.tabs.values(), spacing=theme.XS),
            row(self.rows, self.direction, self.contender, self.quantity),
        )
        tabs.addStretch()
        boxes.addStretch()
        self._bar = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._bar.addLayout(tabs, 1)
        self._bar.addLayout(boxes)
        self.stack = QStackedWidget()
        for chart in self.charts:
            self.stack.addWidget(chart)
        self.setMinimumWidth(
            1
        )  # where there is less than both lines need side by side, they stand one below the other
        self.told.setMinimumHeight(_TOLD_LINES * self.told.fontMetrics().lineSpacing())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(self._bar)
        layout.addWidget(self.note)
        layout.addWidget(self.stack, 1)
        layout.addWidget(self.told)


def _fill(box: QComboBox, names: Sequence[str], keep: bool) -> None:
    """Other choices; with `keep` what was chosen stays where it still is one."""
    before = box.currentText()
    box.blockSignals(True)
    box.clear()
    box.addItems(list(names))
    box.setCurrentIndex(max(box.findText(before), 0) if keep else 0)
    box.blockSignals(False)
