"""The Machines page adds, tests and removes machines, and shows their devices by machine."""

from __future__ import annotations

import time

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.hosts.host_rows import LOCAL, ReachHost
from gpudeck.app.hosts.page import COLUMNS, LOAD, MEMORY, STATE
from gpudeck.app.strip.chip_model import machine_chips
from gpudeck.app.strip.tile_model import tiles
from gpudeck.app.widgets.share_delegate import SHARE
from gpudeck.scheduler.protocol.settings import HostSettings, Settings
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.verbs.hosts import SetHost
from tests.gui import snapshots
from tests.gui.snapshots import NOW
from tests.gui.test_other_machines import with_hosts

KNOWN = {name: HostSettings(f"ada@{name}") for name in ("lab1", "lab2", "new")}


@pytest.fixture
def page(fed):
    """Open the page of somebody with two machines, of which one is gone, and a new one."""
    settings = msgspec.structs.replace(Settings(), hosts=KNOWN)
    snapshot = msgspec.structs.replace(snapshots.gpu_snapshot(1), settings=settings)
    fed.feed(with_hosts(snapshot))
    fed.window.resize(1280, 800)
    fed.window.show_page("hosts")
    fed.settle()
    return fed.window.hosts


def test_each_machine_has_its_state_and_its_devices(page, fed):
    cells = [row.cells for row in page.model.rows]
    assert (cells.pop(0)[:5]) == ("This machine", "Online", "87 %", "44 %", "55 °C")
    assert [(c[0], c[1]) for c in cells] == [
        ("lab1", "Online"),
        ("lab2", "Unreachable"),
        ("new", "Connecting"),
    ]
    assert cells[0][2:7] == ("44 %", "34 %", "71 °C", "just now", "2 × NVIDIA RTX A6000")
    assert page.model.index(1, LOAD).data(SHARE) == pytest.approx(0.435)
    assert page.model.index(1, MEMORY).data(SHARE) == pytest.approx(32 / 95)
    assert cells[1][2:6] == ("", "", "", "1 min ago")
    assert page.model.index(2, LOAD).data(SHARE) is None
    assert cells[1][8] == "It sent no readings"
    lost = time.strftime("%H:%M", time.localtime(NOW - 60))
    assert f"has been unreachable since {lost}" in page.model.rows[2].tooltip
    assert page.count.text() == "4 machines, 1 unreachable"
    assert list(page.devices.grid.tiles) == [snapshots.gpu(0).id], "this machine comes first"
    page.table.selectRow(1)
    assert list(page.devices.grid.tiles) == ["lab1/GPU-0", "lab1/GPU-1"]
    page.table.selectRow(2)
    assert list(page.devices.grid.tiles) == ["lab2/GPU-0"]
    chosen = []
    page.device_chosen.connect(chosen.append)
    QTest.keyClick(page.devices.grid.tiles["lab2/GPU-0"], Qt.Key.Key_Return)
    assert chosen == ["lab2/GPU-0"]
    page.table.selectRow(3)
    assert not page.devices.isVisible(), "nothing is known of it yet"


def test_a_machine_that_sleeps_is_called_asleep_as_in_the_header(fed):
    settings = msgspec.structs.replace(Settings(), hosts={"laptop": HostSettings("ada@laptop")})
    made = msgspec.structs.replace(snapshots.gpu_snapshot(8), settings=settings)
    fed.window.show_page("hosts")
    fed.feed(with_hosts(made))
    row = fed.window.hosts.model.rows[1]
    assert row.cells[:5] == ("laptop", "Asleep", "", "", "")
    chips = {chip.title: chip.text for chip in machine_chips(tiles(fed.window.state.snapshot))}
    assert chips["laptop"].lower() == row.cells[1].lower()
    assert chips["This machine"] and fed.window.hosts.model.rows[0].cells[0] == "This machine"


def test_this_machine_is_neither_tested_nor_removed(page, fed):
    fed.asked.clear()
    assert page.chosen().key == LOCAL
    QTest.keyClick(page.table, Qt.Key.Key_Delete)
    page.test.click()
    assert not page.question.isVisible() and fed.asked == []
    assert not page.test.isEnabled() and not page.remove.isEnabled()
    page.table.selectRow(1)
    assert page.test.isEnabled() and page.remove.isEnabled()


@pytest.mark.parametrize(("size", "most"), [((800, 560), 4), ((1280, 800), 8)])
def test_of_many_devices_the_busiest_are_shown(fed, size, most):
    fed.window.resize(*size)
    fed.window.show_page("hosts")
    fed.feed(snapshots.gpu_snapshot(72))
    page = fed.window.hosts
    assert len(page.devices.grid.tiles) == most
    assert f"72 × NVIDIA H100 80GB HBM3: {most} of 72 are shown" in page.devices.title.text()
    loads = {s.device.id: s.reading.values["util"] for s in fed.window.state.snapshot.devices}
    shown = [loads.pop(device) for device in page.devices.grid.tiles]
    assert min(shown) >= max(loads.values()) - 10, "their order does not follow every reading"


