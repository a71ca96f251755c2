"""Defects that people saw in the window, each of which was mended."""

from __future__ import annotations

import time

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QTableView, QWidget

from gpudeck.app.alerts import alert_rows
from gpudeck.app.dashboard.day import Day, LoadDay
from gpudeck.app.hosts import host_rows
from gpudeck.app.language import texts
from gpudeck.app.language.texts import tr
from gpudeck.app.settings.form import SETTINGS, text_of
from gpudeck.app.shell.window import PAGES
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import plain_tooltip
from gpudeck.language.text import Message
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.devices.trace import raise_to_active
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.settings import ClusterSettings, Settings
from tests.gui import readable, snapshots
from tests.gui.conftest import Fed
from tests.gui.snapshots import NOW

CTRL = Qt.KeyboardModifier.ControlModifier
WIDEST = 900
"""Pixels of a tooltip."""


@pytest.fixture
def page(fed: Fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(2))
    return fed.window.jobs


def test_f11_shows_the_log_and_nothing_else_while_there_is_none(fed: Fed, page) -> None:
    page.new.click()
    QTest.keyClick(page, Qt.Key.Key_F11)
    assert page.form.isVisible() and page.table.isVisible(), "no log is shown beside the form"
    assert not fed.window.isFullScreen()
    page.form.close_button.click()
    QTest.keyClick(page, Qt.Key.Key_F11)
    assert (page.details.log.isVisible(), page.table.isVisible()) == (True, False)
    QTest.keyClick(page.details.log, Qt.Key.Key_F, CTRL)
    assert page.details.output.box.hasFocus(), "the filter is hidden: the log is searched"
    QTest.keyClick(page.details.output.box, Qt.Key.Key_Escape)
    assert page.table.isVisible() and not fed.window.isFullScreen()
    QTest.keyClick(page, Qt.Key.Key_F, CTRL)
    assert page.filter.hasFocus()


def test_a_form_that_opens_over_the_log_leaves_the_full_screen(fed: Fed, page) -> None:
    page.details.whole_log.click()
    QTest.keyClick(page.details.log, Qt.Key.Key_N, CTRL)
    assert page.form.isVisible() and page.table.isVisible() and not fed.window.isFullScreen()


CHOICES = [setting for setting in SETTINGS if setting.kind == "choice"]


@pytest.mark.parametrize("setting", CHOICES, ids=lambda setting: setting.name)
def test_every_choice_of_the_settings_offers_its_default(setting) -> None:
    assert text_of(Settings(), setting) in setting.choices


@pytest.mark.parametrize("language", ["de", "fr", "es"])
@pytest.mark.parametrize(
    ("name", "states"), [("alerts", alert_rows.STATES), ("hosts", host_rows.STATES)]
)
def test_the_column_of_states_holds_each_pill_in_every_language(
    qapp, clean_qt, language, name, states
) -> None:
    texts.use(language)
    try:
        fed = Fed(qapp)
        fed.feed(snapshots.gpu_snapshot(2))
        fed.window.show_page(name)
        table = getattr(fed.window, name).table
        titles = [table.model().headerData(at, Qt.Orientation.Horizontal) for at in range(3)]
        column = titles.index(tr("State"))
        metrics = QFontMetrics(theme.font(theme.SMALL, strong=True))
        widest = max(metrics.horizontalAdvance(tr(state)) for state in states)
        assert table.columnWidth(column) >= widest + 2 * theme.S + theme.S
        fed.window.close()
        fed.window.deleteLater()
    finally:
        texts.use("en")


def test_groups_and_clusters_stand_below_each_other_where_they_lack_room(fed: Fed, page) -> None:
    made = snapshots.gpu_snapshot(2, NOW + 1)
    known = {"slurm:hpc": ClusterSettings()}
    settings = msgspec.structs.replace(made.settings, clusters=known)
    fed.feed(msgspec.structs.replace(made, settings=settings))
    page.open_groups.click()
    fed.settle()
    lists = page.groups.group_list, page.groups.cluster_list
    for table in lists:
        assert not table.horizontalScrollBar().isVisible()
        assert min(table.columnWidth(at) for at in range(table.model().columnCount())) > theme.XL


def tooltips(window: QWidget) -> list[tuple[str, str]]:
    """Return all tooltips of the shown page, with what has them."""
    found = []
    for widget in window.findChildren(QWidget):
        found.append((widget.objectName() or type(widget).__name__, widget.toolTip()))
        marks = getattr(widget, "marks", None)
        for mark in marks() if marks else ():  # as `show_tooltip` breaks it into lines
            found.append((type(widget).__name__, plain_tooltip(mark.tooltip)))
        if isinstance(widget, QTableView) and (model := widget.model()) is not None:
            for row in range(min(model.rowCount(), 30)):
                for column in range(model.columnCount()):
                    text = model.index(row, column).data(Qt.ItemDataRole.ToolTipRole)
                    found.append((widget.objectName(), text or ""))
    return found


def test_no_tooltip_is_wider_than_can_be_read(fed: Fed, monkeypatch) -> None:
    shown: list[str] = []
    target = "gpudeck.app.widgets.mark_chart.QToolTip.showText"
    monkeypatch.setattr(target, lambda _, text, *__: shown.append(text))
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    metrics, wide = QFontMetrics(theme.font()), []
    for name in (*PAGES, "device"):
        if name == "device":
            fed.window.show_device(snapshots.gpu(0).id)
        else:
            fed.window.show_page(name)
        fed.settle()
        for owner, text in tooltips(fed.window):
            if not text.startswith("<"):
                width = max((metrics.horizontalAdvance(t) for t in text.split("\n")), default=0)
                wide += [(name, owner, text)] if width > WIDEST else []
    assert wide == []


