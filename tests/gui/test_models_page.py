"""The models page: dropped, chosen, timed, fetched and forgotten models; why one cannot be used;
what each needs."""

from __future__ import annotations

import shutil

import msgspec
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton

from gpudeck.app.assistant.notes import UNCHECKED
from gpudeck.app.assistant.requests import Chat, FinishedAnswer
from gpudeck.app.link.link import Link
from gpudeck.app.models.page import EXAMPLES, ModelsPage
from gpudeck.app.models.requests import (
    AddModel,
    BenchmarkModel,
    DownloadModel,
    FindUnfinished,
    ListModels,
    RemoveModel,
    SearchHub,
)
from gpudeck.app.widgets import theme
from gpudeck.assistant.host_protocol import Chunk, ModelSpeed, TokenRate
from gpudeck.assistant.library.describe import Model
from gpudeck.assistant.library.hub import FetchProgress
from gpudeck.assistant.library.hub_search import HubModel
from gpudeck.assistant.library.unfinished import Unfinished
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.verbs.control import Configure
from tests.gui import snapshots
from tests.gui.conftest import Fed, exchange
from tests.gui.readable import clipped, nameless, texts
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf

NEEDS = {"cpu": 11_800_000_000, "cuda": 5_900_000_000}
USED = Model(
    "/m/rwkv7-g1-0.1B",
    "rwkv7-g1-0.1B",
    382_000_000,
    191_000_000,
    12,
    768,
    65536,
    "BF16",
    "BlinkDL",
    {"cpu": 767, "cuda": 384},
)
LARGE = Model(
    "/m/rwkv7-g1-2.9B",
    "rwkv7-g1-2.9B",
    5_900_000_000,
    2_950_000_000,
    32,
    2560,
    65536,
    "BF16",
    "flash-linear-attention",
    NEEDS,
)
LLAMA = Model(
    "/m/llama",
    "llama",
    problem="/m/llama holds a model of type 'llama'; only RWKV-7 (type 'rwkv7') can be used.",
)
SPEED = ModelSpeed(
    "rwkv7-g1-2.9B",
    "cuda",
    2_950_000_000,
    3.1,
    TokenRate(130.0, 128.0, 131.0, 5),
    TokenRate(9000.0, 8800.0, 9100.0, 5),
)


def opened(fed: Fed) -> ModelsPage:
    fed.feed(snapshots.gpu_snapshot(1, settings=Settings(model_folder=USED.path)))
    fed.window.show_page("assistant")
    assert fed.models == [ListModels(USED.path)]
    QTest.keyClick(fed.window, Qt.Key.Key_M, Qt.KeyboardModifier.ControlModifier)
    page = fed.window.models
    assert page.isVisible()
    fed.reply(ListModels, (USED, LARGE, LLAMA))
    fed.settle()
    fed.asked.clear()
    return page


def test_each_model_shows_its_needs_and_why_it_cannot_be_used(fed):
    page = opened(fed)
    used, large, llama = page.cards.values()
    assert (used.pill.text(), large.pill.text()) == ("In use", "Stored")
    assert not used.use.isVisible()
    shown = dict(large.facts.facts)
    assert (shown["Parameters"], shown["Layers"]) == ("2.95 B", "32 × 2560")
    assert (shown["Precision"], shown["Context"]) == ("BF16", "any length")
    assert not llama.facts.isVisible(), "nothing is known of what cannot be read"
    assert (
        "Needs 11.0 GiB on the CPU, 5.5 GiB on a GPU (44.2 GiB is free there now)"
        in large.needs.text()
    )
    assert "'llama'" in llama.problem.text()
    assert not llama.use.isVisible()


def test_a_model_is_chosen_timed_and_forgotten(fed):
    page = opened(fed)
    card = page.cards[LARGE.path]
    card.use.click()
    assert fed.asked == [AddModel(LARGE.path), Configure({"model_folder": LARGE.path})]
    card.device.setCurrentText("GPU")
    card.time.click()
    assert fed.asked[-1] == BenchmarkModel(LARGE.path, "cuda")
    fed.progress(BenchmarkModel, "decodes, round 2 of 5")
    assert card.speed.text() == "decodes, round 2 of 5"
    assert not page.cards[USED.path].time.isEnabled()
    card.stop.click()
    assert fed.link.call(BenchmarkModel).cancelled
    fed.reply(BenchmarkModel, SPEED)
    assert card.speed.text().startswith(
        "on cuda: generation 130 tok/s (from 128 to 131), prompt processing 9000 tok/s"
    )
    card.forget.click()
    assert fed.asked[-1] == RemoveModel(LARGE.path)
    fed.reply(RemoveModel, "rwkv7-g1-2.9B is off the list; its files stay")
    assert fed.models[-1] == ListModels(USED.path)
    fed.reply(ListModels, (USED,))
    assert list(page.cards) == [USED.path]
    page.cards[USED.path].leave.click()
    assert fed.asked[-1] == Configure({"model_folder": TEMPLATE})