def test_a_device_that_is_busy_now_comes_before_those_that_were(fed):
    fed.window.resize(800, 560)
    fed.window.show_page("hosts")
    made = snapshots.gpu_snapshot(8)
    busy = (0, 2, 6)
    states = tuple(
        msgspec.structs.replace(
            s, reading=snapshots.gpu_reading(s.device, NOW, busy=s.device.index in busy)
        )
        for s in made.devices
    )
    times = [NOW - 60 + at for at in range(61)]
    for s in states:  # GPU 6 has just begun, and GPU 1 and 3 have just ended
        began, ended = (55, 61) if s.device.index == 6 else (0, 50)
        if s.device.index in (0, 1, 2, 3, 6):
            loads = [100.0 if began <= at < ended else 0.0 for at in range(61)]
            fed.window.load_history(s.device.id, Columns(times, {"util": loads}))
    fed.feed(msgspec.structs.replace(made, devices=states))
    devices = fed.window.hosts.devices
    shown = {s.device.index for s in states if s.device.id in devices.grid.tiles}
    assert shown >= set(busy) and len(shown) == 4
    assert devices.curves[0].title.text() in {f"GPU {at}, last 10 minutes" for at in busy}


def test_a_machine_is_added_once_it_has_answered(page, fed):
    QTest.keyClick(page, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    form = page.form
    form.add.click()
    assert form.said.text() == ("enter a name, such as lab1, and an address, such as user@lab1")
    form.name.setText("lab 3")
    form.address.setText("ada@lab3")
    form.add.click()
    assert "letters, digits" in form.said.text()
    form.name.setText("lab3")
    form.address.setText("-oProxyCommand=evil")
    form.add.click()
    assert "as in user@lab1" in form.said.text(), "no option of ssh is taken for an address"
    form.address.setText("ada@lab3")
    fed.asked.clear()
    QTest.keyClick(form.address, Qt.Key.Key_Return)
    reached = ReachHost(HostSettings("ada@lab3"))
    assert fed.asked == [reached]
    assert not form.add.isEnabled(), "one at a time"
    fed.fail(ReachHost, "ada@lab3 cannot be read: Connection refused")
    assert form.said.text().endswith("Connection refused. Nothing was added.")
    form.add.click()
    fed.reply(ReachHost, "It has 1 GPU: NVIDIA H100 (read with NVML).")
    assert fed.asked[-1] == SetHost("lab3", HostSettings("ada@lab3"))
    fed.reply(SetHost, Settings())
    assert not form.isVisible()
    assert page.said.text().startswith("lab3 was added. It has 1 GPU")


def test_a_machine_is_removed_after_a_question(page, fed):
    page.table.selectRow(1)
    QTest.keyClick(page.table, Qt.Key.Key_Delete)
    assert page.question.text.text() == "Remove lab1? Its history is kept for 30 days."
    fed.asked.clear()
    QTest.keyClick(page.question, Qt.Key.Key_Escape)
    assert not page.question.isVisible()
    page.remove.click()
    page.question.yes.click()
    assert fed.asked == [SetHost("lab1", None)]
    fed.fail(SetHost("lab1", None), "there is no machine called lab1")
    assert page.said.text() == "there is no machine called lab1"


def test_a_machine_is_tested(page, fed):
    assert page.test.text() == "Test"
    page.table.selectRow(2)
    assert page.test.text() == "Try again", "it sends no readings"
    fed.asked.clear()
    page.test.click()
    assert fed.asked == [ReachHost(KNOWN["lab2"])]
    fed.fail(ReachHost, "ada@lab2 cannot be read: No route to host")
    assert page.said.text() == "ada@lab2 cannot be read: No route to host"


def test_the_busiest_device_of_a_machine_has_curves(fed):
    fed.window.resize(1280, 700)
    fed.window.show_page("hosts")
    made = with_hosts(snapshots.gpu_snapshot(1))
    known = msgspec.structs.replace(made.settings, hosts={"lab1": HostSettings("ada@lab1")})
    fed.feed(msgspec.structs.replace(made, settings=known))
    page = fed.window.hosts
    page.table.selectRow(1)
    times = [NOW - 60 + at for at in range(61)]
    fed.window.load_history("lab1/GPU-0", Columns(times, {"util": [50.0] * 61}))
    fed.feed(msgspec.structs.replace(made, settings=known, time=NOW + 1))
    curves, *others = page.devices.curves
    assert curves.title.text() == "lab1 GPU 0, last 10 minutes"
    assert not any(other.isVisible() for other in others), "there is room for one"
    shown = [field for field, spark in curves.sparks.cards.items() if spark.isVisible()]
    assert shown == ["util"], "nothing else has a history"
    assert curves.sparks.cards["util"].text == "87 %"
    assert page.devices.rect().contains(curves.geometry())
    fed.window.resize(1280, 800)
    fed.feed(msgspec.structs.replace(made, settings=known, time=NOW + 2))
    both = [device for device in page.devices.curves if device.isVisible()]
    assert [device.title.text() for device in both] == [
        f"lab1 GPU {at}, last 10 minutes" for at in range(2)
    ], "there is room for both"
    assert page.devices.rect().contains(both[-1].geometry())


def test_a_page_without_machines_begins_at_its_top(fed):
    fed.window.resize(1280, 800)
    fed.window.show_page("hosts")
    fed.feed(snapshots.gpu_snapshot(1))
    page = fed.window.hosts
    assert page.open.y() < 10
    assert page.count.mapTo(page, page.count.rect().topLeft()).y() < 20


@pytest.mark.parametrize("width", [420, 640, 800, 1280])
def test_a_narrow_page_leaves_out_columns_and_never_scrolls_sideways(page, fed, width):
    fed.window.resize(width, 560)
    fed.settle()
    assert page.table.horizontalScrollBar().maximum() == 0
    assert not page.table.isColumnHidden(STATE) and not page.table.isColumnHidden(len(COLUMNS) - 1)
    assert page.count.text() == "4 machines, 1 unreachable"
