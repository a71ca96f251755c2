"""Build the labels, buttons, boxes, cards and rows that every page uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from textwrap import fill

from PySide6.QtCore import QEvent, QObject, QRectF, QSize, Qt, QTimer, SignalInstance
from PySide6.QtGui import QColor, QHelpEvent, QKeySequence, QPainter, QPaintEvent, QPen, QShortcut
from PySide6.QtWidgets import (
    QBoxLayout,
    QComboBox,
    QFileDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QStackedWidget,
    QStyle,
    QStyleOptionFrame,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.language.numbers import capitalized

_TOOLTIP = 88
"""Characters of the lines of a tooltip."""
NO_LIMIT = 2**24 - 1
"""Qt's QWIDGETSIZE_MAX, which PySide does not name: a width or height without a limit."""


class ElidedLabel(QLabel):
    """Show one line of plain text that ends in … where there is no room for all of it."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def event(self, event: QEvent) -> bool:
        """Show the whole text on hover where it is cut, unless there is a tooltip."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            cut = self.fontMetrics().horizontalAdvance(self.text()) > self.width()
            if cut and not self.toolTip():
                QToolTip.showText(event.globalPos(), plain_tooltip(self.text()), self)
                return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        painter.drawText(self.rect(), int(self.alignment() | Qt.TextFlag.TextSingleLine), text)


class ElidedLine(QLineEdit):
    """Show a long text with … in its middle until it is edited: the end of a path names the file.

    The whole text is shown on hover, above the description of the field.
    """

    def paintEvent(self, event: QPaintEvent) -> None:
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        room = (
            self.style()
            .subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)
            .adjusted(2, 0, -2, 0)
        )
        text = self.fontMetrics().elidedText(
            self.text(), Qt.TextElideMode.ElideMiddle, room.width()
        )
        cut = text != self.text()
        shown = (self.text() if cut else "", self.accessibleDescription())
        set_tooltip(self, "\n\n".join(filter(None, shown)))
        if not cut or self.hasFocus():
            super().paintEvent(event)
            return
        painter = QPainter(self)
        self.style().drawPrimitive(QStyle.PrimitiveElement.PE_PanelLineEdit, option, painter, self)
        painter.setPen(self.palette().text().color())
        painter.drawText(room, int(Qt.AlignmentFlag.AlignVCenter), text)


