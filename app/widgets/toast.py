"""Show notices over the lower right corner of the window, each for some seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QUrl, Signal
from PySide6.QtGui import QColor, QDesktopServices, QEnterEvent
from PySide6.QtWidgets import QFrame, QGraphicsDropShadowEffect, QPushButton, QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, delay, label, row

_WIDEST = 420
_MOST = 3
"""Toasts that are shown at once; an older one makes room."""


class Toast(QFrame):
    """Show one notice with its buttons. It stays while the pointer is on it."""

    closed = Signal()

    def __init__(
        self, text: str, actions: list[tuple[str, Callable[[], object]]], seconds: float
    ) -> None:
        super().__init__()
        self.setProperty("toast", "true")
        self.notice: object = None
        """What the toast was made for, by which it can be withdrawn."""
        self.text = label(text, wrap=True)
        self.setAccessibleName(text)
        self.buttons: dict[str, QPushButton] = {}
        for title, act in actions:
            made = self.buttons[title] = button(title, kind="link")
            made.clicked.connect(lambda _=False, act=act: self._act(act))
        self.close_button = button("✕", self.dismiss, kind="quiet", tooltip=tr("Dismiss"))
        self.close_button.setAccessibleName(tr("Dismiss the message"))
        self.setLayout(
            row(
                Stretch(self.text),
                *self.buttons.values(),
                self.close_button,
                margins=(theme.L, theme.S, theme.S, theme.S),
            )
        )
        self.setGraphicsEffect(shadow(self))
        self.timer = delay(self, round(1000 * seconds), self.dismiss)
        self.timer.start()

    def dismiss(self) -> None:
        """Remove the toast."""
        self.timer.stop()
        self.closed.emit()

    def enterEvent(self, event: QEnterEvent) -> None:
        self.timer.stop()
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self.timer.start()
        super().leaveEvent(event)

    def _act(self, act: Callable[[], object]) -> None:
        self.dismiss()
        act()


class ToastStack(QWidget):
    """Hold the toasts of a window, the newest at the bottom."""

    def __init__(self, window: QWidget, margin: int) -> None:
        """Show toasts in the corner of `window`, `margin` pixels above its lower edge."""
        super().__init__(window)
        self._window, self._margin = window, margin
        self.toasts: list[Toast] = []
        self._layout = column()
        self.setLayout(self._layout)
        window.installEventFilter(self)
        self.hide()

    def show_text(
        self,
        text: str,
        actions: list[tuple[str, Callable[[], object]]],
        seconds: float,
        file: str = "",
    ) -> Toast:
        """Show a notice.

        Args:
            actions: The titles of buttons, and what they do.
            seconds: How long it is shown.
            file: A file that was written: it gets Open and Show in folder.
        """
        if file:
            path = Path(file).absolute()
            actions = [
                *actions,
                (tr("Open"), lambda: open_path(path)),
                (tr("Show in folder"), lambda: open_path(path.parent)),
            ]
        made = Toast(text, actions, seconds)
        made.closed.connect(lambda: self._remove(made))
        self.toasts.append(made)
        self._layout.addWidget(made)
        made.show()  # a hidden widget would take no room
        while len(self.toasts) > _MOST:
            self.toasts[0].dismiss()
        self.show()
        self._place()
        return made

    def withdraw(self, notice: object) -> None:
        """Remove the toast of a notice that no longer holds."""
        for toast in [toast for toast in self.toasts if toast.notice is notice]:
            toast.dismiss()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.toasts:
            self._place()
        return False

    def _remove(self, toast: Toast) -> None:
        if toast in self.toasts:
            self.toasts.remove(toast)
            self._layout.removeWidget(toast)
            toast.hide()
            toast.deleteLater()
            self.setVisible(bool(self.toasts))
            self._place()

    def _place(self) -> None:
        parent = self._window
        width = min(_WIDEST, parent.width() - 2 * theme.L)
        self._layout.activate()
        height = self._layout.heightForWidth(width) if self.toasts else 0
        height = max(height, self._layout.sizeHint().height() if height < 0 else height)
        self.setGeometry(
            parent.width() - width - theme.L,
            parent.height() - height - self._margin,
            width,
            height,
        )
        self.raise_()


def shadow(owner: QWidget) -> QGraphicsDropShadowEffect:
    """Return the shadow of what floats over the window."""
    made = QGraphicsDropShadowEffect(owner)
    made.setBlurRadius(24)
    made.setOffset(0, 4)
    made.setColor(QColor(0, 0, 0, 90))
    return made


def open_path(path: Path) -> None:
    """Open a file or a folder with the program that the desktop has for it."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
