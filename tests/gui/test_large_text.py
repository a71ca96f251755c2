"""Where text has 14 points, no text that the window paints itself is cut off or covered.

`test_scales.py` looks at the texts of labels and buttons; these are painted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QSize
from PySide6.QtGui import QFontMetrics, QFontMetricsF
from PySide6.QtWidgets import QApplication, QStyleOptionViewItem, QTableView

from gpudeck.app.assistant.session_files import Summary
from gpudeck.app.assistant.session_list import SessionList
from gpudeck.app.cleanup.find_tree import FindTree
from gpudeck.app.models.requests import FindServed, ListModels
from gpudeck.app.shell.window import SMALLEST
from gpudeck.app.strip.compact import CompactStrip
from gpudeck.app.strip.summary import summarize
from gpudeck.app.strip.tile_model import POWER
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import pill, set_pill
from gpudeck.assistant.housekeeping import Finding
from gpudeck.assistant.housekeeping.findings import encoded
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.verbs.devices import GetDetails
from tests.gui import served, snapshots
from tests.gui.conftest import Fed
from tests.gui.readable import clipped, sideways

GIB = 2**30
PROCESS = Process(
    4711,
    "python",
    "ada",
    4 * GIB,
    3,
    False,
    snapshots.NOW - 60,
    9,
    "python train.py",
    kind="compute",
)


@pytest.fixture
def large(qapp: QApplication, clean_qt: None) -> Iterator[QApplication]:
    """Let text have 14 points."""
    theme.set_text_size(qapp, 14)
    theme.apply(qapp, "light")
    yield qapp
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    theme.set_text_size(qapp, theme.POINTS)
    theme.apply(qapp, "light")


def test_a_pill_is_round(large: QApplication) -> None:
    made = pill()
    set_pill(made, "Running", "accent")
    made.adjustSize()
    made.show()
    picture = made.grab().toImage()
    border = picture.pixelColor(picture.width() // 2, 0)
    assert picture.pixelColor(0, 0) != border
    assert picture.pixelColor(0, picture.height() - 1) != border
    made.close()


def test_conversations_do_not_cover_each_other(large: QApplication) -> None:
    made = SessionList()
    made.show_sessions((Summary("a", "Why does it wait?", 0.0), Summary("b", "And now?", 0.0)), "")
    option = QStyleOptionViewItem()
    high = made.list.itemDelegate().sizeHint(option, made.list.model().index(0, 0)).height()
    lines = (QFontMetrics(theme.font(size)).height() for size in (theme.BASE, theme.SMALL))
    assert high >= sum(lines) + theme.S
    made.deleteLater()


def test_sizes_and_ages_of_items_to_clean_up_are_shown_whole(large: QApplication) -> None:
    made = FindTree()
    made.resize(1100, 500)
    made.show()
    reason = "of job 171 (finetune-llama), done"
    made.show_finds(
        [
            Finding("artefacts", encoded("/data/171"), encoded("/data"), 1000 * GIB, reason,
                    1000 * 86400.0, "seal")
        ]
    )  # fmt: skip
    for column in (1, 2):
        assert made.sizeHintForColumn(column) <= made.columnWidth(column)
    made.close()
    made.deleteLater()


def test_the_values_beside_an_axis_do_not_touch_each_other(large: QApplication) -> None:
    fed = Fed(large)
    fed.window.resize(1280, 640)
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    high = QFontMetrics(theme.font(theme.SMALL)).ascent()
    for chart in fed.window.dashboard.charts.values():
        if chart.frame.isVisible() and len(chart.view.axis_labels) > 1:
            steps = len(chart.view.axis_labels) - 1
            assert chart.view.box.height() / steps >= high, chart.title.text()
    fed.window.close()
    fed.window.deleteLater()
    fed.settle()


def test_what_is_free_is_said_in_whole_sentences_in_the_smallest_window(
    large: QApplication,
) -> None:
    fed = Fed(large)
    fed.window.resize(SMALLEST)
    fed.feed(snapshots.gpu_snapshot(8))
    free = fed.window.header.free
    assert free.text().startswith("2 of 8 free: 2, 5")
    assert QFontMetrics(free.font()).horizontalAdvance(free.text()) <= free.width()
    assert "next: GPU 0 about " in (free.toolTip() or free.text())
    fed.window.close()
    fed.window.deleteLater()
    fed.settle()


@pytest.mark.parametrize("name", ["hosts", "jobs"])
def test_tables_of_the_smallest_window_are_not_scrolled_sideways(
    large: QApplication, name: str
) -> None:
    fed = Fed(large)
    fed.window.resize(SMALLEST)
    fed.feed(snapshots.gpu_snapshot(8))
    fed.window.show_page(name)
    fed.settle()
    page = fed.window.pages.currentWidget()
    tables = [table for table in page.findChildren(QTableView) if table.isVisible()]
    assert tables and not any(table.horizontalScrollBar().maximum() for table in tables)
    fed.window.close()
    fed.window.deleteLater()
    fed.settle()


@pytest.mark.parametrize("count", [1, 8])
def test_no_value_of_the_compact_window_covers_another(large: QApplication, count: int) -> None:
    made = CompactStrip()
    summary = summarize(snapshots.gpu_snapshot(count))
    full = ("100 %", "100 % mem", "100 °C", "1000 W")
    rows = tuple(dataclasses.replace(r, values=full, memory="100 %") for r in summary.rows)
    made.show_summary(dataclasses.replace(summary, rows=rows))
    made.show()
    picture = made.grab().toImage()
    ground, below = picture.pixelColor(2, 2), made.title.parentWidget().geometry().bottom() + 2
    columns = [
        any(picture.pixelColor(x, y) != ground for y in range(below, picture.height() - 1))
        for x in range(1, picture.width() - 1)
    ]
    gaps = "".join("x" if used else "." for used in columns).split("." * theme.S)
    groups = [part for part in gaps if "x" in part]
    assert len(groups) == 1 + 1 + len(full), "title, bar and each value stand apart"
    made.deleteLater()


def test_eight_tiles_of_a_usual_window_keep_the_power(large: QApplication) -> None:
    fed = Fed(large)
    fed.window.resize(1280, 800)
    fed.feed(snapshots.gpu_snapshot(8))
    for tile in fed.window.strip.tiles.values():
        assert tile.values[POWER].text.endswith(" W")
        for cell in tile.values:
            needed = QFontMetricsF(cell.font).horizontalAdvance(cell.text)
            assert needed <= cell.box.width()
    fed.window.close()
    fed.window.deleteLater()
    fed.settle()


def test_only_the_table_takes_the_height_that_processes_leave(large: QApplication) -> None:
    fed = Fed(large)
    fed.window.show_page("processes")
    fed.feed(snapshots.gpu_snapshot(8))
    fed.reply(GetDetails, (Detail(snapshots.gpu(0).id, snapshots.NOW, (), (PROCESS,)),))
    page = fed.window.processes
    page.table.selectRow(0)
    fed.settle()
    assert page.about.isVisible()
    search = page.end.mapTo(page, page.end.rect().bottomLeft()).y()
    assert page.use.y() - search <= 2 * theme.S
    assert page.use.height() <= page.use.sizeHint().height()
    assert page.about.geometry().bottom() == page.rect().bottom()
    fed.window.close()
    fed.window.deleteLater()


def test_models_of_the_smallest_window_are_not_cut_with_their_options(large: QApplication) -> None:
    fed = Fed(large)
    fed.window.resize(SMALLEST)
    fed.feed(snapshots.gpu_snapshot(8))
    fed.window.show_page("models")
    fed.reply(ListModels, served.MODELS)
    fed.reply(FindServed, served.NOW)
    page = fed.window.models
    for made in page.cards.values():
        if made.serve is not None:
            made.serve.more.click()
    for _ in range(2):  # what folds needs more height, for which a scroll bar comes
        fed.settle()
    assert sideways(fed.window) == []
    assert clipped(fed.window) == []
    shown = [example.isVisible() for example in page.examples]
    assert shown == sorted(shown, reverse=True), "the last ones are left out"
    assert shown[0] and not shown[-1]
    fed.window.resize(1280, 800)
    fed.settle()
    assert all(example.isVisible() for example in page.examples)
    fed.window.close()
    fed.window.deleteLater()


@pytest.mark.parametrize("size", [SMALLEST, QSize(1100, 800), QSize(1280, 800)])
def test_the_views_of_jobs_can_always_be_chosen(large: QApplication, size: QSize) -> None:
    fed = Fed(large)
    fed.window.resize(size)
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(8))
    fed.settle()
    page = fed.window.jobs
    assert page.views.isVisible() or page.view.isVisible()
    page.view.activated.emit(2)
    fed.settle()
    assert page.usage.isVisible() and page.view.currentText() == "Usage"
    assert page.views.isVisible() or page.view.isVisible()
    page.view.activated.emit(1)
    assert page.as_timeline.isChecked() and page.view.currentText() == "Schedule"
    page.view.activated.emit(0)
    assert page.table.isVisible() and page.view.currentText() == "List"
    fed.window.close()
    fed.window.deleteLater()
