"""Show the figures of the last 24 hours in a card."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QSizePolicy

from gpudeck.app.dashboard.day import Day, figures, hours, sentence
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    card,
    label,
    row,
    set_text,
    set_tooltip,
)
from gpudeck.scheduler.protocol.settings import Settings

_MOST = 5
"""The number of figures."""
_TITLE = tr_noop("Last 24 hours")
_WHOLE = 23.5
"""Hours of readings of each device from which on the day counts as whole."""
_EDGES = 40
"""Pixels of the card's edges."""


class DayCard:
    """Show a line of figures, with a sentence on hover. Hidden until there is a day."""

    def __init__(self) -> None:
        self.captions = [label(meaning="muted", size="small") for _ in range(_MOST)]
        self.values = [label(strong=True) for _ in range(_MOST)]
        pairs = [
            row(*pair, spacing=theme.XS) for pair in zip(self.captions, self.values, strict=True)
        ]
        self.title = label(tr(_TITLE), strong=True)
        inner = row(self.title, *pairs, Stretch(), spacing=theme.L)
        self.frame: QFrame = card(inner)
        inner.setContentsMargins(theme.M, theme.S, theme.M, theme.S)
        # figures without room are hidden, so the card needs no width of its own
        self.frame.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.frame.hide()

    def show_day(self, day: Day, settings: Settings, devices: int, now: float) -> None:
        """Show the figures of a day with readings."""
        shown = figures(day, settings, now)
        read = day.hours / max(devices, 1)
        title = tr(_TITLE)
        if read < _WHOLE:
            title = tr("Last 24 hours · {hours} of readings", hours=hours(read))
        set_text(self.title, title)
        for at in range(_MOST):
            caption, value = shown[at] if at < len(shown) else ("", "")
            set_text(self.captions[at], caption)
            set_text(self.values[at], value)
        self.fit()
        lines = (*(": ".join(pair) for pair in shown), sentence(day, settings, devices))
        set_tooltip(self.frame, "\n".join(lines))
        self.frame.setVisible(day.hours > 0)

    def fit(self) -> None:
        """Hide the last figures of a card that has no room for them."""
        above = self.frame.parentWidget()
        room = (
            (above.width() if above is not None else 0)
            - self.title.sizeHint().width()
            - theme.px(_EDGES)
        )
        for caption, value in zip(self.captions, self.values, strict=True):
            room -= caption.sizeHint().width() + value.sizeHint().width() + theme.XS + theme.L
            fits = bool(value.text()) and room >= 0
            caption.setVisible(fits)
            value.setVisible(fits)
