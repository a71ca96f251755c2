"""Edit the parameters of a workload in groups; help is a tooltip, and errors are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QBoxLayout,
    QCheckBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QWidget,
)

from gpudeck.accel.workloads.catalog import Param
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import ElidedLine, grid_layout, label, set_text, set_tooltip
from gpudeck.app.workloads.form import CHOSEN, WorkloadForm, explain

GROUPS = ("Shape", "Precision", "Run")
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
        self._captions: dict[str, QLabel] = {}
        self._groups = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._groups.setContentsMargins(0, 0, 0, 0)
        self._parts: dict[str, QWidget] = {}
        for name in GROUPS:
            if params := [p for p in form.workload.params if p.group == name]:
                self._parts[name] = self._group(name, params)
                self._groups.addWidget(self._parts[name], 1, Qt.AlignmentFlag.AlignTop)
        self.spread(wide=False)
        self.check()

    def spread(self, *, wide: bool) -> None:
        """Lay out the groups side by side, or one below the other."""
        directions = QBoxLayout.Direction
        self._groups.setDirection(directions.LeftToRight if wide else directions.TopToBottom)
        self._groups.setSpacing(theme.XL if wide else theme.M)

    def check(self) -> bool:
        """Show the fields that matter, and what is wrong below them; return True if nothing is."""
        errors, shown = self.form.errors(), self.form.shown()
        for name, note in self.notes.items():
            wrong = errors.get(name, "")
            set_text(note, wrong)
            note.setVisible(bool(wrong))
            theme.mark(self.editors[name], "wrong", "true" if wrong else "")
            for part in (self._captions[name], self.editors[name]):
                part.setVisible(name in shown)
        for group, part in self._parts.items():
            part.setVisible(any(p.group == group and p.name in shown for p in self._params))
        return not errors

    def fill(self, values: Mapping[str, str]) -> None:
        """Put values into the fields, as if they had been typed or chosen."""
        for name, value in values.items():
            editor = self.editors[name]
            if isinstance(editor, QComboBox):
                editor.setCurrentText(value)
            elif isinstance(editor, QCheckBox):
                editor.setChecked(value == "yes")
            elif isinstance(editor, QLineEdit):
                editor.setText(value)

    @property
    def _params(self) -> tuple[Param, ...]:
        return self.form.workload.params

    def _group(self, name: str, params: Iterable[Param]) -> QWidget:
        """Return a titled grid with a line for each parameter."""
        part = QWidget()
        grid = grid_layout(part, vertical=_BETWEEN)
        grid.setColumnStretch(1, 1)
        grid.setColumnMinimumWidth(0, self._caption_width())
        grid.addWidget(label(tr(name), size="small", meaning="muted", strong=True), 0, 0, 1, 2)
        for at, param in enumerate(params):
            editor, note = self._editor(param), label(size="small", meaning="failed", wrap=True)
            caption = label(tr(param.label))
            caption.setBuddy(editor)
            set_tooltip(caption, explain(param))
            editor.setAccessibleName(tr(param.label))
            editor.setAccessibleDescription(explain(param))
            set_tooltip(editor, explain(param))
            self.editors[param.name], self.notes[param.name] = editor, note
            self._captions[param.name] = caption
            grid.addWidget(caption, 2 * at + 1, 0)
            grid.addWidget(editor, 2 * at + 1, 1)
            grid.addWidget(note, 2 * at + 2, 0, 1, 2)
            note.hide()
        return part

    def _caption_width(self) -> int:
        """Return the width of the widest caption, so that all editors begin at the same place."""
        metrics = self.fontMetrics()
        return max(metrics.horizontalAdvance(tr(p.label)) for p in self._params) + theme.S

    def _editor(self, param: Param) -> QWidget:
        value = self.form.typed(param.name)
        if param.kind == "choice":
            box = QComboBox()
            box.setMinimumContentsLength(1)  # it is as wide as its column, not as its choices
            box.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
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
        line = ElidedLine(value) if param.kind in ("ints", "choices") else QLineEdit(value)
        line.setPlaceholderText(CHOSEN if param.auto else "")
        line.setMinimumWidth(theme.px(48))
        line.textChanged.connect(self._setter(param))
        return line

    def _setter(self, param: Param) -> Callable[[str], None]:
        def put(value: str) -> None:
            self.form.set(param.name, value)
            self.check()
            self.changed.emit()

        return put
