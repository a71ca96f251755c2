"""A person at the window: events that come through the platform's window, at places of widgets."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.jobs.table import NAME

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


class Person:
    """A person who knows only the screen, and acts on places of the window."""

    def __init__(self, fed: Any) -> None:
        self.fed, self.window = fed, fed.window
        QTest.qWaitForWindowExposed(self.window)
        self.window.activateWindow()
        fed.settle()

    def place(self, widget: QWidget, x: float = 0.5, y: float = 0.5) -> QPoint:
        assert widget.isVisible(), widget
        return widget.mapTo(self.window, QPoint(int(widget.width() * x), int(widget.height() * y)))

    def click(self, widget: QWidget, x: float = 0.5, y: float = 0.5) -> None:
        QTest.mouseClick(self.window.windowHandle(), LEFT, NONE, self.place(widget, x, y))
        self.fed.settle()

    def drag(self, widget: QWidget, start: float, end: float) -> None:
        handle, steps = self.window.windowHandle(), 8
        QTest.mousePress(handle, LEFT, NONE, self.place(widget, start))
        for i in range(1, steps + 1):
            QTest.mouseMove(handle, self.place(widget, start + (end - start) * i / steps))
            QTest.qWait(15)  # what is dragged looks at the time between two events
        QTest.mouseRelease(handle, LEFT, NONE, self.place(widget, end))
        self.fed.settle()

    def wheel(self, widget: QWidget, notches: int) -> None:
        at = QPointF(self.place(widget))
        turned = QPoint(0, 120 * notches)
        event = QWheelEvent(
            at,
            self.window.mapToGlobal(at),
            QPoint(),
            turned,
            Qt.MouseButton.NoButton,
            NONE,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(self.window.windowHandle(), event)
        self.fed.settle()

    def key(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = NONE) -> None:
        QTest.keyClick(self.window.windowHandle(), key, modifiers)
        self.fed.settle()

    def type(self, text: str) -> None:
        for letter in text:
            QTest.keyClick(self.window.windowHandle(), letter)
        self.fed.settle()

    def click_row(
        self, name: str, inside: float = 0.5, modifiers: Qt.KeyboardModifier = NONE
    ) -> None:
        """Click the row of the jobs whose name contains `name`."""
        table, model = self.window.jobs.table, self.window.jobs.model
        at = next(i for i in range(model.rowCount()) if name in model.data(model.index(i, NAME)))
        box = table.visualRect(model.index(at, NAME))
        place = QPoint(box.left() + int(inside * box.width()), box.center().y())
        handle = self.window.windowHandle()
        QTest.mouseClick(handle, LEFT, modifiers, table.viewport().mapTo(self.window, place))
        self.fed.settle()
