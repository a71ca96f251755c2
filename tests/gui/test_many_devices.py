"""Many devices are shown as a map, and each device has a page."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from gpudeck.app.devices.device_facts import FIRST_FIELDS
from gpudeck.app.devices.page import balanced
from gpudeck.app.strip.fleet_model import MANY
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol.devices import Detail, Part
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.services.calibration_service import MODULE
from gpudeck.scheduler.verbs.devices import GetDetails
from gpudeck.scheduler.verbs.submit import Submit
from tests.gui import snapshots
from tests.gui.snapshots import NOW


def numbers(fed) -> list[int]:
    return [int(cell.number) for cell in fed.window.strip.fleet.map.cells]


def choose(box, text: str) -> None:
    box.setCurrentText(text)


@pytest.mark.parametrize(
    ("count", "width", "height"),
    [(17, 1280, 800), (72, 1920, 1080), (72, 1024, 680), (72, 800, 560)],
)
def test_every_cell_of_the_map_is_visible(fed, count, width, height):
    fed.window.resize(width, height)
    fed.feed(snapshots.gpu_snapshot(count, replay=True))
    strip = fed.window.strip
    fleet = strip.fleet
    assert strip.many
    assert fleet.isVisible()
    assert fleet.area.verticalScrollBar().maximum() == 0
    marks = fleet.map.marks()
    assert len(marks) == count
    inside = fleet.map.rect()
    assert all(inside.contains(mark.box.toAlignedRect().adjusted(1, 1, -1, -1)) for mark in marks)
    assert strip.height() < 0.45 * height
    assert fed.window.header.replay.isVisible()
    assert not any(one.box.intersects(other.box) for one, other in pairwise(marks))


def heat_rows(card) -> int:
    """Return the number of rows of a chart's heat map."""
    heat = card.view.curves._heat
    return 0 if heat is None else heat[0].height()


def test_tiles_become_a_map_and_tiles_again(fed):
    fed.feed(snapshots.gpu_snapshot(MANY))
    assert not fed.window.strip.many
    fed.feed(snapshots.gpu_snapshot(MANY + 1, NOW + 1))
    assert fed.window.strip.many
    fed.feed(snapshots.gpu_snapshot(2, NOW + 2))
    assert list(fed.window.strip.tiles) == [snapshots.gpu(i).id for i in range(2)]
    assert fed.window.strip.grid.isVisible()


def test_the_map_is_sorted_filtered_and_charted(fed):
    fed.feed(snapshots.gpu_snapshot(24), history=True)
    fleet, charts = fed.window.strip.fleet, fed.window.dashboard.charts
    assert numbers(fed) == list(range(24))
    assert not charts["util"].view.curves.paths
    assert heat_rows(charts["util"]) == 24
    choose(fleet.kind, "Idle")
    fed.settle()
    idle = [snapshots.gpu(i).id for i in range(24) if i % 3 == 2]
    assert list(charts["util"].view.curves.paths) == idle, "few have curves of their own"
    assert heat_rows(charts["util"]) == 0
    assert numbers(fed) == [i for i in range(24) if i % 3 == 2]
    assert fleet.count.text() == "8 of 24 devices"
    choose(fleet.kind, "All devices")
    choose(fleet.quantity, "Temperature")
    choose(fleet.order, "Highest first")
    shown = fleet.map.cells
    assert [c.share for c in shown] == sorted((c.share for c in shown), reverse=True)
    fed.settle()
    assert charts["temp"].view.axis_labels[0] == shown[0].number, "the charts have the same order"
    fleet.filter.setText("job 8")
    assert numbers(fed) == [0]
    fleet.filter.setText("nothing like it")
    assert numbers(fed) == []
    assert fleet.count.text() == "0 of 24 devices"


