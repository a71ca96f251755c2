"""The strip shows every device completely, with its colours."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPaintEvent, QRegion
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QWidget,
)

from gpudeck.app.shell.window import SMALLEST
from gpudeck.app.strip import strip as strip_module
from gpudeck.app.strip.summary import summarize
from gpudeck.app.strip.tile_view import TileText
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.snapshot import Alert
from tests.gui import snapshots
from tests.gui.snapshots import NOW
from tests.gui.test_other_machines import with_hosts

GPU0 = snapshots.gpu(0).id


def test_the_tile_of_a_cpu_explains_missing_values(fed):
    fed.feed(snapshots.cpu_snapshot())
    tile = fed.window.strip.tiles["cpu"]
    seen = [cell.text for cell in tile.texts]
    assert "AMD EPYC 9B14 · CPU: no NVIDIA GPU found" in seen
    assert "job 8 · attention" in seen
    assert tile.values[3].text == "–"
    assert "no temperature sensor" in tile.values[3].tooltip
    assert tile.values[2].tooltip == "TFLOP/s: no job counts its operations now"
    assert "REPLAY" not in seen
    assert "Temperature –" in tile.accessibleDescription()


SIZES = ((1280, 800), (2560, 1440), (1280, 800), (2560, 1440), (1024, 680))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
def test_every_device_is_visible_after_any_resizing(fed, count):
    for width, height in SIZES:
        fed.window.resize(width, height)
        fed.feed(snapshots.gpu_snapshot(count, replay=True))
        check_tiles(fed, count, width)


def check_tiles(fed, count, width):
    """Check that the strip shows all tiles whole, alike, and in as few rows as there is room."""
    strip = fed.window.strip
    tiles = list(strip.tiles.values())
    for tile in tiles:
        assert (
            strip.grid.viewport()
            .rect()
            .contains(tile.geometry().translated(tile.parentWidget().pos()))
        )
        assert tile.height() == tile.sizeHint().height()
        assert [cell.text for cell in tile.texts if too_narrow(cell)] == []
    assert max(t.width() for t in tiles) - min(t.width() for t in tiles) <= 1
    assert len({t.form for t in tiles}) == 1
    assert strip.height() < 0.28 * fed.window.height()
    assert count != 8 or len({t.y() for t in tiles}) == {1280: 2, 2560: 1, 1024: 2}[width]


def too_narrow(cell: TileText) -> bool:
    """Report if a text needs more room than it has."""
    metrics = QFontMetricsF(cell.font)
    return (
        metrics.horizontalAdvance(cell.text) > cell.box.width()
        or metrics.height() > cell.box.height() + 0.01
    )


def test_the_largest_values_fit_their_tile(fed):
    devices = [snapshots.gpu(i) for i in range(8)]
    values = {"util": 100.0, "mem_used": 178.4 * snapshots.GIB, "mem_total": 179.1 * snapshots.GIB}
    values |= {"tflops": 2250.0, "temp": 100.0, "power": 1000.0}
    states = [
        snapshots.DeviceState(d, snapshots.Reading(d.id, NOW, values), snapshots.Idle(0))
        for d in devices
    ]
    for size in ((1024, 680), (1280, 800), (2560, 1440)):
        fed.window.resize(*size)
        for count in (1, 2, 8):
            fed.feed(snapshots.snapshot(tuple(states[:count])))
            for tile in fed.window.strip.tiles.values():
                assert [cell.text for cell in tile.texts if too_narrow(cell)] == []


def test_tiles_of_like_cards_leave_their_name_to_the_title(fed):
    fed.window.resize(1280, 800)
    fed.feed(snapshots.gpu_snapshot(8))
    assert "8 × H100 80GB HBM3" in fed.window.header.devices.text()
    texts = [cell.text for tile in fed.window.strip.tiles.values() for cell in tile.texts]
    assert not any("H100" in text for text in texts)
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    (tile,) = fed.window.strip.tiles.values()
    assert "H100 80GB HBM3" in [cell.text for cell in tile.texts]


def test_many_tiles_scroll_and_leave_room_for_the_page(fed, monkeypatch):
    fed.window.resize(1024, 680)
    fed.feed(snapshots.gpu_snapshot(16))
    strip = fed.window.strip
    assert (strip.grid.verticalScrollBar().maximum(), fed.window.height()) == (0, 680), (
        "low tiles have room"
    )
    monkeypatch.setattr(strip_module, "MOST_OF_WINDOW", 0.2)
    fed.feed(snapshots.gpu_snapshot(16))
    assert strip.grid.verticalScrollBar().maximum() > 0
    assert strip.height() < 0.2 * 680
    tiles = [t.geometry().translated(t.parentWidget().pos()) for t in strip.tiles.values()]
    seen = [t for t in tiles if strip.grid.viewport().rect().intersects(t)]
    assert len(seen) == 8
    assert all(strip.grid.viewport().rect().contains(t) for t in seen)
    assert {c.text() for c in fed.window.dashboard.legend.chips.values()} == {
        str(i) for i in range(16)
    }


class Painted(QObject):
    """Collect the regions of a widget that are painted."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__()
        self.region = QRegion()
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent):
            self.region = self.region.united(event.region())
        return False


