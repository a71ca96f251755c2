"""The window switches pages and themes, and draws only what can be seen."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest

from gpudeck.app.assistant.requests import FinishedAnswer
from gpudeck.app.shell.window import PAGES
from gpudeck.app.tour import render
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import snapshots
from tests.gui.readable import clipped, contrast
from tests.gui.snapshots import NOW

GPU0 = snapshots.gpu(0).id


def test_hidden_pages_cost_nothing(fed):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    fed.window.show_page("jobs")
    before = fed.window.dashboard.charts["util"].view.curves.paths
    fed.feed(snapshots.gpu_snapshot(1, NOW + 5))
    assert fed.window.dashboard.charts["util"].view.curves.paths is before


@pytest.mark.parametrize(("away", "back"), [("hide", "show"), ("showMinimized", "showNormal")])
def test_a_hidden_window_draws_nothing_until_it_is_shown(fed, qtbot, away, back):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    box = fed.window.dashboard.charts["util"].view.box
    getattr(fed.window, away)()
    drawn = []
    refresh = fed.window.dashboard.refresh
    fed.window.dashboard.refresh = lambda: (drawn.append(1), refresh())
    fed.window.pace.setInterval(0)
    for i in range(3):
        fed.window.show_snapshot(snapshots.gpu_snapshot(1, NOW + 1 + i))
        fed.settle()
    assert drawn == []
    getattr(fed.window, back)()
    qtbot.waitUntil(lambda: box.viewRange()[0][1] == pytest.approx(NOW + 3))
    assert len(drawn) <= 2


def test_the_window_repaints_at_most_ten_times_a_second(fed, qtbot):
    fed.feed(snapshots.gpu_snapshot(1), history=True)
    drawn = []
    refresh = fed.window.dashboard.refresh
    fed.window.dashboard.refresh = lambda: (drawn.append(1), refresh())
    for i in range(50):
        fed.window.show_snapshot(snapshots.gpu_snapshot(1, NOW + 1 + i / 100))
    assert len(drawn) <= 1
    qtbot.waitUntil(
        lambda: (
            fed.window.dashboard.charts["util"].view.box.viewRange()[0][1]
            == pytest.approx(NOW + 1.49)
        )
    )
    assert len(drawn) <= 2


def test_ten_thousand_snapshots_do_not_grow_the_window(fed):
    settings = Settings(telemetry_hz=10)
    for i in range(10_000):
        fed.window.show_snapshot(snapshots.gpu_snapshot(1, NOW + i / 10, settings=settings))
    fed.settle()
    assert fed.window.state.history.rows() == 6000
    assert len(fed.window.jobs.model.rows) <= 9
    _, path = fed.window.dashboard.charts["util"].view.curves.paths[GPU0]
    assert path.elementCount() <= fed.window.dashboard.charts["util"].view.pixels + 4


def test_the_keyboard_reaches_every_page(fed):
    fed.feed(snapshots.cpu_snapshot())
    for number, name in enumerate(PAGES, 1):
        assert fed.window.rail.buttons[name].toolTip().endswith(f" (Ctrl+{number % 10})")
        QTest.keyClick(
            fed.window, getattr(Qt.Key, f"Key_{number % 10}"), Qt.KeyboardModifier.ControlModifier
        )
        assert fed.window.rail.buttons[name].isChecked()
        assert fed.window.pages.currentWidget() is getattr(fed.window, name)
    fed.window.rail.buttons["jobs"].click()
    assert fed.window.pages.currentWidget() is fed.window.jobs


def test_the_status_line_shows_the_connection_and_errors(fed):
    fed.window.show_link(False, "disconnected from the daemon; reconnecting")
    assert "reconnecting" in fed.window.status.link.text()
    fed.feed(snapshots.cpu_snapshot(notices=("the probe is being replaced",)))
    for page in ("dashboard", "settings"):
        fed.window.show_page(page)
        assert fed.window.banner.isVisible()
        assert fed.window.banner.text.text() == "The probe is being replaced"
    fed.link.failed.emit("job 7 has ended already")
    assert fed.window.status.message.text() == "job 7 has ended already"
    fed.window.status.dismiss.click()
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert fed.window.status.message.text() == ""
    assert not fed.window.banner.isVisible()
    assert fed.window.status.source.text() == "source: cpu"


def test_a_paused_queue_does_not_hide_what_failed(fed):
    message = fed.window.status.message
    fed.feed(snapshots.cpu_snapshot(paused=True))
    assert message.text() == "The queue is paused"
    fed.link.failed.emit("job 7 has ended already")
    fed.feed(snapshots.cpu_snapshot(NOW + 1, paused=True))
    assert message.text() == "job 7 has ended already"
    fed.window.status.dismiss.click()
    fed.feed(snapshots.cpu_snapshot(NOW + 2, paused=True))
    assert message.text() == "The queue is paused"


def test_settings_request_a_theme_once(fed):
    asked = []
    fed.window.themed.connect(asked.append)
    fed.feed(snapshots.cpu_snapshot(settings=Settings(theme="dark")))
    fed.feed(snapshots.cpu_snapshot(NOW + 1, settings=Settings(theme="dark")))
    assert asked == ["dark"]


def test_the_theme_changes_charts_immediately(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    theme.apply(fed.app, "dark")
    fed.settle()
    view = fed.window.dashboard.charts["util"].view
    assert view.curves.paths[GPU0][0].color() == QColor(theme.DARK.series[0])
    image = fed.window.grab().toImage()
    corner = image.pixelColor(image.width() - 3, 3)
    assert corner == QColor(theme.DARK.window)
    assert view.grab().toImage().pixelColor(2, 2) == QColor(theme.DARK.surface)


@pytest.mark.parametrize("t", [theme.LIGHT, theme.DARK], ids=lambda t: t.scheme)
def test_text_and_figures_are_readable(t):
    for color in (t.text, t.muted, t.accent, t.warm, t.hot, t.throttled, t.failed):
        for ground in (t.surface, t.window, t.sunken, t.accent_soft):
            assert contrast(color, ground) >= 4.5, (color, ground)
    assert contrast(t.on_accent, t.accent) >= 4.5
    assert contrast(t.surface, t.text) >= 4.5, "badges"
    for color in t.series:  # the figures above the charts have the colours of the curves
        assert contrast(color, t.surface) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hints_in_empty_fields_can_be_read(fed, scheme):
    theme.apply(fed.app, scheme)
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    line = fed.window.jobs.filter
    image = line.grab().toImage()
    colors = {
        image.pixelColor(x, y).name()
        for x in range(8, image.width() // 2)
        for y in range(6, image.height() - 6)
    }
    assert max(contrast(color, theme.tokens().surface) for color in colors) >= 4.5


@pytest.mark.parametrize(("scheme", "size"), [("light", (1280, 800)), ("dark", (1024, 680))])
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("nothing", "two", "eight")), "cpu"],
)
def test_no_text_is_clipped(fed, scheme, size, kind):
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    if kind != "nothing":
        made = {
            "cpu": snapshots.cpu_snapshot(notices=("the probe is being replaced",)),
            "two": snapshots.gpu_snapshot(2),
            "eight": snapshots.gpu_snapshot(8, replay=True),
        }
        fed.feed(made[kind], history=True)
        fed.window.assistant.show_answer(
            "What happened?",
            FinishedAnswer("# Much\n\n" + "word " * 200, "template", (("a", "b", "c"),)),
        )
    for page in PAGES:
        fed.window.show_page(page)
        fed.settle()
        assert clipped(fed.window) == [], page


@pytest.mark.slow
def test_pages_are_rendered_as_pictures(fed, tmp_path):
    fed.feed(snapshots.cpu_snapshot(), history=True)
    files = render.render_pages(fed.window, tmp_path, [(1280, 800)], ["light", "dark"])
    assert [f.name for f in files] == [
        f"{p}-{s}-1280x800.png" for s in ("light", "dark") for p in PAGES
    ]
    assert all(f.stat().st_size > 5000 for f in files)
    assert len({f.read_bytes() for f in files}) == 2 * len(PAGES)


def test_a_picture_that_cannot_be_written_is_an_error(fed, tmp_path):
    (tmp_path / "dashboard-light-1280x800.png").mkdir()
    with pytest.raises(render.UserError, match="cannot write"):
        render.render_pages(fed.window, tmp_path, [(1280, 800)], ["light"])
