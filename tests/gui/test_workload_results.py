"""The charts of a result are readable, reachable by keyboard, and saved to a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QFileDialog,
)

from gpudeck.accel.result import read
from gpudeck.app.shell.window import SMALLEST
from gpudeck.app.tour import render
from gpudeck.app.widgets import theme
from gpudeck.app.workloads.cell_charts import VIEWS
from gpudeck.app.workloads.result_export import SaveResult
from gpudeck.scheduler.protocol.jobs import Done, listed
from gpudeck.scheduler.verbs.jobs import GetJob
from tests.gui import snapshots
from tests.gui.readable import clipped, contrast, texts
from tests.gui.snapshots import NOW

GPU0 = snapshots.gpu(0).id
RECORDED = Path(__file__).with_name("recorded_compare_fp8.json")
"""The Result of a comparison with FP8 on a CPU."""


@pytest.fixture
def compared(fed):
    """Show a comparison whose Result is too large for a snapshot."""
    whole = snapshots.job(
        30,
        Done(NOW - 300, NOW - 20, (GPU0,), snapshots.raw(snapshots.grid())),
        "compare",
        "compare",
    )
    made = snapshots.gpu_snapshot(1)
    fed.window.show_page("workloads")
    fed.window.workloads.choose("compare")
    fed.feed(msgspec.structs.replace(made, jobs=(listed(whole), *snapshots.ceilings(), *made.jobs)))
    return fed, whole


def test_a_large_result_is_requested_once_and_then_shown(compared):
    fed, whole = compared
    page = fed.window.workloads
    assert (
        page.result.figure.text() == "745" and not page.result.cells.isVisible()
    )  # its headline, meanwhile
    fed.feed(msgspec.structs.replace(fed.window.state.snapshot, time=NOW + 1))
    assert [r for r in fed.asked if isinstance(r, GetJob)] == [GetJob(30)]
    fed.reply(GetJob(30), whole)
    fed.settle()
    assert page.result.cells.comparison.isVisible(), "backends side by side come first"
    page.result.cells.tabs["Heat map"].click()
    assert page.result.cells.heat.isVisible()
    assert len(page.result.cells.heat.marks()) == 36
    assert page.result.unit.text() == "TFLOP/s at best"


def test_a_recorded_comparison_with_fp8_shows_its_errors_beside_its_speed(fed):
    """As `gpudeck run compare` left it on a CPU; FP8 is never called the fastest."""
    recorded = read(RECORDED.read_bytes())
    whole = snapshots.job(
        31, Done(NOW - 300, NOW - 20, (GPU0,), snapshots.raw(recorded)), "compare", "compare"
    )
    made = snapshots.gpu_snapshot(1)
    fed.window.show_page("workloads")
    fed.window.workloads.choose("compare")
    fed.feed(msgspec.structs.replace(made, jobs=(listed(whole), *made.jobs)))
    fed.reply(GetJob(31), whole)
    fed.settle()
    cells = fed.window.workloads.result.cells
    cells.tabs["Comparison"].click()
    note = cells.note.text()
    assert "fp8-emulation has 0.02 times the speed of the best backend" in note
    assert "relative error of up to 5.3 % instead of 0.22 %" in note
    cells.tabs["Heat map"].click()
    cells.contender.setCurrentText("fp8-emulation")
    shown = [tile for line in cells.heat.map.cells for tile in line]
    of_fp8 = [cell for cell in recorded.cells if cell.contender == "fp8-emulation"]
    assert len(shown) == len(of_fp8) == 8
    assert [tile.small for tile in shown] == [f"error {100 * c.error:.2g} %" for c in of_fp8]
    assert "relative error" in shown[0].tooltip
    cells.contender.setCurrentText("fp8")
    refused = [tile for line in cells.heat.map.cells for tile in line]
    assert {tile.text for tile in refused} == {""}
    assert "it needs a CUDA GPU" in refused[0].tooltip
    cells.contender.setCurrentText("fastest")
    fastest = {tile.small for line in cells.heat.map.cells for tile in line}
    assert fastest == {"flash"}
    cells.contender.setCurrentText("fp8-emulation")
    cells.quantity.setCurrentText("Relative error")
    fed.settle()
    assert cells.heat.map.unit == "% of the exact result"
    assert clipped(fed.window) == []


def test_a_result_that_cannot_be_loaded_is_reported(compared):
    fed, _ = compared
    fed.fail(GetJob(30), "there is no job 30. See: gpudeck jobs")
    assert "there is no job 30" in texts(fed.window.workloads.result)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", render.SIZES)
def test_no_chart_is_clipped(compared, scheme, size):
    fed, whole = compared
    fed.reply(GetJob(30), whole)
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    cells = fed.window.workloads.result.cells
    fed.settle()
    for i, name in enumerate(VIEWS):
        if cells.spread:
            assert all(chart.isVisible() for chart in cells.charts)
            assert fed.window.workloads.result.facts.isVisible()
        cells.tabs[name].click()
        fed.settle()
        assert clipped(fed.window) == [], name
        frame = cells.rect()
        for part in (*cells.panels[1:2], cells.selected, cells.note, *cells.tabs.values()):
            assert not part.isVisible() or frame.contains(part.geometry()), name
        page = fed.window.workloads
        bottom = page.result.mapTo(page, QPoint(0, page.result.height())).y()
        assert bottom <= page.height(), name
        if i < len(cells.charts):
            chart = cells.charts[i]
            assert chart.isVisible() and chart.marks()
            assert all(QRectF(chart.rect()).contains(mark.box.center()) for mark in chart.marks())


def test_a_mark_is_reached_by_keyboard_and_by_mouse(compared):
    fed, whole = compared
    fed.reply(GetJob(30), whole)
    fed.settle()
    cells = fed.window.workloads.result.cells
    heat = cells.heat
    cells.tabs["Heat map"].click()
    assert heat.focusPolicy() & Qt.FocusPolicy.TabFocus
    heat.setFocus()
    seen = []
    for key in (
        Qt.Key.Key_Right,
        Qt.Key.Key_Right,
        Qt.Key.Key_Down,
        Qt.Key.Key_Left,
        Qt.Key.Key_Up,
        Qt.Key.Key_Up,
    ):
        QTest.keyClick(heat, key)
        seen.append(heat.current)
    assert seen == [0, 1, 7, 6, 0, 0]
    told = cells.selected.text()
    assert "sequence 512, head size 64, bfloat16, forward" in told and "J per TFLOP" in told
    assert heat.accessibleDescription().replace("\n", " · ") == told
    last = heat.marks()[-1].box.center().toPoint()
    QTest.mouseClick(heat, Qt.MouseButton.LeftButton, pos=last)
    assert "sequence 16384, head size 256, bfloat16, causal, forward" in cells.selected.text()


def test_every_cell_of_a_chart_can_be_reached_by_arrow_keys(compared):
    fed, whole = compared
    fed.reply(GetJob(30), whole)
    fed.settle()
    cells = fed.window.workloads.result.cells
    for name, chart in zip(VIEWS, cells.charts, strict=False):
        cells.tabs[name].click()
        fed.settle()
        chart.choose(0)
        reached, edge = {0}, [0]
        while edge:
            at = edge.pop()
            for step in (QPointF(1, 0), QPointF(-1, 0), QPointF(0, 1), QPointF(0, -1)):
                chart.current = at
                if (found := chart.mark_beside(step)) is not None and found not in reached:
                    reached.add(found)
                    edge.append(found)
        assert len(reached) == len(chart.marks()), name


def test_values_in_the_heat_map_are_readable(qapp):
    for scheme in ("light", "dark"):
        theme.apply(qapp, scheme)
        for share in np.linspace(0, 1, 21):
            ground = theme.shade(float(share))
            assert contrast(theme.readable_on(ground).name(), ground.name()) >= 4.5, (
                scheme,
                share,
            )


def test_selectors_filter_the_jobs(compared):
    fed, whole = compared
    fed.reply(GetJob(30), whole)
    fed.settle()
    cells = fed.window.workloads.result.cells
    cells.tabs["Heat map"].click()
    before = cells.heat.map
    cells.direction.setCurrentText("backward")
    cells.contender.setCurrentText("flash")
    cells.quantity.setCurrentText("J per TFLOP")
    assert cells.heat.map.unit == "J per TFLOP" and cells.heat.map != before
    assert [t.small for t in cells.heat.map.cells[4]][-1] == "–"
    cells.tabs["Comparison"].click()
    assert not cells.contender.isVisible() and cells.rows.isVisible()
    cells.rows.setCurrentText("d 128, causal")
    assert "head size 128, bfloat16, causal, backward" in cells.comparison.marks()[0].tooltip
    assert "on average over 72 shapes" in cells.note.text()
    cells.tabs["Roofline"].click()
    assert {p.contender for p in cells.roofline.roofline.points} == {
        "flash"
    } and not cells.note.isVisible()
    cells.tabs["Details"].click()
    assert fed.window.workloads.result.facts.isVisible() and not any(
        chart.isVisible() for chart in cells.charts
    )
    assert "made-up refusal" in fed.window.workloads.result.facts.toPlainText()
    # what was chosen stays with the next result of the workload
    again = msgspec.structs.replace(whole, id=31)
    snapshot = fed.window.state.snapshot
    fed.feed(msgspec.structs.replace(snapshot, jobs=(again, *snapshot.jobs), time=NOW + 1))
    assert (
        fed.window.workloads.result.title.text().startswith("Job 31")
        and cells.contender.currentText() == "flash"
    )


def test_a_comparison_opens_where_its_headline_was_reached(compared):
    fed, whole = compared
    fed.reply(GetJob(30), whole)
    fed.settle()
    cells = fed.window.workloads.result.cells
    fastest = max(snapshots.grid().cells, key=lambda cell: cell.tflops)
    tooltips = [mark.tooltip for mark in cells.comparison.marks()]
    assert any(f"{fastest.tflops:.0f} TFLOP/s" in text for text in tooltips)
    assert cells.direction.currentText() == fastest.direction


def test_the_whole_comparison_is_seen_in_the_smallest_window(compared):
    fed, whole = compared
    fed.window.resize(SMALLEST)
    fed.reply(GetJob(30), whole)
    for _ in range(2):
        fed.settle()
    page = fed.window.workloads
    chart = page.result.cells.comparison
    seen = fed.window.pages.parentWidget().rect()
    for corner in (chart.rect().topLeft(), chart.rect().bottomRight()):
        assert seen.contains(chart.mapTo(page, corner))
    assert not page.run.isHidden() and not page.form.isVisible()
    page.parameters.click()
    fed.settle()
    assert page.form.isVisible()
    page.choose("copy")
    fed.settle()
    assert page.form.isVisible(), "the form stays open for another workload"


def test_a_roofline_without_ceilings_names_the_workloads_to_run(fed):
    made = snapshots.gpu_snapshot(1)
    small = msgspec.structs.replace(
        snapshots.grid("attention", ("auto",)),
        device="a GPU whose peak is not known",
        cells=snapshots.grid().cells[:1],
    )
    job = snapshots.job(30, Done(NOW - 300, NOW - 20, (GPU0,), snapshots.raw(small)))
    fed.window.show_page("workloads")
    fed.feed(msgspec.structs.replace(made, jobs=(job, *made.jobs)))
    cells = fed.window.workloads.result.cells
    assert [name for name, tab in cells.tabs.items() if tab.isVisible()] == ["Roofline", "Details"]
    assert fed.window.workloads.result.facts.isVisible()
    cells.tabs["Roofline"].click()
    fed.settle()
    assert "run Matrix product" in cells.note.text() and "Memory copy" in cells.note.text()
    assert clipped(fed.window) == []


def test_save_asks_for_a_file_and_reports_the_outcome(compared, qtbot, monkeypatch):
    fed, _ = compared
    monkeypatch.setattr(
        QFileDialog, "open", lambda self: None
    )  # offscreen, Qt warns of any second window
    result = fed.window.workloads.result
    QTest.keyClick(fed.window, Qt.Key.Key_S, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: bool(result.findChildren(QFileDialog)))
    (dialog,) = result.findChildren(QFileDialog)
    assert dialog.selectedFiles()[0].endswith("compare-30.csv")
    dialog.fileSelected.emit("/data/grid.json")
    assert SaveResult(30, "/data/grid.json") in fed.asked
    fed.reply(SaveResult)
    (toast,) = fed.window.toasts.toasts
    assert set(toast.buttons) >= {"Open", "Show in folder"}
    assert "Result saved as " in toast.text.text()
    fed.fail(SaveResult, "cannot write /data/grid.json: No space left on device")
    assert "No space left on device" in texts(result)


def test_charts_are_painted_in_both_schemes(compared):
    fed, whole = compared
    fed.reply(GetJob(30), whole)
    cells = fed.window.workloads.result.cells
    seen = set()
    for scheme in ("light", "dark"):
        theme.apply(fed.app, scheme)
        for name, chart in zip(VIEWS, cells.charts, strict=False):
            cells.tabs[name].click()
            fed.settle()
            image = chart.grab().toImage()
            colors = {
                image.pixel(x, y)
                for x in range(0, image.width(), 3)
                for y in range(0, image.height(), 3)
            }
            assert len(colors) > 4, name
            seen.add(frozenset(colors))
    assert len(seen) == 6
