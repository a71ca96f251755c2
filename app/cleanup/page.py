"""Clean up files: the user chooses what to move to the trash, and can put it back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QWidget

from gpudeck.app.cleanup.find_tree import FindTree
from gpudeck.app.cleanup.requests import (
    EmptyTrash,
    MoveToTrash,
    PutBack,
    Scan,
    ScanResult,
    TrashContents,
)
from gpudeck.app.cleanup.summary import count_findings, items_and_size, skip_reason
from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.call import Call, Request
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import (
    QuestionCard,
    Stretch,
    button,
    card,
    column,
    elided,
    empty_label,
    label,
    row,
    set_text,
    set_tooltip,
    show_if_any,
)
from gpudeck.app.widgets.list_table import list_card
from gpudeck.app.widgets.parts_bar import BarPart, PartsBar
from gpudeck.app.widgets.safe_text import FittedText
from gpudeck.assistant.housekeeping import EmptyResult, Receipt, Skipped, UndoResult

NOTHING = tr_noop(
    "There is nothing to clean up.\nYou can change ages and folders in Settings, under Clean-up."
)
SCANNING = tr_noop("Searching…")
_MOST_LISTED = 10
T = TypeVar("T")


_WIDEST, _SIDE = 1700, 520
"""Pixels of width from which on the current row is described beside the list, and of that text."""
_UNDO = tr_noop("What is moved to the trash can be put back until the trash is emptied.")
_LEAST = 200
"""Pixels of height that the list has in any case."""


class CleanupPage(QWidget):
    """Search, and move what the user chose to the trash."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._call: Call | None = None
        """The request that is carried out now."""
        self._trash = TrashContents()
        self._scanned = False
        self.progress = elided(size="small", meaning="muted")
        self.again = button(tr("Search again"), self.scan, tooltip="F5")
        self.stop = button(
            tr("Stop"), self._cancel, tooltip=tr("Stop the search and show its findings")
        )
        self.tree = FindTree()
        self.tree.rows.chosen_changed.connect(self._show_state)
        self.share = PartsBar(tr("Space by kind"))
        self.empty = empty_label()
        self.total = label()
        self.move_button = button(
            tr("Move to Trash"),
            self._move,
            kind="primary",
            tooltip=tr("You can undo this until the trash is emptied (Del)"),
        )
        self.outcome = elided(size="small", meaning="muted")
        self.trash = label(size="small", meaning="muted")
        self.undo = button(
            tr("Undo"), self._put_back, tooltip=tr("Put back what the last clean-up moved (Ctrl+Z)")
        )
        self.empty_trash = button(
            tr("Empty Trash…"),
            self._ask_to_empty,
            tooltip=tr("Permanently delete what clean-ups moved to the trash"),
        )
        self.question = QuestionCard(
            tr("Delete"), tr("Cancel"), self._empty, self._keep_trash, primary="no"
        )
        inside = column(label(tr("Space that can be freed"), strong=True), self.share, spacing=0)
        self._shares = card(inside)
        bar = row(Stretch(self._shares), Stretch(), self.stop, self.again, spacing=theme.M)
        bar.setStretch(0, 1000)
        self._frame, self._stack = list_card(self.tree, self.empty)
        self._frame.setMinimumHeight(theme.px(_LEAST))
        said = column(self.progress, self.outcome, spacing=0)
        actions = row(self.total, Stretch(said), self.move_button, spacing=theme.M)
        below = row(Stretch(), self.trash, self.undo, self.empty_trash, spacing=theme.M)
        body = column(bar, Stretch(self._frame), self.question, below, actions)
        across = row(Stretch(body), self._new_about(), spacing=theme.M)
        across.setAlignment(self.about, Qt.AlignmentFlag.AlignTop)
        self.setLayout(across)
        self.setFocusProxy(self.tree)
        bind_actions(
            self,
            {
                "clean.leave": self._keep_trash,
                "clean.again": self.again.click,
                "clean.move": self.move_button.click,
                "clean.undo": self.undo.click,
            },
        )
        self._show_state()

    def _new_about(self) -> QFrame:
        """Return what describes the chosen row."""
        self._kind, self._facts = label(strong=True), FittedText()
        self._facts.setAccessibleName(tr("About the item"))
        hint = label(tr(_UNDO), size="small", meaning="muted", wrap=True)
        self.about = card(column(self._kind, self._facts, hint, spacing=theme.M))
        self.about.setFixedWidth(theme.px(_SIDE))
        self.about.hide()
        self.tree.selectionModel().selectionChanged.connect(self._describe)
        return self.about

    def _describe(self) -> None:
        """Describe the chosen row where there is room."""
        title, facts = self.tree.described()
        self.about.setVisible(bool(title) and self.width() >= theme.px(_WIDEST))
        set_text(self._kind, title)
        self._facts.show_table(facts)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._describe()

    def refresh(self) -> None:
        """Do nothing: this page shows nothing of a snapshot."""

    def scan(self) -> None:
        """Search for what may be cleaned up."""
        self._scanned = True
        self._send(tr(SCANNING), Scan(), self._show_finds)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._scanned:
            self.scan()

    def _show_finds(self, result: ScanResult) -> None:
        finds, unread = result.finds, result.unread
        self.tree.show_finds(finds)
        if finds and self.isVisible():
            self.tree.setFocus()
        parts = [tr("{items} found", items=count_findings(finds))] if finds else []
        if result.stopped is not None:
            why = tr_text(result.stopped)
            parts.append(tr("there may be more: {why}", why=why))
        if unread:
            parts.append(tr("{n} could not be read", n=len(unread)))
        set_text(self.progress, " · ".join(parts))
        set_tooltip(self.progress, "\n".join(map(tr_text, unread[:_MOST_LISTED])))

    def _show_moved(self, receipt: Receipt) -> None:
        gone = {item.find.place for item in receipt.items}
        self.tree.show_finds(find for find in self.tree.finds if find.place not in gone)
        moved = items_and_size(len(receipt.items), receipt.bytes)
        self._show_outcome(tr("Moved {items}, to the trash", items=moved), receipt.left)
        self.undo.setFocus()

    def _show_restored(self, undone: UndoResult) -> None:
        restored = count_findings(undone.restored)
        self._show_outcome(tr("Put back {items}", items=restored), undone.left)
        self.scan()

    def _show_emptied(self, emptied: EmptyResult) -> None:
        deleted = items_and_size(emptied.items, emptied.bytes)
        self._show_outcome(tr("Deleted {items}", items=deleted), emptied.left)

    def _show_outcome(self, text: str, skipped: tuple[Skipped, ...] = ()) -> None:
        """Show what was done, and the first reason why something was skipped."""
        parts = [text]
        if skipped:
            first = skip_reason(skipped[0])
            parts.append(tr("{n} skipped: {first}", n=len(skipped), first=first))
        set_text(self.outcome, " · ".join(parts))
        reasons = "\n".join(skip_reason(each) for each in skipped[:_MOST_LISTED])
        set_tooltip(self.outcome, reasons or text)

    def _move(self) -> None:
        chosen = self.tree.rows.chosen()
        if chosen:
            self._send(tr("Moving…"), MoveToTrash(chosen), self._show_moved)

    def _put_back(self) -> None:
        if self._trash.last is not None:
            self._send(tr("Putting back…"), PutBack(self._trash.last), self._show_restored)

    def _ask_to_empty(self) -> None:
        contents = items_and_size(self._trash.count, self._trash.bytes)
        self.question.ask(tr("Permanently delete {items}? This cannot be undone.", items=contents))

    def _keep_trash(self) -> None:
        self.question.hide()
        self.tree.setFocus()

    def _empty(self) -> None:
        self._keep_trash()
        self._send(tr("Emptying the trash…"), EmptyTrash(), self._show_emptied)

    def _send(
        self,
        activity: str,
        request: Request[tuple[T, TrashContents]],
        show: Callable[[T], None],
    ) -> None:
        """Send a request, unless another one is being carried out."""
        if self._call is not None:
            return
        set_text(self.progress, activity)
        set_text(self.outcome, "")

        def take(reply: tuple[T, TrashContents]) -> None:
            self._call = None
            result, self._trash = reply
            set_text(self.progress, "")
            show(result)
            self._show_state()

        progress = partial(set_text, self.progress)
        self._call = self._link.send(self, request, take, self._fail, progress)
        self._show_state()

    def _fail(self, message: str) -> None:
        self._call = None
        self._show_outcome(message)
        self._show_state()

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _show_state(self) -> None:
        chosen, busy = self.tree.rows.chosen(), self._call is not None
        scanning = self._call is not None and isinstance(self._call.request, Scan)
        self._stack.setCurrentIndex(0 if self.tree.finds else 1)
        self._shares.setVisible(bool(self.tree.finds))
        self.share.show_parts([BarPart(g.title, g.bytes) for g in self.tree.rows.groups])
        self._describe()
        self.outcome.setVisible(bool(self.outcome.text()))
        set_text(self.empty, tr(SCANNING) if scanning else tr(NOTHING))
        self.again.setVisible(not scanning)
        self.stop.setVisible(scanning)
        selected = tr("{items} selected", items=count_findings(chosen))
        set_text(self.total, selected if chosen else tr("Nothing selected"))
        size = memory(sum(find.bytes for find in chosen))
        move = tr("Move {size} to Trash", size=size) if chosen else tr("Move to Trash")
        self.move_button.setText(move)
        self.move_button.setEnabled(bool(chosen) and not busy)
        contents = items_and_size(self._trash.count, self._trash.bytes)
        text = tr("In the trash: {items}; empty the trash to free the space", items=contents)
        show_if_any(self.trash, text if self._trash.count else "")
        for made in (self.undo, self.empty_trash):
            made.setVisible(self._trash.count > 0)
            made.setEnabled(not busy)
