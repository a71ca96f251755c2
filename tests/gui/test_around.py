"""Test the tray, the compact strip, the welcome page and copied diagnostics."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication
from PySide6.QtTest import QTest

from gpudeck.app.shell.tray import Tray, picture
from gpudeck.app.strip.compact import CompactStrip
from gpudeck.app.strip.summary import LISTED, summarize
from gpudeck.app.web.page_state import make_page
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert
from tests.gui import snapshots

ALERT = Alert(1, "too hot", snapshots.gpu(0).id, None, "hot", 0.0, 0.0)


def test_the_tray_shows_the_busiest_device_and_alerts(qapp):
    made = snapshots.gpu_snapshot(3)
    now = summarize(made)
    assert now.figure == f"{max(s.reading.values['util'] for s in made.devices):.0f}"
    tray = Tray()
    tray.show_summary(now)
    assert "GPU 2 · 0 % · 1 % mem · 33 °C · 71 W" in tray.icon.toolTip()
    calm, alarm = (picture(now.figure, alarm=a).toImage() for a in (False, True))
    assert calm.pixelColor(32, 3) == QColor(theme.LIGHT.accent)
    assert alarm.pixelColor(32, 3) == QColor(theme.LIGHT.hot)
    assert summarize(msgspec.structs.replace(made, alerts=(ALERT,))).alarm
    assert not summarize(
        msgspec.structs.replace(made, alerts=(msgspec.structs.replace(ALERT, acknowledged=True),))
    ).alarm
    chosen: list[str] = []
    tray.opened.connect(lambda: chosen.append("open"))
    tray.compacted.connect(lambda: chosen.append("compact"))
    tray.quitted.connect(lambda: chosen.append("quit"))
    tray.show_jobs(gpus=False, on_gpus=False, suspended=False)
    for action in tray.menu.actions():
        action.trigger()
    assert chosen == ["open", "compact", "quit"]


def test_a_replay_is_labelled_in_the_tray_and_the_strip(
    qapp,
):
    now = summarize(snapshots.gpu_snapshot(2, replay=True))
    assert [row.title for row in now.rows] == ["GPU 0", "GPU 1"]
    assert now.text.splitlines()[0] == "REPLAY"
    page = make_page(snapshots.gpu_snapshot(2, replay=True), ())
    assert page.replay and page.headline == "2 × H100 80GB HBM3", "in the browser, too"
    recorded, live = snapshots.gpu_snapshot(1, replay=True), snapshots.gpu_snapshot(2)
    both = msgspec.structs.replace(live, devices=recorded.devices + live.devices[1:])
    assert [row.title for row in summarize(both).rows] == ["REPLAY GPU 0", "GPU 1"]
    tray, told = Tray(), []
    plain = tray.icon.setToolTip
    tray.icon.setToolTip = lambda text: (told.append(text), plain(text))
    for _ in range(3):
        tray.show_summary(now)
    assert len(told) == 1


def test_a_missing_value_is_not_shown_as_zero(qapp):
    made = snapshots.gpu_snapshot(1)
    nothing = summarize(
        msgspec.structs.replace(
            made, devices=(msgspec.structs.replace(made.devices[0], reading=None),)
        )
    )
    assert nothing.figure == "–"
    assert nothing.rows[0].values[0] == "–"


@pytest.mark.parametrize("count", [1, 8, 72])
def test_the_compact_strip_stays_small_and_on_top(qapp, count):
    strip = CompactStrip()
    strip.show_summary(summarize(snapshots.gpu_snapshot(count)))
    strip.show()
    qapp.processEvents()
    assert strip.windowFlags() & Qt.WindowType.WindowStaysOnTopHint
    assert strip.width() < 400
    assert strip.height() < 25 * (min(count, LISTED) + 3)
    free, *lines = strip.accessibleDescription().splitlines()
    assert "in use" in free or " free" in free
    assert sum(line.startswith("GPU ") for line in lines) == min(count, LISTED)
    assert ("and 60 more" in strip.accessibleDescription()) == (count == 72)
    image = strip.grab().toImage()
    assert theme.LIGHT.accent in {
        image.pixelColor(x, y).name() for x in range(60, 130, 3) for y in range(image.height())
    }
    told: list[str] = []
    strip.opened.connect(lambda: told.append("open"))
    strip.closed.connect(lambda: told.append("closed"))
    QTest.keyClick(strip, Qt.Key.Key_Return)
    QTest.keyClick(strip, Qt.Key.Key_Escape)
    assert told == ["open", "closed"]
    strip.deleteLater()


def test_the_welcome_page_names_the_devices(fed):
    fed.window.show_welcome()
    assert "Looking for your devices" in fed.window.welcome.devices.text()
    fed.feed(snapshots.gpu_snapshot(2))
    assert fed.window.welcome.devices.text() == "2 GPUs: NVIDIA H100 80GB HBM3."
    fed.feed(snapshots.cpu_snapshot())
    assert "this machine's CPU is the device" in fed.window.welcome.devices.text()
    fed.settle()
    assert fed.window.welcome.steps["dashboard"].hasFocus() or not fed.window.isActiveWindow()
    assert not any(made.isChecked() for made in fed.window.rail.buttons.values()), "it is no page"
    fed.window.welcome.steps["settings"].click()
    assert fed.window.rail.buttons["settings"].isChecked()


@pytest.mark.parametrize(("width", "across"), [(800, 2), (1280, 3), (2560, 3)])
def test_the_steps_of_the_welcome_page_stand_side_by_side_and_lead_to_their_pages(
    fed, width, across
):
    fed.window.resize(width, 800)
    fed.window.show_welcome()
    fed.feed(snapshots.gpu_snapshot(1, replay=True))
    fed.settle()
    welcome = fed.window.welcome
    assert welcome.devices.text().count("REPLAY") == 1
    places = [made.geometry() for made in welcome.steps.values()]
    assert len({place.x() for place in places}) == across
    assert len({place.height() for place in places if place.y() == places[0].y()}) == 1
    chosen = []
    welcome.chosen.connect(chosen.append)
    for made in welcome.steps.values():
        made.click()
    assert chosen == ["dashboard", "workloads", "jobs", "assistant", "hosts", "settings"]


def test_diagnostics_are_copied_to_the_clipboard(fed):
    fed.feed(snapshots.cpu_snapshot(settings=Settings(webhook="https://example.org/s3cret")))
    fed.window.show_page("settings")
    fed.window.settings.copy.click()
    text = QGuiApplication.clipboard().text()
    assert "AMD EPYC 9B14" in text
    assert "s3cret" not in text
    assert "Copied " in fed.window.settings.copied.text()
    QGuiApplication.clipboard().clear()


@pytest.mark.parametrize("size", [1.5, 0.8])
def test_the_size_setting_scales_everything(home, size):
    settings.save(Settings(scale=size))
    code = (
        "from gpudeck.app.shell import desktop; desktop.scale();"
        "from PySide6.QtWidgets import QApplication;"
        "from gpudeck.app.shell.window import MainWindow;"
        "from gpudeck.app.link.link import Link; app = QApplication([]);"
        "print(MainWindow(Link()).grab().width() / MainWindow(Link()).width())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(said.stdout) == pytest.approx(size, abs=0.01)


@pytest.mark.parametrize(
    ("snapshot", "offered", "source"),
    [
        (snapshots.cpu_snapshot(), "Look around with a recorded H100", "replay:"),
        (snapshots.gpu_snapshot(1, replay=True), "Use this machine's GPUs", "auto"),
        (snapshots.gpu_snapshot(1), "", ""),
    ],
    ids=["cpu", "replay", "gpu"],
)
def test_a_machine_without_a_gpu_is_offered_the_recorded_one(fed, snapshot, offered, source):
    fed.feed(snapshot)
    fed.window.show_welcome()
    replay = fed.window.welcome.replay
    assert replay.isVisible() == bool(offered)
    if offered:
        assert replay.text() == offered
        replay.click()
        assert fed.asked[-1].changes["source"].startswith(source)
