"""Edit one setting, with its help and what is wrong with the text beside it."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QGridLayout, QLineEdit, QWidget

from app.settings.form import Setting
from app.widgets import theme
from app.widgets.controls import Stretch, button, label, row, show_if_any

W = TypeVar("W", bound=QWidget)
_CAPTION_WIDTH, _EDITOR_WIDTH = 150, 260


class SettingRow(QWidget):
    """Edit a setting. Emits `entered` with the text once the user has finished it."""

    entered = Signal(str)

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.error = label(size="small", meaning="failed", wrap=True)
        self.error.hide()
        self.box: QComboBox | None = None
        self.line: QLineEdit | None = None
        editor = self._editor()
        editor.setFixedWidth(theme.px(_EDITOR_WIDTH))
        caption = label(setting.title)
        caption.setFixedWidth(theme.px(_CAPTION_WIDTH))
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
        """Return the text of the editor."""
        if self.box is not None:
            return self.box.currentText()
        return self.line.text() if self.line is not None else ""

    def show_text(self, text: str) -> None:
        """Show the current value, unless the user is typing or has typed something wrong."""
        typing = self.line is not None and self.line.hasFocus()
        if self.text() == text or typing or self.error.isVisibleTo(self):
            return
        if self.box is not None:
            self.box.setCurrentText(text)
        elif self.line is not None:
            self.line.setText(text)
        if self.line is not None:
            self.line.setCursorPosition(0)  # show the beginning of a long text

    def show_error(self, message: str) -> None:
        """Show what is wrong with the text."""
        show_if_any(self.error, message)

    def clear_error(self) -> None:
        """Hide the error."""
        self.error.hide()

    def _editor(self) -> QWidget:
        if self.setting.kind in ("choice", "open choice", "switch"):
            return self._choice()
        line = self.line = self._new_line()
        beside: QWidget = label(self.setting.unit, meaning="muted")
        if self.setting.kind == "folder":
            beside = button("Browse…", self._browse)
        holder = QWidget()
        holder.setLayout(row(Stretch(line), beside))
        holder.setFocusProxy(line)
        return holder

    def _choice(self) -> QComboBox:
        box = self.box = self._named(QComboBox())
        box.addItems(["on", "off"] if self.setting.kind == "switch" else list(self.setting.choices))
        box.textActivated.connect(self._finish)
        if self.setting.kind == "open choice":
            box.setEditable(True)
            box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
            self.line = self._new_line()
            box.setLineEdit(self.line)
        return box

    def _new_line(self) -> QLineEdit:
        line = self._named(QLineEdit())
        line.editingFinished.connect(self._finish)
        return line

    def _named(self, editor: W) -> W:
        """Give the editor a name and a description for screen readers."""
        editor.setAccessibleName(self.setting.title)
        editor.setAccessibleDescription(self.setting.help)
        return editor

    def _finish(self) -> None:
        self.entered.emit(self.text())

    def _browse(self) -> None:
        if self.line is None:
            return
        folder = QFileDialog.getExistingDirectory(self, "Model folder", self.line.text())
        if folder:
            self.line.setText(folder)
            self._finish()
