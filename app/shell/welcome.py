"""Welcome a user who opens the window for the first time, and lead to the pages."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from gpudeck.app.language.texts import tr, tr_count, tr_noop, tr_text
from gpudeck.app.models.offer import ModelOffer
from gpudeck.app.models.offer_card import OfferCard
from gpudeck.app.state import State
from gpudeck.app.widgets import icons, theme
from gpudeck.app.widgets.controls import (
    NO_LIMIT,
    Stretch,
    button,
    column,
    grid_layout,
    label,
    row,
    set_text,
)
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import card_name

_WIDEST, _STEP, _ICON = 1180, 330, 26
"""Pixels of the page at most, of a step at least, and of its icon."""
_MOST_ACROSS = 3


@dataclass(frozen=True)
class Step:
    """Describe a page and what people do there."""

    page: str
    title: str
    text: str


STEPS = (
    Step(
        "dashboard",
        tr_noop("Watch the GPUs"),
        tr_noop("See what every GPU does now and did before. Click a GPU to see its details."),
    ),
    Step(
        "workloads",
        tr_noop("Run a benchmark"),
        tr_noop("Measure how fast your GPU computes, and whether its results are correct."),
    ),
    Step(
        "jobs",
        tr_noop("Queue a job"),
        tr_noop(
            "Queue any command until GPUs are free. Jobs keep running when you close this window."
        ),
    ),
    Step(
        "assistant",
        tr_noop("Ask a question"),
        tr_noop(
            "Ask what happened, and why. Answers need no GPU; a language model uses one only while "
            "it is idle."
        ),
    ),
    Step(
        "hosts",
        tr_noop("Add a machine"),
        tr_noop(
            "Watch the GPUs of machines that you log in to with ssh. Nothing is installed there."
        ),
    ),
    Step(
        "settings",
        tr_noop("Set it up"),
        tr_noop(
            "Choose alert thresholds, the GPUs that take jobs, the theme and the assistant's model."
        ),
    ),
)

RECORDED = "h100.trace.gz"
"""The recording that comes with GPU Deck."""


class StepCard(QPushButton):
    """Lead to a page: its icon, what to do there and why."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self._step = step
        self._first = step is STEPS[0]
        """It is what to do first."""
        self.setProperty("kind", "primary" if self._first else "card")
        self.setAutoDefault(False)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._title, self._text = tr(step.title), tr(step.text)
        self.setAccessibleName(self._title)
        self.setAccessibleDescription(self._text)

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(_STEP // 3), self._height(self.width()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setFixedHeight(self._height(self.width()))

    def _places(self, width: int) -> tuple[QRect, QRect]:
        """Return where the title and the text stand at this width."""
        left = theme.px(_ICON) + 2 * theme.L
        room = QRect(left, theme.L, max(width - left - theme.L, 1), NO_LIMIT)
        flags = int(Qt.TextFlag.TextWordWrap)
        title = QFontMetrics(theme.font(strong=True)).boundingRect(room, flags, self._title)
        room.setTop(title.bottom() + theme.XS)
        small = QFontMetrics(theme.font(theme.SMALL))
        text = small.boundingRect(room, flags, self._text)
        title.setWidth(room.width())
        text.setWidth(room.width())
        return title, text

    def _height(self, width: int) -> int:
        return self._places(width)[1].bottom() + theme.L

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, t, side = QPainter(self), theme.tokens(), theme.px(_ICON)
        color = t.on_accent if self._first else t.accent
        icons.draw(painter, self._step.page, QRectF(theme.L, theme.L, side, side), color)
        flags = int(Qt.TextFlag.TextWordWrap)
        title, text = self._places(self.width())
        painter.setFont(theme.font(strong=True))
        painter.setPen(QColor(t.on_accent if self._first else t.text))
        painter.drawText(title, flags, self._title)
        small = theme.font(theme.SMALL)
        small.setWeight(QFont.Weight.Normal)  # the button's own font may be a strong one
        painter.setFont(small)
        painter.setPen(QColor(t.on_accent if self._first else t.muted))
        painter.drawText(text, flags, self._text)


class Welcome(QWidget):
    """Show what there is to do on each page."""

    chosen = Signal(str)
    """The user chose the page with this name."""
    source_wanted = Signal(str)
    """The user wants the readings of this source, as the setting names it."""

    def __init__(self, state: State, offer: ModelOffer) -> None:
        super().__init__()
        self._state = state
        self.devices = label(wrap=True, meaning="muted")
        self.replay = button("", self._change_source)
        """Offers the recorded GPU where there is none, and leads back."""
        self._source = ""
        self.offer = OfferCard(offer)
        self.steps: dict[str, QPushButton] = {}
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._grid = grid_layout(None, theme.M, theme.M)
        self._across = 0
        for step in STEPS:
            made = self.steps[step.page] = StepCard(step)
            made.clicked.connect(lambda _=False, page=step.page: self.chosen.emit(page))
        body = QWidget()
        body.setLayout(
            column(
                label(tr("Welcome to GPU Deck"), size="huge", wrap=True),
                column(self.devices, row(self.replay, Stretch())),
                self._grid,
                self.offer,
                label(background_text(), size="small", meaning="muted", wrap=True),
                spacing=theme.L,
            )
        )
        body.setMaximumWidth(theme.px(_WIDEST))
        self.setLayout(
            column(Stretch(), row(Stretch(), Stretch(body, 1000), Stretch()), Stretch(None, 2))
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put as many steps side by side as have room."""
        super().resizeEvent(event)
        width = min(self.width(), theme.px(_WIDEST))
        across = min(max(width // theme.px(_STEP), 1), _MOST_ACROSS)
        if across == self._across:
            return
        self._across = across
        for at, made in enumerate(self.steps.values()):
            self._grid.removeWidget(made)
            self._grid.addWidget(made, *divmod(at, across), Qt.AlignmentFlag.AlignTop)
        for at in range(_MOST_ACROSS):
            self._grid.setColumnStretch(at, int(at < across))

    def refresh(self) -> None:
        """Show the devices that were found."""
        set_text(self.devices, device_text(self._state))
        self._offer_source()
        self.offer.refresh()

    def _offer_source(self) -> None:
        """Offer the recorded GPU on a machine without one, and the machine's devices after it."""
        states = self._state.snapshot.devices if self._state.snapshot else ()
        kinds = {state.device.kind for state in states}
        self.replay.setVisible(kinds in ({"cpu"}, {"replay"}))
        recorded = kinds == {"replay"}
        self._source = "auto" if recorded else f"replay:{paths.assets() / RECORDED}"
        self.replay.setText(
            tr("Use this machine's GPUs") if recorded else tr("Look around with a recorded H100")
        )

    def _change_source(self) -> None:
        self.source_wanted.emit(self._source)


def device_text(state: State) -> str:
    """Return a sentence that names the devices."""
    snapshot = state.snapshot
    if snapshot is None:
        return tr("Looking for your devices: {state}.", state=state.link.text)
    devices = snapshot.devices
    if not devices:
        notices = "; ".join(map(tr_text, snapshot.notices))
        return tr("No device can be read yet. {notices}", notices=notices)
    names = list(dict.fromkeys(card_name(s.device.name) for s in devices))
    note = next((s.device.note for s in devices if s.device.note), "")
    if devices[0].device.kind == "cpu":
        return tr(
            "No NVIDIA GPU was found, so this machine's CPU is the device: {name}.", name=names[0]
        )
    text = tr_count("{n} GPU: {names}.", "{n} GPUs: {names}.", len(devices), names=", ".join(names))
    return f"{text} {tr_text(note)}." if note else text


def background_text() -> str:
    """Return a text about the process that keeps running when the window is closed."""
    return tr(
        "A small background process reads the devices and runs the queue. It keeps running when "
        "you close this window; to end it, run: gpudeck daemon stop. All its data is in "
        "{folder}, readable by you alone, and leaves this machine only if you ask for it.",
        folder=paths.home(),
    )
