"""Test the usage of jobs by user and month."""

from __future__ import annotations

import getpass
import time

import pytest

from gpudeck.app.cli.queue.usage import _cells, _write
from gpudeck.app.format.usage import UsageRow, add_up
from gpudeck.app.runs.person_verdicts import judge_person
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Job, Queued, Spec, Usage
from gpudeck.scheduler.protocol.settings import Settings

NOVEMBER = time.mktime((2026, 11, 15, 12, 0, 0, 0, 0, -1))
DECEMBER = NOVEMBER + 30 * 86400


def job(state, user=None, usage=None) -> Job:
    return Job(1, Spec(("x",), "x", "/", user=user), 0.0, state, usage=usage)


def test_usage_is_added_up_by_user_and_month():
    two = ("GPU-a", "GPU-b")
    rows = add_up(
        [
            job(Done(NOVEMBER, NOVEMBER + 3600, two), 0, Usage(3600, energy=500.0)),
            job(Failed(NOVEMBER, NOVEMBER + 1800, "exit status 1", 1, two[:1]), 0),
            job(Done(NOVEMBER, NOVEMBER + 7200, ("cpu",)), 2**31 - 2),
            # two attempts: the readings of both, and the run time of the last
            job(Done(DECEMBER, DECEMBER + 600, two[:1]), 0, Usage(1800, energy=1.0)),
            job(Cancelled(DECEMBER)),  # it never ran
            job(Queued()),
        ]
    )
    assert [(r.period, r.user, r.jobs, r.succeeded, r.gpu_hours, r.cpu_hours) for r in rows] == [
        ("2026-12", "root", 1, 1, 0.5, 0.0),
        ("2026-11", "root", 2, 1, 2.5, 0.0),
        ("2026-11", f"user {2**31 - 2}", 1, 1, 0.0, 2.0),
    ]
    assert [row.joules for row in rows] == [1.0, 500.0, None], "none is not zero"
    assert [_cells(row)[-1] for row in rows] == ["1 J", "0.139 Wh", "–"]


def test_energy_that_no_device_reported_is_not_zero():
    absent = Usage(60, absent={"energy": "no counter"})
    (row,) = add_up([job(Done(NOVEMBER, NOVEMBER + 60, ("cpu",)), usage=absent)])
    assert row.joules is None and _cells(row)[-1] == "–"


def test_attempts_before_a_cancellation_are_counted():
    spec = Spec(("x",), "x", "/", gpus=2, retries=3)
    waited = Job(1, spec, 0.0, Cancelled(NOVEMBER), usage=Usage(3600.0, energy=5.0))
    (row,) = add_up([waited])
    assert (row.jobs, row.gpu_hours, row.cpu_hours, row.joules) == (1, 2.0, 0.0, 5.0)


def test_jobs_of_ones_own_queue_are_ones_own():
    (row,) = add_up([job(Done(NOVEMBER, NOVEMBER + 36, ("GPU-a",)))])
    assert row.user == getpass.getuser()


def test_the_table_is_written_as_csv(tmp_path):
    file = tmp_path / "usage.csv"
    _write(file, add_up([job(Done(NOVEMBER, NOVEMBER + 3600, ("GPU-a",)), 0)]), Settings())
    assert file.read_text().splitlines() == [
        "period,user,jobs,succeeded,gpu_hours,cpu_hours,joules,read_hours,worked_hours,failed_hours",
        "2026-11,root,1,1,1.0,0.0,,0.0,0.0,0.0",
    ]
    with pytest.raises(UserError, match="Is a directory"):
        _write(tmp_path, [], Settings())


def test_the_page_has_a_table_for_each_month_and_no_markup_of_users(tmp_path):
    file = tmp_path / "usage.html"
    rows = [
        UsageRow("2026-12", "<b>ann</b>", 2, 1, 30.0, 0.0, 3.6e6),
        UsageRow("2026-12", "bob", 1, 1, 60.0, 1.0),
        UsageRow("2026-11", "bob", 1, 0, 0.0, 2.0),
    ]
    _write(file, rows, Settings())
    page = file.read_text()
    order = [page.index(text) for text in (">2026-12<", "bob", "&lt;b&gt;ann", ">2026-11<")]
    assert order == sorted(order)
    assert "<b>" not in page and "http" not in page
    assert "<td>All</td><td>3</td><td>2</td><td>90.0</td>" in page
    assert 'style="width:50.0%"' in page and "1.00 kWh" in page
    _write(file, [], Settings())
    assert "No job has ended" in file.read_text()


def test_a_week_of_a_person_is_judged_by_what_was_read():
    two = ("GPU-a", "GPU-b")
    (row,) = add_up(
        [
            job(Done(NOVEMBER, NOVEMBER + 7200, two), 0, Usage(7200, energy=3.6e6, util=75.0)),
            job(Failed(NOVEMBER, NOVEMBER + 7200, "exit status 1", 1, two[:1]), 0),
        ],
        by="week",
    )
    assert row.period == "2026-W46"
    assert [verdict.text for verdict in judge_person(row, Settings(energy_price=0.5))] == [
        "root, 2026-W46: the GPUs worked for 75 % of 6.0 GPU-hours",
        "root, 2026-W46: jobs that failed held GPUs for 2.0 of 6.0 GPU-hours",
        "root, 2026-W46: the jobs used 1.00 kWh: 0.50 €",
    ]
    assert _cells(row)[5] == "75 %"


def test_nothing_is_said_of_a_person_of_whom_nothing_was_read():
    (row,) = add_up([job(Done(NOVEMBER, NOVEMBER + 3600, ("GPU-a",)), 0)])
    assert judge_person(row, Settings(energy_price=0.5)) == () and _cells(row)[5] == "–"
