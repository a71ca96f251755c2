"""What the jobs page tells of a job: why it waits, what it went through and used; its log, searched."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.models.requests import Refused, Tailed, Timeline, Told
from scheduler.jobs import Event, Queued, Usage
from tests.gui import snapshots
from tests.gui.snapshots import NOW

CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
WHY = "needs 40 GiB on one GPU; GPU 0 has 31 GiB free until job 8 ends, about 14:32"


def timelines(fed) -> list[int]:
    return [request.job for request in fed.asked if isinstance(request, Timeline)]


@pytest.fixture
def page(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    return fed.window.jobs


def replaced(number: int, **changes: object) -> snapshots.Snapshot:
    """The snapshot with one job of it changed."""
    made = snapshots.cpu_snapshot(NOW + 1)
    return msgspec.structs.replace(made, jobs=tuple(msgspec.structs.replace(j, **changes) if j.id == number else j for j in made.jobs))


# details


def test_why_it_waits_what_it_asked_for_and_what_it_used_are_told(fed, page):
    spec = msgspec.structs.replace(
        page._state.job(9).spec, memory=40 * 2**30, gpu_type="h100", priority=3, timeout=7200.0, retries=2, notes="the long one"
    )
    fed.feed(replaced(9, spec=spec, state=Queued(WHY), tries=1, usage=Usage(61.5, 31 * 2.0**30, 31_400.0, 87.4)))
    page.choose(9)
    fed.settle()
    facts = page.details.facts.toPlainText()
    assert facts.lstrip().startswith(f"Reason\nwaits: {WHY}")
    for told in ("40 GiB", "h100", "3", "2 h", "number 2 of 3", "31 GiB", "31.4 kJ", "87 %", "the long one"):
        assert told in facts
    assert WHY in page.details.doing.text()


def test_the_timeline_is_asked_for_once_a_change_and_told_in_order(fed, page):
    page.choose(8)
    fed.asked.clear()
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    fed.feed(snapshots.cpu_snapshot(NOW + 2))
    assert timelines(fed) == []
    fed.window.deliver(Told(8, (Event(NOW - 30, "submitted"), Event(NOW - 21, "started", "attempt 1 on <b>GPU 0</b>"))))
    facts = page.details.facts.toPlainText()
    assert facts.index("submitted") < facts.index("started: attempt 1 on <b>GPU 0</b>")
    fed.window.deliver(Told(5, (Event(NOW, "of another job"),)))
    assert "of another job" not in page.details.facts.toPlainText()
    fed.feed(replaced(8, state=Queued("waits for 10 s after an attempt that failed"), tries=1))
    assert timelines(fed) == [8]
    page.choose(6)
    assert timelines(fed) == [8, 6]
    assert "started: attempt 1" not in page.details.facts.toPlainText()


def test_a_timeline_that_could_not_be_read_is_asked_for_again(fed, page):
    page.choose(6)
    fed.asked.clear()
    fed.window.deliver(Refused(Timeline(6), "the daemon does not answer"))
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert timelines(fed) == [6]
    assert "does not answer" in fed.window.status.message.text()


# the log


def test_the_log_is_searched_forth_and_back_by_keyboard(fed, page):
    page.choose(6)
    fed.window.deliver(Tailed(6, 0, "loss 1\nfine 🙂\nLOSS 2\nloss 3\n".encode()))
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
    fed.window.deliver(Tailed(6, output_end(page), b"loss 4\n"))
    assert output.found.text() == "3 of 4"
    QTest.keyClicks(output.box, "zzz")
    assert output.found.text() == "not found"
    assert not output.forth.isEnabled()
    output.box.clear()
    assert output.found.text() == ""
    assert output.text.extraSelections() == []


def output_end(page) -> int:
    return page.details._tail.offset


def test_a_search_marks_a_bounded_number_of_matches(fed, page):
    page.choose(6)
    fed.window.deliver(Tailed(6, 0, b"aaaaaaaaaa\n" * 4000))
    page.details.output.box.setText("a")
    assert len(page.details.output.text.extraSelections()) == 1000
    assert page.details.output.found.text().endswith("of 1000+")


def test_follow_leads_back_to_the_end(fed, page):
    page.choose(8)
    fed.window.deliver(Tailed(8, 0, b"line\n" * 600))
    output = page.details.output
    bar = output.text.verticalScrollBar()
    assert output.follow.isChecked()
    bar.setValue(10)
    assert not output.follow.isChecked()
    output.follow.click()
    assert bar.value() == bar.maximum()
    fed.window.deliver(Tailed(8, 3000, b"line\n" * 50))
    assert bar.value() == bar.maximum()


def test_what_is_searched_for_is_text_and_the_log_steers_nothing(fed, page):
    page.choose(6)
    fed.window.deliver(Tailed(6, 0, b"\x1b[31mred\x1b[0m \x1b]0;title\x07.* <b>x</b>\n"))
    assert page.details.log.toPlainText() == "red .* <b>x</b>\n"
    page.details.output.box.setText(".*")
    assert page.details.output.found.text() == "1 of 1"
