"""Edit one setting, with its help and what is wrong with the text beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from PySide6.QtCore import QObject, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QComboBox, QFileDialog, QLineEdit, QWidget

from gpudeck.app.format.sources import RECORDING, source_name
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.settings.form import CHOICES, Setting, change, first_sentence, text_of
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    ElidedLine,
    Stretch,
    button,
    grid_layout,
    label,
    row,
    set_tooltip,
    show_if_any,
)
from gpudeck.app.widgets.icon_button import IconButton
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.progress import printable
from gpudeck.scheduler.protocol.settings import Settings

W = TypeVar("W", bound=QWidget)
_BRIEF_WIDTH, _ABOVE = 210, 9
"""Pixels of the editor of a brief row, and of the room above and below one with its help."""
_NARROW, _NARROWEST = 560, 420
"""Pixels of a row below which the help is below the editor, not beside it, and below which the
editor is below the caption."""
_STACKED = 2
"""The shape of a row that is narrower than _NARROWEST."""
_EDITOR_WIDTH, _NUMBER_WIDTH = 290, 66
"""Pixels of an editor, and of one of numbers, whose unit stands beside it."""
_LEAST = 170
"""Pixels of the least width of a row."""


class SettingRow(QWidget):
    """Edit a setting. Emits `entered` with the text once the user has finished it.

    A button, shown while the value is not the default, enters the default.
    """

    entered = Signal(str)

    def __init__(self, setting: Setting, brief: bool = False) -> None:
        """Make the row; a `brief` one has one line, and its help on hover."""
        super().__init__()
        self.setting = setting
        self.error = label(size="small", meaning="failed", wrap=True)
        self.error.hide()
        self._help: QWidget | None = None
        self.title, self.whole_help = tr(setting.title), tr(setting.help)
        self._brief = first_sentence(self.whole_help)
        self.help = label(self._brief, size="small", meaning="muted", wrap=True)
        self.more = IconButton("info", tr("More about {setting}", setting=self.title))
        self.more.setCheckable(True)
        self.more.clicked.connect(self._explain)
        self.box: QComboBox | None = None
        self.line: QLineEdit | None = None
        editor = self._editor()
        editor.setFixedWidth(theme.px(_BRIEF_WIDTH if brief else _EDITOR_WIDTH))
        caption = label(self.title, wrap=True)
        caption.setBuddy(editor)
        default = text_of(Settings(), setting)
        shown = default or tr("none")
        self.reset = IconButton(
            "again",
            tr("Reset {setting}", setting=self.title),
            tr("Set {setting} to its default: {value}", setting=self.title, value=shown),
        )
        self.reset.clicked.connect(lambda: self.entered.emit(default))
        keeps = self.reset.sizePolicy()
        keeps.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(keeps)
        self.reset.hide()
        self._default = self._shown = default
        grid = grid_layout(self, theme.M, 2)
        grid.setColumnStretch(0, 1)
        if brief:
            grid.addWidget(caption, 0, 0, 2, 1, Qt.AlignmentFlag.AlignVCenter)
            set_tooltip(self, self.whole_help)
            keeps.setRetainSizeWhenHidden(False)
            self.reset.setSizePolicy(keeps)
        else:
            named = row(caption, self.more, Stretch(), spacing=theme.XS)
            grid.addLayout(named, 0, 0)
            # The button is in the row now: shown before, it would be a window that takes the keys.
            self.more.setVisible(self._brief != self.whole_help)
            self._help = self.help
            grid.setContentsMargins(0, _ABOVE, 0, _ABOVE)
        self._grid, self._edited, self._shape = grid, editor, 0
        self._place()
        grid.addWidget(self.error, 3, 0, 1, 3)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._help is None:
            return
        self._edited.setFixedWidth(min(theme.px(_EDITOR_WIDTH), self.width()))
        shape = sum(self.width() < theme.px(least) for least in (_NARROW, _NARROWEST))
        if shape != self._shape:
            self._shape = shape
            self._place()

    def minimumSizeHint(self) -> QSize:
        """Need less width than now: the editor shrinks where there is little room."""
        hint = super().minimumSizeHint()
        least = theme.px(_LEAST)
        return hint if self._help is None else QSize(min(hint.width(), least), hint.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a line above the setting, unless it is the first one that is shown."""
        super().paintEvent(event)
        if self._help is not None and self.y() > theme.XL:
            line = QRect(0, 0, self.width(), 1)
            QPainter(self).fillRect(line, QColor(theme.tokens().grid))

    def _place(self) -> None:
        """Put the help beside the editor, or below it, or all of them below the caption."""
        grid, top = self._grid, Qt.AlignmentFlag.AlignTop
        if self._shape < _STACKED:
            lines, width = (1, 3) if self._shape else (2, 1)
            grid.addWidget(self._edited, 0, 1, lines, 1, top)
            grid.addWidget(self.reset, 0, 2, lines, 1, top)
            if self._help is not None:
                grid.addWidget(self._help, 1, 0, 1, width)
        elif self._help is not None:
            grid.addWidget(self.reset, 0, 2, top)
            grid.addWidget(self._edited, 1, 0, 1, 3, top)
            grid.addWidget(self._help, 2, 0, 1, 3)

    def _explain(self) -> None:
        """Show the whole help, or its first sentence."""
        whole = self.more.isChecked()
        self.help.setText(self.whole_help if whole else self._brief)

    def matches(self, words: Sequence[str]) -> bool:
        """Report if the setting's texts contain every word, in lower case."""
        setting = self.setting
        texts = (setting.title, setting.help, setting.group, setting.unit)
        searched = " ".join((setting.name, *texts, *(tr(text) for text in texts))).lower()
        return all(word in searched for word in words)

    def text(self) -> str:
        """Return the text of the editor."""
        if self.box is not None:
            chosen = self.box.currentData()
            return self.box.currentText() if self.line is not None or chosen is None else chosen
        return self.line.text() if self.line is not None else ""

    def show_text(self, text: str) -> None:
        """Show the current value, unless the user is typing or has typed something wrong."""
        self._shown = text
        self.reset.setVisible(text != self._default)
        typing = self.line is not None and self.line.hasFocus()
        if self.text() == text or typing or self.error.isVisibleTo(self):
            return
        if self.box is not None and self.line is None:
            self._show_choice(text)
        elif self.box is not None:
            self.box.setCurrentIndex(-1)
            self.box.setCurrentText(text)
        elif self.line is not None:
            self.line.setText(text)
        if self.line is not None:
            self.line.setCursorPosition(0)  # show the beginning of a long text

    def submit(
        self,
        text: str,
        state: State,
        owner: QObject,
        link: Link,
        taken: Callable[[Settings], None],
    ) -> None:
        """Send the setting with this text to the daemon, or show why that is not possible.

        Args:
            text: what the user entered.
            state: the settings as they are.
            owner: the page that the row is on, whose end drops the reply.
            link: what carries the request.
            taken: called with the new settings.
        """
        if state.snapshot is None:
            self.show_error(tr("The daemon does not answer. Try again once it does."))
            return
        try:
            request = change(state.snapshot.settings, self.setting, text)
        except UserError as e:
            self.show_error(tr_text(e.message))
            return
        self.clear_error()
        if request is not None:
            link.send(owner, request, taken, self.show_error)

    def show_error(self, message: str) -> None:
        """Show what is wrong with the text."""
        show_if_any(self.error, message)

    def clear_error(self) -> None:
        """Hide the error."""
        self.error.hide()

    def _editor(self) -> QWidget:
        match self.setting.kind:
            case "choice" | "switch":
                return self._choice()
            case "source":
                return self._source_choice()
            case "list":
                return self._list()
        line = self.line = self._new_line()
        holder = QWidget()
        if self.setting.unit:
            line.setFixedWidth(theme.px(_NUMBER_WIDTH))
            holder.setLayout(
                row(line, Stretch(label(tr(self.setting.unit), meaning="muted", wrap=True)))
            )
        elif self.setting.kind == "folder":
            holder.setLayout(row(Stretch(line), button(tr("Browse…"), self._browse)))
        else:
            holder.setLayout(row(Stretch(line)))
        holder.setFocusProxy(line)
        return holder

    def _choice(self) -> QComboBox:
        box = self.box = self._named(QComboBox())
        values = ("on", "off") if self.setting.kind == "switch" else self.setting.choices
        for value in values:
            box.addItem(tr(CHOICES[value]), value)
        box.textActivated.connect(self._finish)
        return box

    def _list(self) -> QComboBox:
        """Return a line of names between commas, to which those that are offered can be added."""
        box = self.box = self._named(QComboBox())
        box.setEditable(True)
        box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.line = self._new_line()
        box.setLineEdit(self.line)
        box.activated.connect(self._add)
        return box

    def offer(self, names: dict[str, str]) -> None:
        """Offer names that can be added to a list, each with what people know it by."""
        box = self.box
        assert box is not None
        names = {name: printable(known) for name, known in names.items()}
        if names == {box.itemData(i): box.itemText(i) for i in range(box.count())}:
            return
        text = box.currentText()
        box.clear()
        for name, known in names.items():
            box.addItem(known, name)
        box.setCurrentIndex(-1)
        box.setCurrentText(text)

    def _add(self, at: int) -> None:
        """Add the chosen name to the list, or take it off where it is there."""
        assert self.box is not None
        chosen = self.box.itemData(at)
        names = [name.strip() for name in self._shown.split(",") if name.strip()]
        rest = [name for name in names if name != chosen]
        whole = ", ".join(rest if len(rest) < len(names) else [*names, chosen])
        self.box.setCurrentIndex(-1)
        self.box.setCurrentText(whole)
        self.entered.emit(whole)

    def _source_choice(self) -> QComboBox:
        """Return a box of sources in words; a recording is added where it is the source."""
        box = self.box = self._named(QComboBox())
        for value in self.setting.choices:
            box.addItem(source_name(value), value)
        box.addItem(tr("Open a recording…"), RECORDING)
        box.textActivated.connect(self._choose_source)
        return box

    def _choose_source(self) -> None:
        """Enter the chosen source, or that of a file for which the user is asked."""
        chosen = self.text()
        if chosen != RECORDING:
            self.entered.emit(chosen)
            return
        self._show_choice(self._shown)
        recordings = tr("Recordings ({pattern})", pattern="*.trace.gz")
        file, _ = QFileDialog.getOpenFileName(self, self.title, "", recordings)
        if file:
            self.entered.emit(RECORDING + file)

    def _show_choice(self, value: str) -> None:
        """Show a value of the box, and first add a source that it does not have yet."""
        box = self.box
        assert box is not None
        if box.findData(value) < 0:
            at = box.count() - 1
            box.insertItem(at, source_name(value), value)
            box.setItemData(at, value, Qt.ItemDataRole.ToolTipRole)
        box.setCurrentIndex(box.findData(value))
        set_tooltip(box, value.removeprefix(RECORDING) if value.startswith(RECORDING) else "")

    def _new_line(self) -> QLineEdit:
        line = self._named(ElidedLine())
        line.setPlaceholderText(tr("not set"))
        line.editingFinished.connect(self._finish)
        return line

    def _named(self, editor: W) -> W:
        """Give the editor a name and a description for screen readers."""
        editor.setAccessibleName(self.title)
        editor.setAccessibleDescription(self.whole_help)
        return editor

    def _finish(self) -> None:
        self.entered.emit(self.text())

    def _browse(self) -> None:
        if self.line is None:
            return
        folder = QFileDialog.getExistingDirectory(self, tr("Model folder"), self.line.text())
        if folder:
            self.line.setText(folder)
            self._finish()
