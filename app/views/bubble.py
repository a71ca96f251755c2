"""One message of the conversation, as high as its text."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QVBoxLayout

from app import theme
from app.models.conversation import Message
from app.models.format import plural
from app.views.safe_text import SafeText
from app.views.widgets import button, label, row, set_text


class Bubble(QFrame):
    """Text, who wrote it, and the facts it rests on, which open on demand."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.setProperty("bubble", message.author)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.text = SafeText()
        self.text.setAccessibleName("Message")
        self.note = label(size="small", meaning="muted", wrap=True)
        self.writer = label(size="small", meaning="muted")
        self.sources = button("", kind="quiet", checkable=True, tooltip="The facts that this text rests on")
        self.facts = SafeText()
        self.facts.setAccessibleName("Facts it rests on")
        for part in (self.text, self.facts):
            part.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
            part.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
            part.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.facts.hide()
        self.sources.toggled.connect(self._open)
        footer = row(self.writer, self.sources)
        footer.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.L, theme.M, theme.L, theme.M)
        layout.setSpacing(theme.S)
        layout.addWidget(self.text)
        layout.addWidget(self.note)
        layout.addLayout(footer)
        layout.addWidget(self.facts)
        self.message = message
        self._show(message)

    def show_message(self, message: Message) -> None:
        if message != self.message:
            self.message = message
            self._show(message)

    def recolor(self) -> None:
        """Colours inside rich text do not follow the palette by themselves."""
        self._show(self.message)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _show(self, message: Message) -> None:
        if message.author == "you":
            self.text.setPlainText(message.text)
        else:
            self.text.show_markdown(message.text)
        self.text.setVisible(bool(message.text))
        set_text(self.note, message.note or ("writes …" if message.state == "writing" else ""))
        self.note.setVisible(bool(self.note.text()))
        theme.mark(self.note, "meaning", "failed" if message.state == "failed" else "muted")
        set_text(self.writer, f"written by {message.writer}" if message.writer else "")
        self.writer.setVisible(bool(message.writer))
        self.sources.setVisible(bool(message.facts))
        self._open(self.sources.isChecked())
        self._fit()

    def _open(self, opened: bool) -> None:
        self.sources.setText(f"{'Hide' if opened else 'Show'} {plural(len(self.message.facts), 'source')}")
        if opened:
            self.facts.show_table(tuple((name, f"{value}  ({source})" if source else value) for name, value, source in self.message.facts))
        self.facts.setVisible(opened and bool(self.message.facts))
        self._fit()

    def _fit(self) -> None:
        for part in (self.text, self.facts):
            part.setFixedHeight(int(part.document().size().height()) + 2)