def test_a_tile_paints_only_what_changed(fed):
    fed.feed(snapshots.gpu_snapshot(2))
    tile = fed.window.strip.tiles[GPU0]
    old, painted = [*tile.values], Painted(tile)
    fed.feed(snapshots.gpu_snapshot(2, NOW + 9))
    changed = [new for was, new in zip(old, tile.values, strict=True) if was != new]
    assert len(changed) == 5
    assert all(painted.region.contains(cell.area) for cell in changed)
    assert not any(painted.region.intersects(cell.area) for cell in tile.header[:2])
    theme.apply(fed.app, "dark")
    fed.settle()
    assert tile.grab().toImage().pixelColor(6, 12) == QColor(theme.DARK.surface)


def test_devices_can_appear_and_disappear(fed):
    fed.feed(snapshots.gpu_snapshot(8))
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1))
    assert len(fed.window.strip.tiles) == 2
    fed.feed(snapshots.snapshot((), time=NOW + 2))
    assert fed.window.strip.grid.empty.isVisible()
    fed.feed(snapshots.cpu_snapshot(NOW + 3))
    assert list(fed.window.strip.tiles) == ["cpu"]


def test_hot_and_throttled_values_are_coloured(fed):
    device = snapshots.gpu(0)
    reading = snapshots.gpu_reading(device, temp=86, throttle="power limit")
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    tile = fed.window.strip.tiles[device.id]
    _, _, _, temperature, power = tile.values
    assert temperature.meaning == "hot"
    assert power.meaning == "throttled"
    assert "power limit" in power.tooltip
    image = tile.grab(power.area).toImage()
    assert QColor(theme.LIGHT.throttled) in [
        image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height())
    ]


def test_an_alert_colours_only_the_value_that_it_is_about(fed):
    fed.window.resize(1280, 800)
    made = snapshots.gpu_snapshot(8)
    alerts = (
        Alert(1, "too hot", snapshots.gpu(1).id, None, "hot", NOW, NOW),
        Alert(2, "memory nearly full", snapshots.gpu(2).id, None, "full", NOW, NOW),
        Alert(3, "hardware errors", snapshots.gpu(4).id, None, "errors", NOW, NOW),
    )
    fed.feed(msgspec.structs.replace(made, alerts=alerts))
    colours = [[value.meaning for value in view.values] for view in fed.window.strip.tiles.values()]
    assert colours[1] == ["", "", "", "hot", ""]
    assert colours[2] == ["", "hot", "", "", ""]
    assert colours[4] == ["", "", "", "", ""]
    rows = summarize(fed.window.state.snapshot).rows
    assert rows[1].meanings == ("", "", "hot", "") and rows[2].meanings == ("", "hot", "", "")
    fed.window.show_page("jobs")
    fed.settle()
    chips = fed.window.strip.chips.chips
    temperature = made.devices[1].reading.values["temp"]
    assert chips[1].cause == (f"{temperature:.0f} °C", "hot"), "the cause stays where room is short"
    assert [value.meaning for value in chips[1].values] == ["", "hot"]
    assert chips[4].meaning == "hot" and not any(value.meaning for value in chips[4].values)


@pytest.mark.parametrize("counts", [(8, 72, 8), (2, 8), (16, 1, 8)])
def test_no_tile_is_missing_after_the_number_of_devices_changed(fed, counts):
    fed.window.resize(1024, 680)
    for at, count in enumerate(counts):
        fed.feed(snapshots.gpu_snapshot(count, NOW + at, replay=True))
    grid = fed.window.strip.grid
    assert len(grid.tiles) == 8
    for tile in grid.tiles.values():
        assert grid.viewport().rect().contains(tile.geometry().translated(grid.widget().pos()))


