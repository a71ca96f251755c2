"""Two jobs side by side."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.format.job_rows import job_row
from gpudeck.app.jobs.compare import compare
from gpudeck.scheduler.protocol.jobs import Done
from tests.gui import snapshots
from tests.gui.snapshots import NOW


def test_two_jobs_are_compared_row_by_row():
    made = snapshots.cpu_snapshot()
    left, right = made.jobs[-1], made.jobs[3]
    spec = msgspec.structs.replace(
        right.spec, params={"seq": "2048", "causal": "true"}, memory=2**30
    )
    pairs = {
        p.caption.strip(): p for p in compare(left, msgspec.structs.replace(right, spec=spec), made)
    }
    assert (pairs["seq"].left, pairs["seq"].right, pairs["seq"].differs) == ("1024", "2048", True)
    assert (pairs["causal"].left, pairs["causal"].right) == ("", "true")
    assert not pairs["Folder"].differs
    assert "1 GiB" in pairs["Memory"].right
    assert (pairs["TFLOP/s"].left, pairs["TFLOP/s"].right) == ("0.083", "0.085 (+2.2 %)")
    assert (pairs["Run time"].left, pairs["Run time"].right) == ("20 s", "18 s")


def test_jobs_without_results_are_compared_all_the_same():
    made = snapshots.cpu_snapshot()
    for left in made.jobs:
        for right in made.jobs:
            pairs = {p.caption: p for p in compare(left, right, made)}
            states = [job_row(job, {}, made.time).state for job in (left, right)]
            assert pairs["State"].differs == (states[0] != states[1])
            if left is right:
                assert not any(p.differs for p in pairs.values())


def test_two_jobs_are_selected_and_compared_by_keyboard(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    page.choose(6)
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    fed.settle()
    assert (page.compared.isVisible(), page.details.isVisible()) == (True, False)
    assert page.compared.title.text() == "Jobs 5 and 6 side by side"
    whole = page.compared.text.toPlainText()
    assert "fail: out is off" in whole
    page.compared.only.setFocus()
    QTest.keyClick(page.compared.only, Qt.Key.Key_Space)
    shorter = page.compared.text.toPlainText()
    assert "/home/ada/models/small" in whole
    assert "/home/ada/models/small" not in shorter
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert page.chosen() == [6, 5]
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert page.chosen() == [8, 7, 9, 6, 5, 4, 3, 2, 1]
    QTest.keyClick(page.table, Qt.Key.Key_Down)
    assert (page.compared.isVisible(), page.details.isVisible()) == (False, True)
    assert page.details.title.text() == "Job 4 · train"


def test_hostile_words_are_shown_as_they_are(fed):
    made = snapshots.cpu_snapshot()
    name = "<img src=file:///etc/passwd><b>x</b>"
    jobs = tuple(
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, name=name))
        for j in made.jobs
        if isinstance(j.state, Done)
    )
    fed.window.show_page("jobs")
    fed.feed(msgspec.structs.replace(made, jobs=jobs[:2]))
    fed.window.jobs.choose(jobs[0].id)
    QTest.keyClick(fed.window.jobs.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    fed.settle()
    assert fed.window.jobs.compared.text.toPlainText().count(name) == 2
