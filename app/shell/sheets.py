"""Sheets over the window: all shortcuts, and the manual."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QComboBox, QFrame, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.shell.manual_pages import ManualPage, manual_pages
from gpudeck.app.shell.page_titles import page_key
from gpudeck.app.shell.page_titles import title as page_title
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import ACTIONS, KEYS, key_names
from gpudeck.app.widgets.controls import (
    Stretch,
    add_shortcuts,
    button,
    clear_panel,
    column,
    label,
    row,
    scroll_area,
)
from gpudeck.app.widgets.safe_text import SafeText

_MARGIN, _WIDEST = 48, 980


class Sheet(QFrame):
    """Cover the middle of the window until Esc or Close."""

    def __init__(self, window: QWidget, title: str) -> None:
        super().__init__(window)
        self._window = window
        self._before: QWidget | None = None
        self.setProperty("toast", "true")
        self.setAccessibleName(title)
        self.close_button = button(tr("Close"), self.leave, tooltip="Esc")
        self.head = row(label(title, size="large", strong=True), Stretch(), self.close_button)
        margins = (theme.XL, theme.L, theme.XL, theme.L)
        self.body = column(self.head, spacing=theme.M, margins=margins)
        self.setLayout(self.body)
        add_shortcuts(self, {"Esc": self.leave})
        window.installEventFilter(self)
        self.hide()

    def open(self) -> None:
        """Show the sheet."""
        if not self.isVisible():
            self._before = self._window.focusWidget()
        self._place()
        self.show()
        self.raise_()
        self.close_button.setFocus()

    def leave(self) -> None:
        """Hide the sheet and give the focus back."""
        self.hide()
        if self._before is not None and self._before.isVisible():
            self._before.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return False

    def _place(self) -> None:
        box = self._window.rect()
        width = min(_WIDEST, box.width() - _MARGIN)
        height = box.height() - _MARGIN
        self.setGeometry((box.width() - width) // 2, _MARGIN // 2, width, height)


class ShortcutSheet(Sheet):
    """List all shortcuts by page, in columns."""

    def __init__(self, window: QWidget, pages: tuple[str, ...]) -> None:
        super().__init__(window, tr("Shortcuts"))
        groups = shortcut_groups(pages)
        columns = [QVBoxLayout(), QVBoxLayout()]
        for one in columns:
            one.setSpacing(theme.XS)
        filled = [0, 0]
        for name, rows in groups.items():
            at = filled.index(min(filled))
            filled[at] += len(rows) + 2
            columns[at].addWidget(label(name, strong=True))
            columns[at].addLayout(_keys_grid(rows))
            columns[at].addSpacing(theme.M)
        across = QHBoxLayout()
        across.setSpacing(theme.XL)
        for one in columns:
            one.addStretch(1)
            across.addLayout(one, 1)
        self.body.addWidget(scroll_area(clear_panel(across), tr("All shortcuts")), 1)


def shortcut_groups(pages: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Return titles and keys of all actions that have keys, by page."""
    groups: dict[str, list[tuple[str, str]]] = {"": []}
    for at, page in enumerate(pages, 1):
        groups[""].append((tr("Show {page}", page=page_title(page)), page_key(at)))
    for info in ACTIONS:
        if info.keys:
            groups.setdefault(info.page, []).append((tr(info.title), ", ".join(info.keys)))
    for page, title, keys in KEYS:
        groups.setdefault(page, []).append((tr(title), keys))
    return {page_title(page) if page else tr("Everywhere"): rows for page, rows in groups.items()}


def _keys_grid(rows: list[tuple[str, str]]) -> QGridLayout:
    grid = QGridLayout()
    grid.setVerticalSpacing(3)
    grid.setColumnStretch(0, 1)
    for at, (title, keys) in enumerate(rows):
        grid.addWidget(label(title, meaning="muted", wrap=True), at, 0)
        shown = QWidget()
        shown.setLayout(row(*(_key(key) for key in keys.split(", ")), spacing=theme.XS))
        grid.addWidget(shown, at, 1, Qt.AlignmentFlag.AlignRight)
    return grid


def _key(text: str) -> QWidget:
    made = label(key_names(text), size="small")
    made.setProperty("key", "true")
    return made


class ManualSheet(Sheet):
    """Show one page of the manual, and let the user choose another."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window, tr("Manual"))
        self.choice = QComboBox()
        self.choice.setAccessibleName(tr("Page of the manual"))
        self.text = SafeText()
        self.text.setAccessibleName(tr("Manual"))
        self._pages: list[ManualPage] = []
        self.head.insertWidget(1, self.choice)
        self.body.addWidget(self.text, 1)
        self.choice.currentIndexChanged.connect(self._show)

    def open_page(self, name: str, heading: str = "") -> None:
        """Show a page from its start, or from the section with a heading."""
        if not self._pages:
            self._pages = manual_pages()
            self.choice.addItems([page.title for page in self._pages])
        names = [page.name for page in self._pages]
        self.choice.setCurrentIndex(names.index(name) if name in names else 0)
        self._show()
        self.open()
        self.text.scroll_to_heading(heading)

    def _show(self) -> None:
        if 0 <= (at := self.choice.currentIndex()) < len(self._pages):
            self.text.show_markdown(self._pages[at].text)
            self.text.verticalScrollBar().setValue(0)
