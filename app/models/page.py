"""The models that can write: on the list, dropped here, or fetched; chosen, timed and forgotten."""

from __future__ import annotations

from typing import Literal, cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QFileDialog, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from app.link.requests import Configure, Refused, Reply
from app.link.state import State
from app.models.model_card import ModelCard
from app.models.model_list import Fetching, is_used, needs, speed_of
from app.models.model_requests import (
    AddModel,
    Changed,
    ForgetModel,
    ListModels,
    ModelReply,
    ModelRequest,
    Models,
    Pulled,
    Pulling,
    PullModel,
    StopPull,
    StopTiming,
    Timed,
    TimeModel,
    Timing,
)
from app.widgets import theme
from app.widgets.controls import ProgressLine, button, elided, label, row, set_text
from assistant.library.describe import Model
from assistant.library.model_list import setting_of
from scheduler.protocol.settings import TEMPLATE

EMPTY = (
    "No models yet: the template writes the answers, from the same facts.\n"
    "Drop a folder or a file of an RWKV-7 here, add one, or fetch one from Hugging Face."
)


class ModelsPage(QWidget):
    """Emits `requested` with what is wanted; `left` to go back."""

    requested = Signal(object)
    left = Signal()

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.found: tuple[Model, ...] = ()
        self.cards: dict[str, ModelCard] = {}
        self._speeds: dict[str, str] = {}
        self._timing = ("", "")
        """The model that is being timed, and how far that is."""
        self._fetching: Fetching | None = None
        self.setAcceptDrops(True)
        self.name = QLineEdit()
        self.name.setPlaceholderText("OWNER/NAME on Hugging Face")
        self.name.setAccessibleName("Model to fetch from Hugging Face")
        self.name.returnPressed.connect(self._fetch)
        self.fetch = button(
            "Fetch",
            tooltip="Weights as .safetensors, configuration and vocabulary; nothing that could be run",
        )
        self.fetch.clicked.connect(self._fetch)
        self.stop = button(
            "Stop", tooltip="What was fetched is kept, and gone on with the next time"
        )
        self.stop.clicked.connect(lambda: self.requested.emit(StopPull()))
        self.add_folder = button(
            "Add folder…",
            tooltip="A folder of .safetensors; files and folders can also be dropped here",
        )
        self.add_folder.clicked.connect(self._browse)
        self.add_file = button("Add file…", tooltip="A .safetensors or .pth file")
        self.add_file.clicked.connect(self._browse_file)
        self.back = button("Back to the conversation", tooltip="(Esc)")
        self.back.setShortcut("Esc")
        self.back.clicked.connect(self.left)
        self.bar = ProgressLine()
        self.progress = elided(size="small", meaning="muted")
        self.said = label(size="small", wrap=True)
        self.none = label(
            "No model is in use: templates write all texts, from the same facts.",
            size="small",
            meaning="muted",
            wrap=True,
        )
        self.empty = label(EMPTY, meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._lay_out()
        self.refresh()

    def refresh(self) -> None:
        used = self._used
        busy = bool(self._timing[0])
        for path, card in self.cards.items():
            timing = self._timing[1] if path == self._timing[0] else ""
            in_use, needed = is_used(card.model, used), needs(card.model, self._state.snapshot)
            listed = not in_use and bool(setting_of(card.model))
            card.show_state(in_use, listed, needed, timing, self._speeds.get(path, ""), busy)
        self.empty.setVisible(not self.found)
        self.none.setVisible(bool(self.found) and self._state.snapshot is not None and not used)
        fetching = self._fetching
        self.fetch.setEnabled(fetching is None)
        self.stop.setVisible(fetching is not None)
        self.bar.setVisible(fetching is not None)
        self.progress.setVisible(fetching is not None)
        if fetching is not None:
            self.bar.set_share(fetching.share)
            set_text(self.progress, fetching.text)
        self.said.setVisible(bool(self.said.text()))

    def deliver(self, reply: Reply) -> None:
        match reply:
            case Refused(request=request, message=message) if isinstance(request, ModelRequest):
                self._say(message, failed=True)
                if isinstance(request, PullModel):
                    self._fetching = None
                elif isinstance(request, TimeModel):
                    self._timing = ("", "")
            case Refused(request=Configure(changes=changes), message=message) if (
                "model_folder" in changes
            ):
                self._say(message, failed=True)
            case _ if isinstance(reply, ModelReply):
                self._take(reply)
            case _:
                return
        self.refresh()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        event.acceptProposedAction()
        for url in event.mimeData().urls():
            if url.isLocalFile():
                self.requested.emit(AddModel(url.toLocalFile()))

    @property
    def _used(self) -> str:
        return self._state.snapshot.settings.model if self._state.snapshot else ""

    def _take(self, reply: ModelReply) -> None:
        match reply:
            case Models(found=found):
                self._show(found)
            case Changed(said=said) | Pulled(said=said):
                self._fetching = None if isinstance(reply, Pulled) else self._fetching
                if said:
                    self._say(said)
                self.requested.emit(ListModels(self._used))
            case Pulling(progress=progress):
                self._fetching = self._fetching or Fetching(progress)
                self._fetching.take(progress)
            case Timing(path=path, text=text):
                self._timing = (path, text)
            case Timed(path=path, speed=speed):
                self._timing = ("", "")
                if speed is not None:
                    self._speeds[path] = speed_of(speed)

    def _show(self, found: tuple[Model, ...]) -> None:
        """Cards for what is on the list now; the others go."""
        if found == self.found and self.cards:
            return
        self.found = found
        for card in self.cards.values():
            self._body.removeWidget(card)
            card.deleteLater()
        self.cards = {model.path: ModelCard(model) for model in found}
        for place, (path, card) in enumerate(self.cards.items()):
            card.acted.connect(lambda what, p=path: self._act(what, p))
            self._body.insertWidget(place, card)

    def _act(self, what: str, path: str) -> None:
        device = cast("Literal['cpu', 'cuda']", self.cards[path].device.currentText())
        wanted: dict[str, ModelRequest | Configure] = {
            "use": Configure({"model_folder": setting_of(self.cards[path].model)}),
            "leave": Configure({"model_folder": TEMPLATE}),
            "time": TimeModel(path, device),
            "stop": StopTiming(),
            "forget": ForgetModel(path),
        }
        if what == "use" and setting_of(self.cards[path].model):
            self.requested.emit(
                AddModel(path)
            )  # so that it stays on the list when another one is chosen
        elif what == "time":
            self._timing = (path, "asks the assistant")
        self.requested.emit(wanted[what])
        self.refresh()

    def _fetch(self) -> None:
        if self._fetching is None and (name := self.name.text().strip()):
            self._say("")
            self.requested.emit(PullModel(name))

    def _browse(self) -> None:
        if folder := QFileDialog.getExistingDirectory(self, "A folder with an RWKV-7 model"):
            self.requested.emit(AddModel(folder))

    def _browse_file(self) -> None:
        file, _ = QFileDialog.getOpenFileName(
            self, "An RWKV-7 model", "", "Models (*.safetensors *.pth)"
        )
        if file:
            self.requested.emit(AddModel(file))

    def _say(self, text: str, failed: bool = False) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", "failed" if failed else "muted")

    def _lay_out(self) -> None:
        inner = QWidget()
        inner.setProperty("clear", "true")
        self._body = QVBoxLayout(inner)
        self._body.setContentsMargins(0, 0, 0, 0)
        self._body.setSpacing(theme.S)
        self._body.addStretch()
        scroll = QScrollArea()
        scroll.setAccessibleName("Models")
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inner)
        top = row(label("Models", size="large"), self.back)
        top.insertStretch(1, 1)
        source = row(self.name, self.fetch, self.stop, self.add_folder, self.add_file)
        source.setStretch(0, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(top)
        layout.addLayout(source)
        for part in (self.bar, self.progress, self.said, self.none):
            layout.addWidget(part)
        layout.addWidget(self.empty)
        layout.addWidget(scroll, 1)