def shown_models(page: ModelsPage) -> list[str]:
    """Return the names of the cards that are seen, from top to bottom."""
    seen = [card for card in page.cards.values() if card.isVisible()]
    return [card.model.name for card in sorted(seen, key=lambda card: card.y())]


def test_models_are_sorted_and_filtered(fed):
    page = opened(fed)
    assert shown_models(page) == ["llama", "rwkv7-g1-0.1B", "rwkv7-g1-2.9B"]
    page.order.setCurrentText("Largest first")
    fed.settle()
    assert shown_models(page) == ["rwkv7-g1-2.9B", "rwkv7-g1-0.1B", "llama"]
    page.order.setCurrentText("Smallest first")
    page.filter.setText("RWKV bf16")
    fed.settle()
    assert shown_models(page) == ["rwkv7-g1-0.1B", "rwkv7-g1-2.9B"]
    assert page.stored.text() == "On this machine: 2 of 3 models"
    fed.reply(ListModels, (USED, LARGE))
    fed.settle()
    assert shown_models(page) == ["rwkv7-g1-0.1B", "rwkv7-g1-2.9B"]
    assert page.stored.text() == "On this machine: 2 models"
    page.filter.setText("no such model")
    fed.settle()
    assert shown_models(page) == [] and page.stored.text() == "On this machine: 0 of 2 models"


def test_facts_of_all_models_stand_in_the_same_columns(fed):
    page = opened(fed)
    used, large = page.cards[USED.path].facts, page.cards[LARGE.path].facts
    places = [
        [cell.mapTo(page, QPoint(0, 0)).x() for cell, _, _ in row._cells if cell.isVisible()]
        for row in (used, large)
    ]
    assert places[0] == places[1] and len(places[0]) == 7
    fed.window.resize(800, 560)
    fed.settle()
    fitting = [cell for cell, _, _ in used._cells if cell.isVisible()]
    assert 4 <= len(fitting) < 7 and all(cell.geometry().right() < used.width() for cell in fitting)
    assert "Vocabulary: 65,536" in used.toolTip(), "what has no room is on hover"


def test_an_example_is_searched_by_one_press_and_escape_leaves(fed):
    page = opened(fed)
    left = []
    page.left.connect(lambda: left.append(True))
    assert page.name.isVisible() and page.download.isVisible()
    page.examples[0].click()
    assert fed.asked[-1] == SearchHub(EXAMPLES[0])
    QTest.keyClick(page.name, Qt.Key.Key_Escape)
    assert left


def test_files_and_folders_are_dropped(fed):
    page = opened(fed)
    data = QMimeData()
    data.setUrls(
        [QUrl.fromLocalFile("/m/a"), QUrl("https://example.org/b"), QUrl.fromLocalFile("/m/c.pth")]
    )
    spot, copy, left = QPointF(9, 9), Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    page.dropEvent(QDropEvent(spot, copy, data, left, Qt.KeyboardModifier.NoModifier))
    assert fed.asked == [AddModel("/m/a"), AddModel("/m/c.pth")]
    fed.fail(fed.asked[0], "no weights in /m/a")
    assert (page.said.text(), page.said.property("meaning")) == ("no weights in /m/a", "failed")


def test_a_model_is_fetched_with_progress_and_stopped(fed):
    page = opened(fed)
    QTest.keyClicks(page.name, "ada/tiny")
    QTest.keyClick(page.name, Qt.Key.Key_Return)
    assert fed.asked == [DownloadModel("ada/tiny")]
    fed.progress(DownloadModel, FetchProgress("model.safetensors", 2**30, 4 * 2**30))
    assert (page.bar.share, page.download.isEnabled()) == (0.25, False)
    assert "1.0 GiB of 4.0 GiB" in page.progress.text()
    page.stop.click()
    assert fed.link.call(DownloadModel).cancelled
    fed.reply(DownloadModel, "stopped; what was fetched of ada/tiny is kept")
    assert page.download.isEnabled()
    assert not page.bar.isVisible()


