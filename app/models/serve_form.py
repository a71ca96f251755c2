"""Choose how a model is served, see whether it fits, and start it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QGridLayout, QWidget

from accel.serving.memory import CacheFormat, Footprint, Weights
from app.models.fit import CACHE, CPU, JOB, PLACES, TOKENS, WEIGHTS, fit
from app.models.fit_bar import FitBar
from app.widgets import theme
from app.widgets.controls import button, choice_box, column, label
from assistant.inference.messages import Options
from assistant.serve.control_messages import Held
from scheduler.protocol.snapshot import Snapshot


class ServeForm(QWidget):
    """Edit the options of one served model."""

    started = Signal(object, str)
    """The user starts serving; carries the `Options`, and `lease` or `job`."""

    def __init__(self, path: str, footprint: Footprint, beside: QWidget) -> None:
        """Edit the options of the model at `path`; `beside` is shown beside the choices.

        The owner places the buttons `more`, which shows the choices, and `start`.
        """
        super().__init__()
        self._path, self._footprint = path, footprint
        self._snapshot: Snapshot | None = None
        self._host_free = 0
        name = footprint.name
        self.weights = self._box(f"How the weights of {name} are kept", WEIGHTS)
        self.cache = self._box(f"How keys and values of {name} are kept", CACHE)
        self.tokens = self._box(f"Tokens that the cache of {name} holds", TOKENS)
        self.place = self._box(f"Where {name} is served", PLACES)
        self.start = button("Serve", tooltip="Load the model and answer programs and free chat")
        self.start.setAccessibleName(f"Serve {name}")
        self.start.clicked.connect(self._start)
        self.more = button(
            "Options", kind="quiet", tooltip="Choose weights, cache and device", checkable=True
        )
        self.more.setAccessibleName(f"Options of serving {name}")
        self.bar = FitBar()
        self.choices = QWidget()
        self.more.toggled.connect(self.choices.setVisible)
        self._lay_out(beside)
        self.choices.hide()
        self._show_fit()

    @property
    def options(self) -> Options:
        """Return what is chosen."""
        return Options(
            self._path,
            "cpu" if self.place.currentText() == CPU else "auto",
            cast("Weights", WEIGHTS[self.weights.currentText()]),
            cast("CacheFormat", CACHE[self.cache.currentText()]),
            TOKENS[self.tokens.currentText()],
        )

    def show_memory(self, snapshot: Snapshot | None, host_free: int, busy: bool) -> None:
        """Take the memory that is free now; `busy`: the model is served already, or started."""
        self._snapshot, self._host_free = snapshot, host_free
        self.start.setEnabled(not busy)
        self.more.setVisible(not busy)
        self.setVisible(not busy)
        self._show_fit()

    def _show_fit(self) -> None:
        place = self.place.currentText()
        found = fit(self._footprint, self.options, place, self._snapshot, self._host_free)
        self.bar.setVisible(found is not None)
        if found is not None:
            self.bar.show_fit(found)

    def _start(self) -> None:
        held: Held = "job" if self.place.currentText() == JOB else "lease"
        self.started.emit(self.options, held)

    def _box(self, name: str, choices: Iterable[str]) -> QComboBox:
        made = choice_box(name, choices)
        made.currentIndexChanged.connect(self._show_fit)
        return made

    def _lay_out(self, beside: QWidget) -> None:
        grid = QGridLayout(self.choices)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(theme.S)
        named = (
            ("Weights", self.weights), ("Cache", self.cache), ("Tokens", self.tokens),
            ("On", self.place),
        )  # fmt: skip
        for at, (title, box) in enumerate(named):
            line, place = divmod(at, 2)
            grid.addWidget(label(title, size="small", meaning="muted"), line, 2 * place)
            grid.addWidget(box, line, 2 * place + 1)
        grid.addWidget(beside, 0, 4, 2, 1)
        grid.setColumnStretch(5, 1)
        self.setLayout(column(self.bar, self.choices))
