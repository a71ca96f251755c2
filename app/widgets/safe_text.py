"""Show rich text that can be read and copied, but cannot load, open or run anything."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PySide6.QtCore import QSize, Qt, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QImage,
    QResizeEvent,
    QTextBlock,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFragment,
    QTextFrameFormat,
    QTextOption,
    QTextTable,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser, QWidget

from gpudeck.app.widgets import theme
from gpudeck.app.widgets.citations import Citation, CitedFact, tooltip
from gpudeck.app.widgets.fonts import MONOSPACE

_FACTS = "fact:"
"""The scheme of links to facts; the indices of the facts follow."""


class SafeText(QTextBrowser):
    """Show text whose only links lead to facts, and which loads no images and no style sheets.

    Emits `cited` with the indices of the facts of a link.
    """

    cited = Signal(list)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._nothing = QImage(1, 1, QImage.Format.Format_ARGB32)
        self._nothing.fill(Qt.GlobalColor.transparent)
        self.setOpenLinks(False)
        self.setOpenExternalLinks(False)
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(
            flags.TextSelectableByMouse
            | flags.TextSelectableByKeyboard
            | flags.LinksAccessibleByMouse
        )
        self.anchorClicked.connect(self._clicked)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(20)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().height() < self.fontMetrics().height():
            # text that was set while there was no height was scrolled to its cursor
            self.verticalScrollBar().setValue(0)

    def loadResource(self, kind: int, name: QUrl | str) -> QImage:
        # without an image, Qt would read the file itself
        return self._nothing

    def show_markdown(self, text: str) -> None:
        """Show GitHub's Markdown; HTML in it is shown as plain text."""
        features = (
            QTextDocument.MarkdownFeature.MarkdownDialectGitHub
            | QTextDocument.MarkdownFeature.MarkdownNoHTML
        )
        # the joiner keeps Qt from breaking the line after the slash
        self.document().setMarkdown(text.replace("TFLOP/s", "TFLOP/\u2060s"), features)
        self._space_out()

    def scroll_to_heading(self, heading: str) -> None:
        """Scroll to a heading, as Markdown has it; stay where there is none."""
        wanted, block = heading.replace("`", ""), self.document().begin()
        while block.isValid() and not (
            block.blockFormat().headingLevel() and block.text() == wanted
        ):
            block = block.next()
        if block.isValid():
            top = self.document().documentLayout().blockBoundingRect(block).top()
            self.verticalScrollBar().setValue(round(top))

    def cite(self, citations: Sequence[Citation], facts: Sequence[CitedFact]) -> None:
        """Link each value to its facts, with a dotted line and a tooltip."""
        shown = self.document().toPlainText()
        wide = not shown.isascii()  # Qt counts in UTF-16
        for citation in citations:
            start, end = (
                (_utf16(shown, at) if wide else at) for at in (citation.start, citation.end)
            )
            cursor, char_format = QTextCursor(self.document()), QTextCharFormat()
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            char_format.setAnchor(True)
            char_format.setAnchorHref(_FACTS + ",".join(map(str, citation.facts)))
            char_format.setToolTip(escape(tooltip(citation, facts)).replace("\n", "<br>"))
            char_format.setUnderlineStyle(QTextCharFormat.UnderlineStyle.DotLine)
            char_format.setUnderlineColor(QColor(theme.tokens().muted))
            cursor.mergeCharFormat(char_format)

    def mark_rows(self, rows: Sequence[int]) -> None:
        """Highlight some rows of the first table."""
        tables = [
            frame
            for frame in self.document().rootFrame().childFrames()
            if isinstance(frame, QTextTable)
        ]
        for row in rows:
            for column in range(tables[0].columns() if tables and row < tables[0].rows() else 0):
                cell = tables[0].cellAt(row, column)
                char_format = cell.format()
                char_format.setBackground(QColor(theme.tokens().accent_soft))
                cell.setFormat(char_format)

    def _clicked(self, link: QUrl) -> None:
        if link.toString().startswith(_FACTS):
            self.cited.emit(
                [int(i) for i in link.toString().removeprefix(_FACTS).split(",") if i.isdigit()]
            )

    def show_table(self, rows: tuple[tuple[str, str], ...]) -> None:
        """Show captions on the left and values on the right, as plain text.

        A row of a caption or a value alone takes the whole width.
        """
        cells = "".join(f"<tr>{_cells(caption, value)}</tr>" for caption, value in rows)
        self.setHtml(f'<table cellspacing="0" cellpadding="2">{cells}</table>')

    def _space_out(self) -> None:
        """Add space between blocks, and reduce headings and table borders."""
        whole = QTextCursor(self.document())
        whole.beginEditBlock()  # so that it is laid out only once
        block = self.document().begin()
        while block.isValid():
            _space_block(block)
            _set_typefaces(block)
            block = block.next()
        for frame in self.document().rootFrame().childFrames():
            if isinstance(frame, QTextTable):
                table = frame.format().toTableFormat()
                table.setBorderCollapse(True)
                table.setBorderBrush(QColor(theme.tokens().line))
                table.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
                table.setCellPadding(theme.XS)
                table.setBottomMargin(theme.S)
                frame.setFormat(table)
        whole.endEditBlock()


