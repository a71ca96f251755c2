"""Show a line a parameter of a workload, with its help or what is wrong with its value below."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QGridLayout, QLabel, QLineEdit, QWidget

from accel.workloads.catalog import Param
from app.widgets import theme
from app.widgets.controls import label, set_text
from app.workloads.form import WorkloadForm

_EDITOR_WIDTH = 150
_BETWEEN = 5
"""Pixels between two parameters."""


class WorkloadFormView(QWidget):
    """Edit the form. Emits `changed` after each keystroke."""

    changed = Signal()

    def __init__(self, form: WorkloadForm) -> None:
        super().__init__()
        self.form = form
        self.editors: dict[str, QWidget] = {}
        self.notes: dict[str, QLabel] = {}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(theme.S)
        grid.setVerticalSpacing(1)
        grid.setColumnStretch(0, 2)
        grid.setColumnStretch(1, 3)
        for at, param in enumerate(form.workload.params):
            editor = self._editor(param)
            note = label(param.help, size="small", meaning="muted", wrap=True)
            caption = label(param.label, wrap=True)
            caption.setBuddy(editor)
            editor.setMaximumWidth(theme.px(_EDITOR_WIDTH))
            editor.setAccessibleName(param.label)
            editor.setToolTip(param.help)
            self.editors[param.name], self.notes[param.name] = editor, note
            line = 3 * at
            grid.addWidget(caption, line, 0)
            grid.addWidget(editor, line, 1)
            grid.addWidget(note, line + 1, 0, 1, 2)
            grid.setRowMinimumHeight(line + 2, _BETWEEN)
        self.check()

    def check(self) -> bool:
        """Show what is wrong below each field; return True if nothing is."""
        errors = self.form.errors()
        for param in self.form.workload.params:
            wrong, note = errors.get(param.name), self.notes[param.name]
            set_text(note, wrong or param.help)
            theme.mark(note, "meaning", "failed" if wrong else "muted")
            theme.mark(self.editors[param.name], "wrong", "true" if wrong else "")
        return not errors

    def _editor(self, param: Param) -> QWidget:
        value = self.form.values[param.name]
        if param.kind == "choice":
            box = QComboBox()
            box.addItems(list(param.choices))
            box.setCurrentText(value)
            box.currentTextChanged.connect(self._setter(param))
            return box
        if param.kind == "flag":
            check = QCheckBox()
            check.setChecked(value == "yes")
            setter = self._setter(param)
            check.toggled.connect(lambda on: setter("yes" if on else "no"))
            return check
        line = QLineEdit(value)
        line.setCursorPosition(0)  # show the beginning of a long list
        line.textChanged.connect(self._setter(param))
        return line

    def _setter(self, param: Param) -> Callable[[str], None]:
        def put(value: str) -> None:
            self.form.set(param.name, value)
            self.check()
            self.changed.emit()

        return put
