"""The command palette: type to find a page, an action, a job or a setting, or to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QObject, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from gpudeck.app.language.texts import tr
from gpudeck.app.shell.palette_model import PaletteEntry
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import column, delay, label, rule
from gpudeck.app.widgets.toast import shadow

_WIDTH, _ROW, _TOP, _KIND = 620, 34, 90, 84
_KEYS, _CAP, _FOOT = 104, 6, 26
"""Pixels of the column of keys, beside the text of a key cap, and of the line at the foot."""
_SEARCH_MS = 150
_ENTRY = Qt.ItemDataRole.UserRole
_STEPS = {
    Qt.Key.Key_Down: 1,
    Qt.Key.Key_Up: -1,
    Qt.Key.Key_PageDown: 6,
    Qt.Key.Key_PageUp: -6,
}


class Palette(QFrame):
    """Float over the window. Return runs the chosen entry, Esc leaves."""

    searched = Signal(str)
    """The user stopped typing this text, for which there may be more jobs."""

    def __init__(self, window: QWidget, find: Callable[[str], list[PaletteEntry]]) -> None:
        """Show what `find` returns for the text that is typed."""
        super().__init__(window)
        self._window, self._find = window, find
        self._before: QWidget | None = None
        self.setProperty("toast", "true")
        self.setGraphicsEffect(shadow(self))
        self.setAccessibleName(tr("Command palette"))
        self.box = QLineEdit()
        hint = tr("Go to a page or a job, run a command, find a setting, or ask")
        self.box.setPlaceholderText(hint)
        self.box.setAccessibleName(tr("Search"))
        self.box.setProperty("bare", "true")
        self.box.textChanged.connect(self._typed)
        self.box.installEventFilter(self)
        self.list = QListWidget()
        self.list.setProperty("bare", "true")
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setAccessibleName(tr("Found"))
        self.list.setItemDelegate(_EntryDelegate(self.list))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.itemClicked.connect(lambda _: self.run())
        self.foot = label(tr("Return runs it, Esc closes"), size="small", meaning="muted")
        self.foot.setIndent(theme.M)
        self.setLayout(
            column(
                self.box,
                rule(),
                self.list,
                self.foot,
                margins=(theme.S, theme.S, theme.S, theme.S),
                spacing=theme.XS,
            )
        )
        self._typing = delay(self, _SEARCH_MS, lambda: self.searched.emit(self.box.text()))
        window.installEventFilter(self)
        self.hide()

    def open(self) -> None:
        """Show the palette with an empty text, or hide it if it is shown."""
        if self.isVisible():
            self.leave()
            return
        self._before = self._window.focusWidget()
        self.box.clear()
        self.show()
        self.show_entries()
        self.raise_()
        self.box.setFocus()

    def leave(self) -> None:
        """Hide the palette and give the focus back."""
        self._typing.stop()
        self.hide()
        if self._before is not None and self._before.isVisible():
            self._before.setFocus()

    def run(self) -> None:
        """Run the chosen entry."""
        item = self.list.currentItem()
        if item is not None:
            entry: PaletteEntry = item.data(_ENTRY)
            self.leave()
            entry.run()

    def entries(self) -> list[PaletteEntry]:
        """Return what is offered now."""
        return [self.list.item(at).data(_ENTRY) for at in range(self.list.count())]

    def show_entries(self) -> None:
        """Offer what matches the text, and keep the place in the list while it is the same."""
        row = self.list.currentRow()
        old = [entry.title for entry in self.entries()][: row + 1]
        self.list.clear()
        for entry in self._find(self.box.text()):
            item = QListWidgetItem(entry.title)
            item.setData(_ENTRY, entry)
            item.setData(
                Qt.ItemDataRole.AccessibleTextRole, f"{entry.kind}: {entry.title} {entry.keys}"
            )
            self.list.addItem(item)
        same = old == [entry.title for entry in self.entries()][: row + 1]
        self.list.setCurrentRow(max(row, 0) if same else 0)
        self._place()

    def _typed(self) -> None:
        self.list.setCurrentRow(-1)
        self.show_entries()
        self._typing.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.box and isinstance(event, QKeyEvent) and self._take_key(event):
            return True
        if watched is self.box and event.type() == QEvent.Type.FocusOut and self.isVisible():
            self.hide()
        if watched is self._window and event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return False

    def _take_key(self, event: QKeyEvent) -> bool:
        """Handle the keys of the list, also before a shortcut of the page takes them."""
        key = Qt.Key(event.key())
        if key not in (*_STEPS, Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Escape):
            return False
        if event.type() == QEvent.Type.ShortcutOverride:
            event.accept()
        elif event.type() == QEvent.Type.KeyPress:
            if key in _STEPS:
                last = self.list.count() - 1
                row = self.list.currentRow() + _STEPS[key]
                wraps = abs(_STEPS[key]) == 1
                self.list.setCurrentRow(row % (last + 1) if wraps and last >= 0 else min(row, last))
            elif key == Qt.Key.Key_Escape:
                self.leave()
            else:
                self.run()
        return True

    def _place(self) -> None:
        width = min(theme.px(_WIDTH), self._window.width() - 2 * theme.L)
        rows = max(self.list.count(), 1)
        top = min(_TOP, self._window.height() // 8)
        height = min(
            rows * theme.px(_ROW) + theme.px(62 + _FOOT), self._window.height() - top - theme.L
        )
        self.setGeometry((self._window.width() - width) // 2, top, width, height)


class _EntryDelegate(QStyledItemDelegate):
    """Paint the kind, the title, where it is, and the keys."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | Any) -> QSize:
        return QSize(0, theme.px(_ROW))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | Any
    ) -> None:
        entry: PaletteEntry = index.data(_ENTRY)
        view: Any = option
        box, t = QRect(view.rect), theme.tokens()
        painter.save()
        if view.state & QStyle.StateFlag.State_Selected:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(t.accent_soft))
            painter.drawRoundedRect(box.adjusted(2, 1, -2, -1), 6, 6)
        middle = Qt.AlignmentFlag.AlignVCenter
        inner = box.adjusted(12, 0, -12, 0)
        painter.setFont(theme.font(theme.SMALL))
        painter.setPen(QColor(t.muted))
        kind = theme.px(_KIND)
        painter.drawText(QRect(inner.topLeft(), QSize(kind, inner.height())), middle, entry.kind)
        taken = self._draw_right(painter, inner, entry)
        painter.setFont(theme.font())
        painter.setPen(QColor(t.text))
        room = inner.adjusted(kind, 0, -taken - theme.M, 0)
        title = painter.fontMetrics().elidedText(
            entry.title, Qt.TextElideMode.ElideRight, room.width()
        )
        painter.drawText(room, int(middle | Qt.TextFlag.TextSingleLine), title)
        painter.restore()

    def _draw_right(self, painter: QPainter, inner: QRect, entry: PaletteEntry) -> int:
        """Paint the keys as a cap at the right, and where it is before their column.

        Returns:
            The pixels that both take.
        """
        t, metrics = theme.tokens(), painter.fontMetrics()
        keys, where = (metrics.horizontalAdvance(text) for text in (entry.keys, entry.detail))
        if entry.keys:
            width, height = keys + 2 * _CAP, metrics.height() + 4
            cap = QRectF(inner.right() - width, inner.center().y() - height / 2, width, height)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QColor(t.line))
            painter.setBrush(QColor(t.sunken))
            painter.drawRoundedRect(cap.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
            painter.setPen(QColor(t.muted))
            painter.drawText(cap, int(Qt.AlignmentFlag.AlignCenter), entry.keys)
        column = max(theme.px(_KEYS), keys + 2 * _CAP) if entry.keys or entry.detail else 0
        side = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight)
        painter.drawText(inner.adjusted(0, 0, -column - theme.S, 0), side, entry.detail)
        return column + theme.S + where