def test_a_cell_has_the_colour_of_its_value_and_the_edge_of_its_meaning(fed):
    devices = [snapshots.gpu(i) for i in range(20)]
    states = [
        snapshots.DeviceState(
            d, snapshots.gpu_reading(d, temp=86.0 if i == 3 else 50.0), snapshots.Idle(0)
        )
        for i, d in enumerate(devices)
    ]
    states[5] = msgspec.structs.replace(states[5], reading=None)
    fed.feed(snapshots.snapshot(tuple(states)))
    fleet = fed.window.strip.fleet
    assert [c.meaning for c in fleet.map.cells] == ["hot" if i == 3 else "" for i in range(20)]
    assert (fleet.map.cells[5].text, fleet.map.cells[5].share) == ("–", None)
    image = fleet.map.grab().toImage()
    left = fleet.map.marks()[3].box.topLeft() + QPoint(1, 5)
    assert image.pixelColor(left.toPoint()).name() == theme.LIGHT.hot
    assert (
        theme.luminance(theme.shade(1.0))
        < theme.luminance(theme.shade(0.5))
        < theme.luminance(theme.shade(0.0))
    ), "darker cells have higher values, even without colours"
    assert "Temperature 86 °C" in fleet.map.marks()[3].tooltip


def test_a_device_can_be_opened_by_mouse_and_by_keyboard(fed):
    fed.feed(snapshots.gpu_snapshot(24))
    fleet, window = fed.window.strip.fleet, fed.window
    QTest.mouseClick(
        fleet.map, Qt.MouseButton.LeftButton, pos=fleet.map.marks()[4].box.center().toPoint()
    )
    assert window.pages.currentWidget() is window.device
    assert window.header.title.text() == "GPU 4"
    QTest.keyClick(window.device, Qt.Key.Key_Escape)
    assert window.pages.currentWidget() is window.dashboard
    fleet.map.setFocus()
    QTest.keyClick(fleet.map, Qt.Key.Key_Right)
    assert "GPU 5" in fleet.map.accessibleDescription()
    QTest.keyClick(fleet.map, Qt.Key.Key_Return)
    assert window.header.title.text() == "GPU 5"
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1))
    chips = window.strip.chips
    chips.choose(1)
    QTest.keyClick(chips, Qt.Key.Key_Return)
    assert window.header.title.text() == "GPU 1"
    QTest.keyClick(window.device, Qt.Key.Key_Right, Qt.KeyboardModifier.AltModifier)
    assert window.header.title.text() == "GPU 0"
    QTest.mouseClick(chips, Qt.MouseButton.LeftButton, pos=chips.marks()[1].box.center().toPoint())
    assert window.header.title.text() == "GPU 1"


# the page of one device


def test_the_page_shows_all_values_with_reasons_for_missing_ones(fed):
    fed.feed(snapshots.cpu_snapshot())
    fed.window.show_device("cpu")
    fed.settle()
    page = fed.window.device
    assert page.name.text().startswith("AMD EPYC 9B14")
    facts = {f.label: f for group in page.groups.values() for f in group.facts}
    assert facts["Temperature"].value == "–"
    assert "the kernel exposes no temperature sensor here" in facts["Temperature"].tooltip
    assert facts["Utilisation"].value == "55 %"
    assert FIELDS["util"].meaning in facts["Utilisation"].tooltip
    heat = page.groups["Heat"]
    heat.setFocus()
    QTest.keyClick(heat, Qt.Key.Key_Down)
    assert "no temperature sensor" in heat.accessibleDescription()


def test_parts_are_requested_while_the_page_is_visible(fed):
    fed.feed(snapshots.gpu_snapshot(1))
    device = snapshots.gpu(0).id
    fed.window.show_device(device)
    assert fed.asked == [GetDetails()]
    parts = (
        Part("link", "NVLink 0", {"nvlink_rx": 2.5e9, "nvlink_errors": 3.0}, {"nvlink_tx": "not known yet"}, {"state": "up"}),  # noqa: E501
        Part("instance", "MIG 1g.10gb", {"mem_used": 2**30, "mem_total": 10 * 2**30}, {}, {"uuid": "MIG-1"}),  # noqa: E501
        *(Part("core", f"core {i}", {"util": 10.0 * i}) for i in range(10)),
        Part("sensor", "coretemp Package", {"temp": 61.0}),
    )  # fmt: skip
    fed.reply(GetDetails, (Detail(device, NOW, parts),))
    page = fed.window.device
    facts = {f.label: f for group in page.groups.values() for f in group.facts}
    assert facts["NVLink 0"].value == "2.50 GB/s in, 3.00 errors"
    assert "NVLink out: – (not known yet)" in facts["NVLink 0"].tooltip
    assert facts["MIG 1g.10gb"].value == "1.0 GiB used, 10.0 GiB total"
    assert facts["coretemp Package"].value == "61 °C"
    assert (facts["0 to 7"].value, facts["8 to 9"].value) == (
        "0  10  20  30  40  50  60  70",
        "80  90",
    )
    fed.window.show_page("dashboard")
    page.poller.timeout.emit()
    assert not page.poller.isActive()


