"""Find the texts of a widget, texts that are clipped, and controls without a name."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QColor
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QComboBox,
    QHeaderView,
    QLabel,
    QLineEdit,
    QScrollArea,
    QScrollBar,
    QSplitterHandle,
    QStackedWidget,
    QWidget,
)

from gpudeck.app.widgets.controls import ElidedLabel

_ARROW_ROOM = 24
"""Pixels of a box beside its text."""
CONTROLS = (QAbstractButton, QComboBox, QLineEdit, QAbstractItemView, QAbstractSlider)


def texts(widget: QWidget) -> str:
    """Return all text that can be read on the widget now."""
    found = widget.findChildren(QLabel) + widget.findChildren(QAbstractButton)
    return "\n".join(w.text() for w in found if w.isVisible())


def contrast(one: str, other: str) -> float:
    """Return the WCAG 2 contrast ratio of two colours."""

    def luminance(color: str) -> float:
        channels = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
            for c in QColor(color).getRgbF()[:3]
        ]
        return float(np.dot(channels, (0.2126, 0.7152, 0.0722)))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def clipped(window: QWidget) -> list[str]:
    """List the visible texts that have less room than they need, except those made to be elided."""
    found = []
    for widget in window.findChildren(QWidget):
        if (
            not isinstance(widget, QLabel | QAbstractButton | QComboBox | QLineEdit)
            or not widget.isVisible()
            or isinstance(widget, ElidedLabel)
        ):
            continue
        if isinstance(widget, QComboBox):  # its hint is for the longest of its texts
            shown = widget.fontMetrics().horizontalAdvance(widget.currentText())
            if widget.width() < shown + _ARROW_ROOM:
                found.append(f"QComboBox {widget.currentText()!r}: {widget.width()} of {shown}")
            continue
        need, have = (
            widget.minimumSizeHint() if isinstance(widget, QLineEdit) else widget.sizeHint(),
            widget.size(),
        )
        high = (
            widget.heightForWidth(have.width())
            if isinstance(widget, QLabel) and widget.wordWrap()
            else need.height()
        )
        wide = 0 if isinstance(widget, QLabel) and widget.wordWrap() else need.width()
        if have.width() < wide or have.height() < high:
            text = getattr(widget, "text", lambda: "")()
            found.append(f"{type(widget).__name__} {text!r}: {have} of {wide} x {high}")
    return found


def overlapping(window: QWidget) -> list[str]:
    """List the visible texts and controls of one parent that cover each other."""
    found = []
    kinds = (QLabel, QAbstractButton, QComboBox, QLineEdit, QAbstractItemView)
    by_parent: dict[QWidget, list[QWidget]] = {}
    for widget in window.findChildren(QWidget):
        parent = widget.parentWidget()
        if isinstance(widget, kinds) and widget.isVisible() and parent is not None:
            by_parent.setdefault(parent, []).append(widget)
    for parent, widgets in by_parent.items():
        if isinstance(parent, QLineEdit | QComboBox | QAbstractItemView | QStackedWidget):
            continue  # a part of a control lies in it
        for at, one in enumerate(widgets):
            for other in widgets[at + 1 :]:
                if one.geometry().intersects(other.geometry()):
                    names = [
                        f"{type(w).__name__} {getattr(w, 'text', str)()!r}" for w in (one, other)
                    ]
                    found.append(f"{names[0]} and {names[1]}")
    return found


def sideways(window: QWidget) -> list[str]:
    """List the visible areas that have less width than their content needs."""
    return [
        area.accessibleName() or type(area).__name__
        for area in window.findChildren(QScrollArea)
        if area.isVisible() and area.widget().width() > area.viewport().width()
    ]


def _named(widget: QWidget) -> str:
    return f"{type(widget).__name__} {getattr(widget, 'text', str)()!r}"


def accessible_name(widget: QWidget) -> str:
    """Return the name that a screen reader reads out for the widget."""
    interface = QAccessible.queryAccessibleInterface(widget)
    return interface.text(QAccessible.Text.Name).strip() if interface else ""


def focusable(widget: QWidget) -> bool:
    """Report if the widget can have the keyboard focus itself."""
    return (
        widget.isEnabled()
        and widget.focusPolicy() != Qt.FocusPolicy.NoFocus
        and widget.focusProxy() is None
    )


def nameless(window: QWidget) -> list[str]:
    """List the visible controls that have no accessible name."""
    found = []
    for widget in window.findChildren(QWidget):
        if not widget.isVisible() or isinstance(widget, QScrollBar | QSplitterHandle | QHeaderView):
            continue
        if isinstance(widget.parent(), QComboBox) or (
            isinstance(widget.parentWidget(), QAbstractItemView)
            and not isinstance(widget, CONTROLS)
        ):
            continue  # a part of a control that has a name
        if (isinstance(widget, CONTROLS) or focusable(widget)) and not accessible_name(widget):
            parent = type(widget.parentWidget()).__name__
            found.append(f"{type(widget).__name__} {widget.objectName()} in {parent}")
    return found
