"""Show the models that are served, once a second while the page is shown."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.models import served_text
from gpudeck.app.models.requests import FindServed, ServedNow, StartServing, StopServing
from gpudeck.app.models.served_card import ServedCard
from gpudeck.app.state import State
from gpudeck.app.widgets.controls import column, label
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.serve.control_messages import Held, Served

_EVERY_MS = 1000


class ServingPanel(QWidget):
    """List the served models with a card for each; hidden while there is none."""

    changed = Signal()
    """Another model is served, one less, or one of them is in another state."""
    told = Signal(str, bool)
    """Carries a message for the user, and whether something failed."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self.now = ServedNow()
        self.cards: dict[int, ServedCard] = {}
        self._asks = self._known = self._large = False
        self._starting: set[str] = set()
        self._timer = QTimer(self)
        self._timer.setInterval(_EVERY_MS)
        self._timer.timeout.connect(self.look)
        self.title = label(tr("Served now"), strong=True)
        self._body = column(self.title)
        self.setLayout(self._body)
        self.hide()

    def state_of(self, folder: str) -> tuple[str, str]:
        """Return the state of the model in a folder in a word, as its card says it, and the
        meaning of its colour; empty while the model is neither served nor started."""
        for each in self.now.served:
            if each.folder == folder:
                return served_text.pill(each)
        return (tr("starting"), "accent") if folder in self._starting else ("", "")

    def enlarge(self, *, wanted: bool) -> None:
        """Let the curves of each model be high, where there is much room."""
        self._large = wanted
        for card in self.cards.values():
            card.enlarge(wanted=wanted)

    def watch(self, watching: bool) -> None:
        """Begin or cease to look at the served models."""
        if watching:
            self.look()
            self._timer.start()
        else:
            self._timer.stop()

    def look(self) -> None:
        """Look at the served models now, unless a request is on its way."""
        if not self._asks:
            self._asks = True
            self._link.send(self, FindServed(), self.show_served, self._fail_look, background=True)

    def start(self, options: Options, held: Held) -> None:
        """Serve a model."""
        self._starting.add(options.folder)
        self.changed.emit()

        def ended(message: str, failed: bool) -> None:
            self._starting.discard(options.folder)
            self._end(message, failed)

        self._link.send(
            self, StartServing(options, held), lambda said: ended(said, False),
            lambda said: ended(said, True),
        )  # fmt: skip

    def start_once(self, folder: str) -> None:
        """Serve a model as Serve does without options, unless it is served or started now."""

        def start(now: ServedNow) -> None:
            self.show_served(now)
            if not self.state_of(folder)[0]:
                self.start(Options(folder), "lease")

        self._link.send(self, FindServed(), start, self._fail_look)

    def _stop(self, served: Served) -> None:
        self.cards[served.port].stop.setEnabled(False)
        self._link.send(
            self, StopServing(served), lambda said: self._end(said, False),
            lambda said: self._end(said, True),
        )  # fmt: skip

    def _end(self, message: str, failed: bool) -> None:
        self.told.emit(message, failed)
        self.look()
        self.changed.emit()

    def _fail_look(self, message: str) -> None:
        self._asks = False
        self.told.emit(message, True)

    def show_served(self, now: ServedNow) -> None:
        """Show what is served now."""
        self._asks = False
        before = {each.port: each.phase for each in self.now.served}
        self.now = now
        phases = {each.port: each.phase for each in now.served}
        for port in self.cards.keys() - phases.keys():
            card = self.cards.pop(port)
            self._body.removeWidget(card)
            card.deleteLater()
        for served in now.served:
            if served.port not in self.cards:
                card = self.cards[served.port] = ServedCard(served)
                card.stopped.connect(self._stop)
                card.enlarge(wanted=self._large)
                self._body.addWidget(card)
            self.cards[served.port].show_served(served, self._state.snapshot)
        self.setVisible(bool(self.cards))
        if before != phases or not self._known:
            self._known = True
            self.changed.emit()
