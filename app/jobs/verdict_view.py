"""Show how a job used its devices, each verdict with its certainty."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.runs.verdicts import Verdict
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import grid_layout, label, set_tooltip
from gpudeck.language.numbers import capitalized

_SIDES = (Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag(0))
"""The certainty stands beside the first line of a text; the text takes all the room."""
MOST = 4
"""The most verdicts that are shown; the tooltip has the rest."""


class VerdictView(QWidget):
    """Show a line for each verdict; hidden without any."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName(tr("How the job used its devices"))
        self._grid = grid_layout(self, theme.M, 2)
        self._grid.setColumnStretch(1, 1)
        self._lines = [
            (label(meaning="muted", size="small"), label(wrap=True)) for _ in range(MOST)
        ]
        for at, line in enumerate(self._lines):
            for column, part in enumerate(line):
                self._grid.addWidget(part, at, column, _SIDES[column])
        self.shown: tuple[Verdict, ...] = ()
        self.show_verdicts(())

    def show_verdicts(self, found: Sequence[Verdict]) -> None:
        """Show these verdicts."""
        self.shown = tuple(found)
        for at, (certainty, text) in enumerate(self._lines):
            there = at < len(found)
            certainty.setVisible(there)
            text.setVisible(there)
            if there:
                same = at > 0 and found[at].certainty == found[at - 1].certainty
                certainty.setText("" if same else capitalized(tr(found[at].certainty)))
                text.setText(found[at].text)
        lines = [f"{capitalized(tr(one.certainty))}: {one.text}" for one in found]
        set_tooltip(self, "\n".join(lines))
        self.setAccessibleDescription("\n".join(lines))
        self.setVisible(bool(found))