class ProgressLine(QWidget):
    """Show progress as a thin line that is filled to a share of its length."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.share: float | None = None
        self.setFixedHeight(3)

    def set_share(self, share: float | None) -> None:
        """Fill the line to `share`, 0 to 1; leave it empty for None."""
        if share != self.share:
            self.share = share
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        draw_share(QPainter(self), QRectF(self.rect()), self.share)


def draw_share(painter: QPainter, box: QRectF, share: float | None) -> None:
    """Paint a bar that is filled to `share`, 0 to 1; an empty one for None."""
    t = theme.tokens()
    painter.fillRect(box, QColor(t.line))
    filled = QRectF(box)
    filled.setWidth(box.width() * (share or 0.0))
    painter.fillRect(filled, QColor(t.accent))


def draw_ring(painter: QPainter, box: QRectF, share: float) -> None:
    """Paint a ring that is filled clockwise to `share`, 0 to 1, from its top."""
    t, whole = theme.tokens(), 16 * 360  # Qt counts in sixteenths of a degree
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for color, part in ((t.line, 1.0), (t.accent, share)):
        painter.setPen(QPen(QColor(color), 2.5))
        painter.drawArc(box.adjusted(1.25, 1.25, -1.25, -1.25), whole // 4, -round(whole * part))
    painter.restore()


def label(
    text: str = "", *, size: str = "", meaning: str = "", strong: bool = False, wrap: bool = False
) -> QLabel:
    """Return a label of plain text.

    Args:
        size: "small", "large", "huge", or "" for the usual size.
        meaning: "muted", "warm", "hot", "throttled", "failed", or "" for the usual colour.
    """
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setProperty("scale", size)
    made.setProperty("meaning", meaning)
    made.setProperty("strong", "true" if strong else "")
    made.setWordWrap(wrap)
    return made


def badge(text: str, tooltip: str = "") -> QLabel:
    """Return a short word on a dark ground, such as REPLAY."""
    made = label(text, size="small", strong=True)
    made.setProperty("badge", "true")
    set_tooltip(made, tooltip)
    return made


def pill() -> QLabel:
    """Return a label that shows a state as a rounded word in its colour; see `set_pill`."""
    made = label()
    made.setProperty("pill", "muted")
    made.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
    return made


def set_pill(shown: QLabel, text: str, meaning: str) -> None:
    """Show a state, which begins with a capital, in the colour of one of `pill_colors`."""
    set_text(shown, capitalized(text))
    theme.mark(shown, "pill", meaning)


def empty_label(text: str = "") -> QLabel:
    """Return the centred label that a page shows while it has no content."""
    made = label(text, meaning="muted", wrap=True)
    made.setAlignment(Qt.AlignmentFlag.AlignCenter)
    return made


def elided(
    text: str = "", *, size: str = "", meaning: str = "", strong: bool = False
) -> ElidedLabel:
    """Return a line of text that is elided where there is no room; see `label` for the rest."""
    made = ElidedLabel(text)
    made.setProperty("scale", size)
    made.setProperty("meaning", meaning)
    made.setProperty("strong", "true" if strong else "")
    return made


def button(
    text: str,
    clicked: Callable[..., object] | SignalInstance | None = None,
    *,
    kind: str = "",
    tooltip: str = "",
    checkable: bool = False,
) -> QPushButton:
    """Return a button that calls or emits `clicked`.

    Args:
        kind: "primary" (one per page), "quiet", or "" for the usual look.
    """
    made = QPushButton(text)
    made.setProperty("kind", kind)
    made.setToolTip(tooltip)
    made.setCheckable(checkable)
    made.setAutoDefault(False)
    if clicked is not None:
        made.clicked.connect(clicked)
    return made


def choice_box(name: str, choices: Iterable[str] = ()) -> QComboBox:
    """Return a box in which the user chooses one of several texts; `name` is also its tooltip.

    Args:
        choices: English texts, which are shown translated; `currentData` returns them as they are.
    """
    made = QComboBox()
    for choice in choices:
        made.addItem(tr(choice), choice)
    made.setAccessibleName(name)
    made.setToolTip(name)
    return made


def line_box(name: str, hint: str, tooltip: str = "") -> QLineEdit:
    """Return a line of text to type; `hint` is shown while it is empty."""
    made = QLineEdit()
    made.setPlaceholderText(hint)
    made.setAccessibleName(name)
    made.setToolTip(tooltip)
    return made


def filter_box(hint: str) -> QLineEdit:
    """Return the line in which the user types to filter a list."""
    box = QLineEdit()
    box.setPlaceholderText(hint)
    box.setClearButtonEnabled(True)
    box.setMinimumWidth(theme.px(108))
    box.setMaximumWidth(theme.px(420))
    box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    box.setAccessibleName(tr("Filter"))
    return box


@dataclass(frozen=True)
class Stretch:
    """Give an item of a row or column the remaining room; without an item, leave it empty."""

    item: QWidget | QLayout | None = None
    factor: int = 1


Item = QWidget | QLayout | Stretch


Margins = tuple[int, int, int, int]
"""The margins of a layout: left, top, right and bottom."""


def row(*items: Item, spacing: int = theme.S, margins: Margins = (0, 0, 0, 0)) -> QHBoxLayout:
    """Lay out widgets and layouts from left to right."""
    layout = QHBoxLayout()
    _fill(layout, items, spacing, margins)
    return layout


def column(*items: Item, spacing: int = theme.S, margins: Margins = (0, 0, 0, 0)) -> QVBoxLayout:
    """Lay out widgets and layouts from top to bottom."""
    layout = QVBoxLayout()
    _fill(layout, items, spacing, margins)
    return layout


def _fill(layout: QBoxLayout, items: Iterable[Item], spacing: int, margins: Margins) -> None:
    layout.setContentsMargins(*margins)
    layout.setSpacing(spacing)
    for item in items:
        stretch = item if isinstance(item, Stretch) else Stretch(item, 0)
        if isinstance(stretch.item, QWidget):
            layout.addWidget(stretch.item, stretch.factor)
        elif stretch.item is not None:
            layout.addLayout(stretch.item, stretch.factor)
        else:
            layout.addStretch(stretch.factor)


def grid_layout(
    owner: QWidget | None = None, horizontal: int = theme.S, vertical: int = theme.S
) -> QGridLayout:
    """Return an empty grid without margins, which lays out `owner`, or a part of another layout."""
    layout = QGridLayout() if owner is None else QGridLayout(owner)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setHorizontalSpacing(horizontal)
    layout.setVerticalSpacing(vertical)
    return layout


def card(layout: QBoxLayout | None = None) -> QFrame:
    """Return a framed surface that holds `layout`."""
    frame = QFrame()
    frame.setProperty("card", "true")
    if layout is not None:
        layout.setContentsMargins(theme.L, theme.M, theme.L, theme.M)
        frame.setLayout(layout)
    return frame


def rule() -> QFrame:
    """Return a thin horizontal line."""
    frame = QFrame()
    frame.setProperty("rule", "true")
    frame.setFixedHeight(1)
    return frame


def clear_panel(layout: QLayout) -> QWidget:
    """Return a widget without a background of its own, for the inside of a scroll area."""
    panel = QWidget()
    panel.setProperty("clear", "true")
    panel.setLayout(layout)
    return panel


def scroll_area(content: QWidget, name: str = "") -> QScrollArea:
    """Return an area that scrolls `content` vertically.

    Args:
        name: The accessible name; without one the area is never focused.
    """
    area = QScrollArea()
    set_up_scroll(area, content, name)
    return area


def set_up_scroll(area: QScrollArea, content: QWidget, name: str = "") -> None:
    """Let `area` scroll `content` vertically; see `scroll_area`."""
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setAccessibleName(name)
    if not name:
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(content)


REACHES_EDGE = "reaches_edge"
"""A property of pages that have an EdgeScrollArea of their own at the edge of the window."""
_SHOWN_OR_HIDDEN = (QEvent.Type.Show, QEvent.Type.Hide)


class EdgeScrollArea(QScrollArea):
    """Scroll what is at the right edge of the window, with the bar in the margin there.

    The content is as wide with the bar as without, so that it ends where others do.
    """

    def __init__(self, content: QWidget, name: str = "") -> None:
        super().__init__()
        self._margin = theme.M
        set_up_scroll(self, content, name)
        self.verticalScrollBar().installEventFilter(self)
        self._leave_room(bar=False)

    def leave_margin(self, *, wanted: bool) -> None:
        """Leave a margin on the right, or let the content reach the edge of the window."""
        self._margin = theme.M if wanted else 0
        self._leave_room(bar=self.verticalScrollBar().isVisibleTo(self))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.verticalScrollBar() and event.type() in _SHOWN_OR_HIDDEN:
            self._leave_room(bar=event.type() == QEvent.Type.Show)
        return super().eventFilter(watched, event)

    def _leave_room(self, *, bar: bool) -> None:
        width = self.verticalScrollBar().sizeHint().width() if bar else 0
        self.setViewportMargins(0, 0, max(self._margin - width, 0), 0)


def delay(parent: QObject, milliseconds: int, slot: Callable[[], object]) -> QTimer:
    """Return a timer that calls `slot` once, some time after it was started last."""
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.setInterval(milliseconds)
    timer.timeout.connect(slot)
    return timer


def add_shortcuts(page: QWidget, slots: Mapping[str, Callable[..., object]]) -> None:
    """Call the slots on their keys while the focus is in `page`."""
    for keys, slot in slots.items():
        QShortcut(QKeySequence(keys), page, slot).setContext(
            Qt.ShortcutContext.WidgetWithChildrenShortcut
        )


class PageStack(QStackedWidget):
    """Show one of several pages; need as much room as that one, not as the largest."""

    def minimumSizeHint(self) -> QSize:
        page = self.currentWidget()
        return page.minimumSizeHint() if page is not None else QSize()

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()

    def heightForWidth(self, width: int) -> int:
        """Return the least height of the page that is shown; Qt's own counts hidden pages, too."""
        page = self.currentWidget()
        layout = page.layout() if page is not None else None
        if layout is not None and layout.hasHeightForWidth():
            return layout.minimumHeightForWidth(width)
        return self.minimumSizeHint().height()


