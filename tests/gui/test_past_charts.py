"""Charts of the past show the daemon's history with its gaps, events and jobs."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest

from gpudeck.app.charts.past_curves import LoadPast, past_curves
from gpudeck.app.report.history_export import ExportHistory
from gpudeck.language.text import Text, joined, phrase
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.store.keeper import HistoryKeeper
from tests.gui import snapshots
from tests.gui.snapshots import NOW


def held(job: int, name: str, status: str) -> Text:
    return phrase("job {job} ({name}): {status}", job=job, name=name, status=Text(status))


GPUS = [snapshots.gpu(i).id for i in range(2)]
GAP = (NOW - 50_000, NOW - 40_000)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory):
    """Keep a day of two GPUs with a gap, two jobs, an alert and throttling."""
    made = HistoryKeeper(tmp_path_factory.mktemp("past") / "home" / "history.sqlite", pytest.fail)
    times = [t for t in NOW - 86_400 + 20 * np.arange(4320) if not GAP[0] <= t <= GAP[1]]
    for device in GPUS:
        for start in range(0, len(times), 600):
            piece = times[start : start + 600]
            made.add(
                (
                    Reading(
                        device,
                        t,
                        {"util": 50 + 40 * np.sin(t / 3000), "power": 300.0, "temp": 60.0},
                    ),
                    20.0,
                )
                for t in piece
            )
            for ready in made.mergeable():
                made.merge(ready)
    made.annotate(
        [
            Annotation(NOW - 30_000, NOW - 20_000, "job", held(77, "train", "failed"), GPUS[0], 77),
            Annotation(NOW - 80_000, NOW - 70_000, "job", held(76, "prepare", "done"), GPUS[1], 76),
            Annotation(
                NOW - 25_000,
                NOW - 24_000,
                "throttle",
                phrase("Throttled: {rest}", rest=joined([Text("power limit")])),
                GPUS[0],
            ),
            Annotation(NOW - 22_000, NOW - 21_000, "alert", "GPU 0 is at 93 °C", GPUS[0]),
            Annotation(
                NOW - 10_000, NOW - 10_000, "xid", "79: fell off the bus", "GPU-of-another-machine"
            ),
        ]
    )
    yield made
    made.close()


@pytest.fixture
def with_past(fed, keeper):
    """Open a window whose charts load their past from a real history."""

    def answer(call):
        request = call.request
        if isinstance(request, LoadPast):
            what = request.fields, request.since, request.until, request.points
            answers = {
                device: keeper.past(device, *what) for device in request.devices if request.fields
            }
            happened = tuple(keeper.annotations(request.since, request.until))
            call.reply(past_curves(request, answers, happened))

    fed.feed(snapshots.gpu_snapshot(2), history=True)
    fed.link.started.connect(answer, Qt.ConnectionType.QueuedConnection)
    return fed


def show(with_past, seconds=86_400.0):
    with_past.window.dashboard.show_last(seconds)
    for _ in range(5):
        with_past.settle()
    return with_past.window.dashboard


def test_a_day_has_bands_and_a_gap(with_past):
    dashboard = show(with_past)
    drawn = dashboard.source.contents(
        ("util",), GPUS, dashboard.axis.limits, None, {"util": dashboard.charts["util"].view.pixels}
    )["util"]
    times, mean = drawn.lines[GPUS[0]]
    assert times[0] < NOW - 86_000
    read = ~np.isnan(mean)
    assert np.abs(mean[read] - (50 + 40 * np.sin(times[read] / 3000))).max() < 5
    assert not ((times[read] > GAP[0] + 600) & (times[read] < GAP[1] - 600)).any()
    assert np.isnan(mean).sum() == 1
    assert (drawn.bands[GPUS[0]].low[read] <= mean[read]).all()
    assert len(dashboard.charts["util"].view.curves.bands) == 2
    assert len(times) <= dashboard.charts["util"].view.pixels


def test_jobs_and_events_are_on_the_time_axis(with_past):
    dashboard = show(with_past)
    assert [span.job for span in dashboard.jobs.spans] == [76, 77]
    assert dashboard.jobs.spans[1].meaning == "failed"
    assert [mark.meaning for mark in dashboard.events.marks] == ["throttled", "hot"]
    assert dashboard.events.isVisible()
    assert [moment for moment, _ in dashboard.charts["temp"].view.curves.moments] == [NOW - 22_000]
    dashboard.legend.chips[GPUS[1]].click()
    assert [span.job for span in dashboard.jobs.spans] == [76]
    assert not dashboard.events.isVisible()


def test_the_cursor_shows_the_values_at_one_moment(with_past):
    dashboard = show(with_past)
    view = dashboard.charts["power"].view
    at = view.mapFromScene(view.box.mapViewToScene(QPointF(NOW - 25_000, 100)))
    QTest.mouseMove(view.viewport(), at)
    with_past.settle()
    assert [text for text, _ in dashboard.charts["power"].values.values] == ["300", "300"]
    assert [text for text, _ in dashboard.charts["tflops"].values.values] == ["–", "–"]
    expected = 50 + 40 * np.sin((NOW - 25_000) / 3000)
    assert float(dashboard.charts["util"].values.values[0][0]) == pytest.approx(expected, abs=6)
    assert dashboard.charts["util"].view.curves.cursor == pytest.approx(NOW - 25_000, abs=200)
    assert dashboard.bar.position.text().startswith("Cursor at ")
    dashboard.point((GAP[0] + GAP[1]) / 2)
    assert dashboard.charts["power"].values.values[0][0] == "–"
    QTest.keyClick(dashboard, Qt.Key.Key_Escape)
    assert dashboard.charts["power"].view.curves.cursor is None
    QTest.keyClick(dashboard, Qt.Key.Key_C)
    before = dashboard.charts["power"].view.curves.cursor
    QTest.keyClick(dashboard, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert dashboard.charts["power"].view.curves.cursor == pytest.approx(before - 864, abs=1)


def test_a_job_can_be_shown_and_compared(with_past):
    dashboard = show(with_past)
    labels = [dashboard.bar.jobs.itemText(i) for i in range(dashboard.bar.jobs.count())]
    (index,) = [i for i, text in enumerate(labels) if text.startswith("77 (train)")]
    dashboard.bar.jobs.activated.emit(index)
    for _ in range(5):
        with_past.settle()
    assert dashboard.axis.limits == (NOW - 30_500, NOW - 19_500)
    near = dashboard.source.contents(("util",), GPUS, dashboard.axis.limits, None, {"util": 500})
    (times, _), *_ = near["util"].lines.values()
    assert np.diff(times).max() < 60, "less than a minute apart, as more has room than of a day"
    QTest.keyClick(dashboard, Qt.Key.Key_B)
    assert dashboard.bar.compare.isChecked()
    QTest.keyClick(dashboard, Qt.Key.Key_J, Qt.KeyboardModifier.ShiftModifier)
    for _ in range(5):
        with_past.settle()
    assert dashboard.axis.limits == (NOW - 80_500, NOW - 69_500)
    ghosts = dashboard.source.contents(
        ("util",), GPUS[:1], dashboard.axis.limits, dashboard.compared, {"util": 500}
    )["util"].ghosts
    times, values = ghosts[GPUS[0]]
    kept = times + (dashboard.compared - dashboard.axis.limits[0])
    assert (abs(values - (50 + 40 * np.sin(kept / 3000))) < 5).all()
    assert times[0] == pytest.approx(dashboard.axis.limits[0], abs=200)
    assert len(dashboard.charts["util"].view.curves.ghosts) == 2
    dashboard.bar.compare.click()
    assert dashboard.charts["util"].view.curves.ghosts == []


def test_a_failed_request_is_repeated_later_and_hidden_charts_request_nothing(fed, monkeypatch):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    dashboard = fed.window.dashboard
    dashboard.show_last(86_400.0)
    asked = [r for r in fed.remember if r.fields]
    assert len(asked) == 1
    dashboard.refresh()
    assert [r for r in fed.remember if r.fields] == asked, "one question at a time"
    fed.fail(asked[0], "the daemon is gone")
    dashboard.refresh()
    assert [r for r in fed.remember if r.fields] == asked, "not at once"
    monkeypatch.setattr("gpudeck.app.charts.past_curves.RETRY_S", 0.0)
    dashboard.refresh()
    assert len([r for r in fed.remember if r.fields]) == 2
    fed.window.show_page("jobs")
    before = len(fed.remember)
    fed.feed(snapshots.gpu_snapshot(2, time=NOW + 100))
    assert len(fed.remember) == before


def test_a_month_can_be_shown_with_dates(with_past):
    dashboard = show(with_past)
    for _ in range(30):
        dashboard.charts["util"].view.box.zoomed.emit(1.25, NOW - 1000)
    assert dashboard.axis.seconds == 30 * 86_400
    texts = [text for _, text in dashboard.charts["util"].view.clock.labels(800)]
    assert len(texts) > 4
    assert all(text[:2].isdigit() and text[3:].isalpha() for text in texts)
    QTest.keyClick(dashboard, Qt.Key.Key_L)
    dashboard.bar.spans[0].click()
    assert dashboard.axis.limits == (NOW - 60, NOW)
    assert dashboard.charts["util"].view.curves.bands == []


def test_the_shown_values_are_exported(with_past, tmp_path):
    dashboard = show(with_past)
    status = with_past.window.status
    dashboard.save(str(tmp_path / "x.png"))
    assert with_past.window.toasts.toasts[-1].text.text() == "Picture saved as x.png"
    assert QImage(str(tmp_path / "x.png")).size() == dashboard.size()
    dashboard.legend.chips[GPUS[1]].click()
    dashboard.save(str(tmp_path / "x.csv"))
    (request,) = [r for r in with_past.asked if isinstance(r, ExportHistory)]
    assert ([d.id for d in request.devices], request.since, request.until) == (
        [GPUS[1]],
        *dashboard.axis.limits,
    )
    with_past.reply(request)
    assert with_past.window.toasts.toasts[-1].text.text() == "History saved as x.csv"
    with_past.fail(request, "the disk is full")
    assert status.message.text() == "the disk is full"
    assert status.message.property("meaning") == "failed"
