"""The offer of a model: what it says before the press, its download, and what follows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from gpudeck.app.models.requests import TakeModel
from gpudeck.app.shell.desktop import Desktop
from gpudeck.app.shell.window import MainWindow
from gpudeck.assistant.library import describe, model_list, recommended, staging
from gpudeck.assistant.library.hub import FetchProgress
from gpudeck.assistant.library.recommended import RELEASED, Released
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.readable import clipped, nameless
from tests.support import state_folder
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf
from tests.unit.assistant.hub_server import Hub, folder_files, serving

LARGE = RELEASED[0]
WEIGHTS = "model-00001-of-00002.safetensors"


def greeted(fed: Fed) -> MainWindow:
    """Open the window for the first time on a machine with an H100."""
    fed.feed(snapshots.gpu_snapshot(1))
    fed.window.show_welcome()
    fed.settle()
    return fed.window


def test_the_first_start_says_all_before_the_press_and_one_press_downloads(fed: Fed) -> None:
    card = greeted(fed).welcome.offer
    assert card.isVisible() and LARGE.name in card.title.text()
    assert "Templates write all texts now" in card.change.text()
    facts = card.facts.text()
    assert "10.7 GiB to download · licence Apache-2.0 · languages: English, Chinese, " in facts
    assert facts.endswith("Spanish and Portuguese")
    assert "Estimated: at most 603 tok/s" in card.speed.text()
    assert clipped(fed.window) == [] and nameless(fed.window) == []
    card.take.click()
    assert fed.asked == [TakeModel(LARGE.name, LARGE.most_bytes, "cuda")]
    fed.progress(TakeModel, FetchProgress("model.safetensors", 2**30, 4 * 2**30))
    assert (card.bar.share, card.take.isVisible(), card.later.isVisible()) == (0.25, False, False)
    assert "1.0 GiB of 4.0 GiB" in card.progress.text()
    fed.window.show_page("assistant")
    fed.settle()
    shown = fed.window.assistant.view.offer
    assert shown.bar.isVisible() and shown.bar.share == 0.25, "every page shows the same download"
    shown.stop.click()
    assert fed.link.call(TakeModel).cancelled
    fed.reply(TakeModel, "stopped")
    assert shown.said.text() == "Stopped. What was downloaded is kept."
    assert shown.take.isVisible() and not shown.bar.isVisible()


def test_a_failed_download_is_told_in_one_line_and_can_be_tried_again(fed: Fed) -> None:
    card = greeted(fed).welcome.offer
    card.take.click()
    fed.fail(TakeModel, "10 GiB must be fetched, but the disk has 1 GiB free.")
    assert (card.said.text(), card.said.property("meaning")) == (
        "10 GiB must be fetched, but the disk has 1 GiB free.",
        "failed",
    )
    card.take.click()
    assert len(fed.asked) == 2 and not card.said.isVisible()


def test_a_declined_offer_stays_away_except_on_the_page_of_the_models(fed: Fed) -> None:
    window = greeted(fed)
    window.welcome.offer.later.click()
    assert not window.welcome.offer.isVisible()
    window.show_page("assistant")
    fed.settle()
    assert not window.assistant.view.offer.isVisible()
    window.show_page("models")
    fed.settle()
    assert window.models.offer.isVisible() and not window.models.offer.later.isVisible()
    later = MainWindow(fed.link)
    later.show()
    later.show_link(True, "connected to the daemon")
    later.show_snapshot(snapshots.gpu_snapshot(1))
    later.show_page("assistant")
    fed.settle()
    assert not later.assistant.view.offer.isVisible(), "also after the window was opened again"
    later.close()
    later.deleteLater()


def test_nothing_is_offered_beside_a_model_in_a_conversation_or_where_none_fits(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.feed(snapshots.gpu_snapshot(1, settings=Settings(model_folder="/m/rwkv7")))
    fed.window.show_page("assistant")
    fed.settle()
    page = fed.window.assistant
    assert not page.view.offer.isVisible()
    fed.feed(snapshots.gpu_snapshot(1))
    assert page.view.offer.isVisible()
    page.view.ask("which gpu is free?")
    assert not page.view.offer.isVisible()
    huge = Released("ada/huge", 10**15, 2**20, 2 * 10**15)
    monkeypatch.setattr(recommended, "RELEASED", (huge,))
    fed.window.show_page("models")
    fed.settle()
    shown = fed.window.models.offer
    assert shown.isVisible() and not shown.take.isVisible()
    assert "No RWKV-7 fits this machine: ada/huge needs" in shown.said.text()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a random RWKV-7 in the format of the released ones."""
    tensors = to_hf(random_model(layers=2, channels=64, vocabulary=65536))
    folder = write_hf(tmp_path / "model", {n: t.bfloat16() for n, t in tensors.items()}, shards=2)
    shutil.copy(vocabulary_file(), folder)
    return folder


