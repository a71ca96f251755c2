"""Show how a model would fill the free memory of a device."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.models.fit import Fit
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import column, label, set_text
from gpudeck.app.widgets.parts_bar import BarPart, PartsBar

_COLORS = ("accent", "muted", "succeeded", "line")


class FitBar(QWidget):
    """Show a line of text over a bar of weights, work and cache."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label(size="small", meaning="muted", wrap=True)
        self.bar = PartsBar(tr("Memory of the model"))
        self.setLayout(column(self.text, self.bar, spacing=theme.XS))

    def show_fit(self, fit: Fit) -> None:
        """Show how the model fits, or why it does not."""
        set_text(self.text, fit.text)
        theme.mark(self.text, "meaning", "muted" if fit.room else "hot")
        self.bar.setVisible(fit.room is not None)
        parts = zip(fit.parts, _COLORS, strict=False)
        self.bar.show_parts([BarPart(name, size, color) for (name, size), color in parts])
