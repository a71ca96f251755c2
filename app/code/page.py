"""Find attention in people's own code, show what would change, prove it, apply it and undo it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QLineEdit, QWidget

from gpudeck.app.code.diff_view import DiffView
from gpudeck.app.code.proof_marks import bars, error_marks
from gpudeck.app.code.proof_view import ProofView
from gpudeck.app.code.requests import ApplyCode, ProveCode, ScanCode, Scanned, UndoCode
from gpudeck.app.code.rows import FindingRow, linked_row, proved, side_by_side, summary
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.call import Call
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import (
    QuestionCard,
    Stretch,
    button,
    card,
    clear_panel,
    column,
    elided,
    empty_label,
    label,
    row,
    scroll_area,
    set_text,
    set_tooltip,
)
from gpudeck.app.widgets.list_table import RowTable, TableColumn, chosen_row, list_card, list_table
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import Text

if TYPE_CHECKING:
    from gpudeck.accel.inject.prove import Proof
    from gpudeck.app.code.linking import Applied

EMPTY = tr_noop(
    "Open a folder or a file with your PyTorch code to see its attention here.\n"
    "Reading runs nothing of it, and nothing is changed until you choose Apply."
)
COLUMNS = (
    TableColumn(tr_noop("Where"), 150),
    TableColumn(tr_noop("Action"), 86),
    TableColumn(tr_noop("What"), 0),
    TableColumn(
        tr_noop("Predicted"),
        116,
        help=tr_noop(
            "How many times as fast the attention alone is, forward and backward, from sizes in"
            " the file and measurements on the GPU that is named"
        ),
    ),
    TableColumn(
        tr_noop("Gain"),
        170,
        help=tr_noop("What is no longer kept in memory, from sizes in the file"),
    ),
    TableColumn(
        tr_noop("Risk"),
        190,
        help=tr_noop("What may limit the gain, or why the code stays as it is"),
    ),
)
_OPTIONAL = {4: 190}
"""The gain, which is left out where what is found would have fewer pixels; `why` tells it, too."""


class CodePage(QWidget):
    """Accelerate people's own code."""

    left = Signal()
    """The user wants the Workloads page again."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._call: Call | None = None
        self._after: Callable[[], None] | None = None
        """What a yes to the question starts."""
        self._scanned = Scanned("", (), {}, {})
        self.path = QLineEdit()
        self.path.setPlaceholderText(tr("Folder or file"))
        self.path.setAccessibleName(tr("Folder or file to search"))
        self.path.returnPressed.connect(self.scan)
        self.open = button(tr("Open…"), self._choose, tooltip=hint("code.open"))
        self.again = button(tr("Search"), self.scan, tooltip=hint("code.scan"))
        self.back = button(tr("‹ Workloads"), self.left.emit, kind="quiet", tooltip="Esc")
        self.found: RowTable[FindingRow] = RowTable(COLUMNS)
        self.table = list_table(
            self.found,
            [c.width for c in COLUMNS],
            tr_noop("Attention in the code"),
            optional=_OPTIONAL,
        )
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._show_change())
        self.empty = empty_label(tr(EMPTY))
        self.outcome = elided(size="small", meaning="muted")
        self.why = elided(meaning="muted")
        self.diff, self.proof = DiffView(), ProofView()
        self.prove = button(tr("Prove…"), self._ask_to_prove, tooltip=hint("code.prove"))
        self.apply = button(
            tr("Apply…"), self._ask_to_apply, kind="primary", tooltip=hint("code.apply")
        )
        self.undo = button(tr("Undo"), self._undo, tooltip=hint("code.undo"))
        self.question = QuestionCard(tr("Run it"), tr("Cancel"), self._agree, self._decline)
        self._lay_out()
        bind_actions(
            self,
            {
                "code.open": self.open.click,
                "code.scan": self.again.click,
                "code.prove": self.prove.click,
                "code.apply": self.apply.click,
                "code.undo": self.undo.click,
                "code.leave": self._leave,
            },
        )
        self._show_state()

    def refresh(self) -> None:
        """Do nothing: this page shows nothing of a snapshot."""

    def scan(self) -> None:
        """Find the attention in the path that was typed."""
        if path := self.path.text().strip():
            self._send(tr("Reading…"), ScanCode(path), self._show_found)

    def _lay_out(self) -> None:
        title = label(tr("Your code"), size="large", strong=True)
        bar = row(self.back, title, Stretch(self.path), self.open, self.again, spacing=theme.M)
        frame, self._stack = list_card(self.table, self.empty)
        self._proof_area = scroll_area(clear_panel(column(self.proof, Stretch())), tr("Proof"))
        self._change_card, self._proof_card = card(row(self.diff)), card(row(self._proof_area))
        details = row(Stretch(self._change_card, 3), Stretch(self._proof_card, 2), spacing=theme.M)
        actions = row(Stretch(self.outcome), self.undo, self.prove, self.apply, spacing=theme.M)
        self.setLayout(
            column(
                bar, Stretch(frame, 2), self.why, Stretch(details, 3), self.question, actions,
                spacing=theme.M,
            )
        )  # fmt: skip
        self.setFocusProxy(self.path)

    def _choose(self) -> None:
        dialog = QFileDialog(self, tr("Open a folder of code"), self.path.text())
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self.open_path)
        dialog.open()

    def open_path(self, path: str) -> None:
        """Show the attention of a folder or file."""
        self.path.setText(path)
        self.scan()

    @property
    def chosen(self) -> FindingRow | None:
        """Return the attention that the user chose."""
        return chosen_row(self.table, self.found)

    @property
    def _file(self) -> str:
        return self.chosen.finding.file if self.chosen else ""

    def _show_found(self, scanned: Scanned) -> None:
        self._scanned = scanned
        found = sorted(scanned.found, key=lambda f: (f.action != "link", f.file, f.line))
        rows = [linked_row(path, scanned.root) for path in scanned.linked]
        rows += [FindingRow(f, scanned.root) for f in found]
        self.found.show_rows(tuple(rows))
        set_text(self.empty, tr(EMPTY) if not scanned.root else summary((), 0))
        set_text(self.outcome, summary(scanned.found, len(scanned.linked)))
        if rows:
            self.table.selectRow(0)
            self.table.setFocus()
        self._show_change()

    def _show_change(self) -> None:
        """Show the change of the file that is chosen; a proof of another one goes."""
        row = self.chosen
        files = self._scanned.linked if row and row.linked else self._scanned.files
        file = files.get(self._file)
        self.diff.show_lines(side_by_side(file.before, file.after) if file else [])
        set_text(self.why, row.why if row else "")
        set_tooltip(self.why, row.why if row else "")
        self.proof.show_proof([], [])
        self._show_state()

    def _ask_to_prove(self) -> None:
        file = self._file
        self._ask(
            tr(
                "This runs code of {name}, before and after the change, as a job with limits of"
                " time and memory, and compares it.",
                name=self._name,
            ),
            lambda: self._send(tr("Proving…"), ProveCode(file), self._show_proof),
        )

    def _ask_to_apply(self) -> None:
        file = self._file
        self._ask(
            tr(
                "This runs code of {name}, before and after the change, as a job with limits of"
                " time and memory, and changes the file if that proves it right.",
                name=self._name,
            ),
            lambda: self._send(tr("Proving…"), ApplyCode(file), self._show_applied),
        )

    @property
    def _name(self) -> str:
        return self.chosen.where if self.chosen else ""

    def _ask(self, question: str, after: Callable[[], None]) -> None:
        self._after = after
        self.question.ask(question)

    def _agree(self) -> None:
        self.question.hide()
        if self._after is not None:
            self._after()
        self._after = None

    def _decline(self) -> None:
        self._after = None
        self.question.hide()
        self.table.setFocus()

    def _leave(self) -> None:
        if self.question.isVisible():
            self._decline()
        else:
            self.left.emit()

    def _undo(self) -> None:
        self._send(tr("Restoring…"), UndoCode(self._file), self._show_undone)

    def _show_proof(self, proofs: tuple[Proof, ...]) -> None:
        self.proof.show_proof(error_marks(proofs), bars(proofs))
        self._show_state()
        text = proved(proofs)
        others = [tr_text(p.verdict) for p in proofs if not p.proved]
        set_text(self.outcome, f"{text} · {others[0]}" if others else text)

    def _show_applied(self, applied: Applied) -> None:
        self._show_proof(applied.proofs)
        proofs = self.proof.errors, self.proof.bars
        text = "; ".join([tr_text(applied.result), *applied.left])

        def shown(scanned: Scanned) -> None:
            self._show_found(scanned)
            self.proof.show_proof(*proofs)
            self._show_state()
            set_text(self.outcome, text)

        self._send(tr("Reading…"), ScanCode(self._scanned.root), shown)

    def _show_undone(self, done: Text) -> None:
        def shown(scanned: Scanned) -> None:
            self._show_found(scanned)
            set_text(self.outcome, capitalized(tr_text(done)))

        self._send(tr("Reading…"), ScanCode(self._scanned.root), shown)

    def _send(self, activity: str, request: Any, show: Callable[[Any], None]) -> None:
        """Send a request, unless another one is being carried out."""
        if self._call is not None:
            return
        set_text(self.outcome, activity)

        def take(reply: Any) -> None:
            self._call = None
            set_text(self.outcome, "")
            show(reply)
            self._show_state()

        self._call = self._link.send(self, request, take, self._fail)
        self._show_state()

    def _fail(self, message: str) -> None:
        self._call = None
        set_text(self.outcome, message)
        self._show_state()

    def _show_state(self) -> None:
        free = self._call is None
        self._stack.setCurrentIndex(0 if self.found.rows else 1)
        linked = self.chosen is not None and self.chosen.linked
        can = free and not linked and self._file in self._scanned.files
        self.prove.setEnabled(can)
        self.apply.setEnabled(can)
        self.undo.setEnabled(free and linked)
        for widget in (self._change_card, self.why):
            widget.setVisible(bool(self.found.rows))
        self._proof_card.setVisible(bool(self.proof.errors or self.proof.bars))
