"""The queue as a timeline on the jobs page: what is chosen, dragged and shown before a move."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from gpudeck.app.jobs.queue_timeline import change_text, drop_target, queue_timeline, ticks
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.verbs.change import GetSchedule, Move
from tests.gui import snapshots
from tests.gui.snapshots import NOW

HOUR = 3600.0
LEFT = Qt.MouseButton.LeftButton
DEVICE = snapshots.CPU.id


def job(number: int) -> Job:
    spec = Spec(("true",), f"job-{number}", "/", gpus=1, timeout=HOUR)
    return Job(number, spec, NOW - HOUR, Queued())


def queue() -> snapshots.Snapshot:
    busy = msgspec.structs.replace(job(8), state=Running("a", (DEVICE,), NOW - HOUR / 2, 1, 1, ""))
    made = snapshots.cpu_snapshot(NOW)
    return msgspec.structs.replace(made, jobs=(job(12), job(11), job(10), busy))


def landings(*order: int) -> tuple[Landing, ...]:
    ends = [NOW + HOUR / 2 + HOUR * i for i in range(len(order) + 1)]
    return tuple(
        Landing(n, (DEVICE,), start, end)
        for n, start, end in zip(order, ends, ends[1:], strict=False)
    )


@pytest.fixture
def timeline(fed):
    """The timeline of three jobs that wait for one that runs."""
    fed.window.show_page("jobs")
    fed.feed(queue())
    fed.window.jobs.as_timeline.click()
    fed.reply(GetSchedule(), landings(10, 11, 12))
    view = fed.window.jobs.timeline
    assert view.isVisible()
    return view


def middle(view, number: int) -> QPoint:
    placed = view.field.placed(view.field.shown)
    return next(one.box.center().toPoint() for one in placed if one.bar.key == number)


def test_a_drag_shows_the_new_times_before_the_job_is_moved(fed, timeline):
    field = timeline.field
    last, first = middle(timeline, 12), middle(timeline, 10)
    QTest.mousePress(field, LEFT, pos=last)
    QTest.mouseMove(field, last - QPoint(30, 0))
    QTest.mouseMove(field, first - QPoint(2, 0))
    aim = Moved(12, 10, False)
    fed.reply(GetSchedule(aim), landings(12, 10, 11))
    assert "12 · job-12: " in timeline.hint.text()
    assert " instead of " in timeline.hint.text()
    assert not [request for request in fed.asked if isinstance(request, Move)], "not yet"
    QTest.mouseRelease(field, LEFT, pos=first - QPoint(2, 0))
    assert [request for request in fed.asked if isinstance(request, Move)] == [Move(12, 10, False)]
    assert fed.window.jobs._chosen == 12


def test_esc_leaves_a_drag_without_a_move(fed, timeline):
    field = timeline.field
    QTest.mousePress(field, LEFT, pos=middle(timeline, 12))
    QTest.mouseMove(field, middle(timeline, 11) + QPoint(8, 0))
    fed.reply(GetSchedule(Moved(12, 11, True)), landings(10, 11, 12))
    assert timeline.hint.text().startswith("No job would start at another time")
    QTest.keyClick(field, Qt.Key.Key_Escape)
    QTest.mouseRelease(field, LEFT, pos=middle(timeline, 10))
    assert not [request for request in fed.asked if isinstance(request, Move)]
    assert timeline.hint.text().startswith("Drag a waiting job")


def test_a_refused_move_says_why(fed, timeline):
    QTest.mousePress(timeline.field, LEFT, pos=middle(timeline, 12))
    QTest.mouseMove(timeline.field, middle(timeline, 10) - QPoint(2, 0))
    fed.fail(GetSchedule(Moved(12, 10, False)), "job 12 would overtake job 10 of another user")
    assert "another user" in timeline.hint.text()
    QTest.keyClick(timeline.field, Qt.Key.Key_Escape)


def test_a_running_job_is_chosen_and_not_dragged(fed, timeline):
    field = timeline.field
    QTest.mousePress(field, LEFT, pos=middle(timeline, 8))
    QTest.mouseMove(field, middle(timeline, 11))
    QTest.mouseRelease(field, LEFT, pos=middle(timeline, 11))
    assert fed.window.jobs._chosen == 8
    assert not [request for request in fed.asked if isinstance(request, Move)]
    assert "job-8" in fed.window.jobs.details.title.text()


def test_the_arrows_go_through_the_jobs_in_time(fed, timeline):
    fed.window.jobs.choose(8)
    timeline.show_snapshot(queue(), 8)
    for expected in (10, 11, 12, 12):
        QTest.keyClick(timeline.field, Qt.Key.Key_Right)
        assert fed.window.jobs._chosen == expected
    QTest.keyClick(timeline.field, Qt.Key.Key_Left)
    assert fed.window.jobs._chosen == 11


def test_the_table_comes_back(fed, timeline):
    fed.window.jobs.as_timeline.click()
    assert fed.window.jobs.table.isVisible()
    assert not timeline.isVisible()


def test_a_job_is_dropped_beside_the_nearest_one_that_waits():
    (row, *_) = queue_timeline(queue(), landings(10, 11, 12)).rows
    at = {landing.job: (landing.at + (landing.until or 0)) / 2 for landing in landings(10, 11, 12)}
    assert drop_target(row, 12, at[10] - 60, NOW + 9 * HOUR) == Moved(12, 10, False)
    assert drop_target(row, 12, at[10] + 60, NOW + 9 * HOUR) == Moved(12, 10, True)
    assert drop_target(row, 10, NOW, NOW + 9 * HOUR) == Moved(10, 11, False)
    lonely = queue_timeline(queue(), landings(10)).rows[0]
    assert drop_target(lonely, 10, NOW, NOW + 9 * HOUR) is None


@pytest.mark.parametrize(("span", "most"), [(3600, 8), (86_400, 5), (7 * 86_400, 4), (600, 20)])
def test_ticks_are_round_times_within_the_axis(span, most):
    found = ticks(NOW, NOW + span, most)
    assert 0 < len(found) <= most + 1
    assert all(NOW <= at < NOW + span for at, _ in found)
    assert all(int(text.split(":")[1]) % 5 == 0 for _, text in found)


def test_many_changes_are_told_in_one_line():
    jobs = {n: job(n) for n in range(1, 9)}
    before, after = landings(*range(1, 9)), landings(*range(8, 0, -1))
    text = change_text(before, after, jobs, NOW)
    assert text.count(" instead of ") == 3
    assert text.endswith("and 5 more")
