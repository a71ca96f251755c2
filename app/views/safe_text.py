"""Rich text that is data: it may be read, selected and copied, and it can load, open and run nothing."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QImage, QTextDocument, QTextOption
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from app import theme


class SafeText(QTextBrowser):
    """No link leads anywhere, no image or style sheet is loaded, from no place."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._nothing = QImage(1, 1, QImage.Format.Format_ARGB32)
        self._nothing.fill(Qt.GlobalColor.transparent)
        self.setOpenLinks(False)
        self.setOpenExternalLinks(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document().setDocumentMargin(0)

    def loadResource(self, kind: int, name: QUrl | str) -> QImage:
        # Qt would read the file itself if this returned nothing.
        return self._nothing

    def show_markdown(self, text: str) -> None:
        """Markdown as on GitHub, HTML in it as plain text."""
        features = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
        self.document().setMarkdown(text, features)

    def show_table(self, rows: tuple[tuple[str, str], ...]) -> None:
        """Captions on the left, values on the right; both plain text."""
        muted = theme.tokens().muted
        cells = "".join(
            f'<tr><td style="color:{muted}; padding-right:16px; white-space:nowrap">{escape(caption)}</td><td>{escape(value)}</td></tr>'
            for caption, value in rows
        )
        self.setHtml(f'<table cellspacing="0" cellpadding="2">{cells}</table>')
