"""The clean-up page: what may go, chosen by a person, moved to the trash, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QStackedLayout, QVBoxLayout, QWidget

from app.cleanup.find_tree import FindTree
from app.cleanup.requests import Clean as CleanUp
from app.cleanup.requests import EmptyTrash, PutBack, Scan, ScanResult, TrashContents
from app.cleanup.summary import counted, stays, told
from app.link.call import Call, Request
from app.link.link import Link
from app.widgets import theme
from app.widgets.controls import button, card, elided, label, row, set_text, set_tooltip
from assistant.housekeeping import EmptyResult, Receipt, Skipped, UndoResult

NOTHING = "There is nothing to clean up.\nFrom what age on things may go, and where else is looked, is under Settings, Clean-up."
_MOST_TOLD = 10
T = TypeVar("T")


class CleanupPage(QWidget):
    """Shows what may go, and moves what the user chose. Emits `left` to go back."""

    left = Signal()

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._call: Call | None = None
        self._busy = ""
        """What is under way: empty for nothing."""
        self._trash = TrashContents()
        self._looked = False
        self.back = button("Back", tooltip="Back to the settings (Esc)")
        self.back.clicked.connect(self.left)
        self.progress = elided(size="small", meaning="muted")
        self.again = button("Look again", tooltip="Search anew (F5)")
        self.again.clicked.connect(self.look)
        self.stop = button("Stop", tooltip="End the search; what was found so far is shown")
        self.stop.clicked.connect(self._cancel)
        self.tree = FindTree()
        self.tree.rows.chosen_changed.connect(self._show_state)
        self.empty = label("", meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.total = label()
        self.move_button = button(
            "Move to trash",
            kind="primary",
            tooltip="It can be undone until the trash is emptied (Del)",
        )
        self.move_button.clicked.connect(self._move)
        self.said = elided(size="small", meaning="muted")
        self.trash = label(size="small", meaning="muted")
        self.undo = button("Undo", tooltip="Put back what the last clean-up moved (Ctrl+Z)")
        self.undo.clicked.connect(self._put_back)
        self.empty_trash = button(
            "Empty…", tooltip="Delete for good what clean-ups moved to the trash"
        )
        self.empty_trash.clicked.connect(lambda: self._ask(True))
        self.question = label(meaning="hot", wrap=True)
        self.yes, self.no = button("Delete for good"), button("Keep it", kind="primary")
        self.yes.clicked.connect(self._empty)
        self.no.clicked.connect(lambda: self._ask(False))
        self._lay_out()
        for keys, slot in (
            ("Esc", self._leave), ("F5", self.again.click), ("Del", self.move_button.click), ("Ctrl+Z", self.undo.click),
        ):  # fmt: skip
            QShortcut(QKeySequence(keys), self, slot).setContext(
                Qt.ShortcutContext.WidgetWithChildrenShortcut
            )
        self._show_state()

    def refresh(self) -> None:
        """Nothing of a snapshot is shown here."""

    def look(self) -> None:
        """Search for what may go."""
        self._looked = True
        self._ask_for("looking", Scan(), self._show_finds)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._looked:
            self.look()

    def _show_finds(self, result: ScanResult) -> None:
        finds, unseen = result.finds, result.unseen
        self.tree.show_finds(finds)
        if finds and self.isVisible():
            self.tree.setFocus()
        more = f"there may be more: {result.stopped}" if result.stopped else ""
        missed = f"{len(unseen)} not looked at" if unseen else ""
        found = f"{counted(finds)} found" if finds else ""
        set_text(self.progress, " · ".join(filter(None, (found, more, missed))))
        set_tooltip(self.progress, "\n".join(unseen[:_MOST_TOLD]))

    def _show_moved(self, receipt: Receipt) -> None:
        gone = {item.find.place for item in receipt.items}
        self.tree.show_finds(find for find in self.tree.finds if find.place not in gone)
        self._say(f"{told(len(receipt.items), receipt.bytes)}, in the trash now", receipt.left)
        self.undo.setFocus()

    def _show_restored(self, undone: UndoResult) -> None:
        self._say(f"{counted(undone.restored)}, back in place", undone.left)
        self.look()

    def _show_emptied(self, emptied: EmptyResult) -> None:
        self._say(f"{told(emptied.items, emptied.bytes)}, deleted", emptied.left)

    def _say(self, text: str, left: tuple[Skipped, ...] = ()) -> None:
        """What came of it; where something stayed, the first reason, and more of them in the tooltip."""
        first = f" · {len(left)} stayed: {stays(left[0])}" if left else ""
        set_text(self.said, text + first)
        set_tooltip(self.said, "\n".join(stays(each) for each in left[:_MOST_TOLD]) or text)

    def _move(self) -> None:
        if chosen := self.tree.rows.chosen():
            self._ask_for("moving", CleanUp(chosen), self._show_moved)

    def _ask(self, ask: bool) -> None:
        set_text(
            self.question,
            f"Delete {told(self._trash.count, self._trash.bytes)} for good? It cannot be undone.",
        )
        self._question.setVisible(ask)
        (self.no if ask else self.tree).setFocus()

    def _empty(self) -> None:
        self._ask(False)
        self._ask_for("emptying the trash", EmptyTrash(), self._show_emptied)

    def _leave(self) -> None:
        if self._question.isVisible():
            self._ask(False)
        else:
            self.left.emit()

    def _ask_for(
        self,
        busy: str,
        request: Request[tuple[T, TrashContents]],
        show: Callable[[T], None],
    ) -> None:
        if self._busy:
            return
        self._busy = busy
        set_text(self.progress, f"{busy} …")
        set_text(self.said, "")
        self._show_state()

        def take(reply: tuple[T, TrashContents]) -> None:
            self._busy = ""
            result, self._trash = reply
            set_text(self.progress, "")
            show(result)
            self._show_state()

        progress = partial(set_text, self.progress)
        self._call = self._link.send(self, request, take, self._fail, progress)

    def _fail(self, message: str) -> None:
        self._busy = ""
        self._say(message)
        self._show_state()

    def _put_back(self) -> None:
        if self._trash.last is not None:
            self._ask_for("putting it back", PutBack(self._trash.last), self._show_restored)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _show_state(self) -> None:
        chosen = self.tree.rows.chosen()
        looking = self._busy == "looking"
        self._stack.setCurrentIndex(0 if self.tree.finds else 1)
        set_text(self.empty, "Looking for what may go …" if looking else NOTHING)
        self.again.setVisible(not looking)
        self.stop.setVisible(looking)
        set_text(self.total, f"{counted(chosen)} chosen" if chosen else "nothing chosen")
        self.move_button.setEnabled(bool(chosen) and not self._busy)
        there = self._trash
        set_text(
            self.trash,
            f"Trash: {told(there.count, there.bytes)}; the space is free once it is emptied"
            if there.count
            else "",
        )
        for made in (self.undo, self.empty_trash):
            made.setVisible(bool(there.count))
            made.setEnabled(not self._busy)

    def _lay_out(self) -> None:
        bar = row(
            self.back,
            label("Clean up", size="large", strong=True),
            self.progress,
            self.stop,
            self.again,
            spacing=theme.M,
        )
        bar.setStretch(2, 1)
        stack = QWidget()
        self._stack = QStackedLayout(stack)
        self._stack.addWidget(self.tree)
        self._stack.addWidget(self.empty)
        inner = QVBoxLayout()
        inner.addWidget(stack)
        frame = card(inner)
        inner.setContentsMargins(1, theme.XS, 1, theme.XS)
        act = row(self.total, self.said, self.move_button, spacing=theme.M)
        act.setStretch(1, 1)
        below = row(self.trash, self.undo, self.empty_trash, spacing=theme.M)
        below.insertStretch(0, 1)
        self._question = card(row(self.question, self.yes, self.no, spacing=theme.M))
        self._question.layout().setStretch(0, 1)  # type: ignore[union-attr]
        self._question.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(bar)
        layout.addWidget(frame, 1)
        layout.addLayout(act)
        layout.addLayout(below)
        layout.addWidget(self._question)
        self.setFocusProxy(self.tree)
