"""Show the cells of a Result as heat map, comparison or roofline, with boxes to choose from."""

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
    QWidget,
)

from accel.result import Result
from app.widgets import theme
from app.widgets.controls import (
    Stretch,
    button,
    choice_box,
    column,
    label,
    row,
    set_text,
    show_if_any,
)
from app.widgets.mark_chart import MarkChart
from app.workloads import cells as c
from app.workloads.comparison import compare
from app.workloads.comparison_view import ComparisonView
from app.workloads.heat_map import heat_map, quantities
from app.workloads.heat_map_view import HeatMapView
from app.workloads.roofline import roofline
from app.workloads.roofline_view import RooflineView

HINT = "Click a mark, or move to it with Tab and the arrow keys, to see its values here."
VIEWS = ("Heat map", "Comparison", "Roofline", "Details")
HEAT, COMPARISON, ROOFLINE, DETAILS = range(4)
_PREFERRED = QSizePolicy.Policy.Preferred
_TEXT_LINES, _WIDE = 4, 600


class CellCharts(QWidget):
    """Show one of `VIEWS`; DETAILS leaves the room to the widget below.

    Emits `viewed` when another view is chosen.
    """

    viewed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._result: Result | None = None
        self._others: tuple[Result, ...] = ()
        self.direction = choice_box("Direction")
        self.contender = choice_box("Backend")
        self.quantity = choice_box("Quantity")
        self.rows = choice_box("Head size and mask")
        self._views_of = {
            self.direction: (HEAT, COMPARISON, ROOFLINE),
            self.contender: (HEAT, ROOFLINE),
            self.quantity: (HEAT,),
            self.rows: (COMPARISON,),
        }
        """The views that each box is for."""
        for box in self._views_of:
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(self._draw)
        self.heat, self.comparison, self.roofline = HeatMapView(), ComparisonView(), RooflineView()
        self.charts: tuple[MarkChart, ...] = (self.heat, self.comparison, self.roofline)
        self.tabs = {
            name: button(name, lambda _=False, i=at: self.choose(i), kind="quiet", checkable=True)
            for at, name in enumerate(VIEWS)
        }
        group = QButtonGroup(self)
        for tab in self.tabs.values():
            group.addButton(tab)
        self.note = label(meaning="muted", wrap=True)
        self.selected = label(HINT, size="small", meaning="muted", wrap=True)
        self.selected.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.selected.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.selected.setMinimumHeight(_TEXT_LINES * self.selected.fontMetrics().lineSpacing())
        self.stack = QStackedWidget()
        for chart in self.charts:
            chart.pointed.connect(lambda text: set_text(self.selected, text))
            self.stack.addWidget(chart)
        self._chosen_views = {False: DETAILS, True: HEAT}
        """The view that was chosen last for Results with one cell, and with several."""
        self._bar = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._bar.addLayout(row(*self.tabs.values(), Stretch(), spacing=theme.XS), 1)
        self._bar.addLayout(
            row(self.rows, self.direction, self.contender, self.quantity, Stretch())
        )
        self.setMinimumWidth(1)  # the bar breaks into two lines where there is little room
        self.setLayout(column(self._bar, self.note, Stretch(self.stack), self.selected))

    @property
    def _several(self) -> bool:
        return self._result is not None and len(self._result.cells) > 1

    @property
    def view(self) -> int:
        """Return the index of the current view in `VIEWS`."""
        return self._chosen_views[self._several]

    def choose(self, index: int) -> None:
        """Show one of `VIEWS`."""
        self._chosen_views[self._several] = index
        self._draw()
        self.viewed.emit()

    def show_result(self, result: Result, others: Iterable[Result]) -> None:
        """Show a Result that has cells.

        Args:
            others: Results that may hold the ceilings of the roofline, newest first.
        """
        others = tuple(others)
        if result is not self._result:
            keep = self._result is not None and self._result.workload == result.workload
            self._result, self._others = result, others
            cells = result.cells
            if not keep and len(c.contenders(cells)) > 2:
                self._chosen_views[True] = COMPARISON
            _fill(self.direction, c.directions(cells), keep)
            _fill(self.contender, c.contenders(cells), keep)
            _fill(self.quantity, [q.name for q in quantities(cells)], keep)
            _fill(self.rows, [c.row_label(r) for r in c.grid_rows(cells)], keep)
            self._draw()
        elif others != self._others:
            self._others = others
            self._draw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        directions = QBoxLayout.Direction
        wide = self.width() > _WIDE
        self._bar.setDirection(directions.LeftToRight if wide else directions.TopToBottom)
        super().resizeEvent(event)

    def _draw(self) -> None:
        if self._result is None:
            return
        at = self.view
        for i, tab in enumerate(self.tabs.values()):
            tab.setVisible(self._several or i in (ROOFLINE, DETAILS))
            tab.setChecked(i == at)
        for box, views in self._views_of.items():
            box.setVisible(at in views and box.count() > 1)
        self.stack.setVisible(at != DETAILS)
        self.selected.setVisible(at != DETAILS)
        note = ""
        if at != DETAILS:
            self.stack.setCurrentIndex(at)
            # the stack is as high as the current chart, not as the highest one
            for chart in self.charts:
                current = chart is self.charts[at]
                policy = _PREFERRED if current else QSizePolicy.Policy.Ignored
                chart.setSizePolicy(_PREFERRED, policy)
            draw = (self._draw_heat_map, self._draw_comparison, self._draw_roofline)[at]
            note = draw(self._result)
            set_text(self.selected, self.charts[at].accessibleDescription() or HINT)
        show_if_any(self.note, note)

    def _draw_heat_map(self, result: Result) -> str:
        """Draw the map, and return a note; so do the other two methods."""
        name = self.quantity.currentText()
        quantity = next(q for q in quantities(result.cells) if q.name == name)
        contender, direction = self.contender.currentText(), self.direction.currentText()
        made = heat_map(result.cells, contender, direction, quantity)
        self.heat.show_map(made)
        return (quantity.hint or "") if made.highest is None else ""

    def _draw_comparison(self, result: Result) -> str:
        chosen = c.grid_rows(result.cells)[self.rows.currentIndex()]
        made = compare(result.cells, chosen, self.direction.currentText())
        self.comparison.show_comparison(made)
        if len(made.contenders) > 1:
            return made.summary
        return "Only one backend was measured. Run Compare to see all of them side by side."

    def _draw_roofline(self, result: Result) -> str:
        contender, direction = self.contender.currentText(), self.direction.currentText()
        made = roofline(result, self._others, contender, direction)
        order = tuple(x for x in c.contenders(result.cells) if x != c.FASTEST)
        self.roofline.show_roofline(made, order)
        if made.missing:
            return f"No ceiling: {'; '.join(made.missing)}."
        if made.unmeasured:
            return f"From the data sheet: run {' and '.join(made.unmeasured)} to measure it here."
        return ""


def _fill(box: QComboBox, names: Sequence[str], keep: bool) -> None:
    """Offer other choices; with `keep`, the current choice stays if it is still offered."""
    before = box.currentText()
    box.blockSignals(True)
    box.clear()
    box.addItems(list(names))
    box.setCurrentIndex(max(box.findText(before), 0) if keep else 0)
    box.blockSignals(False)
