"""Show the cells of a Result as heat map, comparison or roofline, with boxes to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QButtonGroup,
    QComboBox,
    QWidget,
)

from gpudeck.accel.result import Result
from gpudeck.app.language.texts import tr, tr_list, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    choice_box,
    column,
    label,
    row,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.mark_chart import MarkChart
from gpudeck.app.workloads import cells as c
from gpudeck.app.workloads.comparison import compare
from gpudeck.app.workloads.comparison_view import ComparisonView
from gpudeck.app.workloads.heat_map import heat_map, quantities
from gpudeck.app.workloads.heat_map_view import HeatMapView
from gpudeck.app.workloads.roofline import roofline
from gpudeck.app.workloads.roofline_view import LEAST_HEIGHT, RooflineView

HINT = tr_noop("Click a mark, or move to it with Tab and the arrow keys, to see its values here.")
VIEWS = (tr_noop("Heat map"), tr_noop("Comparison"), tr_noop("Roofline"), tr_noop("Details"))
HEAT, COMPARISON, ROOFLINE, DETAILS = range(4)
_TEXT_LINES, _WIDE, _HIGH = 2, 600, 300
"""Lines of the text below a chart, and the pixels of width and height from which on the bar has
one line, and the text is shown."""
_ALONE = 560
"""Pixels of height of a roofline that stands alone above the details."""


class CellCharts(QWidget):
    """Show one of `VIEWS`, or all charts at once; DETAILS leaves the room to the widget below.

    Emits `viewed` when another view is chosen.
    """

    viewed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._result: Result | None = None
        self._others: tuple[Result, ...] = ()
        self.spread = False
        """All charts are shown at once."""
        self.direction = choice_box(tr("Direction"))
        self.contender = choice_box(tr("Backend"))
        self.quantity = choice_box(tr("Quantity"))
        self.rows = choice_box(tr("Head size and mask"))
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
            name: button(
                tr(name), lambda _=False, i=at: self.choose(i), kind="quiet", checkable=True
            )
            for at, name in enumerate(VIEWS)
        }
        group = QButtonGroup(self)
        for tab in self.tabs.values():
            group.addButton(tab)
        self.note = label(meaning="muted", wrap=True)
        self.selected = label(tr(HINT), size="small", meaning="muted", wrap=True)
        self.selected.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.selected.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.selected.setMinimumHeight(_TEXT_LINES * self.selected.fontMetrics().lineSpacing())
        self._titles = [label(tr(name), strong=True) for name in VIEWS[:DETAILS]]
        self.panels = [QWidget() for _ in self.charts]
        for title, panel, chart in zip(self._titles, self.panels, self.charts, strict=True):
            chart.pointed.connect(self._show_selected)
            panel.setLayout(column(title, Stretch(chart)))
        self._lower = QWidget()
        self._lower.setLayout(
            row(Stretch(self.panels[HEAT]), Stretch(self.panels[ROOFLINE]), spacing=theme.XL)
        )
        body = column(Stretch(self.panels[COMPARISON]), Stretch(self._lower), spacing=theme.L)
        self._chosen_views = {False: DETAILS, True: HEAT}
        """The view that was chosen last for Results with one cell, and with several."""
        self._bar = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._bar_tabs = row(*self.tabs.values(), Stretch(), spacing=theme.XS)
        self._bar_boxes = row(self.rows, self.direction, self.contender, self.quantity, Stretch())
        self._bar.addLayout(self._bar_tabs, 1)
        self._bar.addLayout(self._bar_boxes)
        self.setMinimumWidth(1)  # the bar breaks into two lines where there is little room
        self.setLayout(column(self._bar, self.note, Stretch(body), self.selected))

    @property
    def _several(self) -> bool:
        return self._result is not None and len(self._result.cells) > 1

    @property
    def alone(self) -> bool:
        """Report if the charts of one cell are shown, which is the roofline alone."""
        return self.spread and not self._several

    @property
    def view(self) -> int:
        """Return the index of the current view in `VIEWS`."""
        return self._chosen_views[self._several]

    def choose(self, index: int) -> None:
        """Show one of `VIEWS`."""
        self._chosen_views[self._several] = index
        self._draw()
        self.viewed.emit()

    def show_all(self, *, wanted: bool) -> None:
        """Show all charts at once, or the one that the user chose."""
        if wanted != self.spread:
            self.spread = wanted
            self._draw()

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
            if not keep:
                self._choose_fastest(result)
            self._draw()
        elif others != self._others:
            self._others = others
            self._draw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit_bar()
        self._show_text()
        super().resizeEvent(event)

    def _fit_bar(self) -> None:
        """Break the bar into two lines where one has no room for all tabs and boxes."""
        directions = QBoxLayout.Direction
        needed = self._bar_tabs.sizeHint().width() + self._bar_boxes.sizeHint().width() + theme.M
        wide = self.width() > max(_WIDE, needed)
        self._bar.setDirection(directions.LeftToRight if wide else directions.TopToBottom)

    def _choose_fastest(self, result: Result) -> None:
        """Show the row and the direction in which the headline of the result was reached."""
        fastest = max(result.cells, key=lambda cell: cell.tflops)
        for box, choice in (
            (self.direction, fastest.direction),
            (self.rows, c.row_label(c.row_of(fastest))),
        ):
            box.blockSignals(True)
            box.setCurrentIndex(box.findData(choice))
            box.blockSignals(False)

    def _views(self) -> tuple[int, ...]:
        """Return the charts that are shown."""
        if not self.spread:
            return () if self.view == DETAILS else (self.view,)
        return (COMPARISON, HEAT, ROOFLINE) if self._several else (ROOFLINE,)

    def _draw(self) -> None:
        if self._result is None:
            return
        shown = self._views()
        for i, tab in enumerate(self.tabs.values()):
            tab.setVisible(not self.spread and (self._several or i in (ROOFLINE, DETAILS)))
            tab.setChecked(i == self.view)
        for box, views in self._views_of.items():
            box.setVisible(bool({*views} & {*shown}) and box.count() > 1)
        for i, panel in enumerate(self.panels):
            panel.setVisible(i in shown)
            self._titles[i].setVisible(self.spread)
        self._lower.setVisible(bool({HEAT, ROOFLINE} & {*shown}))
        self._fit_bar()
        self.roofline.setMinimumHeight(theme.px(_ALONE) if self.alone else LEAST_HEIGHT)
        self._show_text()
        draw = (self._draw_heat_map, self._draw_comparison, self._draw_roofline)
        notes = [draw[i](self._result) for i in shown]
        self._show_selected(next((self.charts[i].accessibleDescription() for i in shown), ""))
        show_if_any(self.note, "\n".join(filter(None, notes)))

    def _show_text(self) -> None:
        """Show the values of a mark where they leave room for the chart; else they are a tooltip.

        A hidden widget has no height yet.
        """
        room = self.height() >= theme.px(_HIGH) or not self.isVisible()
        self.selected.setVisible(bool(self._views()) and room)

    def _show_selected(self, text: str) -> None:
        set_text(self.selected, text.replace("\n", " · ") or tr(HINT))

    def _draw_heat_map(self, result: Result) -> str:
        """Draw the map, and return a note; so do the other two methods."""
        name = self.quantity.currentData()
        quantity = next(q for q in quantities(result.cells) if q.name == name)
        contender, direction = self.contender.currentData(), self.direction.currentData()
        made = heat_map(result.cells, contender, direction, quantity)
        self.heat.show_map(made)
        return tr(quantity.hint) if quantity.hint and made.highest is None else ""

    def _draw_comparison(self, result: Result) -> str:
        chosen = c.grid_rows(result.cells)[self.rows.currentIndex()]
        made = compare(result.cells, chosen, self.direction.currentData())
        self.comparison.show_comparison(made)
        if len(made.contenders) > 1:
            return made.summary
        return tr("Only one backend was measured. Run Compare to see all of them side by side.")

    def _draw_roofline(self, result: Result) -> str:
        contender, direction = self.contender.currentData(), self.direction.currentData()
        made = roofline(result, self._others, contender, direction)
        order = tuple(x for x in c.contenders(result.cells) if x != c.FASTEST)
        self.roofline.show_roofline(made, order)
        if made.missing:
            return tr("No ceiling: {why}.", why="; ".join(made.missing))
        if made.unmeasured:
            names = tr_list(list(map(tr, made.unmeasured)))
            return tr("From the data sheet: run {workloads} to measure it here.", workloads=names)
        return ""


def _fill(box: QComboBox, names: Sequence[str], keep: bool) -> None:
    """Offer other choices, translated; with `keep`, the current one stays if it is among them."""
    before = box.currentData()
    box.blockSignals(True)
    box.clear()
    for name in names:
        box.addItem(tr(name), name)
    box.setCurrentIndex(max(box.findData(before), 0) if keep else 0)
    box.blockSignals(False)