def _space_block(block: QTextBlock) -> None:
    cursor, form = QTextCursor(block), block.blockFormat()
    if level := form.headingLevel():
        cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
        char_format = QTextCharFormat()
        char_format.setProperty(QTextFormat.Property.FontSizeAdjustment, 1 if level <= 2 else 0)
        cursor.mergeCharFormat(char_format)
    if form.hasProperty(QTextFormat.Property.BlockCodeFence):
        form.setBackground(QColor(theme.tokens().sunken))
        last = not block.next().blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence)
        form.setBottomMargin(theme.S if last else 0)
        form.setTextIndent(theme.S)  # a margin would not have the colour of the ground
        cursor.setBlockFormat(form)
    elif not cursor.currentTable():
        form.setTopMargin(theme.S if form.headingLevel() and block.position() else 0)
        form.setBottomMargin(theme.XS)
        cursor.setBlockFormat(form)


def _set_typefaces(block: QTextBlock) -> None:
    """Set code and strong words in the program's typefaces.

    Qt sets code in the typeface of the system, and prints bold words twice beside each other, as
    the program has no bolder typeface than the semi-bold one.
    """
    code, strong = QTextCharFormat(), QTextCharFormat()
    code.setFontFamilies([MONOSPACE])
    strong.setFontWeight(QFont.Weight.DemiBold)
    cursor, parts, at = QTextCursor(block), list[QTextFragment](), block.begin()
    while not at.atEnd():
        parts.append(at.fragment())
        at += 1
    for part in parts:
        cursor.setPosition(part.position())
        cursor.setPosition(part.position() + part.length(), QTextCursor.MoveMode.KeepAnchor)
        if part.charFormat().hasProperty(QTextFormat.Property.FontFamilies):
            cursor.mergeCharFormat(code)
        if part.charFormat().fontWeight() > QFont.Weight.DemiBold:
            cursor.mergeCharFormat(strong)
    if block.charFormat().hasProperty(QTextFormat.Property.FontFamilies):
        cursor.mergeBlockCharFormat(code)


class FittedText(SafeText):
    """Be as high as the text, and scroll where there is less room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.document().documentLayout().documentSizeChanged.connect(
            lambda _: self.updateGeometry()
        )

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), int(self.document().size().height()) + 2)


def _cells(caption: str, value: str) -> str:
    """Return a row of a table as HTML."""
    muted = f"color:{theme.tokens().muted}"
    if caption and value:
        style = f"{muted}; padding-right:16px; white-space:nowrap"
        # the width keeps rows that span both columns from widening the captions
        return f'<td style="{style}">{escape(caption)}</td><td width="100%">{escape(value)}</td>'
    style = f"{muted}; padding-top:8px" if caption else ""
    return f'<td colspan="2" style="{style}">{escape(caption or value)}</td>'


def _utf16(text: str, at: int) -> int:
    return len(text[:at].encode("utf-16-le")) // 2
