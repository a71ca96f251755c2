"""Convert a report to PDF.

Qt lays out the report's HTML as a text document and draws the charts as vectors, so that there is
one description of the page and no need for a PDF library. Only `app` may import Qt, so this module
is here and not beside the other formats in `gpudeck.assistant.reports`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape

from PySide6.QtCore import (
    QBuffer,
    QByteArray,
    QIODevice,
    QMarginsF,
    QPointF,
    QRect,
    QRectF,
    QSizeF,
    Qt,
)
from PySide6.QtGui import (
    QColor,
    QGuiApplication,
    QPageLayout,
    QPageSize,
    QPainter,
    QPdfWriter,
    QPyTextObject,
    QTextBlock,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtSvg import QSvgRenderer

from gpudeck.app.widgets.fonts import FAMILY, MONOSPACE, load
from gpudeck.assistant.reports.html import body, caption
from gpudeck.assistant.reports.report import Chart, Report
from gpudeck.assistant.reports.style import LIGHT, chart_rules
from gpudeck.assistant.reports.svg import HEIGHT, WIDTH, draw_svg

_DPI = 96
_MARGIN_MM, _FOOTER_PX = 16, 28
_TITLE_PX, _KEY_PX = 18, 9
"""The height of a chart's title, and the size of the patches in its key."""
_BESIDE = 3
"""The most devices whose key stands beside the title."""
_OBJECT = QTextFormat.ObjectTypes.UserObject + 1
_CHART = QTextFormat.Property.UserProperty + 1
_PLACEHOLDER = "\ue000"
"""Marks the place of a chart: a private character, which no fact, name or log line contains."""
_STYLE = f"""
body{{color:{LIGHT.text};font-family:'{FAMILY}';font-size:12px}}
h1{{font-size:20px}}h2{{font-size:15px;margin-top:18px}}h3{{font-size:13px}}
.about,.note{{color:{LIGHT.muted};font-size:11px}}p{{margin-top:4px;margin-bottom:4px}}
table{{border-collapse:collapse;margin-top:4px;margin-bottom:8px}}
td,th{{padding:3px 10px 3px 0;border-bottom:1px solid {LIGHT.line};text-align:left;font-size:11px}}
th{{color:{LIGHT.muted};font-weight:normal}}
pre,code{{font-family:'{MONOSPACE}';font-size:10px}}
pre{{background-color:{LIGHT.window};white-space:pre-wrap}}
"""


def as_pdf(report: Report) -> bytes:
    """Return the report as PDF on A4 pages, in light colors.

    Any thread may call this while a QGuiApplication runs.
    """
    application = _application()
    load(application)
    made = QByteArray()
    buffer = QBuffer(made)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setTitle(report.title)
    writer.setCreator("GPU Deck")
    writer.setResolution(_DPI)
    margins = QMarginsF(_MARGIN_MM, _MARGIN_MM, _MARGIN_MM, _MARGIN_MM)
    writer.setPageLayout(
        QPageLayout(
            QPageSize(QPageSize.PageSizeId.A4),
            QPageLayout.Orientation.Portrait,
            margins,
            QPageLayout.Unit.Millimeter,
        )
    )
    page = QRectF(writer.pageLayout().paintRectPixels(_DPI))
    text = QSizeF(page.width(), page.height() - _FOOTER_PX)
    document, charts = _document(report, writer, text)
    painter = QPainter(writer)
    font = painter.font()
    font.setFamily(FAMILY)
    painter.setFont(font)
    for number in range(document.pageCount()):
        if number:
            writer.newPage()
        _paint(painter, document, number, text)
        painter.setPen(QColor(LIGHT.muted))
        foot = QRectF(0, text.height(), text.width(), _FOOTER_PX)
        painter.drawText(
            foot,
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom,
            f"{number + 1} / {document.pageCount()}",
        )
    painter.end()
    buffer.close()
    del charts, application  # Qt needs both until here, but holds no references
    return bytes(made.data())


def _application() -> QGuiApplication:
    """Return the application that Qt needs for its fonts, or start one without a display."""
    if isinstance(running := QGuiApplication.instance(), QGuiApplication):
        return running
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    return QGuiApplication(["gpudeck"])


def _paint(painter: QPainter, document: QTextDocument, number: int, page: QSizeF) -> None:
    top = number * page.height()
    painter.save()
    painter.translate(0, -top)
    document.drawContents(painter, QRectF(0, top, page.width(), page.height()))
    painter.restore()