def test_a_gap_is_one_of_all_devices(fed: Fed) -> None:
    """The first GPU was not read for two minutes, while the second was."""
    made = snapshots.gpu_snapshot(2)
    gap, whole = snapshots.history(made, gap=(180.0, 60.0)), snapshots.history(made)
    for number, known in ((0, gap), (1, whole)):
        device = snapshots.gpu(number).id
        fed.window.load_history(device, known[device])
    fed.feed(made)
    view = fed.window.dashboard.charts["util"].view
    assert view._gap is None, "the second GPU has readings there"


def test_the_figures_of_a_new_day_are_loaded_again_soon(fed: Fed, monkeypatch) -> None:
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    now = time.monotonic()
    monkeypatch.setattr("gpudeck.app.dashboard.page.time.monotonic", lambda: now)
    due = []
    for hours in (10 / 3600, 0.5, 24.0):
        fed.window.dashboard.load_day()
        fed.reply(LoadDay, Day(hours, 0.0, None, None, (), ()))
        due.append(fed.window.dashboard._day_due - now)
    assert due == pytest.approx([3.0, 90.0, 300.0])


def test_a_recording_does_not_compute_at_no_utilisation() -> None:
    _, moments = trace.read(paths.assets() / "h100.trace.gz")
    readings = [reading for moment in moments for reading in moment.readings]
    assert [r for r in readings if r.values["util"] == 0 and r.values.get("tflops", 0) > 50] == []


def test_the_utilisation_is_raised_to_what_the_counters_saw_and_never_lowered() -> None:
    values, methods = {"util": 0.0, "sm_active": 35.0}, dict[str, Message]()
    raise_to_active(values, methods)
    assert values["util"] == 35.0 and "counters" in str(methods["util"])
    for whole in ({"util": 100.0, "sm_active": 35.0}, {"util": 7.0}, {"sm_active": 35.0}):
        before, told = dict(whole), dict[str, Message]()
        raise_to_active(whole, told)
        assert (whole, told) == (before, {})


def test_a_notice_can_be_dismissed_and_comes_back_if_it_is_raised_again(fed: Fed) -> None:
    banner = fed.window.banner
    fed.feed(snapshots.gpu_snapshot(1, notices=("the disk is full",)))
    assert banner.isVisible()
    banner.dismiss.click()
    fed.feed(snapshots.gpu_snapshot(1, NOW + 1, notices=("the disk is full",)))
    assert not banner.isVisible()
    fed.feed(snapshots.gpu_snapshot(1, NOW + 2, notices=("the disk is full", "the probe is slow")))
    assert banner.text.text() == "The probe is slow"
    fed.feed(snapshots.gpu_snapshot(1, NOW + 3))
    fed.feed(snapshots.gpu_snapshot(1, NOW + 4, notices=("the disk is full",)))
    assert banner.text.text() == "The disk is full"


@pytest.mark.parametrize("page", [*PAGES, "welcome"])
def test_a_recording_of_gpus_never_says_that_there_is_no_gpu(fed: Fed, page: str) -> None:
    fed.feed(snapshots.gpu_snapshot(1, replay=True), history=True)
    show = getattr(fed.window, f"show_{page}", None)
    show() if page == "welcome" and show else fed.window.show_page(page)
    fed.settle()
    shown = readable.texts(fed.window)
    assert "no NVIDIA GPU" not in shown and "has no GPU" not in shown


def test_the_word_for_a_gap_stays_inside_the_plot(fed: Fed) -> None:
    """The gap began before what is shown, so its middle lies over the axis."""
    fed.feed(snapshots.gpu_snapshot(1), history=True, gap=(590.0, 30.0))
    view = fed.window.dashboard.charts["util"].view
    fed.window.dashboard.show_last(300)
    fed.settle()
    view.show_gap(np.array([NOW - 5000.0, NOW - 30.0]))
    left = view.box.sceneBoundingRect().left()
    with_word = view.grab().toImage()
    view.show_gap(np.empty(0))
    without = view.grab().toImage()
    changed = [
        x for x in range(with_word.width())
        if any(with_word.pixel(x, y) != without.pixel(x, y) for y in range(with_word.height()))
    ]  # fmt: skip
    assert changed and min(changed) >= left


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_no_text_of_a_running_job_covers_its_pill(qapp, clean_qt, language) -> None:
    texts.use(language)
    theme.set_text_size(qapp, 14)
    theme.apply(qapp, "light")
    try:
        fed = Fed(qapp)
        fed.window.show_page("jobs")
        fed.feed(snapshots.gpu_snapshot(2))
        for job in (8, 9, 7):
            fed.window.jobs.choose(job)
            fed.settle()
            details = fed.window.jobs.details
            assert details.state.isVisible()
            assert readable.overlapping(details) == []
            assert readable.clipped(details) == []
        fed.window.close()
        fed.window.deleteLater()
        fed.settle()
    finally:
        texts.use("en")
        theme.set_text_size(qapp, theme.POINTS)
        theme.apply(qapp, "light")
