"""Choose how a model is served, see whether it fits, and start it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from PySide6.QtCore import Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QGridLayout, QWidget

from gpudeck.accel.serving.memory import CacheFormat, Footprint, Weights
from gpudeck.app.language.texts import tr, tr_whole
from gpudeck.app.models.fit import CACHE, CPU, JOB, PLACES, TOKENS, WEIGHTS, Fit, fit
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, choice_box, column, label, row, set_text
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.app.widgets.parts_bar import BarPart, PartsBar
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.serve.control_messages import Held
from gpudeck.scheduler.protocol.snapshot import Snapshot

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
        self.weights = choice_box(tr("How the weights of {name} are kept", name=name), WEIGHTS)
        self.cache = choice_box(tr("How keys and values of {name} are kept", name=name), CACHE)
        self.tokens = choice_box(tr("Tokens that the cache of {name} holds", name=name))
        for tokens in TOKENS:
            self.tokens.addItem(tr_whole(tokens) if tokens else tr("as many as fit"), tokens)
        self.place = choice_box(tr("Where {name} is served", name=name), PLACES)
        for box in (self.weights, self.cache, self.tokens, self.place):
            box.currentIndexChanged.connect(self._show_fit)
        self.start = button(
            tr("Serve"), tooltip=tr("Load the model and answer programs and free chat")
        )
        self.start.setAccessibleName(tr("Serve {name}", name=name))
        self.start.clicked.connect(self._start)
        self.more = button(
            tr("Options"),
            kind="quiet",
            tooltip=tr("Choose weights, cache and device"),
            checkable=True,
        )
        self.more.setAccessibleName(tr("Options of serving {name}", name=name))
        self.bar = FitBar()
        self.choices = self._choices(beside)
        self.more.toggled.connect(self.choices.setVisible)
        self.choices.hide()
        self.setLayout(column(self.bar, self.choices))
        self._show_fit()

    @property
    def options(self) -> Options:
        """Return what is chosen."""
        return Options(
            self._path,
            "cpu" if self.place.currentData() == CPU else "auto",
            cast("Weights", WEIGHTS[self.weights.currentData()]),
            cast("CacheFormat", CACHE[self.cache.currentData()]),
            self.tokens.currentData(),
        )

    def show_memory(self, snapshot: Snapshot | None, host_free: int, busy: bool) -> None:
        """Take the memory that is free now; `busy`: the model is served already, or started."""
        self._snapshot, self._host_free = snapshot, host_free
        self.start.setEnabled(not busy)
        self.more.setVisible(not busy)
        self.setVisible(not busy)
        self._show_fit()

    def _show_fit(self) -> None:
        place = self.place.currentData()
        found = fit(self._footprint, self.options, place, self._snapshot, self._host_free)
        self.bar.setVisible(found is not None)
        if found is not None:
            self.bar.show_fit(found)

    def _start(self) -> None:
        held: Held = "job" if self.place.currentData() == JOB else "lease"
        self.started.emit(self.options, held)

    def _choices(self, beside: QWidget) -> QWidget:
        """Place the choices in two columns, or below each other where they lack room."""
        left = ((tr("Weights"), self.weights), (tr("Tokens"), self.tokens))
        right = ((tr("Cache"), self.cache), (tr("On"), self.place))
        metrics = QFontMetrics(theme.font(theme.SMALL))
        least = max(metrics.horizontalAdvance(title) for title, _ in (*left, *right))
        last = QWidget()
        last.setLayout(row(beside, Stretch()))
        both = FoldRow(_titled(left, least), _titled(right, least), (0, 1))
        return FoldRow(both, last, (1, 0))


def _titled(named: Iterable[tuple[str, QWidget]], least: int) -> QWidget:
    """Return widgets below each other, each beside its title, which has `least` pixels."""
    made = QWidget()
    grid = QGridLayout(made)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(theme.S)
    grid.setColumnMinimumWidth(0, least)
    grid.setColumnStretch(2, 1)
    for line, (title, widget) in enumerate(named):
        grid.addWidget(label(title, size="small", meaning="muted"), line, 0)
        grid.addWidget(widget, line, 1)
    return made
