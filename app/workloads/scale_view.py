"""Show what divided attention is modelled to take on more GPUs: seconds and memory."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from gpudeck.accel.distributed.scale import KINDS
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import choice_box, column, grid_layout, label, row, set_text
from gpudeck.app.workloads.scale import scale_rows

_COLUMNS = (
    tr_noop("GPUs"),
    tr_noop("Strategy"),
    tr_noop("Forward"),
    tr_noop("Backward"),
    tr_noop("Memory of a GPU"),
)
MODELLED = tr_noop(
    "Modelled from two H100 GPUs of one host, not measured. Other kinds are assumed to reach the"
    " same share of their datasheets, and more than 8 GPUs to have 400 Gbit/s each between hosts."
)


class ScaleView(QWidget):
    """Show the fastest strategy for each number of GPUs of a kind that the user chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = choice_box(tr("Kind of GPU"), list(KINDS))
        self.kind.activated.connect(lambda _: self._show())
        self._values: Mapping[str, str] | None = None
        self._grid = grid_layout(None, theme.L, theme.XS)
        for at, name in enumerate(_COLUMNS):
            self._grid.addWidget(label(tr(name), size="small", meaning="muted"), 0, at)
            self._grid.setColumnStretch(at, 1)
        self.cells: list[list[QLabel]] = []
        title = label(tr("One layer on more GPUs"), strong=True)
        note = label(tr(MODELLED), size="small", meaning="muted", wrap=True)
        self.setLayout(column(row(title, self.kind), self._grid, note))

    def show_values(self, values: Mapping[str, str]) -> None:
        """Show the rows for the values of a valid form."""
        if dict(values) != self._values:
            self._values = dict(values)
            self._show()

    def _show(self) -> None:
        if self._values is None:
            return
        rows = scale_rows(self._values, self.kind.currentText())
        while len(self.cells) < len(rows):
            self.cells.append([label() for _ in _COLUMNS])
            for at, cell in enumerate(self.cells[-1]):
                align = Qt.AlignmentFlag.AlignLeft
                self._grid.addWidget(cell, len(self.cells), at, align)
        for cells, found in zip(self.cells, rows, strict=True):
            texts = (found.gpus, found.strategy, found.forward, found.backward, found.memory)
            for cell, text in zip(cells, texts, strict=True):
                set_text(cell, text)
            theme.mark(cells[-1], "meaning", "" if found.fits else "failed")
