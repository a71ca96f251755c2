"""Show a conversation of any length: only visible messages have widgets, which are used again."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Literal

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from gpudeck.app.assistant.conversation import Conversation
from gpudeck.app.assistant.message_tree import Message
from gpudeck.app.assistant.message_view import MessageView
from gpudeck.app.language.texts import tr, tr_count
from gpudeck.app.widgets import theme

ScrollGoal = Literal["question", "end", "place"]
_GUESS, _LINE, _CHARACTER = 64, 18, 7
"""Pixels of an empty message, a line and a character, to guess the height of unseen messages."""
_TRIES = 8
_STEP = 60


class MessageList(QAbstractScrollArea):
    """Show the messages of a conversation."""

    acted = Signal(str, int)
    """The user pressed a button (see `MessageView.acted`) of the message with this number."""
    stepped = Signal(int, int)
    """The user chose a step, by its place, of the message with this number."""

    def __init__(self) -> None:
        super().__init__()
        self.goal: ScrollGoal = "question"
        """The part that stays in view while the conversation grows."""
        self._conversation, self._model_in_use = Conversation(), False
        self._numbers: list[int] = []
        self._heights: dict[int, int] = {}
        self._widths: dict[int, int] = {}
        self._measured: dict[int, Message] = {}
        """The messages whose heights were measured at the current width."""
        self._tops: list[int] = [0]
        self._anchor = (0, 0)
        """A message, and how far below its top the view begins, in pixels."""
        self._used: dict[int, MessageView] = {}
        self._free: list[MessageView] = []
        self._width, self._arranging = 0, False
        self.setProperty("clear", "true")
        self.setAccessibleName(tr("Conversation"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.verticalScrollBar().setSingleStep(_STEP)
        self.verticalScrollBar().actionTriggered.connect(self._scrolled)

    @property
    def views(self) -> list[MessageView]:
        """Return the widgets in the order of their messages."""
        return [self._used[number] for number in self._numbers if number in self._used]

    def show_conversation(self, conversation: Conversation, model_in_use: bool) -> None:
        """Show what changed in the conversation, or another conversation.

        Where a model is in use, answers of templates say that it did not write them.
        """
        self._model_in_use = model_in_use
        if conversation is not self._conversation:
            self._conversation, self._numbers = conversation, []
            self._heights.clear()
            self._measured.clear()
            self._release(self._used)
        self._arrange()

    def reveal(self, number: int) -> None:
        """Scroll to a message."""
        self._anchor, self.goal = (number, 0), "place"
        self._arrange()

    def recolor(self) -> None:
        """Draw all messages again in other colours."""
        while self._free:
            # a hidden widget gets its style only when it is shown, too late to be measured
            self._free.pop().deleteLater()
        for message_view in self._used.values():
            message_view.recolor()
        self._arrange()

    def sizeHint(self) -> QSize:
        # little: it takes all the room that is left, and is scrolled by itself
        return QSize(600, self.minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._arrange()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self._arrange()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self._arrange()  # a message has another height
        return super().viewportEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        ends = {
            Qt.Key.Key_Home: bar.SliderAction.SliderToMinimum,
            Qt.Key.Key_End: bar.SliderAction.SliderToMaximum,
        }
        if event.key() in ends:
            bar.triggerAction(ends[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def focusNextPrevChild(self, forward: bool) -> bool:
        moved = super().focusNextPrevChild(forward)
        focused = self.focusWidget()
        if moved and focused is not None and self.viewport().isAncestorOf(focused):
            self._bring_in(focused)
        return moved

    def _scrolled(self) -> None:
        """Follow the end if the user scrolled to it; otherwise keep the place."""
        bar = self.verticalScrollBar()
        self.goal = "end" if bar.sliderPosition() >= bar.maximum() else "place"
        self._drop_anchor(bar.sliderPosition())

    def _drop_anchor(self, position: int) -> None:
        if self._numbers:
            index = self._at(position)
            self._anchor = self._numbers[index], position - self._tops[index]

    def _bring_in(self, widget: QWidget) -> None:
        top = widget.mapTo(self.viewport(), widget.rect().topLeft()).y()
        by = min(top, 0) + max(top + widget.height() - self.viewport().height(), 0)
        if by:
            position = self.verticalScrollBar().value() + by
            self.goal = "place"
            self._drop_anchor(position)
            self.verticalScrollBar().setValue(position)

    def _arrange(self) -> None:
        """Measure the visible messages until nothing changes, then place every widget."""
        if self._arranging or not self.isVisible():
            return
        self._arranging = True
        try:
            self._take_path()
            for _ in range(_TRIES):
                self._take_width()  # a scroll bar that comes or goes changes it
                self._set_range()
                if not self._measure() and self._width == self.viewport().width():
                    break
            self._place()
        finally:
            self._arranging = False

    def _take_path(self) -> None:
        path = self._conversation.path
        if self._numbers != path:
            self._numbers = list(path)
            self._release([number for number in self._used if number not in path])
            self._stack(0)

    def _take_width(self) -> None:
        if self._width != self.viewport().width():
            self._width = self.viewport().width()
            self._measured.clear()
            self._stack(0)

    def _set_range(self) -> None:
        bar, high = self.verticalScrollBar(), self.viewport().height()
        bar.setPageStep(high)
        bar.setRange(0, max(self._tops[-1] - high, 0))
        if self.goal == "end":
            bar.setValue(bar.maximum())
            return
        number, offset = (self._last_question(), 0) if self.goal == "question" else self._anchor
        if number in self._heights and number in self._numbers:
            bar.setValue(self._tops[self._numbers.index(number)] + offset)

    def _last_question(self) -> int:
        tree = self._conversation.tree
        return next((n for n in reversed(self._numbers) if tree.message(n).author == "you"), 0)

    def _visible(self) -> list[int]:
        """Return the visible messages, and one more at both ends for the Tab key."""
        if not self._numbers:
            return []
        start = self.verticalScrollBar().value()
        first, last = self._at(start), self._at(start + self.viewport().height())
        return self._numbers[max(first - 1, 0) : last + 2]

    def _at(self, position: int) -> int:
        return min(max(bisect_right(self._tops, position) - 1, 0), len(self._numbers) - 1)

    def _measure(self) -> bool:
        """Measure the visible messages. Return whether a height has changed."""
        changed = len(self._numbers)
        for number in self._visible():
            message, message_view = (
                self._conversation.tree.message(number),
                self._message_view(number),
            )
            message_view.show_message(message, self._branch(number), self._model_in_use)
            message_view.keep_actions(number == self._numbers[-1])
            if self._measured.get(number) is not message or message_view.stale:
                self._measured[number] = message
                self._widths[number] = message_view.width_in(self._width)
                high = message_view.fit(self._widths[number])
                if high != self._heights[number]:
                    self._heights[number] = high
                    changed = min(changed, self._numbers.index(number))
        if changed == len(self._numbers):
            return False
        self._stack(changed)
        return True

    def _branch(self, number: int) -> tuple[int, int]:
        siblings = self._conversation.tree.siblings(number)
        return siblings.index(number) + 1, len(siblings)

    def _stack(self, since: int) -> None:
        """Sum up the heights from a message on; heights of unseen messages are guessed."""
        tops = self._tops[: since + 1]
        for number in self._numbers[since:]:
            if number not in self._heights:
                text = self._conversation.tree.message(number).text
                lines = text.count("\n") + 1 + len(text) * _CHARACTER // max(self._width, 100)
                self._heights[number] = _GUESS + _LINE * lines
            tops.append(tops[-1] + self._heights[number] + theme.S)
        self._tops = tops

    def _place(self) -> None:
        seen, start = self._visible(), self.verticalScrollBar().value()
        focused = self.focusWidget()
        self._release(
            [
                n
                for n, b in self._used.items()
                if n not in seen and not (focused and b.isAncestorOf(focused))
            ]
        )
        order = [number for number in self._numbers if number in self._used]
        # a short conversation stands just above the composer
        above = max(self.viewport().height() - self._tops[-1], 0)
        for number in order:
            top = above + self._tops[self._numbers.index(number)] - start
            message_view = self._used[number]
            width = self._widths[number]
            left = self._width - width  # what the user wrote is on the right
            message_view.setGeometry(left, top, width, self._heights[number])
        controls = [control for number in order for control in self._used[number].controls]
        for before, after in pairwise(controls):
            if before.nextInFocusChain() is not after:
                QWidget.setTabOrder(before, after)
        self.setAccessibleDescription(tr_count("{n} message", "{n} messages", len(self._numbers)))

    def _message_view(self, number: int) -> MessageView:
        if number not in self._used:
            message_view = self._free.pop() if self._free else self._new()
            message_view.number = number
            message_view.setGeometry(0, -1, self._width, 1)
            message_view.show()  # a widget that was never shown has no height
            self._used[number] = message_view
        return self._used[number]

    def _new(self) -> MessageView:
        message_view = MessageView(self.viewport())
        message_view.acted.connect(lambda what: self.acted.emit(what, message_view.number))
        message_view.stepped.connect(lambda place: self.stepped.emit(place, message_view.number))
        return message_view

    def _release(self, numbers: list[int] | dict[int, MessageView]) -> None:
        for number in list(numbers):
            message_view = self._used.pop(number)
            message_view.hide()
            message_view.close_details()
            self._free.append(message_view)
