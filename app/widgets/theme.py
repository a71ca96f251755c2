"""Hold the colours, spaces and fonts of everything, in a light and a dark scheme."""

from __future__ import annotations

from typing import cast

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QFont
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.widgets import colors, fonts

Scheme = colors.Scheme
Tokens = colors.Tokens
LIGHT, DARK = colors.LIGHT, colors.DARK

XS, S, M, L, XL = 4, 8, 12, 16, 24
"""Distances in pixels."""
SMALL, BASE, LARGE, HUGE = 12, 13, 17, 28
"""Font sizes in pixels, where the text has its usual size; see `px`."""
POINTS = 10.0
"""The usual size of text, in points."""


def application() -> QApplication:
    """Return the application; make one in the style that the stylesheet is made for."""
    # with `setStyle`, PySide would make the class QStyle, which takes 20 ms
    app = QApplication.instance() or QApplication(["gpudeck", "-style", "fusion"])
    assert isinstance(app, QApplication)
    set_text_size(app, POINTS)
    return app


def set_text_size(app: QApplication, points: float) -> None:
    """Choose the size of text; widgets that are made later have it.

    Args:
        points: 8 to 18; `POINTS` is usual.
    """
    fonts.load(app)
    app.setProperty("points", points)
    app.setFont(font())


def px(pixels: float) -> int:
    """Return a length that grows with the size of text.

    Args:
        pixels: The length at the usual size of text.
    """
    app = QApplication.instance()
    points = app.property("points") if app is not None else None
    return round(pixels * (points or POINTS) / POINTS)


def apply(app: QApplication, scheme: Scheme) -> None:
    """Give the whole application this scheme.

    Widgets that paint themselves are notified by `QEvent.PaletteChange`.
    """
    look = (scheme, px(BASE))
    if app.property("look") == look:
        return  # styling again takes as long as building the window
    from gpudeck.app.widgets.stylesheet import palette, stylesheet

    fonts.load(app)
    t = LIGHT if scheme == "light" else DARK
    app.setProperty("look", look)
    app.setProperty("scheme", scheme)
    app.setFont(font())
    app.setPalette(palette(t))
    app.setStyleSheet(stylesheet(t))


def tokens() -> Tokens:
    """Return the colours of the current scheme."""
    app = QApplication.instance()
    return DARK if app is not None and app.property("scheme") == "dark" else LIGHT


def system_scheme(app: QApplication) -> Scheme:
    """Return the scheme of the desktop; light if it has no preference."""
    return "dark" if app.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"


def mark(widget: QWidget, name: str, value: str) -> None:
    """Set a property that the stylesheet selects by, and restyle the widget if it changed."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        # without `style()`, for the reason given in `application`
        QApplication.sendEvent(widget, QEvent(QEvent.Type.Polish))


def meaning_color(meaning: str) -> str:
    """Return the colour of a meaning: warm, hot, throttled, failed; of accent, muted or text."""
    return cast("str", getattr(tokens(), meaning or "text"))


def owner_colors() -> tuple[str, ...]:
    """Return colours for persons and kinds of things, none of which looks like an alert."""
    first, _alarming, *others = tokens().series
    return (first, *others)


def font(size: int = BASE, *, strong: bool = False) -> QFont:
    """Return the application's font, for example for text that a widget paints itself.

    Its digits have the same width, so that live values do not jump.

    Args:
        size: Pixels at the usual size of text.
    """
    made = QFont(fonts.FAMILY)
    made.setPixelSize(px(size))
    if strong:
        made.setWeight(QFont.Weight.DemiBold)
    return made


def monospace(size: int = BASE) -> QFont:
    """Return the font of logs and code, in which all characters have the same width.

    Args:
        size: Pixels at the usual size of text.
    """
    made = QFont(fonts.MONOSPACE)
    made.setPixelSize(px(size))
    return made


_DEEPEST = 0.8


def shade(share: float) -> QColor:
    """Return a colour between a pale accent, for 0, and the accent, for 1.

    In the dark scheme it ends before the accent, whose light on a whole field of devices would be
    louder than what needs attention.
    """
    low, high = QColor(tokens().accent_soft), QColor(tokens().accent)
    return blend(high, low, (_DEEPEST if tokens() is DARK else 1.0) * share)


def blend(color: QColor, ground: QColor, share: float) -> QColor:
    """Return the colour that `share` of one colour over another has; it covers what is below."""
    mixed = [
        a * share + b * (1 - share)
        for a, b in zip(_channels(color), _channels(ground), strict=True)
    ]
    return QColor.fromRgbF(*mixed)


def readable_on(ground: QColor) -> QColor:
    """Return black or white, whichever contrasts more with the ground."""
    light = luminance(ground) + 0.05
    return QColor("white") if 1.05 / light > light / 0.05 else QColor("black")


def luminance(color: QColor) -> float:
    """Return the relative luminance after WCAG 2."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(color)]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def _channels(color: QColor) -> tuple[float, float, float]:
    return color.redF(), color.greenF(), color.blueF()
