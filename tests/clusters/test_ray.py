"""Run jobs in a real Ray cluster that is killed, frozen and restarted: none is lost or runs twice.

Every job appends its attempt to a file when it begins: the lines prove it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Job, Lost, Queued, Running
from gpudeck.scheduler.protocol.settings import ClusterSettings
from gpudeck.scheduler.protocol.wait_reasons import ClusterUnavailable
from tests.clusters.conftest import name
from tests.clusters.head import ADDRESS, Head
from tests.clusters.jobs import HOLD, RAN, WAIT_S, lines, shell, state, up
from tests.integration.deck import kill_daemon, log_of
from tests.support import eventually, lives

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def unreachable(deck: Client, job: Job) -> bool:
    return "ray:lab has not answered since " in state(deck, job).note


def test_a_job_runs_there_as_it_would_here(deck: Client) -> None:
    script = """
        echo '{"gpudeck":"progress","done":1,"total":2}'; echo to stderr >&2
        echo $GPUDECK_JOB $GPUDECK_TRY $GPUDECK_ARRAY_INDEX $MINE
        echo gpus=$CUDA_VISIBLE_DEVICES; pwd; echo kept > $GPUDECK_ARTEFACTS/kept
        printf '{"tflops":\\n 2}' > $GPUDECK_RESULT; printf end"""
    with_gpu = deck.submit(shell(script), where="ray:lab", gpus=1, cwd="/usr", env={"MINE": "a b"})
    without = deck.submit_array(
        shell("echo gpus=$CUDA_VISIBLE_DEVICES; echo $GPUDECK_ARRAY_INDEX"), [7], where="ray:lab"
    )[0]
    done, other = deck.wait(with_gpu.id, WAIT_S), deck.wait(without.id, WAIT_S)
    assert isinstance(done.state, Done)
    assert json.loads(done.result or b"") == {"tflops": 2}
    progress, *printed = log_of(done).splitlines()
    assert json.loads(progress)["gpudeck"] == "progress"
    assert printed == ["to stderr", f"{done.id} 1 a b", "gpus=0", "/usr", "end"]
    assert not log_of(done).endswith("\n"), "byte for byte what it printed"
    assert [file.read_text() for file in deck.artefacts(done.id)] == ["kept\n"]
    assert isinstance(other.state, Done)
    assert log_of(other) == "gpus=\n7\n"
    assert [e.what for e in deck.timeline(done.id)] == [
        "submitted",
        "started",
        "acknowledged",
        "done",
    ]


def test_a_failure_has_the_same_reason_as_here_and_is_retried(deck: Client, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    bad = deck.submit(
        shell(RAN + "echo oops; exit 3", ran), where="ray:lab", retries=1, backoff=0.1
    )
    absent = deck.submit(["no-such-command"], where="ray:lab")
    slow = deck.submit(shell(RAN + "echo begun; sleep 600", ran), where="ray:lab", timeout=1)
    ends = [deck.wait(job.id, WAIT_S).state for job in (bad, absent, slow)]
    assert all(isinstance(end, Failed) for end in ends)
    assert [str(end.reason) for end in ends if isinstance(end, Failed)] == [
        "exit code 3; last line: oops",
        f"cannot start 'no-such-command' in '{Path.cwd()}' on {os.uname().nodename}: "
        "No such file or directory. The folder and the command must exist there, too.",
        "ran longer than its limit of 1 s; last line: begun",
    ]
    tries = [attempt for job, attempt, _ in lines(ran) if job == str(bad.id)]
    assert len(tries) == len(set(tries)) == 2


def test_a_cancel_ends_the_whole_tree(deck: Client, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    stubborn = (
        RAN
        + 'trap \'\' TERM; (setsid sh -c \'trap "" TERM; echo 0 0 $$ >> "$0"; sleep 600\' "$0") & '
        + "echo up; while true; do sleep 1; done"
    )
    job = deck.submit(shell(stubborn, ran), where="ray:lab")
    eventually(lambda: up(job) and len(lines(ran)) == 2, WAIT_S)
    deck.cancel(job.id)
    assert isinstance(deck.wait(job.id, WAIT_S).state, Cancelled)
    eventually(lambda: not any(lives(int(pid)) for _, _, pid in lines(ran)))


def test_kill_9_of_the_daemon_and_jobs_run_on_and_are_adopted(deck: Client, tmp_path: Path) -> None:
    """One is still running when the next daemon comes, one has ended, one was just submitted."""
    ran, go, now = tmp_path / "ran", tmp_path / "go", tmp_path / "now"
    long, short = (
        deck.submit(shell(HOLD, ran, go), where="ray:lab"),
        deck.submit(shell(HOLD, ran, now), where="ray:lab"),
    )
    eventually(lambda: up(long) and up(short), WAIT_S)
    just = deck.submit(shell(RAN + "echo down", ran), where="ray:lab")
    kill_daemon()
    now.touch()
    time.sleep(3)
    with Client() as again:
        assert isinstance(again.wait(short.id, WAIT_S).state, Done)
        assert isinstance(again.wait(just.id, WAIT_S).state, Done)
        assert isinstance(again.job(long.id).state, Running)
        go.touch()
        assert isinstance(again.wait(long.id, WAIT_S).state, Done)
    assert sorted(int(job) for job, _, _ in lines(ran)) == sorted([long.id, short.id, just.id])
    assert log_of(long) == log_of(short) == "up\ndown\n"


def test_kill_9_of_the_daemon_while_it_submits_runs_none_twice_and_loses_none(
    deck: Client, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    ids: list[int] = []
    for round_ in range(6):
        with Client() as client:
            ids += [client.submit(shell(RAN, ran), where="ray:lab").id for _ in range(3)]
            time.sleep(0.02 * round_**2)
            kill_daemon()
    with Client() as client:
        ends = [client.wait(number, 2 * WAIT_S) for number in ids]
    assert [end.status for end in ends] == ["done"] * len(ids)
    assert sorted(int(job) for job, _, _ in lines(ran)) == sorted(ids)


def test_a_head_that_is_killed_and_restarted_runs_nothing_twice(
    deck: Client, head: Head, tmp_path: Path
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    job = deck.submit(shell(HOLD, ran, go), where="ray:lab", retries=3, backoff=0)
    eventually(lambda: up(job), WAIT_S)
    head.kill()
    eventually(lambda: unreachable(deck, job), WAIT_S)
    waiting = deck.submit(shell(RAN, ran), where="ray:lab")
    time.sleep(3)
    assert isinstance(deck.job(job.id).state, Running), (
        "its end is unknown: it is neither given up nor started again"
    )
    state_ = deck.job(waiting.id).state
    assert isinstance(state_, Queued) and isinstance(state_.wait, ClusterUnavailable)
    head.start()
    lost = deck.wait(job.id, WAIT_S).state
    assert isinstance(lost, Lost)
    assert str(lost.reason) == "the cluster was restarted, and no longer has it"
    assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done)
    assert [int(number) for number, _, _ in lines(ran)] == [job.id, waiting.id]


def test_a_cluster_that_does_not_answer_for_a_while_changes_nothing(
    deck: Client, head: Head, tmp_path: Path
) -> None:
    """Ask the cluster whether it did what was requested, instead of requesting it again."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    job = deck.submit(shell(HOLD, ran, go), where="ray:lab")
    eventually(lambda: up(job), WAIT_S)
    head.freeze(True)
    try:
        asked = deck.submit(shell(RAN, ran), where="ray:lab")
        eventually(
            lambda: isinstance(deck.job(asked.id).state, Running) or deck.snapshot().notices, WAIT_S
        )
        begun = time.monotonic()
        eventually(lambda: unreachable(deck, job), WAIT_S)
        go.touch()
        assert isinstance(deck.job(job.id).state, Running)
        kill_daemon()
    finally:
        head.freeze(False)
    assert time.monotonic() - begun < WAIT_S
    with Client() as again:
        assert isinstance(again.wait(job.id, WAIT_S).state, Done)
        assert isinstance(again.wait(asked.id, WAIT_S).state, Done)
    assert [int(number) for number, _, _ in lines(ran)] == [job.id, asked.id]
    assert log_of(job) == "up\ndown\n"


