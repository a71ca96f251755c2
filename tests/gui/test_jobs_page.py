"""What the jobs page tells of a job: why it waits, what it went through and used; its log,
searched."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QFileDialog

from gpudeck.app.jobs.job_details import JUDGE_S, RENEW_S
from gpudeck.app.jobs.requests import ReadLog, ReadVerdicts
from gpudeck.app.jobs.verdict_view import MOST
from gpudeck.app.report.file import WriteReport
from gpudeck.app.runs.verdicts import Verdict
from gpudeck.scheduler.protocol.jobs import Event, Progress, Running, Usage, queued
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.verbs.jobs import GetTimeline
from tests.gui import snapshots
from tests.gui.readable import texts
from tests.gui.snapshots import NOW

CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
WHY = "needs 40 GiB on one GPU; GPU 0 has 31 GiB free until job 8 ends, about 14:32"


def timelines(fed) -> list[int]:
    return [request.job for request in fed.asked if isinstance(request, GetTimeline)]


@pytest.fixture
def page(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    return fed.window.jobs


def replaced(number: int, **changes: object) -> snapshots.Snapshot:
    """The snapshot with one job of it changed."""
    made = snapshots.cpu_snapshot(NOW + 1)
    return msgspec.structs.replace(
        made,
        jobs=tuple(
            msgspec.structs.replace(j, **changes) if j.id == number else j for j in made.jobs
        ),
    )


# details


def test_details_show_wait_reason_options_and_usage(fed, page):
    spec = msgspec.structs.replace(
        fed.window.state.job(9).spec,
        memory=40 * 2**30,
        gpu_type="h100",
        priority=3,
        timeout=7200.0,
        retries=2,
        notes="the long one",
    )
    fed.feed(
        replaced(
            9,
            spec=spec,
            state=queued(StartFailed(WHY), 0.0),
            tries=1,
            usage=Usage(61.5, 31 * 2.0**30, 31_400.0, 87.4),
        )
    )
    page.choose(9)
    fed.settle()
    facts = page.details.facts.toPlainText()
    assert facts.lstrip().startswith(f"Reason\nWaiting: {WHY}")
    for told in (
        "40 GiB",
        "h100",
        "3",
        "2 h",
        "number 2 of 3",
        "31 GiB",
        "8.72 Wh",
        "87 %",
        "the long one",
    ):
        assert told in facts
    assert WHY in page.details.doing.text()


def test_the_timeline_is_requested_once_per_change_and_shown_in_order(fed, page):
    page.choose(8)
    fed.asked.clear()
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    fed.feed(snapshots.cpu_snapshot(NOW + 2))
    assert timelines(fed) == []
    fed.reply(
        GetTimeline(8),
        (Event(NOW - 30, "submitted"), Event(NOW - 21, "started", "attempt 1 on <b>GPU 0</b>")),
    )
    facts = page.details.facts.toPlainText()
    assert facts.index("submitted") < facts.index("started: attempt 1 on <b>GPU 0</b>")
    page.choose(5)
    page.choose(8)
    fed.reply(GetTimeline(5), (Event(NOW, "of another job"),))
    fed.asked.clear()
    assert "of another job" not in page.details.facts.toPlainText()
    fed.feed(
        replaced(
            8,
            state=queued(StartFailed("waits for 10 s after an attempt that failed"), 0.0),
            tries=1,
        )
    )
    assert timelines(fed) == [8]
    page.choose(6)
    assert timelines(fed) == [8, 6]
    assert "started: attempt 1" not in page.details.facts.toPlainText()


def test_a_note_of_another_program_appears_in_the_timeline(fed, page):
    page.choose(8)
    fed.reply(GetTimeline(8), (Event(NOW - 30, "submitted"),))
    fed.asked.clear()
    fed.feed(snapshots.cpu_snapshot(NOW + 2 * RENEW_S))
    assert timelines(fed) == [8]
    fed.reply(GetTimeline(8), (Event(NOW - 30, "submitted"), Event(NOW, "note", "<b>good</b>")))
    assert "note: <b>good</b>" in page.details.facts.toPlainText()


def test_a_timeline_that_could_not_be_read_is_asked_for_again(fed, page):
    page.choose(6)
    fed.asked.clear()
    fed.fail(GetTimeline(6), "the daemon does not answer")
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert timelines(fed) == [6]
    assert "does not answer" in fed.window.status.message.text()


# the log


def test_printed_values_are_drawn_over_their_steps_until_somebody_searches_in_the_log(fed, page):
    page.choose(6)
    fed.reply(ReadLog(6), Output(0, b"step=10 loss=2.5 lr=0.5\nstep=20 loss=2.0 lr=0.25\n", 50))
    fed.settle()
    shown = page.details.views.curves
    assert list(shown.charts) == ["loss", "lr"]
    (loss,) = shown.charts["loss"].curves
    assert (loss.steps, loss.values) == ((10.0, 20.0), (2.5, 2.0))
    assert shown.isVisible() and not page.details.log.isVisible()
    page.acts["log.search"].trigger()
    assert page.details.output.box.isVisible() and not shown.isVisible()


def test_each_tab_of_a_job_shows_the_view_that_it_names(fed, page):
    page.choose(6)
    fed.reply(ReadLog(6), Output(0, b"step=10 loss=2.5\nstep=20 loss=2.0\n", 34))
    fed.settle()
    views = page.details.views
    tabs = {tab.text(): tab for tab in views.findChildren(QAbstractButton)}
    tabs["Log"].click()
    assert page.details.log.isVisible() and not views.curves.isVisible()
    tabs["Curves"].click()
    assert views.curves.isVisible() and not page.details.log.isVisible()


def test_the_progress_of_a_running_job_has_a_line_and_a_bar_of_its_own(fed, page):
    running = next(job for job in fed.window.state.snapshot.jobs if isinstance(job.state, Running))
    moved = msgspec.structs.replace(
        running.state, progress=Progress(62, 100, "shard 62 of 100", 0.0, NOW - 5)
    )
    fed.feed(replaced(running.id, state=moved))
    page.choose(running.id)
    fed.settle()
    details = page.details
    assert details.share.share == 0.62 and details.share.isVisible()
    assert "62 of 100" in details.doing.text()
    assert details.doing.y() >= details.title.geometry().bottom()
    page.choose(6)
    assert not details.share.isVisible() and not details.doing.isVisible()


def test_the_log_is_searched_forth_and_back_by_keyboard(fed, page):
    page.choose(6)
    fed.reply(ReadLog(6), Output(0, "loss 1\nfine 🙂\nLOSS 2\nloss 3\n".encode(), 31))
    output = page.details.output
    QTest.keyClick(page, Qt.Key.Key_F, CTRL | SHIFT)
    assert output.box.hasFocus()
    QTest.keyClicks(output.box, "loss")
    assert output.found.text() == "1 of 3"
    QTest.keyClick(output.box, Qt.Key.Key_Return)
    assert (output.found.text(), output.text.textCursor().selectedText()) == ("2 of 3", "LOSS")
    QTest.keyClick(page, Qt.Key.Key_F3)
    QTest.keyClick(page, Qt.Key.Key_F3)
    assert output.found.text() == "1 of 3"  # beyond the last is the first
    QTest.keyClick(output.box, Qt.Key.Key_Return, SHIFT)
    assert output.found.text() == "3 of 3"
    fed.reply(ReadLog(6), Output(output_end(page), b"loss 4\n", output_end(page) + 7))
    assert output.found.text() == "3 of 4"
    QTest.keyClicks(output.box, "zzz")
    assert output.found.text() == "not found"
    assert not output.forth.isEnabled()
    output.box.clear()
    assert output.found.text() == ""
    assert output.text.extraSelections() == []


def output_end(page) -> int:
    return page.details.tail.offset


def test_a_search_marks_a_bounded_number_of_matches(fed, page):
    page.choose(6)
    fed.reply(ReadLog(6), Output(0, b"aaaaaaaaaa\n" * 4000, 44000))
    page.details.output.box.setText("a")
    assert len(page.details.output.text.extraSelections()) == 1000
    assert page.details.output.found.text().endswith("of 1000+")


def test_follow_leads_back_to_the_end(fed, page):
    page.choose(8)
    fed.reply(ReadLog(8), Output(0, b"line\n" * 600, 3000))
    output = page.details.output
    bar = output.text.verticalScrollBar()
    assert output.follow.isChecked()
    bar.setValue(10)
    assert not output.follow.isChecked()
    output.follow.click()
    assert bar.value() == bar.maximum()
    fed.reply(ReadLog(8), Output(3000, b"line\n" * 50, 3250))
    assert bar.value() == bar.maximum()


def test_a_search_is_plain_text_and_the_log_cannot_control_the_view(fed, page):
    page.choose(6)
    fed.reply(ReadLog(6), Output(0, b"\x1b[31mred\x1b[0m \x1b]0;title\x07.* <b>x</b>\n", 35))
    assert page.details.log.toPlainText() == "red .* <b>x</b>\n"
    page.details.output.box.setText(".*")
    assert page.details.output.found.text() == "1 of 1"


# the table


def ids(page) -> list[int]:
    return [line.id for line in page.model.rows]


def waiting_job(number: int, **changes: object) -> snapshots.Job:
    made = snapshots.job(number, queued(StartFailed("GPU 0 is held by job 8"), 0.0))
    place = changes.pop("place", None)
    return msgspec.structs.replace(
        made, place=place, spec=msgspec.structs.replace(made.spec, **changes)
    )


def with_jobs(*jobs: snapshots.Job, later: float = 1) -> snapshots.Snapshot:
    return msgspec.structs.replace(snapshots.cpu_snapshot(NOW + later), jobs=jobs)


def test_running_jobs_come_first_then_waiting_ones_in_order(fed, page):
    ended = snapshots.cpu_snapshot().jobs[3:]
    running = snapshots.cpu_snapshot().jobs[1]
    fed.feed(
        with_jobs(
            waiting_job(13, place=10.5),
            waiting_job(12),
            waiting_job(11, priority=5),
            waiting_job(10),
            running,
            *ended,
        )
    )
    assert ids(page) == [8, 11, 10, 13, 12, 6, 5, 4, 3, 2, 1]


def test_the_selection_stays_while_jobs_change(fed, page):
    made = snapshots.cpu_snapshot()
    fed.feed(with_jobs(waiting_job(12), waiting_job(11), waiting_job(10), *made.jobs[1:]))
    page.choose(12)
    fed.feed(
        with_jobs(
            waiting_job(14),
            waiting_job(13),
            waiting_job(12, priority=9),
            waiting_job(10),
            made.jobs[1],
            *made.jobs[4:],
            later=2,
        )
    )
    assert ids(page) == [8, 12, 10, 13, 14, 6, 5, 4, 3, 2, 1], "what has ended stays listed"
    assert page.table.currentIndex().row() == 1
    assert page.details.title.text() == "Job 12 · attention"
    assert [index.row() for index in page.table.selectionModel().selectedRows()] == [1]


def test_the_table_shows_what_a_job_needs(fed, page):
    fed.feed(
        with_jobs(
            waiting_job(9, gpus=2, gpu_type="h100", memory=20 * 2**30, priority=5, group="night"),
            waiting_job(8, gpus=0),
        )
    )
    column = [
        page.model.headerData(i, Qt.Orientation.Horizontal) for i in range(page.model.columnCount())
    ].index("Needs")
    assert [page.model.index(i, column).data() for i in (0, 1)] == [
        "2 × h100 · 20 GiB · priority 5 · night",
        "",
    ]


def test_a_search_covers_commands_notes_tags_and_parameters(fed, page):
    trained = ("python", "train.py", "--epochs=3")
    fed.feed(
        with_jobs(
            waiting_job(9, argv=trained, notes="the long one", priority=1),
            waiting_job(8, tags=("paper", "v2"), params={"optimiser": "lr 0.1"}),
            msgspec.structs.replace(
                snapshots.cpu_snapshot().jobs[6], spec=waiting_job(3, argv=trained).spec
            ),
        )
    )
    for search, found in (
        ("epochs", [9, 3]),
        ("LONG one", [9]),
        ("paper", [8]),
        ("paper epochs", []),
        ("lr 0.1", [8]),
        ("(", []),
    ):
        page.filter.setText(search)
        assert ids(page) == found, search


def test_the_states_are_filtered_by_keyboard(fed, page):
    QTest.keyClick(page, Qt.Key.Key_F, CTRL)
    QTest.keyClick(page.filter, Qt.Key.Key_Tab)
    assert page.kinds.hasFocus()
    for kind, found, listed in (
        ("Running", [8, 7], "2 jobs"),
        ("Waiting", [9], "1 job, searching…"),
        ("Succeeded", [6, 1], "2 jobs, searching…"),
        ("Failed", [5, 4, 2], "3 jobs, searching…"),
        ("Cancelled", [3], "1 job, searching…"),
        ("All states", [8, 7, 9, 6, 5, 4, 3, 2, 1], "9 jobs, searching…"),
    ):
        page.kinds.view().keyboardSearch("")  # the letter begins another word
        QTest.keyClick(page.kinds, kind[0])
        assert page.kinds.currentText() == kind
        assert (ids(page), page.count.text()) == (found, listed)


def test_a_job_hidden_by_the_filters_is_shown_on_request(fed, page):
    page.kinds.setCurrentText("Failed")
    page.filter.setText("nightly")
    page.show_job(8)
    assert page.details.title.text() == "Job 8 · attention"
    assert len(ids(page)) == 9


def test_ten_thousand_jobs_need_no_widget_each_and_unchanged_ones_are_not_made_anew(fed, page):
    many = tuple(waiting_job(10 + i) for i in range(10_000))
    ended = snapshots.cpu_snapshot().jobs[3:]
    fed.feed(with_jobs(*many, *ended))
    before, told = list(page.model.rows), []
    page.model.dataChanged.connect(lambda first, last: told.append((first.row(), last.row())))
    page.model.rowsInserted.connect(lambda *_: told.append("in"))
    page.model.layoutChanged.connect(lambda: told.append("moved"))
    assert len(page.table.viewport().children()) < 10
    again = msgspec.json.decode(msgspec.json.encode(many), type=tuple[snapshots.Job, ...])
    changed = waiting_job(10 + 700, group="night")
    fed.feed(with_jobs(*again[:700], changed, *again[701:], *ended, later=2))
    assert told == [(0, 10_005)], "painted again, where it is seen; nothing moved"
    assert sum(old is not new for old, new in zip(before, page.model.rows, strict=True)) == 1
    fed.feed(
        with_jobs(
            *again[:300],
            *again[305:],
            *(waiting_job(20_000 + i) for i in range(3)),
            *ended,
            later=3,
        )
    )
    assert told[1:] == ["in", (0, 10_003)]
    assert ids(page) == [10 + i for i in range(10_000) if not 300 <= i < 305] + [
        20_000,
        20_001,
        20_002,
        *range(6, 0, -1),
    ]


def test_a_report_on_a_job_is_saved_in_the_chosen_file(fed, page, monkeypatch):
    monkeypatch.setattr(
        QFileDialog, "open", lambda self: None
    )  # offscreen, Qt warns of any second window
    (number,) = page.chosen()
    page.details.report.click()
    (dialog,) = page.details.findChildren(QFileDialog)
    assert dialog.selectedFiles()[0].endswith(f"job-{number}.html")
    dialog.fileSelected.emit("/data/x.pdf")
    request = WriteReport(number, "/data/x.pdf")
    assert request in fed.asked
    message = fed.window.status.message
    fed.reply(request)
    assert fed.window.toasts.toasts[-1].text.text() == "Report saved as x.pdf"
    fed.fail(request, "cannot write /data/x.pdf: No space left on device")
    assert "No space left on device" in message.text() and message.property("meaning") == "failed"


def test_the_filter_is_cleared_by_one_press(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(2))
    page = fed.window.jobs
    clear = page.chooser.cleared
    assert not clear.isVisible()
    page.filter.setText("nothing like this")
    page.kinds.setCurrentIndex(1)
    assert clear.isVisible()
    clear.click()
    assert (page.filter.text(), page.kinds.currentIndex()) == ("", 0)
    assert not clear.isVisible()


def test_verdicts_are_shown_with_their_certainty_and_asked_for_again(fed, page):
    page.choose(8)
    fed.settle()
    judged = [call.request.job for call in fed.link.calls if isinstance(call.request, ReadVerdicts)]
    assert judged[-1] == 8
    view = page.details.verdicts
    assert not view.isVisible()
    found = (
        Verdict("measured", "It used 2.00 kWh: 0.60 EUR"),
        Verdict("likely", "Memory leaks: on GPU 0 it is full in 8 min 00 s"),
    )
    fed.reply(ReadVerdicts, found)
    fed.settle()
    assert view.isVisible()
    lines = [f"{word}\n{one.text}" for word, one in zip(("Measured", "Likely"), found, strict=True)]
    assert texts(view) == "\n".join(lines)
    fed.feed(snapshots.cpu_snapshot(NOW + JUDGE_S))
    again = [call.request.job for call in fed.link.calls if isinstance(call.request, ReadVerdicts)]
    assert again.count(8) == judged.count(8) + 1, "it still runs"
    page.choose(9)
    fed.settle()
    assert not view.isVisible(), "a job that waits has used nothing"


def test_verdicts_without_room_are_in_the_tooltip(fed, page):
    page.choose(8)
    fed.settle()
    found = tuple(Verdict("measured", f"Finding {i}") for i in range(MOST + 2))
    fed.reply(ReadVerdicts, found)
    fed.settle()
    view = page.details.verdicts
    assert found[MOST - 1].text in texts(view) and found[MOST].text not in texts(view)
    assert all(one.text in view.toolTip() for one in found)