def _document(report: Report, writer: QPdfWriter, page: QSizeF) -> tuple[QTextDocument, _Charts]:
    """Lay out the report in pages of this size."""
    shown: list[Chart] = []

    def figure(chart: Chart) -> str:
        below = f'<p class="note">{caption(chart, report.words)}</p>'
        if not chart.lines:
            return f"<p><b>{escape(chart.heading)}</b></p>{below}"
        shown.append(chart)
        return f"<p>{_PLACEHOLDER}</p>{below}"

    document = QTextDocument()
    document.setDocumentMargin(0)
    document.documentLayout().setPaintDevice(writer)
    document.setDefaultStyleSheet(_STYLE)
    document.setHtml(
        body(report, figure).replace("TFLOP/s", "TFLOP/\u2060s")
    )  # Qt would break the unit after the slash
    charts = _Charts(shown, page.width())
    document.documentLayout().registerHandler(_OBJECT, charts)
    for i in range(len(shown)):
        cursor = document.find(_PLACEHOLDER)
        char_format = QTextCharFormat()
        char_format.setObjectType(_OBJECT)
        char_format.setProperty(_CHART, i)
        cursor.insertText("\ufffc", char_format)
    document.setPageSize(page)
    _keep_headings(document, page)
    return document, charts


def _keep_headings(document: QTextDocument, page: QSizeF) -> None:
    """Move each heading whose text begins on the next page to that page.

    Headings that follow each other are moved together.
    """
    block = document.begin()
    while (after := block.next()).isValid():
        below = after
        while below.blockFormat().headingLevel() and below.next().isValid():
            below = below.next()
        if block.blockFormat().headingLevel() and _page(document, block, page) != _page(
            document, below, page
        ):
            char_format = block.blockFormat()
            char_format.setPageBreakPolicy(QTextFormat.PageBreakFlag.PageBreak_AlwaysBefore)
            QTextCursor(block).setBlockFormat(char_format)
            document.markContentsDirty(
                0, document.characterCount()
            )  # else Qt loses the lines of headings further down
        block = after


def _page(document: QTextDocument, block: QTextBlock, page: QSizeF) -> int:
    """Return the number of the page on which a block's first line ends."""
    top = document.documentLayout().blockBoundingRect(block).top()
    return (
        int((top + block.layout().lineAt(0).rect().bottom()) // page.height())
        if block.layout().lineCount()
        else -1
    )


class _Charts(QPyTextObject):
    """Draw the charts of a report in its text, each with its title.

    A chart is one object of the text, so that no page breaks within it.
    """

    def __init__(self, charts: Sequence[Chart], width: float) -> None:
        super().__init__()
        rules = chart_rules(LIGHT)
        self._charts = charts
        self._drawings = [
            QSvgRenderer(QByteArray(draw_svg(chart, rules).encode())) for chart in charts
        ]
        self._sizes = [
            QSizeF(width, self._above(chart) + width * HEIGHT / WIDTH) for chart in charts
        ]

    def intrinsicSize(
        self, document: QTextDocument, position: int, char_format: QTextFormat
    ) -> QSizeF:
        return self._sizes[int(char_format.property(_CHART))]

    def drawObject(
        self,
        painter: QPainter,
        rect: QRectF | QRect,
        document: QTextDocument,
        position: int,
        char_format: QTextFormat,
    ) -> None:
        number, place = char_format.property(_CHART), QRectF(rect)
        chart = self._charts[number]
        painter.save()
        font = painter.font()
        font.setBold(True)
        painter.setFont(font)
        painter.setPen(QColor(LIGHT.text))
        painter.drawText(QRectF(place.left(), place.top(), place.width(), _TITLE_PX), chart.heading)
        font.setBold(False)
        painter.setFont(font)
        if len(chart.lines) > 1:
            self._draw_key(painter, chart, place)
        painter.restore()
        self._drawings[number].render(painter, place.adjusted(0, self._above(chart), 0, 0))

    @staticmethod
    def _above(chart: Chart) -> int:
        """Return the height of the title, and of a line for the key of many devices."""
        return _TITLE_PX * (2 if len(chart.lines) > _BESIDE else 1)

    def _draw_key(self, painter: QPainter, chart: Chart, place: QRectF) -> None:
        """Draw which color is which device, from the right; many below the title."""
        x, metrics = place.right(), painter.fontMetrics()
        labels = [line.label for line in chart.lines]
        if len(labels) > _BESIDE:  # only what differs: 0, 1, 2 after GPU 0
            alike = labels[0].rpartition(" ")[0] + " "
            labels = [labels[0], *(label.removeprefix(alike) for label in labels[1:])]
        place = place.adjusted(0, self._above(chart) - _TITLE_PX, 0, 0)
        for i, label in reversed(list(enumerate(labels))):
            x -= metrics.horizontalAdvance(label)
            painter.drawText(QPointF(x, place.top() + metrics.ascent()), label)
            x -= _KEY_PX + 4
            colour = QColor(LIGHT.series[i % len(LIGHT.series)])
            painter.fillRect(
                QRectF(x, place.top() + metrics.ascent() - _KEY_PX, _KEY_PX, _KEY_PX), colour
            )
            x -= _KEY_PX
