"""Rich text that is data: it may be read, selected and copied, and it can load, open and run nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PySide6.QtCore import QSize, Qt, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QImage,
    QResizeEvent,
    QTextBlock,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextOption,
    QTextTable,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser, QWidget

from app.widgets import theme
from app.widgets.citations import Citation, Told, tooltip

_FACTS = "fact:"
"""What a link to facts begins with; their places follow."""


class SafeText(QTextBrowser):
    """No link leads anywhere but to the facts of a text, no image or style sheet is loaded, from no place. Emits `cited` with these."""

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
            self.verticalScrollBar().setValue(
                0
            )  # what was filled while it had no height was scrolled to its cursor

    def loadResource(self, kind: int, name: QUrl | str) -> QImage:
        # Qt would read the file itself if this returned nothing.
        return self._nothing

    def show_markdown(self, text: str) -> None:
        """Markdown as on GitHub, HTML in it as plain text."""
        features = (
            QTextDocument.MarkdownFeature.MarkdownDialectGitHub
            | QTextDocument.MarkdownFeature.MarkdownNoHTML
        )
        # the joiner keeps a unit on one line: Qt would break it after the slash
        self.document().setMarkdown(text.replace("TFLOP/s", "TFLOP/\u2060s"), features)
        self._space_out()

    def cite(self, citations: Sequence[Citation], facts: Sequence[Told]) -> None:
        """Let each figure lead to its facts: a dotted line, a tooltip, and `cited` where it is clicked."""
        shown = self.document().toPlainText()
        wide = not shown.isascii()  # Qt counts in UTF-16
        for citation in citations:
            start, end = (
                (_utf16(shown, at) if wide else at) for at in (citation.start, citation.end)
            )
            cursor, look = QTextCursor(self.document()), QTextCharFormat()
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            look.setAnchor(True)
            look.setAnchorHref(_FACTS + ",".join(map(str, citation.facts)))
            look.setToolTip(escape(tooltip(citation, facts)).replace("\n", "<br>"))
            look.setUnderlineStyle(QTextCharFormat.UnderlineStyle.DotLine)
            look.setUnderlineColor(QColor(theme.tokens().muted))
            cursor.mergeCharFormat(look)

    def mark_rows(self, rows: Sequence[int]) -> None:
        """Set some rows of the table apart."""
        tables = [
            frame
            for frame in self.document().rootFrame().childFrames()
            if isinstance(frame, QTextTable)
        ]
        for row in rows:
            for column in range(tables[0].columns() if tables and row < tables[0].rows() else 0):
                cell = tables[0].cellAt(row, column)
                look = cell.format()
                look.setBackground(QColor(theme.tokens().accent_soft))
                cell.setFormat(look)

    def _clicked(self, link: QUrl) -> None:
        if link.toString().startswith(_FACTS):
            self.cited.emit(
                [int(i) for i in link.toString().removeprefix(_FACTS).split(",") if i.isdigit()]
            )

    def show_table(self, rows: tuple[tuple[str, str], ...]) -> None:
        """Captions on the left, values on the right; both plain text."""
        muted = theme.tokens().muted
        cells = "".join(
            f'<tr><td style="color:{muted}; padding-right:16px; white-space:nowrap">{escape(caption)}</td><td>{escape(value)}</td></tr>'
            for caption, value in rows
        )
        self.setHtml(f'<table cellspacing="0" cellpadding="2">{cells}</table>')

    def _space_out(self) -> None:
        """Markdown comes without any space between blocks, with large headings and heavy tables."""
        whole = QTextCursor(self.document())
        whole.beginEditBlock()  # it is laid out once, at the end
        block = self.document().begin()
        while block.isValid():
            _space_block(block)
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
        look = QTextCharFormat()
        look.setProperty(QTextFormat.Property.FontSizeAdjustment, 1 if level <= 2 else 0)
        cursor.mergeCharFormat(look)
    if form.hasProperty(QTextFormat.Property.BlockCodeFence):
        form.setBackground(QColor(theme.tokens().sunken))
        last = not block.next().blockFormat().hasProperty(QTextFormat.Property.BlockCodeFence)
        form.setBottomMargin(theme.S if last else 0)
        cursor.setBlockFormat(form)
    elif not cursor.currentTable():
        form.setTopMargin(theme.S if form.headingLevel() and block.position() else 0)
        form.setBottomMargin(theme.XS)
        cursor.setBlockFormat(form)


class FittedText(SafeText):
    """Wants to be as high as its text, and scrolls where there is less room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.document().documentLayout().documentSizeChanged.connect(
            lambda _: self.updateGeometry()
        )

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), int(self.document().size().height()) + 2)


def _utf16(text: str, at: int) -> int:
    return len(text[:at].encode("utf-16-le")) // 2
