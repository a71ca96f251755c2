"""Show the charts and the sources of the newest answer beside the conversation of a wide window."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame

from gpudeck.app.assistant.answer_charts import AnswerCharts
from gpudeck.app.assistant.captions import source_rows
from gpudeck.app.assistant.message_tree import Message
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, column, label, set_text
from gpudeck.app.widgets.safe_text import FittedText

_HIGH, _NARROWEST = 240, 640
"""Pixels of the height and of the least width of a chart."""


class AnswerPane(QFrame):
    """Show what an answer rests on; hidden while there is no such answer."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("card", "true")
        self.setAccessibleName(tr("About the answer"))
        self._message: Message | None = None
        self.question = label(strong=True, wrap=True)
        self.charts = AnswerCharts(_HIGH, _NARROWEST)
        self.heading = label(tr("Sources"), size="small", meaning="muted")
        self.sources = FittedText()
        self.sources.setAccessibleName(tr("Sources of the answer"))
        self.setLayout(
            column(
                self.question,
                self.charts,
                self.heading,
                self.sources,
                Stretch(),
                spacing=theme.M,
                margins=(theme.L, theme.M, theme.L, theme.M),
            )
        )

    def show_answer(self, question: str, message: Message | None) -> None:
        """Show another answer; None if there is none with charts or sources."""
        self.setVisible(message is not None)
        if message is None or message is self._message:
            return
        self._message = message
        set_text(self.question, question)
        self.charts.show_curves(message.curves)
        self.heading.setVisible(bool(message.facts))
        self.sources.setVisible(bool(message.facts))
        self.sources.show_table(source_rows(message.facts).rows)

    def recolor(self) -> None:
        """Draw the sources again, since colours in rich text do not follow the palette."""
        message, self._message = self._message, None
        if message is not None:
            self.show_answer(self.question.text(), message)
