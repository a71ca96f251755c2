"""Edit the presets in a table of names and prompts."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHeaderView, QTableWidget, QTableWidgetItem, QWidget

from gpudeck.app.assistant.presets import Preset
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, button, column, label, row

_PRESET = Qt.ItemDataRole.UserRole
"""Where an item of the table keeps the preset that it shows."""


class PresetEditor(QWidget):
    """Edit the presets."""

    finished = Signal(object)
    """The user has finished; carries a tuple of `Preset`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = QTableWidget(0, 2)
        self.table.setAccessibleName(tr("Presets"))
        self.table.setHorizontalHeaderLabels([tr("Name"), tr("Prompt")])
        self.table.verticalHeader().hide()
        self.table.setShowGrid(False)
        self.table.setSelectionBehavior(self.table.SelectionBehavior.SelectRows)
        self.table.setTabKeyNavigation(False)
        self.table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Interactive)
        self.table.horizontalHeader().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        self.table.horizontalHeader().setDefaultAlignment(
            Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        )
        self.table.setColumnWidth(0, 180)
        self.add = button(tr("Add"), tooltip=tr("Add a preset"))
        self.add.clicked.connect(self._add)
        self.remove = button(tr("Remove"), tooltip=tr("Remove the selected preset"))
        self.remove.clicked.connect(self._remove)
        self.done = button(tr("Done"), kind="primary", tooltip=tr("Save the presets"))
        self.done.clicked.connect(lambda: self.finished.emit(self.presets()))
        buttons = row(self.add, self.remove, self.done)
        buttons.insertStretch(2, 1)
        self.setLayout(
            column(
                label(tr("Presets"), size="large"),
                label(
                    tr("Prompts that you use often. Press Enter or F2 to edit a cell."),
                    meaning="muted",
                    wrap=True,
                ),
                Stretch(self.table),
                buttons,
                spacing=theme.M,
            )
        )

    def show_presets(self, presets: tuple[Preset, ...]) -> None:
        """Show these presets."""
        self.table.setRowCount(0)
        for preset in presets:
            self._put(preset)
        self.table.setCurrentCell(0, 0)
        self.table.setFocus()

    def presets(self) -> tuple[Preset, ...]:
        """Return the presets that have a prompt; the first words name one without a name.

        A prompt that was edited is read anew; the others keep their queries.
        """
        found = []
        for line in range(self.table.rowCount()):
            name, text = (
                (item.text().strip() if (item := self.table.item(line, c)) else "") for c in (0, 1)
            )
            if text:
                item = self.table.item(line, 1)
                shown: Preset | None = item.data(_PRESET) if item else None
                query = shown.query if shown is not None and shown.text == text else None
                found.append(Preset(name or " ".join(text.split()[:4]), text, query))
        return tuple(found)

    def _put(self, preset: Preset) -> None:
        line = self.table.rowCount()
        self.table.insertRow(line)
        for at, text in enumerate((preset.name, preset.text)):
            item = QTableWidgetItem(text)
            item.setData(_PRESET, preset)
            self.table.setItem(line, at, item)

    def _add(self) -> None:
        self._put(Preset("", ""))
        line = self.table.rowCount() - 1
        self.table.setCurrentCell(line, 0)
        self.table.edit(self.table.model().index(line, 0))

    def _remove(self) -> None:
        self.table.removeRow(self.table.currentRow())
