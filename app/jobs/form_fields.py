"""The fields of the form of a job: the few that most jobs need, and the others on demand."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QFileDialog,
    QGridLayout,
    QLabel,
    QLineEdit,
    QWidget,
)

from gpudeck.app.jobs.amount_editors import MemorySlider, Stepper
from gpudeck.app.jobs.form import FIELDS, HERE, LIMITS, MAIN, WHOLE_ROWS, Field
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    clear_panel,
    column,
    grid_layout,
    label,
    row,
    set_tooltip,
    show_if_any,
)
from gpudeck.language.text import Message


class JobFields(QWidget):
    """Edit the fields of a job, each with a line below it for what is wrong or good to know."""

    changed = Signal(str, str)
    """Carries the name of a field and its new text."""

    def __init__(self) -> None:
        super().__init__()
        self.editors: dict[str, QLineEdit] = {}
        self.notes: dict[str, QLabel] = {}
        self._captions: dict[str, QLabel] = {}
        self.where = QComboBox()
        self.where.currentIndexChanged.connect(
            lambda: self.changed.emit("where", self.where.currentData() or "")
        )
        self.gpus, self.memory = Stepper(tr("GPUs")), MemorySlider(tr("Memory"))
        self.browse = button(
            tr("Browse…"), self._browse, kind="quiet", tooltip=tr("Choose the folder")
        )
        self.browse.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # a path is typed in the field
        self.more = button("", kind="link", checkable=True)
        self.more.setProperty("flush", "true")
        self.more.toggled.connect(self._show_more)
        self._lay_out()
        self._show_more(wanted=False)

    def show_values(self, values: dict[str, str]) -> None:
        """Show these texts; show the other options if one of them is filled in."""
        for name, editor in self.editors.items():
            editor.setText(values[name])
        self.where.setCurrentIndex(max(self.where.findData(values["where"]), 0))
        # which GPU is wanted is said below their number
        self.more.setChecked(any(values[name] for name in self._further - {"gpu_type"}))

    def show_notes(self, notes: dict[str, tuple[str, str]]) -> None:
        """Show a text below fields with its meaning, such as failed; hide the other lines."""
        for name, line in self.notes.items():
            text, meaning = notes.get(name, ("", ""))
            theme.mark(line, "meaning", meaning)
            show_if_any(line, text)
        for name, editor in self.editors.items():
            wrong = notes.get(name, ("", ""))[1] == "failed"
            theme.mark(editor, "wrong", "true" if wrong else "")
            if wrong and name in self._further:
                self.more.setChecked(True)

    def offer_places(self, places: list[str], chosen: str) -> None:
        """Offer these places; without clusters there is no choice to show."""
        if places != [self.where.itemData(at) for at in range(self.where.count())]:
            blocked = self.where.blockSignals(True)  # the choice stays
            self.where.clear()
            for place in places:
                self.where.addItem(place or tr(HERE), place)
            self.where.setCurrentIndex(places.index(chosen))
            self.where.blockSignals(blocked)
        for widget in (self.where, self._captions["where"]):
            widget.setVisible(len(places) > 1)

    def offer_limits(self, problem: Message) -> None:
        """Offer limits of host memory and CPUs; where there can be none, say why.

        What an earlier job had can still be removed there.
        """
        for field in FIELDS:
            if field.name in LIMITS:
                editor = self.editors[field.name]
                editor.setEnabled(not problem or bool(editor.text()))
                hint = tr(field.hint)
                editor.setPlaceholderText(tr("not available here") if problem else hint)
        text = ""
        if problem:
            why = tr_text(problem)
            text = tr("Host memory and CPUs cannot be limited here: {problem}", problem=why)
        for name in LIMITS:
            set_tooltip(self.editors[name], text)

    def _browse(self) -> None:
        dialog = QFileDialog(self, tr("The folder of the job"), self.editors["cwd"].text())
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.editors["cwd"].setText)
        dialog.open()

    def _show_more(self, wanted: bool) -> None:
        """Show or hide the options that few jobs need."""
        self.more.setText(tr("Fewer options") if wanted else tr("More options"))
        self._rest.setVisible(wanted)

    @property
    def _further(self) -> set[str]:
        """Return the fields that are shown on demand."""
        return set(self.editors) - {*MAIN, "where"}

    def _lay_out(self) -> None:
        first, rest = _grid(), _grid()
        main = [field for field in FIELDS if field.name in (*MAIN, "where")]
        for at, field in enumerate(main):
            self._add(first, field, at, 0, 3)
        further = [field for field in FIELDS if field not in main]
        paired = [field for field in further if field.name not in WHOLE_ROWS]
        for at, field in enumerate(paired):
            self._add(rest, field, at // 2, at % 2 * 2, 1)
        for at, field in enumerate(further[len(paired) :], -(-len(paired) // 2)):
            self._add(rest, field, at, 0, 3)
        rest.setColumnStretch(3, 1)
        width = max(caption.sizeHint().width() for caption in self._captions.values())
        for grid in (first, rest):
            grid.setColumnMinimumWidth(0, width)
        self._rest = clear_panel(rest)
        more = row(self.more, Stretch())
        self.setLayout(column(first, more, self._rest))

    def _add(self, grid: QGridLayout, field: Field, at: int, place: int, columns: int) -> None:
        """Add the caption and the editor of a field, and the line below it."""
        shown = self._editor(field)
        editor = self.editors.get(field.name, self.where)
        editor.setAccessibleName(tr(field.label))
        editor.setAccessibleDescription(tr(field.hint))
        caption = self._captions[field.name] = label(tr(field.label), meaning="muted")
        caption.setBuddy(editor)
        note = self.notes[field.name] = label(size="small", meaning="muted", wrap=True)
        note.hide()
        grid.addWidget(caption, 2 * at, place)
        grid.addWidget(shown, 2 * at, place + 1, 1, columns)
        grid.addWidget(note, 2 * at + 1, place + 1, 1, columns)

    def _editor(self, field: Field) -> QWidget:
        """Return what is shown for a field, with its line among the editors."""
        line, shown = QLineEdit(), QWidget()
        match field.name:
            case "where":
                return self.where
            case "gpus":
                line = self.gpus.line
                shown = _beside(self.gpus, Stretch())
            case "memory":
                line, shown = self.memory.line, self.memory
            case "cwd":
                shown = _beside(Stretch(line), self.browse)
            case _:
                shown = line
        self.editors[field.name] = line
        line.setPlaceholderText(tr(field.hint))
        line.textChanged.connect(lambda text: self._put(field.name, text))
        return shown

    def _put(self, name: str, text: str) -> None:
        if name == "gpus":
            needed = text.strip() != "0"
            for part in (self.memory, self._captions["memory"]):
                part.setVisible(needed)
            self.editors["gpu_type"].setEnabled(needed)
            if not needed:  # a job that reserves memory would get a GPU
                self.editors["memory"].clear()
                self.editors["gpu_type"].clear()
        self.changed.emit(name, text)


def _beside(*items: QWidget | Stretch) -> QWidget:
    shown = QWidget()
    shown.setLayout(row(*items, spacing=theme.XS))
    return shown


def _grid() -> QGridLayout:
    """Return a grid for captions, editors, and the lines below these."""
    grid = grid_layout(None, theme.M, theme.XS)
    grid.setColumnStretch(1, 1)
    return grid