def test_an_orphan_is_ended_and_other_jobs_are_left_alone(
    deck: Client, head: Head, tmp_path: Path
) -> None:
    """Make the store forget a job that runs in the cluster beside a job of another deck."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    ours = deck.submit(shell(HOLD, ran, go), where="ray:lab")
    eventually(lambda: up(ours), WAIT_S)
    other_home = tmp_path / "other"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDECK_HOME", str(other_home))
        with Client() as other:
            name(other, head.token_file)
            others = other.submit(shell(HOLD, ran, go), where="ray:lab")
            eventually(lambda: up(others), WAIT_S)
    kill_daemon()
    with sqlite3.connect(paths.store_file()) as db:
        db.execute("DELETE FROM jobs")
    db.close()
    with Client() as again:
        attempt = lines(ran)[0][1]
        eventually(lambda: not lives(int(lines(ran)[0][2])), WAIT_S)
        assert again.jobs() == ()
    eventually(lambda: attempt not in head.cluster.attempts((paths.home() / "deck.id").read_text()))
    head.cluster.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDECK_HOME", str(other_home))
        with Client() as other:
            go.touch()
            assert isinstance(other.wait(others.id, WAIT_S).state, Done)
            other.stop_daemon()
    assert len(lines(ran)) == 2


def test_a_wrong_token_is_reported_and_the_right_one_starts_the_job(
    deck: Client, head: Head, tmp_path: Path
) -> None:
    wrong, ran = tmp_path / "wrong", tmp_path / "ran"
    wrong.touch(mode=0o644)
    wrong.write_text("guess")
    name(deck, wrong)
    job = deck.submit(shell(RAN, ran), where="ray:lab")

    def waits(words: str) -> bool:
        found = deck.job(job.id).state
        return (
            isinstance(found, Queued) and found.reason.endswith(words) and "\n" not in found.reason
        )

    eventually(
        lambda: waits(f"others can read the token in {wrong}. Try: chmod 600 {wrong}"), WAIT_S
    )
    wrong.chmod(0o600)
    eventually(lambda: waits(f"it does not accept the token in {wrong}"), WAIT_S)
    assert any("does not accept the token" in notice for notice in deck.snapshot().notices)
    name(deck, head.token_file)
    assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
    assert len(lines(ran)) == 1
    assert deck.snapshot().notices == ()


def test_jobs_in_a_cluster_that_is_removed_from_the_settings_are_lost(
    deck: Client, head: Head, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    job = deck.submit(shell(HOLD, ran, tmp_path / "never"), where="ray:lab")
    eventually(lambda: up(job), WAIT_S)
    deck.configure(clusters={})
    lost = deck.wait(job.id, WAIT_S).state
    assert isinstance(lost, Lost)
    assert str(lost.reason) == "ray:lab was removed from the settings while it ran there"
    deck.configure(clusters={"ray:lab": ClusterSettings(ADDRESS, str(head.token_file))})
    eventually(lambda: not lives(int(lines(ran)[0][2])), WAIT_S)
    assert len(lines(ran)) == 1, "once the cluster is back, the attempt is ended"
