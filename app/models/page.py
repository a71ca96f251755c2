"""Show the language models, and let the user add, download, benchmark, choose and remove them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDropEvent,
    QHideEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QBoxLayout, QFileDialog, QLineEdit, QWidget

from gpudeck.app.language.texts import tr, tr_count, tr_noop
from gpudeck.app.link.call import Call, Request
from gpudeck.app.link.link import Link
from gpudeck.app.models.hub_list import HubList
from gpudeck.app.models.model_card import ModelCard
from gpudeck.app.models.model_list import ORDERS, Download, is_used, matches, needs, speed_text
from gpudeck.app.models.offer import ModelOffer
from gpudeck.app.models.offer_card import OfferCard
from gpudeck.app.models.requests import (
    AddModel,
    BenchmarkModel,
    DownloadModel,
    FindUnfinished,
    ListModels,
    RemoveModel,
    SearchHub,
)
from gpudeck.app.models.serving_panel import ServingPanel
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import (
    REACHES_EDGE,
    EdgeScrollArea,
    ProgressLine,
    Stretch,
    button,
    card,
    choice_box,
    clear_panel,
    column,
    elided,
    filter_box,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.fitting_row import FittingRow
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.assistant.host_protocol import ModelSpeed
from gpudeck.assistant.library.describe import Model
from gpudeck.scheduler.protocol.settings import TEMPLATE
from gpudeck.scheduler.verbs.control import Configure

if TYPE_CHECKING:
    from gpudeck.assistant.library.hub import FetchProgress
    from gpudeck.assistant.library.hub_search import HubModel

_WIDE = 1700
"""Pixels of width from which on served and stored models stand side by side."""
T = TypeVar("T")

EXAMPLES = ("Qwen3 4B", "Llama 3.2 3B Instruct", "Phi-4 mini", "Gemma 3 4B", "RWKV-7")
"""What people search for, which needs no translation."""
EMPTY = tr_noop(
    "No models yet: answers are written from templates, with the same facts.\n"
    "Drop the folder of a model here, add one, or download one from Hugging Face."
)


class ModelsPage(QWidget):
    """List the models, with a card for each. Emit `left` when the user wants to go back."""

    left = Signal()
    listed = Signal()
    """Emitted when the list of models was read again."""

    def __init__(self, state: State, link: Link, offer: ModelOffer) -> None:
        super().__init__()
        self._state, self._link = state, link
        self.found: tuple[Model, ...] = ()
        self.cards: dict[str, ModelCard] = {}
        self._speeds: dict[str, str] = {}
        self._listed_for: str | None = None
        """The model in use when the list was requested."""
        self._timing = ("", "")
        """The path of the model that is being measured, and the progress of the benchmark."""
        self._benchmark: Call | None = None
        self._download: Call | None = None
        self._downloaded: Download | None = None
        self.offer = OfferCard(offer, always=True)
        self.setAcceptDrops(True)
        self._make_sources()
        self._make_list()
        bind_actions(self, {"models.leave": self.left.emit})
        self._lay_out()
        self.setFocusProxy(self.filter)
        self.refresh()

    def _make_sources(self) -> None:
        """Make what adds a model: by its name on the hub, from a folder or from a file."""
        self.name = QLineEdit()
        self.name.setPlaceholderText(tr("Search Hugging Face, or OWNER/NAME of a model there"))
        self.name.setAccessibleName(tr("Model to download from Hugging Face"))
        self.name.returnPressed.connect(self._find_or_download)
        self.name.textChanged.connect(self._name_button)
        self.offers = HubList()
        self.offers.wanted.connect(self._start_download)
        self.unfinished = HubList()
        """Downloads that were interrupted, also when the window was closed."""
        self.unfinished.wanted.connect(self._start_download)
        self.download = button(
            tr("Search"),
            kind="primary",
            tooltip=tr(
                "Download the .safetensors weights, configuration and vocabulary, but no code"
            ),
        )
        self.download.clicked.connect(self._find_or_download)
        self.stop = button(
            tr("Stop"),
            tooltip=tr("Keep what was downloaded; the next download continues from there"),
        )
        self.stop.clicked.connect(self._stop_download)
        self.add_folder = button(
            tr("Add folder…"),
            tooltip=tr(
                "Add a folder of .safetensors files; you can also drop files and folders here"
            ),
        )
        self.add_folder.clicked.connect(self._browse)
        self.add_file = button(tr("Add file…"), tooltip=tr("Add a .safetensors or .pth file"))
        self.add_file.clicked.connect(self._browse_file)
        self.examples = [
            button(name, partial(self._search, name), kind="quiet", tooltip=tr("Search for it"))
            for name in EXAMPLES
        ]
        for example in self.examples:
            example.setProperty("chip", "true")

    def _make_list(self) -> None:
        """Make the list of models with its filter, and what is said about it."""
        self.filter = filter_box(tr("Filter models"))
        self.filter.textChanged.connect(self._arrange)
        self.order = choice_box(tr("Order of the models"), ORDERS)
        self.order.currentTextChanged.connect(self._arrange)
        self.bar = ProgressLine()
        self.progress = elided(size="small", meaning="muted")
        self.said = label(size="small", wrap=True)
        self.none = label(
            tr("The assistant uses no model: it writes the same facts in fixed sentences."),
            size="small",
            meaning="muted",
            wrap=True,
        )
        self.serving = ServingPanel(self._state, self._link)
        self.serving.changed.connect(self.refresh)
        self.serving.told.connect(self._show_message)
        self.empty = label(tr(EMPTY), meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.stored = label(strong=True)

    def refresh(self) -> None:
        """Show the newest state, and read the list if another model is in use."""
        if self.isVisible():
            self.list_models()
        used = self._used
        busy = bool(self._timing[0])
        for path, made in self.cards.items():
            timing = self._timing[1] if path == self._timing[0] else ""
            in_use, needed = is_used(made.model, used), needs(made.model, self._state.snapshot)
            served, speed = self.serving.state_of(path), self._speeds.get(path, "")
            made.show_state(in_use, served, needed, timing, speed, busy)
            if made.serve is not None:
                free = self.serving.now.host_free
                made.serve.show_memory(self._state.snapshot, free, bool(served[0]))
        self._show_matching()
        self.empty.setVisible(not self.found)
        self.filter.setVisible(bool(self.found))
        self.order.setVisible(bool(self.found))
        self.offer.show_wanted(not any(made.model.able for made in self.cards.values()))
        known = bool(self.found) and self._state.snapshot is not None
        self.none.setVisible(known and not used and self.offer.isHidden())
        download = self._downloaded
        self.download.setEnabled(self._download is None)
        self.stop.setVisible(self._download is not None)
        self.bar.setVisible(download is not None)
        self.progress.setVisible(download is not None)
        if download is not None:
            self.bar.set_share(download.share)
            set_text(self.progress, download.text)
        self.said.setVisible(bool(self.said.text()))

    def list_models(self, again: bool = False) -> None:
        """Read the list of models, unless it was already read with the same model in use."""
        if again or self._listed_for != self._used:
            self._listed_for = self._used
            self._send(ListModels(self._used), self._show)

    def serve_folder(self, folder: str) -> None:
        """Add a model to the list, and serve it unless it is served."""

        def serve(message: str) -> None:
            self._show_change(message)
            self.serving.start_once(folder)

        self._send(AddModel(folder), serve)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.serving.watch(True)
        if self._download is None:
            self._send(FindUnfinished(), self.unfinished.show_unfinished)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.serving.watch(False)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        event.acceptProposedAction()
        for url in event.mimeData().urls():
            if url.isLocalFile():
                self._add(url.toLocalFile())

    @property
    def _used(self) -> str:
        return self._state.snapshot.settings.model if self._state.snapshot else ""

    def _send(self, request: Request[T], on_reply: Callable[[T], object] | None = None) -> None:
        self._link.send(self, request, on_reply, self._fail)

    def _fail(self, message: str) -> None:
        self._show_message(message, failed=True)
        self.refresh()

    def _add(self, path: str) -> None:
        self._send(AddModel(path), self._show_change)

    def _show_change(self, message: str) -> None:
        """Show the reply to a change, and the new list."""
        self._show_message(message)
        self.list_models(again=True)
        self.refresh()

    def _show_progress(self, progress: FetchProgress) -> None:
        self._downloaded = self._downloaded or Download(progress)
        self._downloaded.update(progress)
        self.refresh()

    def _end_download(self, message: str) -> None:
        self._download = self._downloaded = None
        self._show_change(message)

    def _fail_download(self, message: str) -> None:
        self._download = self._downloaded = None
        self._fail(message)

    def _stop_download(self) -> None:
        if self._download is not None:
            self._download.cancel()

    def _start_benchmark(self, path: str) -> None:
        def on_progress(text: str) -> None:
            self._timing = (path, text)
            self.refresh()

        def on_reply(speed: ModelSpeed | None) -> None:
            self._timing = ("", "")
            if speed is not None:
                self._speeds[path] = speed_text(speed)
            self.refresh()

        def on_error(message: str) -> None:
            self._timing = ("", "")
            self._fail(message)

        device = cast("Literal['cpu', 'cuda']", self.cards[path].device.currentData())
        self._timing = (path, tr("waiting for the assistant"))
        request = BenchmarkModel(path, device)
        self._benchmark = self._link.send(self, request, on_reply, on_error, on_progress)

    def _choose(self, folder: str) -> None:
        self._link.send(self, Configure({"model_folder": folder}), on_error=self._fail)

    def _show(self, found: tuple[Model, ...]) -> None:
        """Show a card for each model on the list, and remove all others."""
        if found == self.found and self.cards:
            return
        self.found = found
        for made in self.cards.values():
            self._stored.removeWidget(made)
            made.deleteLater()
        self.cards = {model.path: ModelCard(model) for model in found}
        for path, made in self.cards.items():
            made.acted.connect(lambda what, p=path: self._act(what, p))
            if made.serve is not None:
                made.serve.started.connect(self.serving.start)
        self._arrange()
        self.refresh()
        self.listed.emit()

    def _act(self, action: str, path: str) -> None:
        match action:
            case "use":
                self._add(path)  # so that it stays on the list when another one is chosen
                self._choose(path)
            case "leave":
                self._choose(TEMPLATE)
            case "time":
                self._start_benchmark(path)
            case "stop" if self._benchmark is not None:
                self._benchmark.cancel()
            case "forget":
                self._send(RemoveModel(path), self._show_change)
        self.refresh()

    def _name_button(self) -> None:
        """Name the button by what it would do with the text beside it."""
        self.download.setText(tr("Download") if "/" in self.name.text() else tr("Search"))

    def _find_or_download(self) -> None:
        """Download the model that is named as OWNER/NAME, or search for other words."""
        text = self.name.text().strip()
        if "/" in text:
            self._start_download(text)
        elif text:
            self._show_message(tr("Searching Hugging Face…"))
            self._send(SearchHub(text), self._show_offers)
        self.refresh()

    def _show_offers(self, found: tuple[HubModel, ...]) -> None:
        none = tr("Hugging Face has no such model that GPU Deck can run. Try fewer words.")
        self._show_message("" if found else none)
        self.offers.show_found(found, self._state.snapshot, self.serving.now.host_free)
        self.refresh()

    def _start_download(self, name: str) -> None:
        if self._download is None:
            self._show_message("")
            self.unfinished.show_unfinished(())
            self._download = self._link.send(
                self,
                DownloadModel(name),
                self._end_download,
                self._fail_download,
                self._show_progress,
            )
            self.refresh()

    def _browse(self) -> None:
        if folder := QFileDialog.getExistingDirectory(self, tr("Choose the folder of a model")):
            self._add(folder)

    def _browse_file(self) -> None:
        file, _ = QFileDialog.getOpenFileName(
            self,
            tr("Choose an RWKV-7 model"),
            "",
            tr("Models ({pattern})", pattern="*.safetensors *.pth"),
        )
        if file:
            self._add(file)

    def _show_message(self, text: str, failed: bool = False) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", "failed" if failed else "muted")

    def _arrange(self) -> None:
        """Show the models that the user looks for, in the chosen order."""
        order = ORDERS[self.order.currentData()]
        cards = sorted(self.cards.values(), key=lambda made: order(made.model))
        for made in cards:
            self._stored.removeWidget(made)
            self._stored.insertWidget(self._stored.count() - 1, made)
        self._show_matching()

    def _show_matching(self) -> None:
        """Show the models that the user looks for, except those that are served, further above."""
        rest = [c for path, c in self.cards.items() if not self.serving.state_of(path)[0]]
        found = [made for made in rest if matches(made.model, self.filter.text())]
        for made in self.cards.values():
            made.setVisible(made in found)
        self.stored.setVisible(bool(self.cards))
        set_text(self.stored, _stored(len(found), len(rest)))

    def _search(self, words: str) -> None:
        """Search for one of the examples."""
        self.name.setText(words)
        self._find_or_download()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide, directions = self.width() >= theme.px(_WIDE), QBoxLayout.Direction
        self._body.setDirection(directions.LeftToRight if wide else directions.TopToBottom)
        self._body.setStretchFactor(self.serving, int(wide))
        self.serving.enlarge(wanted=wide)

    def _lay_out(self) -> None:
        such_as = label(tr("Such as:"), size="small", meaning="muted")
        examples = row(such_as, Stretch(FittingRow(*self.examples)))
        title = label(tr("Find a model"), strong=True)
        line = row(title, Stretch(self.name), self.download, spacing=theme.M)
        self.sources = card(column(line, examples, self.offers))
        self._stored = column(self.stored, Stretch())
        stored, inner = clear_panel(self._stored), QWidget()
        inner.setProperty("clear", "true")
        self._body = column(spacing=theme.M)
        inner.setLayout(self._body)
        self._body.addWidget(self.serving, 0, Qt.AlignmentFlag.AlignTop)
        self._body.addWidget(stored, 1)
        scroll = EdgeScrollArea(inner, tr("Models"))
        self.setProperty(REACHES_EDGE, True)
        finding, adding = QWidget(), QWidget()
        finding.setLayout(row(self.filter, self.order, Stretch()))
        adding.setLayout(row(Stretch(), self.add_folder, self.add_file))
        running = row(Stretch(self.progress), self.stop)
        above = column(
            self.sources, FoldRow(finding, adding, (1, 0)), self.unfinished, self.bar, running,
            self.said, self.none, self.offer, self.empty,
        )  # fmt: skip
        above.setContentsMargins(0, 0, theme.M, 0)
        self.setLayout(column(above, Stretch(scroll)))


def _stored(shown: int, stored: int) -> str:
    """Return how many models this machine has, and how many of them are shown."""
    if shown == stored:
        return tr_count("On this machine: {n} model", "On this machine: {n} models", stored)
    return tr_count(
        "On this machine: {shown} of {n} model",
        "On this machine: {shown} of {n} models",
        stored,
        shown=shown,
    )
