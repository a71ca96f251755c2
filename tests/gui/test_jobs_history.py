"""The history: pages come from the daemon as the reader scrolls, and the filters ask it; against
the real daemon, too."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.jobs.listing import parse_search
from gpudeck.app.jobs.requests import PAGE, ReadLog, RepeatJobs, SearchJobs
from gpudeck.app.link.link import Link
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Done, Failed, Job, queued
from gpudeck.scheduler.protocol.search import ENDED, NEWEST, Search
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.jobs import GetJob, GetTimeline
from tests.gui import snapshots
from tests.gui.conftest import exchange
from tests.gui.snapshots import NOW
from tests.support import state_folder

PATIENCE_MS = 20_000


def finds(fed) -> list[SearchJobs]:
    return fed.finds


def ids(page) -> list[int]:
    return [line.id for line in page.model.rows]


def older(first: int, last: int, **changes: object) -> tuple[Job, ...]:
    """Jobs that ended before those of the snapshot, the newest first."""
    made = [snapshots.job(n, Done(NOW - 900, NOW - 880, ("cpu",))) for n in range(first, last, -1)]
    return tuple(
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, **changes)) for j in made
    )


def shifted(number: int) -> snapshots.Snapshot:
    """A snapshot whose jobs have numbers from `number` on."""
    made = snapshots.cpu_snapshot()
    return msgspec.structs.replace(
        made, jobs=tuple(msgspec.structs.replace(j, id=j.id + number) for j in made.jobs)
    )


@pytest.fixture
def page(fed, qtbot):
    fed.window.show_page("jobs")
    fed.feed(shifted(1000))
    qtbot.waitUntil(lambda: bool(finds(fed)), timeout=PATIENCE_MS)
    return fed.window.jobs


def test_scrolling_loads_pages_until_none_are_left(fed, page, qtbot):
    assert finds(fed) == [SearchJobs(Search(outcomes=ENDED), NEWEST)]
    fed.reply(finds(fed)[0], (older(1000, 900), 901))
    fed.settle()
    assert len(finds(fed)) == 1, "nobody is at the end yet"
    assert page.count.text() == "109 jobs listed, more below"
    page.choose(1004)
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    assert finds(fed)[1].before == 901
    page.table.scrollToBottom()
    fed.settle()
    assert len(finds(fed)) == 2, "one page at a time"
    fed.reply(finds(fed)[1], (older(900, 850), None))
    page.table.scrollToBottom()
    fed.settle()
    assert len(finds(fed)) == 2
    assert page.count.text() == "159 jobs"
    assert ids(page) == [1008, 1007, 1009, *range(1006, 850, -1)]
    assert page.details.title.text().startswith("Job 901 ·"), "the reader stays where they were"


def test_old_jobs_are_described_compared_and_run_again_by_keyboard(fed, page):
    fed.reply(finds(fed)[0], (older(1000, 900, notes="long ago"), None))
    page.choose(951)
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_Down)
    assert page.details.title.text() == "Job 950 · attention"
    assert "long ago" in page.details.facts.toPlainText()
    assert (ReadLog(950), GetTimeline(950)) == tuple(
        r for r in fed.asked if isinstance(r, ReadLog | GetTimeline) and r.job == 950
    )[::-1]
    QTest.keyClick(page.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert (page.compared.isVisible(), page.compared.title.text()) == (
        True,
        "Jobs 949 and 950 side by side",
    )
    QTest.keyClick(page.table, Qt.Key.Key_Down)
    QTest.keyClick(page, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    assert [r.jobs for r in fed.asked if isinstance(r, RepeatJobs)] == [(948,)]


def test_a_filter_asks_the_daemon_once_and_late_pages_of_another_are_left_aside(fed, page, qtbot):
    first = finds(fed)[0]
    QTest.keyClicks(page.filter, "train")
    assert ids(page) == [1007, 1004, 1003, 1002], "what is known is filtered at once"
    fed.reply(first, (older(1000, 900), 901))
    assert ids(page) == [1007, 1004, 1003, 1002]
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    assert finds(fed)[1] == SearchJobs(Search("train", ("queued", *ENDED)), NEWEST)
    fed.reply(
        finds(fed)[1],
        (
            (
                *older(900, 899, name="train"),
                snapshots.job(800, queued(StartFailed("later"), 0.0), "train", None),
            ),
            None,
        ),
    )
    assert ids(page) == [1007, 800, 1004, 1003, 1002, 900]
    page.filter.clear()
    page.kinds.setCurrentText("Running")
    fed.settle()
    assert ids(page) == [1008, 1007]
    QTest.qWait(250)
    assert len(finds(fed)) == 2, "a snapshot has all that run"


def test_of_a_long_queue_the_next_are_listed_and_the_filter_lists_them_all(fed, page, qtbot):
    fed.feed(msgspec.structs.replace(shifted(1000), waiting=5000, time=NOW + 1))
    assert page.count.text() == "9 jobs, searching…, 4999 more wait"
    page.kinds.setCurrentText("Waiting")
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    assert finds(fed)[1].search.outcomes == ("queued",)
    fed.reply(
        finds(fed)[1],
        (tuple(snapshots.job(n, queued(StartFailed("later"), 0.0)) for n in (1020, 1010)), None),
    )
    assert (ids(page), page.count.text()) == ([1009, 1010, 1020], "3 jobs")


def test_pages_of_few_jobs_are_followed_by_others_until_the_table_is_full(fed, page, qtbot):
    QTest.keyClicks(page.filter, "rare")
    assert page.count.text() == "0 jobs, searching…"
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    fed.reply(finds(fed)[-1], (older(900, 899, name="rare"), 700))
    assert page.count.text() == "1 job, searching…", "nothing is below that the user could reach"
    fed.reply(finds(fed)[-1], ((), 500))
    assert (len(finds(fed)), finds(fed)[-1].before) == (4, 500)
    fed.reply(finds(fed)[-1], ((), None))
    fed.settle()
    assert (len(finds(fed)), page.count.text(), ids(page)) == (4, "1 job", [900])


def test_all_that_wait_are_read_as_a_page_between_them_would_be_missing(fed, page, qtbot):
    page.kinds.setCurrentText("Waiting")
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    fed.reply(
        finds(fed)[1],
        (tuple(snapshots.job(n, queued(StartFailed("later"), 0.0)) for n in (1900, 1800)), 1800),
    )
    assert finds(fed)[2].before == 1800, "nobody has scrolled"
    fed.reply(finds(fed)[2], ((snapshots.job(1700, queued(StartFailed("later"), 0.0)),), None))
    assert ids(page) == [1009, 1700, 1800, 1900]


def test_words_group_device_and_time_become_a_search():
    made = snapshots.gpu_snapshot(2)
    found = parse_search("lr  group:night gpu:1 x:y", "Failed", 3600.0, made)
    assert found == Search(
        "lr x:y", ("failed", "lost", "rejected"), "night", made.devices[1].device.id, NOW - 3600.0
    )
    assert parse_search("gpu:7 group:", "All states", 0.0, made) == Search(group="", device="7")


def test_the_history_is_read_again_after_missed_snapshots(fed, page, qtbot):
    fed.reply(finds(fed)[0], (older(1000, 900), 901))
    fed.feed(msgspec.structs.replace(shifted(2000), time=NOW + 1))
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    assert finds(fed)[1].before == NEWEST
    fed.reply(finds(fed)[1], (older(2000, 1900), None))
    assert ids(page)[3:] == list(range(2006, 1900, -1))


def test_a_page_that_could_not_be_read_is_asked_for_again_later(fed, page, qtbot):
    fed.fail(finds(fed)[0], "the daemon does not answer")
    assert "does not answer" in fed.window.status.message.text()
    fed.feed(msgspec.structs.replace(shifted(1000), time=NOW + 1))
    assert len(finds(fed)) == 1
    fed.feed(msgspec.structs.replace(shifted(1000), time=NOW + 9))
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)


def test_an_old_job_is_fetched_on_request(fed, page):
    fed.window.dashboard.job_chosen.emit(17)
    assert GetJob(17) in fed.asked
    fed.reply(
        GetJob,
        snapshots.job(17, Failed(NOW - 9e5, NOW - 8e5, "exited with status 1", 1), "ancient", None),
    )
    assert page.details.title.text() == "Job 17 · ancient"
    fed.feed(msgspec.structs.replace(shifted(1000), time=NOW + 1))
    assert page.details.title.text() == "Job 17 · ancient"


def test_the_daemon_gives_page_after_page(clean_qt, qtbot, tmp_path):
    with state_folder(tmp_path / "home"), Client() as deck:
        deck.pause()
        jobs = deck.submit_array(["true"], range(PAGE + 20), name="swept")
        for job in jobs[:-5]:
            deck.cancel(job.id)
        link = Link()
        before = NEWEST
        for count in (PAGE, 15):
            request = SearchJobs(Search("SWEPT[", ("cancelled",)), before)
            found, before = exchange(qtbot, link, request)
            assert len(found) == count
        assert before is None
        link.stop()


def test_a_found_waiting_job_is_no_longer_listed_as_waiting_after_its_end(fed, page, qtbot):
    page.kinds.setCurrentText("Waiting")
    qtbot.waitUntil(lambda: len(finds(fed)) == 2, timeout=PATIENCE_MS)
    fed.reply(
        finds(fed)[1],
        (tuple(snapshots.job(n, queued(StartFailed("later"), 0.0)) for n in (1020, 1010)), None),
    )
    made = shifted(1000)
    ended = snapshots.job(1010, Done(NOW - 9, NOW - 8, ("cpu",)))
    fed.feed(msgspec.structs.replace(made, time=NOW + 1, jobs=(*made.jobs, ended)))
    assert ids(page) == [1009, 1020]
    fed.feed(msgspec.structs.replace(made, time=NOW + 2))
    fed.reply(finds(fed)[1], ((snapshots.job(1010, queued(StartFailed("later"), 0.0)),), None))
    assert ids(page) == [
        1009,
        1020,
    ], "no snapshot tells of it any more, and a page that came late is of long ago"


def test_an_ended_job_is_updated_in_place(fed, page):
    fed.reply(finds(fed)[0], (older(1000, 900), None))
    changed = []
    page.model.dataChanged.connect(lambda first, last: changed.append((first.row(), last.row())))
    made = shifted(1000)
    other = tuple(
        (
            msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, name="renamed"))
            if j.id == 1004
            else j
        )
        for j in made.jobs
    )
    fed.feed(msgspec.structs.replace(made, time=NOW + 1, jobs=other))
    at = ids(page).index(1004)
    assert page.model.index(at, 1).data() == "renamed"
    assert any(first <= at <= last for first, last in changed)
