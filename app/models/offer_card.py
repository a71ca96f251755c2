"""Show the offer of a model as a quiet card, with its download."""

from __future__ import annotations

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.models import offer_text
from gpudeck.app.models.offer import ModelOffer
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    ProgressLine,
    Stretch,
    button,
    column,
    elided,
    label,
    row,
    set_text,
    set_tooltip,
)


class OfferCard(QFrame):
    """Show what a model would change, its size, licence and speed, and a button that takes it."""

    def __init__(self, offer: ModelOffer, *, always: bool = False) -> None:
        """Create a card.

        Args:
            offer: What is offered.
            always: Show it to those who declined it, too.
        """
        super().__init__()
        self._offer, self._always, self._wanted = offer, always, True
        self.setProperty("card", "true")
        self.setAccessibleName(tr("A language model for the assistant"))
        self.title = label(strong=True, wrap=True)
        self.change = label(size="small", wrap=True)
        self.facts = label(size="small", meaning="muted", wrap=True)
        self.speed = label(size="small", meaning="muted", wrap=True)
        self.said = label(size="small", wrap=True)
        self.bar = ProgressLine()
        self.progress = elided(size="small", meaning="muted")
        self.take = button(tr("Download and use"), offer.take)
        self.stop = button(
            tr("Stop"),
            offer.stop,
            tooltip=tr("Keep what was downloaded; the next download continues from there"),
        )
        self.later = button(
            tr("Not now"),
            offer.decline,
            kind="quiet",
            tooltip=tr("Offer it on the Models page only"),
        )
        texts = (self.title, self.change, self.facts, self.speed, self.bar, self.said)
        buttons = row(self.take, self.later, Stretch(self.progress, 1000), self.stop, Stretch())
        layout = column(*texts, buttons, spacing=theme.XS)
        layout.setContentsMargins(theme.L, theme.M, theme.L, theme.M)
        self.setLayout(layout)
        offer.changed.connect(self.refresh)
        self.hide()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._offer.look()
        self.refresh()

    def show_wanted(self, wanted: bool) -> None:
        """Show the card only while it is `wanted` or its model is downloaded."""
        self._wanted = wanted
        self.refresh()

    def refresh(self) -> None:
        """Show the newest state."""
        offer = self._offer
        if offer.found is None and not offer.said:
            offer.look()
        offered, busy, download = offer.offered, offer.busy, offer.download
        said = offer.said or (tr_text(offer.reason) if self._always else "")
        welcome = busy or (self._wanted and (self._always or not offer.declined))
        self.setVisible(welcome and bool(offered or said))
        for part in (self.title, self.change, self.facts, self.speed):
            part.setVisible(offered is not None)
        if offered is not None:
            set_text(self.title, tr("For the assistant: {name}", name=offered.model.name))
            change, facts, speed = offer_text.lines(offered)
            set_text(self.change, change)
            set_text(self.facts, facts)
            set_text(self.speed, speed)
            set_tooltip(self.facts, offer_text.page(offered))
        self.take.setVisible(offered is not None and not busy)
        self.take.setText(self._take_text())
        self.later.setVisible(offered is not None and not (busy or self._always))
        for widget in (self.stop, self.bar, self.progress):
            widget.setVisible(busy)
        if download is not None:
            self.bar.set_share(download.share)
            set_text(self.progress, download.text)
        set_text(self.said, said)
        self.said.setVisible(bool(said))
        theme.mark(self.said, "meaning", "failed" if offer.failed else "muted")

    def _take_text(self) -> str:
        if not self._offer.begun:
            return tr("Download and use")
        return tr("Continue: {size} are here already", size=memory(self._offer.begun))