SMALL, USUAL, LARGE = (800, 560), (1280, 800), (2560, 1440)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (1, (SMALL, USUAL, LARGE)),
        (8, (LARGE, SMALL, USUAL)),
        (16, (USUAL, LARGE, SMALL)),
        (72, (LARGE, USUAL, SMALL)),
    ],
)
def test_the_strip_takes_little_of_the_pages_that_are_not_the_dashboard(fed, count, sizes):
    for size in sizes:
        fed.window.resize(*size)
        fed.feed(snapshots.gpu_snapshot(count, replay=True))
        for page in ("jobs", "settings"):
            fed.window.show_page(page)
            fed.settle()
            chips = fed.window.strip.chips
            assert chips.isVisible()
            assert fed.window.strip.height() == theme.px(26), "always one line"
            boxes = [mark.box.toAlignedRect() for mark in chips.marks()]
            assert len(boxes) == (1 if count == 72 or (count == 16 and size != LARGE) else count)
            assert all(chips.rect().contains(box.adjusted(1, 1, -1, -1)) for box in boxes)


def test_a_line_without_room_for_all_gpus_counts_them_and_opens_the_map(fed):
    fed.feed(snapshots.gpu_snapshot(72))
    fed.window.fold_strip(True)
    fed.window.show_page("jobs")
    fed.settle()
    chips, strip = fed.window.strip.chips, fed.window.strip
    (made,) = chips.chips
    devices = fed.window.state.snapshot.devices
    hottest = max(d.reading.values["temp"] for d in devices if d.reading is not None)
    assert made.text == f"{hottest:.0f} °C max"
    assert made.title == "48 of 72 busy"
    chips.choose(0)
    QTest.keyClick(chips, Qt.Key.Key_Return)
    assert fed.window.shown == "dashboard" and strip.fleet.isVisible()


def test_a_line_without_room_groups_the_gpus_by_machine(fed):
    fed.window.resize(1280, 800)
    fed.feed(with_hosts(snapshots.gpu_snapshot(24)))
    fed.window.show_page("jobs")
    fed.settle()
    chips = fed.window.strip.chips
    assert [c.title for c in chips.chips] == ["This machine", "lab1", "lab2", "laptop"]
    assert [c.text for c in chips.chips[1:]] == [
        "1 of 2 busy  71 °C max", "unreachable", "asleep"
    ]  # fmt: skip
    box = chips.marks()[1].box
    QTest.mouseClick(chips, Qt.MouseButton.LeftButton, pos=box.center().toPoint())
    assert fed.window.shown == "dashboard"
    assert [cell.number for cell in fed.window.strip.fleet.map.cells] == ["lab1 0", "lab1 1"]


def test_the_strip_is_collapsed_and_shown_again_on_the_dashboard(fed):
    fed.feed(snapshots.gpu_snapshot(8))
    bar, strip = fed.window.dashboard.bar, fed.window.strip
    bar.fold.click()
    fed.settle()
    assert strip.chips.isVisible()
    assert strip.height() <= 0.12 * fed.window.height()
    bar.fold.click()
    fed.settle()
    assert strip.grid.isVisible()


def test_a_tile_shows_the_load_of_the_last_minute(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    tile = fed.window.strip.tiles[GPU0]
    assert len(tile.load) == 40
    assert tile.load[-1] == pytest.approx(snapshots.gpu_reading(snapshots.gpu(0)).values["util"])


def test_one_badge_above_all_tiles_says_that_they_are_recordings(fed):
    fed.window.resize(1280, 800)
    fed.feed(snapshots.gpu_snapshot(8, replay=True))
    header = fed.window.header
    assert (header.replay.isVisible(), header.replay.text()) == (True, "REPLAY")
    assert snapshots.REPLAY_NOTE in header.replay.toolTip()
    assert header.devices.text() == "8 × H100 80GB HBM3"
    assert not any("REPLAY" in c.text for t in fed.window.strip.tiles.values() for c in t.texts)
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(8, NOW + 1, replay=True))
    assert (header.replay.isVisible(), header.title.text()) == (True, "Jobs")
    fed.feed(snapshots.gpu_snapshot(8, NOW + 2))
    assert not header.replay.isVisible()


def test_a_badge_names_the_recordings_beside_live_devices(fed):
    recorded, live = snapshots.gpu_snapshot(2, replay=True), snapshots.gpu_snapshot(4)
    both = msgspec.structs.replace(live, devices=recorded.devices + live.devices[2:])
    fed.feed(both)
    assert fed.window.header.replay.text() == "REPLAY: GPU 0 to 1"


def test_chips_of_eight_gpus_are_one_line_of_the_smallest_window(fed):
    fed.window.resize(SMALLEST)
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(8))
    chips = fed.window.strip.chips
    assert len({mark.box.top() for mark in chips.marks()}) == 1
    assert len(chips.marks()) == 8
    assert chips.rect().contains(chips.marks()[-1].box.toAlignedRect())