def test_a_gpu_with_counters_can_be_calibrated_and_others_offer_no_button(fed):
    made = snapshots.gpu_snapshot(2)
    states = [
        msgspec.structs.replace(
            s, reading=msgspec.structs.replace(s.reading, values={**s.reading.values, **more})
        )
        for s, more in zip(made.devices, ({"tflops_gpm": 1.0}, {}), strict=True)
    ]
    fed.feed(msgspec.structs.replace(made, devices=tuple(states)))
    page = fed.window.device
    fed.window.show_device(snapshots.gpu(1).id)
    assert not page.calibrate.isVisible()
    fed.window.show_device(snapshots.gpu(0).id)
    assert page.calibrate.isVisible()
    fed.asked.clear()
    page.calibrate.click()
    (submitted,) = (r for r in fed.asked if isinstance(r, Submit))
    assert submitted.spec.argv[-1] == MODULE
    assert (submitted.spec.name, submitted.spec.gpus) == ("calibrate", 1)


def test_every_field_belongs_to_a_group():
    assert set(FIRST_FIELDS) <= set(FIELDS)
    assert next(iter(FIELDS)) in FIRST_FIELDS


def test_a_device_that_disappeared_is_reported(fed):
    fed.feed(snapshots.gpu_snapshot(2))
    fed.window.show_device(snapshots.gpu(1).id)
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1))
    assert fed.window.device.read.text() == "This device is no longer available"


def test_hot_and_throttled_values_are_coloured_on_the_page(fed):
    device = snapshots.gpu(0)
    reading = snapshots.gpu_reading(device, temp=86, throttle="power limit")
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    fed.window.show_device(device.id)
    found = {f.label: f.meaning for group in fed.window.device.groups.values() for f in group.facts}
    assert (found["Temperature"], found["Slowed down by"]) == ("hot", "throttled")


def test_many_devices_are_charted_as_a_heat_map_whose_rows_open_a_device(fed):
    fed.feed(snapshots.gpu_snapshot(24), history=True)
    page = fed.window.dashboard
    assert not page.legend.chips
    card = page.charts["temp"]
    lines = [fed.window.state.history.curve(snapshots.gpu(i).id, "temp")[1] for i in range(24)]
    assert card.summary.text.startswith("min ")
    assert card.summary.text.rpartition(", ")[2] in {f"GPU {i}" for i in range(24)}
    assert f"max {max(float(np.nanmax(line)) for line in lines):.0f}" in card.summary.text
    chosen: list[str] = []
    page.device_chosen.connect(chosen.append)
    card.view.box.clicked.emit(23.5)  # the topmost row
    card.view.box.clicked.emit(0.5)
    card.view.box.clicked.emit(-0.5)  # below all rows
    assert chosen == [snapshots.gpu(0).id, snapshots.gpu(23).id]
    low, high = (float(end.split()[0]) for end in card.heat_scale.ends)
    assert low < high, "what is pale is lower than what is strong"
    card.view.box.level = 18.5
    page.point(NOW - 60)  # as the pointer does
    assert card.values.text.startswith("GPU 5 ")


def test_two_times_of_many_devices_are_not_compared(fed):
    fed.feed(snapshots.gpu_snapshot(24), history=True)
    page = fed.window.dashboard
    page.compare(True)
    assert page.compared is None
    assert page.bar.compare.isHidden()
    assert "Comparing" not in page.bar.position.text()
    fed.feed(snapshots.gpu_snapshot(8, NOW + 1), history=True)
    page.compare(True)
    assert page.compared is not None
    fed.feed(snapshots.gpu_snapshot(24, NOW + 2), history=True)
    assert page.compared is None