@pytest.fixture
def hub(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Return a hub with that model, which is the one that is recommended."""
    with serving(folder_files(model)) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        size = sum(file.stat().st_size for file in model.iterdir())
        monkeypatch.setattr(
            recommended, "RELEASED", (Released("ada/tiny", 450_000_000, 1024, size),)
        )
        yield made


@pytest.fixture
def desktop(
    qapp: QApplication, clean_qt: None, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desktop]:
    """Open the real window for the first time; it and the assistant take a tiny model for able."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'gpudeck.assistant.host' in sys.orig_argv:\n"
        "    from gpudeck.assistant.library import describe\n"
        "    describe.ABLE = 0\n"
    )
    monkeypatch.setattr(describe, "ABLE", 0)
    monkeypatch.setenv("PYTHONPATH", str(site))
    with state_folder(tmp_path / "home"):
        settings.save(Settings(source="cpu"))
        made = Desktop(qapp)
        made.start()
        made.greet()
        yield made
        made.window.close()
        made.stop()
        made.window.deleteLater()


@pytest.mark.xdist_group("rwkv")
def test_a_downloaded_model_reads_and_writes_without_a_restart(desktop, hub, qtbot, monkeypatch):
    window, card = desktop.window, desktop.window.welcome.offer
    qtbot.waitUntil(card.take.isVisible)
    assert "licence Apache-2.0" in card.facts.text() and hub.asked == []

    def refused(reason: str) -> None:
        card.take.click()
        qtbot.waitUntil(lambda: bool(card.said.text()))
        assert reason in card.said.text() and "\n" not in card.said.text()
        assert card.said.property("meaning") == "failed"

    with monkeypatch.context() as larger:
        listing = hub.listing()
        for sibling in listing["siblings"]:
            if sibling["rfilename"] == WEIGHTS:
                sibling["size"] = sibling["lfs"]["size"] = 2**60
        larger.setattr(hub, "listing", lambda: listing)
        refused("were offered, so nothing was fetched")
        larger.setattr(recommended, "RELEASED", (Released("ada/tiny", 450_000_000, 1024, 2**61),))
        window.offer.look()
        refused("must be fetched, but the disk of")
    assert all(not name.endswith(".safetensors") for name, _ in hub.asked)
    window.offer.look()
    hub.lies[WEIGHTS] = "0" * 64
    refused("is damaged: its checksum differs")
    hub.lies.clear()
    hub.stalls[WEIGHTS] = 2**20
    stopped = "Stopped. What was downloaded is kept."
    card.take.click()
    card.stop.click()
    qtbot.waitUntil(lambda: card.said.text() == stopped)  # also before it has begun
    card.take.click()
    new = staging.beside(model_list.folder_of("ada/tiny"))
    qtbot.waitUntil(lambda: any(file.stat().st_size for file in new.glob(f".{WEIGHTS}*.partial")))
    qtbot.waitUntil(lambda: "GiB" in card.progress.text() or "MiB" in card.progress.text())
    card.stop.click()
    qtbot.waitUntil(lambda: card.said.text() == stopped)
    assert card.take.text().startswith("Continue: "), "it says how much is here already"
    assert not model_list.folder_of("ada/tiny").exists(), "no half of a model is there"
    hub.stalls.clear()
    hub.ended.set()
    card.take.click()
    qtbot.waitUntil(lambda: window.state.snapshot.settings.model.endswith("ada--tiny"))
    assert any(name == WEIGHTS and start > 0 for name, start in hub.asked), "it was resumed"
    qtbot.waitUntil(lambda: "uses this model now" in card.said.text())
    qtbot.waitUntil(lambda: not card.take.isVisible())  # the reply may come before the snapshot
    window.show_page("assistant")
    view = window.assistant.view
    view.ask("flurbish the womble sideways")
    qtbot.waitUntil(lambda: not view.asked.busy and bool(view.conversation.messages[-1].text))
    assert "model ada--tiny" in view.conversation.messages[-1].text, "it was asked what is meant"
    view.write_brief()
    qtbot.waitUntil(lambda: not view.asked.busy and len(view.conversation.messages) == 4)
    brief = view.conversation.messages[-1]
    refused_text = "the text of the model ada--tiny was refused"
    assert brief.writer == "model ada--tiny" or refused_text in brief.text
    assert (brief.device, brief.tokens > 0) == ("cpu", True), "it wrote, and the checker judged"


@pytest.mark.xdist_group("rwkv")
def test_a_model_that_is_chosen_during_a_download_stays_in_use(desktop, hub, qtbot):
    card = desktop.window.welcome.offer
    qtbot.waitUntil(card.take.isVisible)
    hub.stalls[WEIGHTS] = 2**20
    card.take.click()
    new = staging.beside(model_list.folder_of("ada/tiny"))
    qtbot.waitUntil(lambda: any(file.stat().st_size for file in new.glob(f".{WEIGHTS}*.partial")))
    with Client(start=False) as deck:
        deck.configure(model_folder=TEMPLATE)
        hub.stalls.clear()
        hub.ended.set()
        qtbot.waitUntil(lambda: "Another one was chosen meanwhile" in card.said.text())
        assert deck.snapshot().settings.model_folder == TEMPLATE
    assert model_list.folder_of("ada/tiny").exists()
