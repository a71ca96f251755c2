"""Show one model: its size, its needs, its speed, and buttons."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFrame, QPushButton

from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.models.model_list import facts
from gpudeck.app.models.serve_form import ServeForm
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    column,
    elided,
    label,
    pill,
    row,
    set_pill,
    set_text,
    set_tooltip,
)
from gpudeck.app.widgets.fact_row import FactRow
from gpudeck.app.widgets.list_table import plain_cell
from gpudeck.assistant.library.describe import Model


class ModelCard(QFrame):
    """Show a model of the list."""

    acted = Signal(str)
    """The user pressed a button: use, leave, time, stop or forget."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.setProperty("card", "true")
        self.setAccessibleName(tr("Model {name}", name=model.name))
        self.name = label(model.name, strong=True)
        self.pill = pill()
        self.path = elided(plain_cell(model.path), size="small", meaning="muted")
        set_tooltip(self.path, model.path)
        self.facts = FactRow(9)
        self.facts.show_facts(facts(model))
        if not self.facts.facts:
            self.facts.hide()  # to show it before it has a parent would open a window
        self.needs = label(size="small", meaning="muted", wrap=True)
        self.problem = label(tr_text(model.problem), size="small", meaning="failed", wrap=True)
        self.speed = label(size="small", wrap=True)
        self.use = self._action(tr("Use"), "use", tr("Let the assistant use this model"))
        self.leave = self._action(tr("Stop using"), "leave", tr("Let the assistant use no model"))
        self.time = self._action(
            tr("Benchmark"),
            "time",
            tr("Load the model and measure its tokens a second"),
        )
        self.stop = self._action(tr("Stop"), "stop", tr("Stop the benchmark"))
        self.device = QComboBox()
        for name, device in (("CPU", "cpu"), ("GPU", "cuda")):
            self.device.addItem(name, device)
        self.device.setAccessibleName(tr("Device of the benchmark of {name}", name=model.name))
        self.forget = self._action(
            tr("Remove from list"), "forget", tr("Remove the model from the list; its files stay")
        )
        self.serve: ServeForm | None = None
        """What a model of a served family is started with; None for RWKV-7."""
        if model.footprint is not None:
            self.serve = ServeForm(model.path, model.footprint, self.forget)
        self._lay_out()

    def show_state(
        self,
        used: bool,
        served: tuple[str, str],
        needs: str,
        timing: str,
        speed: str,
        busy: bool,
    ) -> None:
        """Show the state of the model.

        Args:
            used: The assistant uses the model.
            served: Its state as a served model and the meaning of its colour; empty while it is
                not served.
            timing: What its benchmark does now, if it runs.
            busy: Some benchmark runs.
        """
        usable = not self.model.problem and self.serve is None
        word, meaning = self._state(used, served)
        set_pill(self.pill, word, meaning)
        set_text(self.needs, needs)
        self.needs.setVisible(bool(needs))
        self.problem.setVisible(bool(self.model.problem))
        set_text(self.speed, timing or speed)
        self.speed.setVisible(bool(timing or speed))
        self.use.setVisible(usable and not used)
        self.leave.setVisible(used)
        self.stop.setVisible(bool(timing))
        self.time.setVisible(usable and not timing)
        self.time.setEnabled(not busy)
        self.device.setVisible(usable)
        self.device.setEnabled(not busy)
        self.forget.setVisible(not used)

    def _state(self, used: bool, served: tuple[str, str]) -> tuple[str, str]:
        """Return the state in a word, and the meaning of its colour."""
        if self.model.problem:
            return tr("Unusable"), "failed"
        if used:
            return tr("In use"), "succeeded"
        return served if served[0] else (tr("Stored"), "muted")

    def _action(self, text: str, name: str, tooltip: str) -> QPushButton:
        made = button(text, kind="quiet" if name in ("forget", "leave") else "", tooltip=tooltip)
        made.setAccessibleName(f"{text}: {self.model.name}")
        made.clicked.connect(lambda: self.acted.emit(name))
        return made

    def _lay_out(self) -> None:
        first = self.use if self.serve is None else self.serve.start
        title = row(self.name, self.pill, Stretch(self.path), self.leave, spacing=theme.M)
        if self.serve is not None:
            title.addWidget(self.serve.more)
        title.addWidget(first)
        parts = (title, self.facts, self.needs, self.problem, self.speed)
        layout = column(*parts, spacing=theme.XS, margins=(theme.L, theme.M, theme.L, theme.M))
        self.setLayout(layout)
        if self.serve is not None:
            layout.addWidget(self.serve)
            return
        layout.addSpacing(theme.XS)
        layout.addLayout(row(self.time, self.stop, self.device, self.forget, Stretch()))
