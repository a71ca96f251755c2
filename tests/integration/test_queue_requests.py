"""Request dependencies, groups, holds, edits, arrays and forecasts, by client and command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Queued
from tests.integration.deck import kill_daemon, log_of, python, ready, running
from tests.integration.shell import Shell
from tests.support import eventually

WAIT_S = 40.0
UNTIL = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


@pytest.fixture
def deck(shared: Client) -> Iterator[Client]:
    """Provide a client; cancel all jobs at the end."""
    yield shared
    for job in shared.jobs(1000, active=True):
        shared.cancel(job.id)
    for job in shared.jobs(1000, active=True):
        shared.wait(job.id, WAIT_S)


def reason(deck: Client, job: int) -> str:
    state = deck.job(job).state
    assert isinstance(state, Queued), state
    return state.reason


def test_a_job_runs_after_another_has_succeeded(deck: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = deck.submit(python(UNTIL, go), name="first")
    second = deck.submit(["true"], after=[first.id])
    third = deck.submit(["true"], after=[first.id, second.id])
    assert reason(deck, second.id) == f"waits for job {first.id} (first)"
    assert reason(deck, third.id) == f"waits for jobs {first.id} and {second.id}"
    go.touch()
    ended = [deck.wait(j.id, WAIT_S).state for j in (first, second, third)]
    assert all(isinstance(s, Done) for s in ended)
    starts = [s.started for s in ended if isinstance(s, Done)]
    assert starts == sorted(starts)


def test_a_job_after_one_that_failed_is_cancelled_with_a_reason(
    deck: Client, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    first = deck.submit(python(UNTIL + "\nsys.exit(3)", go))
    never, always = (
        deck.submit(["true"], after=[first.id]),
        deck.submit(["true"], after_any=[first.id]),
    )
    go.touch()
    assert isinstance(deck.wait(first.id, WAIT_S).state, Failed)
    state = deck.wait(never.id, WAIT_S).state
    assert isinstance(state, Cancelled)
    assert str(state.reason) == f"job {first.id}, which had to succeed first, failed"
    assert isinstance(deck.wait(always.id, WAIT_S).state, Done)
    with pytest.raises(NotFound, match="there is no job 99999"):
        deck.submit(["true"], after=[99999])


def test_dependencies_survive_a_crash(cpu_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Client() as deck:
        first = ready(deck).submit(python(UNTIL, go))
        second = deck.submit(["true"], after=[first.id])
        running(deck, first)
    kill_daemon()
    go.touch()
    with Client() as deck:
        assert isinstance(deck.wait(second.id, WAIT_S).state, Done)
        assert [e.what for e in deck.timeline(first.id)] in (
            ["submitted", "started", "done"],
            ["submitted", "started", "adopted", "done"],
        )


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor runs one job at a time")
def test_a_group_runs_no_more_at_once_than_its_limit(deck: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    deck.set_group("g", limit=1)
    jobs = [deck.submit(python(UNTIL, go), group="g") for _ in range(2)]
    other = deck.submit(["true"])
    running(deck, jobs[0])
    assert isinstance(deck.wait(other.id, WAIT_S).state, Done), "others pass"
    assert reason(deck, jobs[1].id) == "group g is at its limit (1 of 1 running)"
    (shown,) = [g for g in deck.groups() if g.group.name == "g"]
    assert (shown.group.limit, shown.waiting, shown.running) == (1, 1, 1)
    go.touch()
    assert all(isinstance(deck.wait(j.id, WAIT_S).state, Done) for j in jobs)


def test_a_job_on_hold_waits_until_it_is_released(deck: Client) -> None:
    job = deck.submit(["true"], hold=True)
    assert reason(deck, job.id) == f"is on hold; to release it: gpudeck resume {job.id}"
    deck.hold(job.id, False)
    assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
    with pytest.raises(UserError, match="it is too late to change hold"):
        deck.hold(job.id)


def test_a_job_is_edited_and_moved_while_it_waits(deck: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = deck.submit(python(UNTIL, go), gpus=1)
    jobs = [deck.submit(["sh", "-c", f"echo {n} >> '{tmp_path}/order'"], gpus=1) for n in range(4)]
    deck.move(jobs[3].id, before=jobs[1].id)
    deck.edit(jobs[2].id, priority=1, notes="urgent", tags=("a", "b"))
    assert deck.job(jobs[2].id).spec.tags == ("a", "b")
    with pytest.raises(UserError, match="needs 7 GPUs"):
        deck.edit(jobs[2].id, gpus=7)
    with pytest.raises(UserError, match="has no colour that can be changed"):
        deck.edit(jobs[2].id, colour="red")
    go.touch()
    for job in (first, *jobs):
        deck.wait(job.id, WAIT_S)
    assert (tmp_path / "order").read_text().split() == ["2", "0", "3", "1"]
    assert [e.what for e in deck.timeline(jobs[3].id)][:2] == ["submitted", "moved"]


def test_a_move_can_be_tried_without_moving_anything(
    deck: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    go, sh = tmp_path / "go", Shell(capsys)
    first = deck.submit(python(UNTIL, go), gpus=1, timeout="1h")
    running(deck, first)
    jobs = [deck.submit(["true"], gpus=1, timeout="10min").id for _ in range(3)]
    assert [landing.job for landing in deck.schedule()] == jobs
    tried = sh.json("move", str(jobs[2]), "--before", str(jobs[0]), "--dry-run")
    assert [landing["job"] for landing in tried["before"]] == jobs
    assert [landing["job"] for landing in tried["after"]] == [jobs[2], jobs[0], jobs[1]]
    table = sh("move", str(jobs[2]), "--before", str(jobs[0]), "--dry-run").splitlines()
    assert table[0].split() == ["JOB", "NAME", "STARTS", "WOULD", "START"]
    assert {int(line.split()[0]) for line in table[1:]} == set(jobs)
    same = sh("move", str(jobs[2]), "--after", str(jobs[1]), "--dry-run")
    assert same == "No job would start at another time, as far as the times are known.\n"
    assert [landing.job for landing in deck.schedule()] == jobs, "nothing was moved"
    assert "only waiting jobs" in sh.fails(
        "move", str(jobs[0]), "--before", str(first.id), "--dry-run"
    )
    deck.cancel_many(jobs)
    go.touch()
    deck.wait(first.id, WAIT_S)


def test_an_array_is_one_submission_of_many_jobs(deck: Client) -> None:
    code = "import os; print(os.environ['GPUDECK_ARRAY_INDEX'], os.environ['X'])"
    jobs = deck.submit_array(python(code), range(0, 6, 2), name="sweep", env={"X": "y"})
    assert [j.spec.name for j in jobs] == ["sweep[0]", "sweep[2]", "sweep[4]"]
    assert all(isinstance(deck.wait(j.id, WAIT_S).state, Done) for j in jobs)
    assert [log_of(j) for j in jobs] == ["0 y\n", "2 y\n", "4 y\n"]
    for wrong in ([], range(20_000), [1, 1]):
        with pytest.raises(UserError):
            deck.submit_array(["true"], wrong)


def test_many_jobs_each_with_its_own_environment(deck: Client) -> None:
    code = "import os; print(os.environ.get('X'))"
    jobs = deck.submit_many(
        [make_spec(python(code), {"env": {"X": str(n)} if n else {"X": "first"}}) for n in range(3)]
    )
    for job in jobs:
        deck.wait(job.id, WAIT_S)
    assert [log_of(j) for j in jobs] == ["first\n", "1\n", "2\n"]


@pytest.fixture
def sh(capsys: pytest.CaptureFixture[str], deck: Client) -> Shell:
    return Shell(capsys)


def test_the_command_line_changes_waiting_jobs(sh: Shell, deck: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = sh.json("submit", "--gpus", "1", "--timeout", "1h", "--", *python(UNTIL, go))["id"]
    eventually(lambda: deck.job(first).status == "running")
    out = sh("submit", "--gpus", "1", "--dry-run", "--", "true")
    assert out.startswith("Starts about ") and " on CPU. Waits for " in out and "free by " in out
    assert sh("submit", "--dry-run", "--group", "g2", "--", "true") == "Starts now\n"
    assert len(sh.json("jobs", "--active")) == 1, "nothing was submitted"
    second = sh.json(
        "submit", "--after", str(first), "--notes", "mine", "--tag", "a", "--tag", "b", "--", "true"
    )["id"]
    third = sh.json("submit", "--hold", "--gpus", "1", "--group", "g2", "--", "true")["id"]
    assert f"job {third}: On hold; to release it" in sh("pause", str(third))
    assert "Waits for python, free by " in sh("resume", str(third))
    assert sh("pause", "--group", "g2") == "Group g2 is paused; no new jobs start.\n"
    assert reason(deck, third) == "group g2 is paused"
    assert "g2" in sh("groups") and "paused" in sh("groups", "g2", "--limit", "3")
    assert sh("resume", "--group", "g2") == "Group g2 is no longer paused.\n"
    assert sh.json("edit", str(third), "--priority", "4", "--memory", "1MiB", "--tag", "z")["spec"][
        "tags"
    ] == ["z"]
    assert sh.json("edit", str(third), "--memory", "0")["spec"]["memory"] == 0
    assert "Waiting until" in sh("edit", str(third), "--begin", "+2h")
    assert "begin at once → " in sh("jobs", str(third))
    assert sh.json("edit", str(third), "--begin", "")["spec"]["begin"] == 0
    array = sh.json("submit", "--array", "1-2", "--gpus", "1", "--", "true")
    assert [j["spec"]["index"] for j in array] == [1, 2]
    assert sh("submit", "--array", "5", "--hold", "--", "true").startswith(
        f"job {array[1]['id'] + 1} (1 of true)"
    )
    sh("move", str(array[1]["id"]), "--before", str(array[0]["id"]))
    shown = sh("jobs", str(second))
    for words in ("After", "Tags", "a, b", "Notes", "mine", f"Waiting for job {first}"):
        assert words in shown
    go.touch()
    for job in (first, second, third, *(j["id"] for j in array)):
        assert isinstance(deck.wait(job, WAIT_S).state, Done)
    assert sh("pause") == "The queue is paused; no new jobs start.\n"
    assert sh("resume") == "The queue is no longer paused.\n"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("move", "1"), 2),
        (("edit", "1"), 2),
        (("groups", "x"), 2),
        (("pause", "1", "--group", "x"), 2),
        (("submit", "--after", "x", "--", "true"), 2),
        (("submit", "--array", "9-1", "--", "true"), 2),
        (("submit", "--array", "1-2", "--wait", "--", "true"), 2),
        (("submit", "--after", "99999", "--", "true"), 1),
        (("move", "99999", "--before", "99998"), 1),
        (("edit", "99999", "--name", "x"), 1),
        (("resume", "99999"), 1),
        (("groups", "", "--limit", "2"), 1),
    ],
)
def test_errors_are_one_line_with_their_exit_status(
    sh: Shell, words: tuple[str, ...], status: int
) -> None:
    assert "gpudeck" in sh(*words, status=status)


def test_others_are_answered_while_an_order_of_many_jobs_is_recorded(deck: Client) -> None:
    jobs = [job.id for job in deck.submit_array(["true"], range(1000), hold=True)]

    def told(job: int) -> list[str]:
        return [str(event.text) for event in deck.timeline(job) if event.what == "ordered"]

    with Client() as other, ThreadPoolExecutor(1) as pool:
        recording = pool.submit(other.record_order, jobs, "edit jobs", "a program")
        eventually(lambda: told(jobs[0]))
        assert not told(jobs[-1]), "nobody was answered before all of it was recorded"
        recording.result(WAIT_S)
    assert [told(jobs[n]) for n in (0, 500, -1)] == [
        ["edit jobs by a program, approved by a person"]
    ] * 3
    deck.cancel_many(jobs)


def test_an_order_with_a_job_that_does_not_exist_is_recorded_for_none(deck: Client) -> None:
    job = deck.submit(["true"], hold=True)
    with pytest.raises(NotFound):
        deck.record_order([job.id, 10**6], "edit jobs", "a program")
    assert all(event.what != "ordered" for event in deck.timeline(job.id))
