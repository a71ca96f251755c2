"""List the saved conversations, to search, open, rename and delete them."""

from __future__ import annotations

import time

from PySide6.QtCore import (
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QAction, QColor, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QListWidget,
    QListWidgetItem,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from gpudeck.app.assistant.session_files import Summary
from gpudeck.app.language.texts import tr, tr_count, tr_moment
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import menu_of
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    column,
    delay,
    filter_box,
    label,
    plain_tooltip,
    row,
    set_text,
)
from gpudeck.app.widgets.icon_button import IconButton

_KEY, _BELOW = Qt.ItemDataRole.UserRole, Qt.ItemDataRole.UserRole + 1
_LINE, _MARGIN = 18, 4
"""Pixels of a line at the usual size of text, and above and below both lines."""
_SEARCH_MS = 200


class SessionList(QWidget):
    """Show the conversations. The page carries out what the user asks for."""

    opened = Signal(str)
    renamed = Signal(str, str)
    deleted = Signal(str)
    created = Signal()
    searched = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[Summary, ...] = ()
        self._key = ""
        self.new = button(tr("New chat"), tooltip=tr("Start a new conversation (Ctrl+N)"))
        self.new.clicked.connect(self.created)
        self.rename, self.remove = QAction(tr("Rename"), self), QAction(tr("Delete"), self)
        for action, keys, slot in (
            (self.rename, "F2", self._rename), (self.remove, "Del", self._drop)
        ):  # fmt: skip
            action.setShortcut(keys)
            action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)  # the list has the keys
            action.setShortcutVisibleInContextMenu(True)
            action.triggered.connect(slot)
        self.menu = menu_of(self, [self.rename, self.remove])
        self.more = IconButton("more", tr("About the conversation"), tr("Rename or delete it"))
        self.more.setMenu(self.menu)
        self.search = filter_box(tr("Search"))
        self.search.setMinimumWidth(0)
        self.search.setAccessibleName(tr("Search the conversations"))
        self._pause = delay(self, _SEARCH_MS, lambda: self.searched.emit(self.search.text()))
        self.search.textChanged.connect(self._pause.start)
        self.list = _ConversationList()
        self.list.setAccessibleName(tr("Conversations"))
        self.list.setItemDelegate(_TwoLineDelegate(self.list))
        self.list.itemActivated.connect(self._open)
        self.list.itemClicked.connect(self._open)
        self.list.itemChanged.connect(self._changed)
        self.list.delete_pressed.connect(self._drop)
        self.empty = label(
            tr("Your conversations appear here."), size="small", meaning="muted", wrap=True
        )
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._lay_out()
        self.show_sessions((), "")

    def show_sessions(self, found: tuple[Summary, ...], key: str) -> None:
        """Show these conversations, of which the one with this key is open."""
        if (found, key) == (self.found, self._key) and self.list.count() == len(found):
            return
        self.found, self._key = found, key
        self.list.blockSignals(True)
        self.list.clear()
        for summary in found:
            item = QListWidgetItem(summary.title)
            item.setFlags(item.flags() | Qt.ItemFlag.ItemIsEditable)
            item.setData(_KEY, summary.key)
            item.setData(_BELOW, summary.excerpt or _when(summary.changed))
            item.setToolTip(
                plain_tooltip(f"{summary.title}\n{summary.excerpt or _when(summary.changed)}")
            )
            self.list.addItem(item)
            if summary.key == key:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)
        set_text(
            self.empty,
            tr("Nothing found.")
            if self.search.text()
            else tr("Your conversations appear here.")
            if not found
            else "",
        )
        self.empty.setVisible(not found)
        self.list.setAccessibleDescription(
            tr_count("{n} conversation", "{n} conversations", len(found))
        )
        for made in (self.rename, self.remove):
            made.setEnabled(bool(found))

    def _open(self, item: QListWidgetItem) -> None:
        self.opened.emit(item.data(_KEY))

    def _rename(self) -> None:
        if (item := self.list.currentItem()) is not None:
            self.list.editItem(item)

    def _changed(self, item: QListWidgetItem) -> None:
        self.renamed.emit(item.data(_KEY), item.text())

    def _drop(self) -> None:
        if (item := self.list.currentItem()) is not None:
            self.deleted.emit(item.data(_KEY))

    def _lay_out(self) -> None:
        self.setLayout(
            column(
                row(Stretch(self.new), self.more, spacing=theme.XS), self.search, Stretch(self.list)
            )
        )
        self.list.setLayout(
            column(Stretch(), self.empty, Stretch(), margins=(theme.M, theme.M, theme.M, theme.M))
        )
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.list.customContextMenuRequested.connect(
            lambda at: self.menu.popup(self.list.viewport().mapToGlobal(at))
        )


class _ConversationList(QListWidget):
    """List the conversations."""

    delete_pressed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(self.EditTrigger.EditKeyPressed)
        self.setUniformItemSizes(True)
        self.setProperty("bare", "true")

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()  # it takes all the room that is left

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Delete:
            self.delete_pressed.emit()
        else:
            super().keyPressEvent(event)


class _TwoLineDelegate(QStyledItemDelegate):
    """Paint the title, and below it an excerpt or the time of the last change."""

    def sizeHint(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        return QSize(100, 2 * (theme.px(_LINE) + _MARGIN))

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        t, state = theme.tokens(), option.state
        rect: QRect = option.rect
        painter.save()
        if state & (state.State_Selected | state.State_HasFocus):
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QColor(t.accent if state & state.State_HasFocus else t.accent_soft))
            painter.setBrush(QColor(t.accent_soft))
            painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        inner = rect.adjusted(theme.S, _MARGIN, -theme.S, -_MARGIN)
        first = QRect(inner.left(), inner.top(), inner.width(), theme.px(_LINE))
        second = first.translated(0, first.height())
        for text, size, color, box in (
            (index.data(), theme.BASE, t.text, first),
            (index.data(_BELOW), theme.SMALL, t.muted, second),
        ):
            painter.setFont(theme.font(size))
            painter.setPen(QColor(color))
            line = painter.fontMetrics().elidedText(
                str(text), Qt.TextElideMode.ElideRight, box.width()
            )
            painter.drawText(
                box, int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine), line
            )
        painter.restore()


def _when(changed: float) -> str:
    recent = time.time() - changed < 43200
    return tr_moment(changed, form="clock" if recent else "date and clock")
