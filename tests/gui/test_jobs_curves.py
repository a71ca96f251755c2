"""The curves of two runs, and of a sweep with its table, on the jobs page."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.jobs.run_overlay import ReadRuns
from gpudeck.app.runs.run_curves import Run, RunCurve
from gpudeck.scheduler.protocol.jobs import Done, Job, Running, Spec
from tests.gui import snapshots
from tests.gui.snapshots import NOW

RATES = {21: "0.3", 22: "0.1", 23: "0.2"}


def sweep(active: bool = False) -> snapshots.Snapshot:
    jobs = [
        Job(
            number,
            Spec(
                ("train", "--seed", "1", "--lr", lr), f"sweep[{at}]", "/", group="sweep", index=at
            ),
            NOW - 600,
            Running("a", (), NOW - 500, 1, 1, "") if active else Done(NOW - 500, NOW - 60),
        )
        for at, (number, lr) in enumerate(RATES.items())
    ]
    made = snapshots.cpu_snapshot(NOW)
    return msgspec.structs.replace(made, jobs=tuple(reversed(jobs)))


def run(number: int, *names: str) -> Run:
    steps = tuple(map(float, range(0, 100, 10)))
    values = tuple(float(RATES[number]) + 4 / (step + 1) for step in steps)
    return Run(number, f"run-{number}", {name: RunCurve(steps, values) for name in names})


def shown_jobs(page) -> list[str]:
    model = page.fold.curves.model
    return [row.cells[0] for row in model.rows]


def test_the_curves_of_two_selected_jobs_lie_on_one_scale(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    made = sweep()
    plain = [
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, group="", index=None))
        for j in made.jobs
    ]
    fed.feed(msgspec.structs.replace(made, jobs=tuple(plain)))
    page.choose(23)
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    fed.settle()
    overlay = page.compared.curves
    assert not overlay.isVisible(), "nothing was read yet"
    fed.reply(ReadRuns((22, 23)), (run(22, "loss", "lr"), run(23, "loss")))
    assert overlay.isVisible()
    assert list(overlay.charts) == ["loss", "lr"]
    loss = overlay.charts["loss"].curves
    assert [curve.values[-1] for curve in loss] == [0.1 + 4 / 91, 0.2 + 4 / 91]
    assert len({curve.color for curve in loss}) == 2
    assert [label.text() for label in overlay.legend if label.isVisible()] == ["22", "23"]
    assert overlay.charts["loss"].accessibleDescription() == "0.144, 0.244"


def test_a_sweep_is_overlaid_and_sorted_by_any_column(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(sweep())
    page.choose(page.model.rows.ids[0])
    fed.settle()
    assert page.fold.isVisible()
    numbers = tuple(RATES)
    fed.reply(ReadRuns(numbers), tuple(run(number, "loss") for number in numbers))
    table = page.fold.curves
    assert [column.title for column in table.model.columns] == ["Job", "index", "lr", "loss"]
    assert shown_jobs(page) == ["21", "22", "23"]
    header = table.table.horizontalHeader()
    header.sectionClicked.emit(3)
    assert shown_jobs(page) == ["22", "23", "21"]
    header.sectionClicked.emit(3)
    assert shown_jobs(page) == ["21", "23", "22"], "the other way round"
    header.sectionClicked.emit(2)
    assert shown_jobs(page) == ["22", "23", "21"], "by the learning rate"
    table.table.choose_row(0)
    assert [curve.strong for curve in table.charts["loss"].curves] == [False, True, False]


def test_curves_of_jobs_that_run_are_read_again(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(sweep(active=True))
    page.choose(page.model.rows.ids[0])
    fed.settle()
    fed.feed(msgspec.structs.replace(sweep(active=True), time=NOW + 1))
    fed.feed(msgspec.structs.replace(sweep(active=True), time=NOW + 9))
    asked = [request for request in fed.asked if isinstance(request, ReadRuns)]
    assert asked == [ReadRuns(tuple(RATES))] * 2


def test_jobs_without_curves_show_none(fed):
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(sweep())
    page.choose(page.model.rows.ids[0])
    fed.settle()
    fed.reply(ReadRuns(tuple(RATES)), tuple(Run(n, "x", {}) for n in RATES))
    assert not page.fold.curves.isVisible()
    fed.fail(ReadRuns(tuple(RATES)), "the job belongs to another user")
    assert not page.fold.curves.isVisible()