def test_a_search_shows_what_fits_first_and_one_press_downloads_it(fed):
    page = opened(fed)
    assert page.download.text() == "Search"
    QTest.keyClicks(page.name, "qwen 3")
    QTest.keyClick(page.name, Qt.Key.Key_Return)
    assert fed.asked == [SearchHub("qwen 3")]
    huge = HubModel("ada/huge", 500 * 10**9, 10**12, 9000, gated=True)
    small = HubModel("ada/small", 8 * 10**9, 16 * 10**9, 1200, gated=False)
    fed.reply(SearchHub, (huge, small))
    fed.settle()
    lines = [line for line in texts(page.offers).splitlines() if line]
    assert lines[:2] == ["ada/small", "8.00 B parameters · 14.9 GiB · fits GPU 0 · "
                         "NVIDIA H100 80GB HBM3 · 1,200 downloads a month"]  # fmt: skip
    assert "too large" in texts(page.offers) and "needs an account" in texts(page.offers)
    first = next(b for b in page.offers.findChildren(QPushButton) if "small" in b.accessibleName())
    first.click()
    assert fed.asked[-1] == DownloadModel("ada/small")
    QTest.keyClicks(page.name, "/x")
    assert page.download.text() == "Download"


def test_a_download_that_was_interrupted_is_offered_again(fed):
    page = opened(fed)
    fed.reply(FindUnfinished, (Unfinished("ada/tiny", 3 * 2**30),))
    fed.settle()
    assert "3.0 GiB are here already" in texts(page.unfinished)
    page.unfinished.findChild(QPushButton).click()
    assert fed.asked[-1] == DownloadModel("ada/tiny")
    assert not page.unfinished.isVisible(), "the line of its progress stands there now"


@pytest.mark.parametrize(
    ("scheme", "size"),
    [pytest.param("light", (1280, 800), marks=pytest.mark.slow), ("dark", (1024, 680))],
)
def test_nothing_is_clipped_or_nameless(fed, scheme, size):
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    page = opened(fed)
    page.name.setText("ada/tiny")
    page.download.click()
    fed.progress(DownloadModel, FetchProgress("model-00001-of-00002.safetensors", 2**30, 4 * 2**30))
    page.cards[USED.path].time.click()
    fed.reply(BenchmarkModel, SPEED)
    page.cards[LARGE.path].use.click()
    fed.reply(AddModel, "rwkv7-g1-2.9B is on the list")
    page.cards[LARGE.path].time.click()
    fed.progress(BenchmarkModel, "decodes, round 2 of 5")
    fed.settle()
    assert clipped(fed.window) == []
    assert nameless(fed.window) == []


def test_the_list_is_kept_and_the_files_of_a_forgotten_model_stay(home, tmp_path, qtbot):
    folder = write_hf(tmp_path / "tiny", to_hf(random_model(layers=1, channels=64, vocabulary=64)))
    shutil.copy(vocabulary_file(), folder)
    link = Link()
    added = exchange(qtbot, link, AddModel(str(folder)))
    assert added == "tiny was added"
    (listed,) = exchange(qtbot, link, ListModels())
    assert (listed.layers, listed.problem) == (1, "")
    exchange(qtbot, link, RemoveModel(str(folder)))
    assert exchange(qtbot, link, ListModels()) == ()
    assert (folder / "model.safetensors").is_file()
    with pytest.raises(UserError, match="OWNER/NAME"):
        exchange(qtbot, link, DownloadModel("tiny"))
    link.stop()


def test_free_chat_is_offered_with_a_large_model_and_marked_as_unchecked(fed, qtbot):
    page = opened(fed)
    page.left.emit()
    view = fed.window.assistant.view
    assert view.composer.free.isEnabled()
    assert "nothing it says is checked" in " ".join(view.composer.free.toolTip().split())
    view.composer.free.click()
    view.ask("tell me a joke")
    asked = fed.asked[-1]
    assert asked == Chat(("tell me a joke",))
    for i in range(20):
        fed.event(Chunk(f"word{i} "))
    qtbot.waitUntil(lambda: "About" in view.composer.where.text())
    assert "not checked against facts" in view.messages.views[1].note.text()
    fed.answer(FinishedAnswer("a joke", "model rwkv7-g1-0.1B"))
    assert (
        view.messages.views[1].note.text(),
        view.messages.views[1].note.property("meaning"),
    ) == (str(UNCHECKED), "warm")
    view.again_last()
    fed.event(Chunk("half of a"))
    view.composer.stop.click()
    assert view.messages.views[1].note.text() == f"stopped  ({UNCHECKED})"
    view.messages.views[1].earlier.click()
    view.composer.free.click()
    view.ask("how hot?")
    fed.answer(FinishedAnswer("66 °C", "template"))
    view.composer.free.click()
    view.ask("another one")
    assert fed.asked[-1].turns == ("tell me a joke", "a joke", "another one"), (
        "what was answered from facts is no part of the chat"
    )
    fed.reply(ListModels, (msgspec.structs.replace(USED, parameters=14_000_000),))
    assert not view.composer.free.isEnabled()
    assert not view.composer.free.isChecked()
    assert "too few for free chat" in view.composer.free.toolTip()
