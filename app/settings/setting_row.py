"""One setting: its name, its editor, what it does, and what is wrong with what was typed."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QGridLayout, QLineEdit, QWidget

from app.settings.form import Setting
from app.widgets import theme
from app.widgets.controls import button, label, row, set_text

W = TypeVar("W", bound=QWidget)
_CAPTION_WIDTH, _EDITOR_WIDTH = 150, 260


class SettingRow(QWidget):
    """Emits `entered` with the text once the user has finished with it."""

    entered = Signal(str)

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.error = label(size="small", meaning="failed", wrap=True)
        self.error.hide()
        self.box: QComboBox | None = None
        self.line: QLineEdit | None = None
        editor = self._editor()
        editor.setFixedWidth(_EDITOR_WIDTH)
        caption = label(setting.title)
        caption.setFixedWidth(_CAPTION_WIDTH)
        caption.setBuddy(editor)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(theme.M)
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(2, 1)
        grid.addWidget(caption, 0, 0)
        grid.addWidget(editor, 0, 1)
        grid.addWidget(label(setting.help, size="small", meaning="muted", wrap=True), 0, 2)
        grid.addWidget(self.error, 1, 1, 1, 2)

    def text(self) -> str:
        if self.box is not None:
            return self.box.currentText()
        return self.line.text() if self.line is not None else ""

    def show_text(self, text: str) -> None:
        """The value in force. What the user is typing, or typed wrong, is left alone."""
        if (
            self.text() == text
            or self.error.isVisibleTo(self)
            or (self.line is not None and self.line.hasFocus())
        ):
            return
        if self.box is not None:
            self.box.setCurrentText(text)
        elif self.line is not None:
            self.line.setText(text)
        if self.line is not None:
            self.line.setCursorPosition(0)  # of a long one its beginning is seen

    def show_error(self, message: str) -> None:
        set_text(self.error, message)
        self.error.setVisible(bool(message))

    def _editor(self) -> QWidget:
        if self.setting.kind in ("choice", "open choice", "switch"):
            return self._choice()
        self.line = self._named(QLineEdit())
        self.line.editingFinished.connect(self._finish)
        if self.setting.kind == "folder":
            browse = button("Browse…")
            browse.clicked.connect(self._browse)
            return _together(self.line, browse)
        return _together(self.line, label(self.setting.unit, meaning="muted"))

    def _named(self, editor: W) -> W:
        """What a screen reader says of it."""
        editor.setAccessibleName(self.setting.title)
        editor.setAccessibleDescription(self.setting.help)
        return editor

    def _choice(self) -> QComboBox:
        box = self.box = self._named(QComboBox())
        box.addItems(["on", "off"] if self.setting.kind == "switch" else list(self.setting.choices))
        box.textActivated.connect(self._finish)
        if self.setting.kind == "open choice":
            box.setEditable(True)
            box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
            self.line = self._named(QLineEdit())
            self.line.editingFinished.connect(self._finish)
            box.setLineEdit(self.line)
        return box

    def _finish(self) -> None:
        self.entered.emit(self.text())

    def _browse(self) -> None:
        if self.line is not None and (
            folder := QFileDialog.getExistingDirectory(self, "Model folder", self.line.text())
        ):
            self.line.setText(folder)
            self._finish()


def _together(first: QWidget, second: QWidget) -> QWidget:
    holder = QWidget()
    layout = row(first, second)
    layout.setStretch(0, 1)
    holder.setLayout(layout)
    holder.setFocusProxy(first)
    return holder
