"""The window against the real daemon: feeds, verbs, reconnection, and an end that leaves nothing
running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QSize, QTimer
from PySide6.QtWidgets import QApplication

from gpudeck.app import DESKTOP_ID
from gpudeck.app.jobs.requests import ReadLog
from gpudeck.app.link.snapshots import SnapshotFeed
from gpudeck.app.report.file import WriteReport
from gpudeck.app.shell.desktop import Desktop, introduce, open_window
from gpudeck.app.widgets.theme import luminance
from gpudeck.app.workloads.result_export import as_csv
from gpudeck.app.workloads.trained import FindTrained
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.verbs.change import Cancel
from gpudeck.scheduler.verbs.submit import Submit
from tests.gui import snapshots
from tests.gui.conftest import exchange
from tests.integration.programs import talk, text
from tests.support import state_folder

PATIENCE_MS = 20_000


@pytest.fixture
def desktop(qapp: QApplication, clean_qt: None, tmp_path: Path) -> Iterator[Desktop]:
    with state_folder(tmp_path / "home"):
        settings.save(Settings(model_folder=TEMPLATE))
        made = Desktop(qapp)
        made.start()
        yield made
        made.window.close()
        made.stop()
        made.window.deleteLater()


def test_the_window_starts_the_daemon_follows_it_and_saves_a_report(desktop, qtbot, tmp_path):
    window = desktop.window
    qtbot.waitUntil(lambda: window.state.history.rows() > 1, timeout=PATIENCE_MS)
    assert window.status.link.text() == "connected to the daemon"
    assert window.strip.tiles
    qtbot.waitUntil(
        lambda: "jobs" in vars(window), timeout=PATIENCE_MS
    )  # made before anybody goes there
    spec = make_spec(("sh", "-c", "echo hello from the job; sleep 60"), {"name": "hello"})
    number = exchange(qtbot, desktop.link, Submit(spec)).id
    window.show_page("jobs")
    qtbot.waitUntil(
        lambda: "hello from the job" in window.jobs.details.log.toPlainText(), timeout=PATIENCE_MS
    )
    qtbot.waitUntil(
        lambda: "started: attempt 1" in window.jobs.details.facts.toPlainText(), timeout=PATIENCE_MS
    )
    window.jobs.details.cancel.click()
    window.jobs.asking.yes.click()
    qtbot.waitUntil(lambda: window.state.job(number).status == "cancelled", timeout=PATIENCE_MS)
    file = tmp_path / "report.pdf"
    exchange(qtbot, desktop.link, WriteReport(number, str(file)))
    assert file.read_bytes().startswith(b"%PDF-")


def test_the_history_of_devices_found_later_is_loaded(qtbot, tmp_path):
    with state_folder(tmp_path / "home"):
        settings.save(Settings(source=f"replay:{tmp_path / 'missing.gz'}"))
        feed, told = SnapshotFeed(), []
        feed.history.connect(lambda device, history: told.append(device))
        feed.start()
        qtbot.waitUntil(
            lambda: (seen := feed.take()) is not None and not seen.devices, timeout=PATIENCE_MS
        )
        assert told == []
        with Client() as deck:
            deck.configure(source="cpu")
        qtbot.waitUntil(lambda: told == ["cpu"], timeout=PATIENCE_MS)
        feed.stop()


def test_refusals_and_settings_come_back(desktop, qtbot):
    with pytest.raises(UserError, match="4711"):
        exchange(qtbot, desktop.link, Cancel(4711))
    desktop.link.send(desktop.link, Cancel(4711))
    message = desktop.window.status.message
    qtbot.waitUntil(lambda: "4711" in message.text(), timeout=PATIENCE_MS)
    desktop.window.show_page("settings")
    qtbot.waitUntil(lambda: desktop.window.state.snapshot is not None, timeout=PATIENCE_MS)
    theme_row = desktop.window.settings.rows["theme"]
    theme_row.box.setCurrentText("Dark")
    theme_row.box.textActivated.emit("dark")
    qtbot.waitUntil(
        lambda: QApplication.instance().property("scheme") == "dark", timeout=PATIENCE_MS
    )


def test_a_proposal_is_carried_out_once_it_is_allowed(desktop, qtbot):
    window = desktop.window
    qtbot.waitUntil(lambda: window.state.snapshot is not None, timeout=PATIENCE_MS)
    window.show_page("assistant")
    view = window.assistant.view
    view.ask("pause the queue")
    qtbot.waitUntil(
        lambda: view.conversation.messages[-1].proposal is not None, timeout=PATIENCE_MS
    )
    qtbot.waitUntil(
        lambda: view.messages.views[-1].proposal.accept.isVisible() is True,
        timeout=PATIENCE_MS,
    )
    assert not window.state.snapshot.paused
    view.messages.views[-1].proposal.accept.click()
    qtbot.waitUntil(lambda: window.state.snapshot.paused, timeout=PATIENCE_MS)
    qtbot.waitUntil(
        lambda: view.conversation.messages[-1].text == "The queue is paused: no job will start.",
        timeout=PATIENCE_MS,
    )
    assert view.conversation.messages[1].decision == "once"


def test_a_person_approves_in_the_window_what_a_program_orders(desktop, qtbot):
    window = desktop.window
    qtbot.waitUntil(lambda: window.state.snapshot is not None, timeout=PATIENCE_MS)
    with Client(start=False) as deck:
        job = deck.submit(["sleep", "300"], name="long").id
        _, (result,) = asyncio.run(talk([("cancel", {"jobs": [job]})]))
        window.show_page("assistant")
        messages = window.assistant.view.messages
        qtbot.waitUntil(
            lambda: bool(messages.views) and messages.views[-1].proposal.accept.isVisible() is True,
            timeout=PATIENCE_MS,
        )
        shown = messages.views[-1].proposal
        assert shown.title.text() == f"Cancel job {job} (long)?"
        assert deck.job(job).active
        shown.accept.click()
        qtbot.waitUntil(lambda: not deck.job(job).active, timeout=PATIENCE_MS)
        told = [str(event.text) for event in deck.timeline(job) if event.what == "ordered"]
        assert told == ["cancel by editor, approved by a person"]
        number = result.structured_content["id"]
        _, (outcome,) = asyncio.run(talk([("proposal", {"id": number})]))
        assert f"job {job}" in text(outcome)


def test_the_daemon_learns_whether_the_window_is_visible(desktop, qtbot, monkeypatch):
    subscribed, links, real = [], [], Client.subscribe
    monkeypatch.setattr(
        Client, "subscribe", lambda self, live=True: (subscribed.append(live), real(self, live))[1]
    )
    window = desktop.window
    qtbot.waitUntil(lambda: window.state.history.rows() > 1, timeout=PATIENCE_MS)
    desktop.feed.linked.connect(links.append)
    strip = window.compacted.emit
    steps = [
        (False, window.hide),
        (True, strip),
        (False, strip),
        (True, window.show),
        (False, window.showMinimized),
        (True, window.showNormal),
    ]
    for seen, act in steps:
        subscribed.clear()
        act()
        qtbot.waitUntil(lambda seen=seen: subscribed[-1:] == [seen], timeout=PATIENCE_MS)
        before = window.state.snapshot.seq
        qtbot.waitUntil(
            lambda before=before: window.state.snapshot.seq > before, timeout=PATIENCE_MS
        )
    assert links == [], "the connection is not said to be lost meanwhile"


def test_a_grid_too_large_for_a_snapshot_is_fetched_shown_and_saved(desktop, qtbot, tmp_path):
    window, page = desktop.window, desktop.window.workloads
    code = (
        "import os, pathlib, sys;"
        " pathlib.Path(os.environ['GPUDECK_RESULT']).write_bytes(pathlib.Path(sys.argv[1]).read_bytes())"  # noqa: E501
    )
    (tmp_path / "made.json").write_bytes(msgspec.json.encode(snapshots.grid()))
    with Client() as client:
        job = client.submit(
            [sys.executable, "-S", "-c", code, str(tmp_path / "made.json")],
            name="compare",
            workload="compare",
        )
        client.wait(job.id, 30)
    window.show_page("workloads")
    page.choose("compare")
    qtbot.waitUntil(page.result.cells.isVisible, timeout=PATIENCE_MS)
    page.result.cells.tabs["Heat map"].click()
    assert len(page.result.cells.heat.marks()) == 36
    page.result.saved.emit(job.id, str(tmp_path / "saved.csv"))
    qtbot.waitUntil(lambda: bool(window.toasts.toasts), timeout=PATIENCE_MS)
    assert "Open" in window.toasts.toasts[0].buttons
    assert (tmp_path / "saved.csv").read_text() == as_csv(snapshots.grid())
    page.result.saved.emit(job.id, str(tmp_path / "no" / "saved.csv"))
    qtbot.waitUntil(lambda: "cannot write" in page.result.note.text(), timeout=PATIENCE_MS)


@pytest.mark.slow
def test_a_trained_model_is_served_with_one_press(desktop, qtbot, tmp_path):
    window, page = desktop.window, desktop.window.workloads
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} and {n + 1} are numbers\n" for n in range(500)))
    small = {"data": str(text), "model": "tiny", "batch": "2", "tokens": "32", "steps": "8"}
    spec = make_spec(
        (sys.executable, "-P", "-m", "gpudeck.accel.workloads.train",
         *(f"--{name}={value}" for name, value in small.items())),
        {"name": "train", "workload": "train", "params": small},
    )  # fmt: skip
    with Client() as client:
        job = client.send(Submit(spec))
        assert client.wait(job.id, 120).status == "done"
    window.show_page("workloads")
    page.choose("train")
    qtbot.waitUntil(page.result.try_it.isVisible, timeout=PATIENCE_MS)
    page.result.try_it.click()
    qtbot.waitUntil(lambda: window.shown == "models", timeout=PATIENCE_MS)
    cards = window.models.serving.cards
    qtbot.waitUntil(
        lambda: any(card.pill.text() == "Serving" for card in cards.values()), timeout=60_000
    )
    (card,) = cards.values()
    assert card.served.folder == str(paths.job_folder(job.id) / "artefacts" / f"tiny-{job.id}")
    partner = window.assistant.view.composer.partner
    assert card.served.name in [partner.itemText(at) for at in range(partner.count())]
    card.stop.click()
    qtbot.waitUntil(lambda: not cards, timeout=PATIENCE_MS)


def test_the_folder_of_a_run_is_the_one_that_it_was_given(desktop, qtbot, tmp_path):
    options = {"workload": "train", "params": {"out": "runs/first"}, "cwd": str(tmp_path)}
    job = exchange(qtbot, desktop.link, Submit(make_spec(("true",), options)))
    folder = exchange(qtbot, desktop.link, FindTrained(job.id))
    assert folder == str(tmp_path / "runs" / "first")


def test_a_daemon_that_dies_is_started_again(desktop, qtbot):
    window, lost = desktop.window, []
    desktop.feed.linked.connect(lambda connected, text: connected or lost.append(text))
    qtbot.waitUntil(lambda: window.state.link.connected, timeout=PATIENCE_MS)
    os.kill(int(paths.daemon_lock().read_text()), signal.SIGKILL)
    qtbot.waitUntil(lambda: bool(lost), timeout=PATIENCE_MS)
    assert "reconnecting" in lost[0]
    qtbot.waitUntil(lambda: window.state.link.connected, timeout=PATIENCE_MS)


def test_the_newest_snapshot_replaces_the_unread(clean_qt):
    feed, arrived = SnapshotFeed(), []
    feed.arrived.connect(lambda: arrived.append(1))
    for second in range(5):
        feed.put(snapshots.cpu_snapshot(snapshots.NOW + second))
    assert len(arrived) == 1
    assert feed.take().time == snapshots.NOW + 4
    assert feed.take() is None
    feed.put(snapshots.cpu_snapshot())
    assert len(arrived) == 2


def test_a_log_before_there_is_one(desktop, qtbot):
    with Client() as client:
        job = client.submit(["true"], gpus=0)
    assert exchange(qtbot, desktop.link, ReadLog(job.id)).start == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_the_window_and_its_place_is_remembered(clean_qt, qapp, tmp_path, number):
    with state_folder(tmp_path / "home") as home:
        before = signal.getsignal(number)
        QTimer.singleShot(300, lambda: os.kill(os.getpid(), number))
        assert open_window() == 0
        assert signal.getsignal(number) is before
        assert "geometry" in (home / "window.ini").read_text()
    assert not [t for t in threading.enumerate() if t.name.startswith("Dummy") and not t.daemon]


def test_the_desktop_knows_the_windows_by_the_entry_of_its_menu(clean_qt, qapp):
    introduce(qapp)
    entry = (paths.assets() / "desktop" / f"{qapp.desktopFileName()}.desktop").read_text()
    assert f"StartupWMClass={qapp.applicationName()}\n" in entry
    assert f"Icon={DESKTOP_ID}\n" in entry
    for size in (16, 32, 48, 128, 256):
        icon = qapp.windowIcon().pixmap(QSize(size, size), 1.0).toImage()
        assert icon.size() == QSize(size, size)
        ground, bar = (icon.pixelColor(size * x // 16, size // 2) for x in (2, 8))
        assert luminance(bar) > 5 * luminance(ground), "the bars stand out at every size"


def test_the_welcome_page_is_shown_once_and_tray_and_compact_strip_close_with_the_window(
    desktop, qtbot
):
    window = desktop.window
    assert window.pages.currentWidget() is window.dashboard, "a tour leaves the welcome to people"
    desktop.greet()
    assert window.pages.currentWidget() is window.welcome
    window.welcome.steps["dashboard"].click()
    desktop.greet()
    assert window.pages.currentWidget() is window.dashboard
    window.status.compact.click()
    qtbot.waitUntil(
        lambda: desktop.compact.summary is not None and desktop.compact.isVisible(),
        timeout=PATIENCE_MS,
    )
    assert "GPU Deck\n" in desktop.tray.icon.toolTip()
    window.status.compact.click()
    assert not desktop.compact.isVisible()


def test_a_question_starts_a_daemon_that_was_stopped(desktop, qtbot):
    window = desktop.window
    qtbot.waitUntil(lambda: window.state.snapshot is not None, timeout=PATIENCE_MS)
    window.show_page("assistant")
    view = window.assistant.view

    def answered() -> None:
        qtbot.waitUntil(lambda: not view.conversation.busy, timeout=PATIENCE_MS)

    view.composer.happened.click()
    answered()
    desktop.feed.stop()  # which would start it again
    with Client(start=False) as client:
        client.stop_daemon()
    view.composer.happened.click()
    answered()
    assert "The queue is open" in view.conversation.messages[-1].text