class QuestionCard(QFrame):
    """Ask for a confirmation in one line, with two buttons. The card is hidden until `ask`."""

    def __init__(
        self,
        yes: str,
        no: str,
        confirmed: Callable[..., object],
        declined: Callable[..., object],
        primary: str = "yes",
    ) -> None:
        """Call `confirmed` or `declined`; `primary` names the button that is emphasized."""
        super().__init__()
        self.setProperty("card", "true")
        self.text = label(meaning="hot", wrap=True)
        self.yes = button(yes, confirmed, kind="primary" if primary == "yes" else "")
        self.no = button(no, declined, kind="primary" if primary == "no" else "", tooltip="Esc")
        line = row(Stretch(self.text), self.yes, self.no, spacing=theme.M)
        line.setContentsMargins(theme.L, theme.M, theme.L, theme.M)
        self.setLayout(line)
        self.hide()

    def ask(self, text: str) -> None:
        """Show the question and focus the button that changes nothing."""
        set_text(self.text, text)
        self.show()
        self.no.setFocus()


def set_text(target: QLabel, text: str) -> None:
    """Set the text if it changed: Qt lays out a label again even if its text is the same."""
    if target.text() != text:
        target.setText(text)


def show_if_any(target: QLabel, text: str) -> None:
    """Set the text, and hide the label while there is none."""
    set_text(target, text)
    target.setVisible(bool(text))


def set_tooltip(target: QWidget, text: str) -> None:
    """Set a tooltip that is shown as plain text, since it may quote what others wrote."""
    plain = plain_tooltip(text)
    if target.toolTip() != plain:
        target.setToolTip(plain)


def plain_tooltip(text: str) -> str:
    """Return a tooltip that shows `text` in lines that can be read, even if it looks like HTML.

    Qt shows each line of plain text as one line, however long it is.
    """
    lines = (
        fill(line, _TOOLTIP, break_long_words=False) if len(line) > _TOOLTIP else line
        for line in text.split("\n")
    )
    text = "\n".join(lines)
    return escape(text).replace("\n", "<br>") if "<" in text else text


def ask_save_path(
    parent: QWidget, title: str, name: str, formats: str, chosen: Callable[[str], object]
) -> None:
    """Ask for a file to save to, without blocking.

    Args:
        name: The file name that is proposed.
        formats: The formats, as `QFileDialog` takes them.
        chosen: Called with the path, once the user has chosen one.
    """
    dialog = QFileDialog(parent, title, name, formats)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(chosen)
    dialog.open()
