"""Every page fits into the smallest window, and says what it leaves out."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtWidgets import QAbstractScrollArea, QPushButton

from gpudeck.app.language import texts
from gpudeck.app.shell.window import PAGES, SMALLEST
from gpudeck.app.widgets.fold_row import FoldRow
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.readable import clipped, sideways


@pytest.mark.parametrize("count", [1, 8, 72])
def test_no_page_of_the_smallest_window_is_scrolled_sideways_or_cut(fed, count):
    assert faults(fed, count) == []


@pytest.mark.slow
@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_no_page_is_scrolled_sideways_or_cut_in_another_language(qapp, clean_qt, language):
    texts.use(language)
    try:
        fed = Fed(qapp)
        found = [fault for count in (1, 8, 72) for fault in faults(fed, count)]
        fed.window.close()
        fed.window.deleteLater()
    finally:
        texts.use("en")
    assert found == []


def faults(fed, count):
    """List what is cut or scrolled sideways in the smallest window of a machine with many GPUs."""
    fed.window.resize(SMALLEST)
    fed.feed(snapshots.gpu_snapshot(count, replay=True))
    wrong = []
    for name in (*PAGES, "device", "code"):
        if name == "device":
            fed.window.show_device(snapshots.gpu(0).id)
        else:
            fed.window.show_page(name)
        for _ in range(2):  # a scroll bar that goes leaves its room to the page afterwards
            fed.settle()
        wrong += [f"{name}: {area} is scrolled sideways" for area in sideways(fed.window)]
        wrong += [f"{name}: {text}" for text in clipped(fed.window)]
    return wrong


def test_the_smallest_window_shows_ten_jobs_and_what_is_known_of_one_on_demand(fed):
    fed.window.resize(SMALLEST)
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(8, replay=True), history=True)
    page = fed.window.jobs
    page.choose(8)  # it runs, so it has charts
    fed.settle()
    facts = page.details.facts
    assert page.table.viewport().height() // page.table.rowHeight(0) >= 10
    assert page.details.title.isVisible() and not facts.isVisible()
    page.details.more.click()
    fed.settle()
    assert page.table.viewport().height() // page.table.rowHeight(0) >= 5
    assert facts.isVisible()
    assert facts.height() >= 4 * facts.fontMetrics().lineSpacing()
    fed.window.resize(1280, 800)
    fed.settle()
    assert page.details.charts.isVisible()


def test_a_long_path_in_the_settings_keeps_its_end(fed):
    fed.window.resize(SMALLEST)
    fed.window.show_page("settings")
    snapshot = snapshots.gpu_snapshot(1)
    folder = f"/home/ada/{'models/' * 12}llama-7b"
    known = msgspec.structs.replace(snapshot.settings, model_folder=folder)
    fed.feed(msgspec.structs.replace(snapshot, settings=known))
    line = fed.window.settings.rows["model_folder"].line
    whole = line.grab().toImage()
    assert line.toolTip().startswith(folder)
    line.setText(folder.replace("llama-7b", "llama-8b"))
    fed.settle()
    assert line.grab().toImage() != whole, "the name of the folder is visible"


def test_a_narrow_page_of_workloads_shows_run_and_result_and_opens_the_form_on_demand(fed):
    fed.window.resize(SMALLEST)
    fed.window.show_page("workloads")
    fed.feed(snapshots.gpu_snapshot(8, replay=True))
    page = fed.window.workloads
    seen = fed.window.pages.parentWidget().rect()
    for part in (page.run, page.result.figure):
        assert seen.contains(part.mapTo(page, part.rect().bottomRight())), part
    assert not page.form.isVisible()
    page.parameters.click()
    fed.settle()
    assert page.form.isVisible()
    inside = [area for area in page.findChildren(QAbstractScrollArea) if area.isVisible()]
    assert [area.verticalScrollBar().maximum() for area in inside] == [0] * len(inside)
    strip = fed.window.strip
    edges = [w.mapTo(fed.window, w.rect().topRight()).x() for w in (page, strip)]
    assert edges[0] == edges[1], "the scroll bar is in the margin"
    page.box.setCurrentText("Compare")
    page.box.activated.emit(page.box.currentIndex())
    assert page.name == "compare"
    fed.window.resize(1280, 800)
    fed.settle()
    assert not page.box.isVisible()
    assert page.choices["compare"].isVisible() and page.choices["compare"].isChecked()


@pytest.mark.parametrize("name", ["settings", "device"])
def test_what_a_page_scrolls_ends_where_the_strip_does(fed, name):
    for size in ((800, 560), (1280, 800), (1280, 1600)):
        fed.window.resize(*size)
        if name == "device":
            fed.window.show_device(snapshots.gpu(0).id)
        else:
            fed.window.show_page(name)
        for at in range(2):
            fed.feed(snapshots.gpu_snapshot(8, snapshots.NOW + at))
        page = getattr(fed.window, name)
        area = page.area if name == "settings" else page._area
        right = fed.window.header.mapTo(fed.window, fed.window.header.rect().topRight()).x()
        shown = area.viewport().mapTo(fed.window, area.viewport().rect().topRight()).x()
        assert shown == right, size
        fed.window.show_page("jobs")
        fed.settle()
        jobs = fed.window.jobs
        assert jobs.mapTo(fed.window, jobs.rect().topRight()).x() == right, size


def test_controls_without_room_in_a_row_stand_below_each_other(fed):
    fed.window.show_page("alerts")
    fed.feed(snapshots.gpu_snapshot(1))
    (folding,) = fed.window.alerts.findChildren(FoldRow)
    fed.settle()
    assert not folding.folded
    needed = folding.minimumSizeHint().width()
    folding.setFixedWidth(needed)
    fed.settle()
    assert folding.folded
    inside = folding.rect()
    parts = folding.findChildren(QPushButton)
    assert all(inside.contains(part.mapTo(folding, part.rect().bottomRight())) for part in parts)