def test_what_is_free_is_the_first_thing_of_the_dashboard(fed):
    fed.feed(snapshots.gpu_snapshot(8))
    free = fed.window.header.free
    assert free.text().startswith("2 of 8 free: 2, 5; next: GPU 0 about ")
    assert free.isVisible()
    fed.window.show_page("jobs")
    assert not free.isVisible(), "there each free GPU says so"
    chips = {chip.title: chip.text for chip in fed.window.strip.chips.chips}
    assert chips["GPU 2"].startswith("free") and not chips["GPU 1"].startswith("free")
    fed.window.show_page("dashboard")
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1, replay=True))
    assert not free.isVisible(), "recordings run no jobs"


def test_a_busy_tile_says_who_and_how_far_and_a_free_one_opens_the_form(fed):
    made = snapshots.gpu_snapshot(3)
    reading = msgspec.structs.replace(
        made.devices[1].reading, processes=(Process(77, "python", "ben"), Process(78, "vllm"))
    )
    busy = msgspec.structs.replace(made.devices[1], reading=reading)
    fed.feed(msgspec.structs.replace(made, devices=(made.devices[0], busy, made.devices[2])))
    held, other, free = fed.window.strip.tiles.values()
    assert held.tile.progress == 0.42
    ring = held.grab(held._ring.toAlignedRect()).toImage()
    places = product(range(ring.width()), range(ring.height()))
    colors = {ring.pixelColor(*place).name() for place in places}
    assert {theme.LIGHT.accent, theme.LIGHT.line} <= colors, "a part of the ring is filled"
    assert other.tile.holder == "ben · python and 1 other"
    assert "Free · New job" in [text.text for text in free.texts]
    QTest.mouseClick(free, Qt.MouseButton.LeftButton, pos=free._invitation.center().toPoint())
    form = fed.window.jobs.form
    assert form.isVisible()
    assert (form.form.values["gpus"], form.form.values["gpu_type"]) == ("1", "GPU 2")
    assert form.fields.notes["gpus"].text().startswith("Only GPU 2 · ")
    assert not form.fields.more.isChecked()
    fed.window.show_page("dashboard")
    QTest.mouseClick(free, Qt.MouseButton.LeftButton, pos=free.rect().bottomLeft() / 2)
    assert fed.window.pages.currentWidget() is fed.window.device, "elsewhere it opens the GPU"
    fed.window.show_page("dashboard")
    QTest.keyClick(held, Qt.Key.Key_N)
    assert fed.window.pages.currentWidget() is fed.window.dashboard
    QTest.keyClick(free, Qt.Key.Key_N)
    assert fed.window.pages.currentWidget() is fed.window.jobs


def test_the_tray_begins_with_what_is_free():
    summary = summarize(snapshots.gpu_snapshot(8))
    assert summary.text.startswith("2 of 8 free: 2, 5; next: GPU 0 about ")


def test_the_chip_of_the_device_that_is_shown_is_marked(fed):
    fed.feed(snapshots.gpu_snapshot(8))
    fed.window.show_device(snapshots.gpu(2).id)
    fed.settle()
    chips = fed.window.strip.chips
    assert marked(chips) == [2]
    fed.window.device.after.click()
    fed.settle()
    assert marked(chips) == [3]
    fed.window.show_page("jobs")
    fed.settle()
    assert marked(chips) == [], "a load is no mark"


def marked(chips):
    """Return the places of the chips in which something has the accent colour."""
    picture, accent = chips.grab().toImage(), QColor(theme.tokens().accent)
    boxes = [mark.box.toAlignedRect() for mark in chips.marks()]
    return [
        at
        for at, box in enumerate(boxes)
        if any(
            picture.pixelColor(box.center().x(), y) == accent
            for y in range(max(box.top(), 0), min(box.bottom(), picture.height() - 1) + 1)
        )
    ]


def test_a_device_that_has_cooled_down_is_not_coloured(fed):
    made, device = snapshots.gpu_snapshot(8), snapshots.gpu(1).id
    alert = Alert(1, "too hot", device, None, "was hot", NOW, NOW, clearing=True)
    fed.feed(msgspec.structs.replace(made, alerts=(alert,)))
    view = fed.window.strip.tiles[device]
    assert view.values[3].meaning == "" and view.tile.meaning == ""
    assert [text.meaning for text in view.texts if text.text == "alert"] == ["muted"]
    fed.window.show_page("jobs")
    fed.settle()
    chip = fed.window.strip.chips.chips[1]
    assert not chip.meaning and not any(value.meaning for value in chip.values)
