"""List what the hub offers, and downloads that were not finished, each with a button."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_whole
from gpudeck.app.models.hub_fit import hub_fit
from gpudeck.app.models.model_list import count_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, elided, label, row
from gpudeck.assistant.library.hub_search import HubModel
from gpudeck.assistant.library.unfinished import Unfinished
from gpudeck.scheduler.protocol.snapshot import Snapshot


class HubList(QWidget):
    """Show a line for each model. Emit `wanted` with its name when it is to be downloaded."""

    wanted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._layout = column(spacing=theme.XS)
        self.setLayout(self._layout)
        self._lines: list[QWidget] = []
        self.hide()

    def show_found(
        self, found: Sequence[HubModel], snapshot: Snapshot | None, host_free: int
    ) -> None:
        """Show models of the hub, those that fit this machine first."""
        fits = {model.name: hub_fit(model, snapshot, host_free) for model in found}
        self._clear()
        for model in sorted(found, key=lambda model: not fits[model.name].fits):
            facts = [tr("{size} parameters", size=count_text(model.parameters))]
            facts += [memory(model.bytes), fits[model.name].text]
            facts.append(tr("{n} downloads a month", n=tr_whole(model.downloads)))
            if model.gated:
                facts.append(tr("needs an account at Hugging Face"))
            self._add(model.name, " · ".join(filter(None, facts)), tr("Download"))

    def show_unfinished(self, found: Sequence[Unfinished]) -> None:
        """Show downloads that ended before they were complete."""
        self._clear()
        for one in found:
            self._add(
                one.name, tr("{size} are here already", size=memory(one.bytes)), tr("Continue")
            )

    def _clear(self) -> None:
        for line in self._lines:
            self._layout.removeWidget(line)
            line.deleteLater()
        self._lines = []
        self.hide()

    def _add(self, name: str, facts: str, action: str) -> None:
        start = button(action, lambda: self.wanted.emit(name))
        start.setAccessibleName(f"{action}: {name}")
        line = QWidget()
        inner = row(
            label(name, strong=True), Stretch(elided(facts, size="small", meaning="muted")), start,
            spacing=theme.M,
        )  # fmt: skip
        inner.setContentsMargins(0, 0, 0, 0)
        line.setLayout(inner)
        self._layout.addWidget(line)
        self._lines.append(line)
        self.show()
