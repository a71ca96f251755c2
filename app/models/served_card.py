"""Show one served model: where it runs, its load, and what it did in the last minutes."""

from __future__ import annotations

from collections import deque

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QWidget

from gpudeck.app.charts.spark_card import HEIGHT, SparkCard
from gpudeck.app.language.texts import tr
from gpudeck.app.models import served_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    ProgressLine,
    Stretch,
    button,
    column,
    elided,
    label,
    pill,
    row,
    set_pill,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.fact_row import FactRow
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.app.widgets.list_table import plain_cell
from gpudeck.assistant.serve.control_messages import Served
from gpudeck.scheduler.protocol.snapshot import Snapshot

_HIGH = 180
"""Pixels of height of the curves where there is much room."""
_KEPT = 120
"""Values of the curves: one a second."""


class ServedCard(QFrame):
    """Show a served model."""

    stopped = Signal(object)
    """The user ends it; carries the `Served`."""

    def __init__(self, served: Served) -> None:
        super().__init__()
        self.served = served
        self.setProperty("card", "true")
        self.setAccessibleName(tr("Served model {name}", name=served.name))
        self.name = label(plain_cell(served.name), strong=True)
        self.pill = pill()
        self.place = label(size="small", meaning="muted")
        self.address = elided(served.address, size="small", meaning="muted")
        self.copy = button(tr("Copy address"), self._copy, kind="quiet")
        self.copy.setAccessibleName(tr("Copy the address of {name}", name=served.name))
        self.stop = button(tr("Stop"), lambda: self.stopped.emit(self.served))
        self.stop.setToolTip(tr("End it: its answers end, and its memory is free"))
        self.stop.setAccessibleName(tr("Stop serving {name}", name=served.name))
        self.progress = ProgressLine()
        self.state = label(size="small", wrap=True)
        self.facts = FactRow(7)
        titles = (tr("Speed"), tr("Cache used"), tr("Prefix hits"), tr("Requests"))
        self.sparks = tuple(SparkCard(title, tr("two minutes")) for title in titles)
        self._values = tuple(deque[float](maxlen=_KEPT) for _ in titles)
        self.curves = FoldRow(_pair(*self.sparks[:2]), _pair(*self.sparks[2:]), (1, 1))
        self._lay_out()

    def show_served(self, served: Served, snapshot: Snapshot | None) -> None:
        """Show what it does now; called once a second."""
        self.served = served
        set_pill(self.pill, *served_text.pill(served))
        set_text(self.place, served_text.place(served, snapshot))
        show_if_any(self.state, served_text.state(served))
        theme.mark(self.state, "meaning", "failed" if served.phase == "failed" else "")
        share = served_text.loaded_share(served)
        self.progress.setVisible(share is not None)
        self.progress.set_share(share)
        self.facts.show_facts(served_text.facts(served))
        self.facts.setVisible(bool(self.facts.facts))
        ready = served.phase == "ready"
        self.curves.setVisible(ready)
        if ready:
            self._show_figures(served)

    def _show_figures(self, served: Served) -> None:
        figures = served.figures
        requests = figures.get("running", 0) + figures.get("waiting", 0)
        read = max(figures.get("prompt_tokens", 0), 1)
        shown = (
            (figures.get("tokens_per_second", 0), None, served_text.rate(served)),
            (100 * served_text.cache_share(served), 100.0, served_text.cache(served)),
            (100 * figures.get("cached_tokens", 0) / read, 100.0, served_text.prefix_hits(served)),
            (requests, None, served_text.requests(served)),
        )
        for spark, values, (value, top, text) in zip(self.sparks, self._values, shown, strict=True):
            values.append(value)
            spark.show_values(np.array(values), top, text)  # a short history fills the curve

    def enlarge(self, *, wanted: bool) -> None:
        """Give the curves the height of a chart with a scale, or of a line."""
        for spark in self.sparks:
            spark.setFixedHeight(theme.px(_HIGH if wanted else HEIGHT))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.served.address)

    def _lay_out(self) -> None:
        about, buttons = QWidget(), QWidget()
        named = (self.name, self.pill, self.place, Stretch(self.address))
        about.setLayout(row(*named, spacing=theme.M))
        buttons.setLayout(row(Stretch(), self.copy, self.stop, spacing=theme.M))
        self.setLayout(
            column(
                FoldRow(about, buttons, (1, 0)),
                self.state,
                self.progress,
                self.curves,
                self.facts,
                margins=(theme.L, theme.M, theme.L, theme.M),
            )
        )


def _pair(left: QWidget, right: QWidget) -> QWidget:
    made = QWidget()
    made.setLayout(row(Stretch(left), Stretch(right)))
    return made