def test_the_map_says_what_its_coloured_edges_mean(fed):
    devices = [snapshots.gpu(i) for i in range(20)]
    fed.feed(
        snapshots.snapshot(
            tuple(
                snapshots.DeviceState(
                    d, snapshots.gpu_reading(d, temp=86.0 if i < 3 else 50.0), snapshots.Idle(0)
                )
                for i, d in enumerate(devices)
            )
        )
    )
    keys = fed.window.strip.fleet.keys
    assert {name: key.text() for name, key in keys.items() if key.isVisible()} == {"hot": "▌3 hot"}


def test_the_groups_of_a_device_have_the_same_order_at_every_size(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    fed.window.show_device(snapshots.gpu(0).id)
    page = fed.window.device
    orders = []
    for size in ((800, 560), (1280, 800), (2560, 1440)):
        fed.window.resize(*size)
        for _ in range(2):  # a scroll bar that goes leaves its room to the page afterwards
            fed.settle()
        cards = page.cards.values()
        placed = sorted(cards, key=lambda card: (card.mapTo(page, QPoint()).x(), card.y()))
        orders.append([next(t for t, c in page.cards.items() if c is card) for card in placed])
        assert page._inner.width() <= page._area.viewport().width()
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][0] == "Work" and orders[0][-1] == "Card"


def test_rarely_needed_counters_unfold_on_demand(fed):
    device = snapshots.gpu(0)
    rare = {"encoder": 0.0, "decoder": 0.0, "jpeg": 0.0}
    usual = snapshots.gpu_reading(device)
    reading = msgspec.structs.replace(usual, values={**usual.values, **rare})
    fed.window.resize(1280, 800)
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    fed.window.show_device(device.id)
    fed.settle()
    made = fed.window.device.cards["Work"]
    assert "Encoder" not in {fact.label for fact in made.table.shown}
    assert made.more.text() == "3 more…"
    low = made.table.height()
    made.more.click()
    fed.settle()
    assert "Encoder" in {fact.label for fact in made.table.shown}
    assert made.table.height() > low
    made.more.click()
    fed.settle()
    assert made.table.height() == low
    fed.window.resize(2560, 1440)
    fed.settle()
    fed.window.device.refresh()
    assert "Encoder" in {fact.label for fact in made.table.shown}, "there is room for all"
    assert made.more.isHidden()


@pytest.mark.parametrize(
    ("heights", "columns", "lengths"),
    [([], 2, [0]), ([5], 3, [1]), ([3, 3, 3, 3], 2, [2, 2]), ([9, 1, 1, 1], 2, [1, 3])],
)
def test_columns_are_balanced_without_changing_the_order(heights, columns, lengths):
    assert balanced(heights, columns) == lengths


@pytest.mark.parametrize("typed", ["GPU 17", "17", "gpu 17 "])
def test_one_of_many_gpus_is_found_by_typing(fed, typed):
    fed.feed(snapshots.gpu_snapshot(24))
    picker = fed.window.header.picker
    assert not picker.isVisible(), "the dashboard shows all of them"
    fed.window.show_page("alerts")
    assert picker.isVisible()
    picker.setFocus()
    picker.setText("no such GPU")
    QTest.keyClick(picker, Qt.Key.Key_Return)
    assert fed.window.header.title.text() == "Alerts"
    picker.clear()
    QTest.keyClicks(picker, typed)
    QTest.keyClick(picker, Qt.Key.Key_Return)
    fed.settle()
    assert fed.window.header.title.text() == "GPU 17"
    fed.feed(snapshots.gpu_snapshot(8, NOW + 1))
    assert not picker.isVisible(), "eight have a chip each"


def test_values_of_a_card_are_called_in_plain_words(fed):
    device = snapshots.gpu(0)
    reading = snapshots.gpu_reading(device)
    known = {**reading.values, "pstate": 0.0, "bar1_used": 2.0**30}
    reading = msgspec.structs.replace(reading, values=known)
    fed.feed(snapshots.snapshot((snapshots.DeviceState(device, reading, snapshots.Idle(0)),)))
    fed.window.show_device(device.id)
    found = {f.label: f for group in fed.window.device.groups.values() for f in group.facts}
    assert found["Performance level"].value == "P0, the fastest"
    assert found["BAR1 in use"].minor
