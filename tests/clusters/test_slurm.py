"""Run jobs in the Slurm cluster of this machine, while the daemon is killed and started again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors.agent_protocol import SubmitAttempt
from gpudeck.scheduler.executors.slurm import Slurm
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Running, Spec
from gpudeck.scheduler.protocol.settings import ClusterSettings
from tests.clusters.jobs import HOLD, RAN, WAIT_S, lines, shell, state, up
from tests.integration.deck import kill_daemon, log_of, ready
from tests.support import eventually, lives

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@pytest.fixture
def deck(cpu_home: Path) -> Iterator[Client]:
    if shutil.which("sbatch") is None:
        pytest.fail("sbatch was not found in the PATH")
    with Client() as client:
        ready(client).configure(clusters={"slurm:here": ClusterSettings()})
        yield client


def test_jobs_run_and_fail_there_as_they_would_here(deck: Client, tmp_path: Path) -> None:
    script = (
        "echo $MINE; pwd >&2; printf '{\"tflops\":\\n 2}' > $GPUDECK_RESULT; "
        "echo kept > $GPUDECK_ARTEFACTS/kept; printf end"
    )
    good = deck.submit(shell(script), where="slurm:here", cwd="/usr", env={"MINE": "a b"})
    bad = deck.submit(shell("echo oops; exit 3"), where="slurm:here")
    slow = deck.submit(shell("echo begun; sleep 600"), where="slurm:here", timeout=1)
    done, *ends = [deck.wait(job.id, WAIT_S) for job in (good, bad, slow)]
    assert isinstance(done.state, Done)
    assert json.loads(done.result or b"") == {"tflops": 2}
    assert log_of(done) == "a b\n/usr\nend"
    assert [file.read_text() for file in deck.artefacts(done.id)] == ["kept\n"]
    reasons = [str(end.state.reason) for end in ends if isinstance(end.state, Failed)]
    assert reasons == [
        "exit code 3; last line: oops",
        "ran longer than its limit of 1 s; last line: begun",
    ]


def test_a_cancel_ends_what_ignores_it(deck: Client, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    job = deck.submit(
        shell(RAN + "trap '' TERM; echo up; while true; do sleep 1; done", ran), where="slurm:here"
    )
    eventually(lambda: up(job), WAIT_S)
    deck.cancel(job.id)
    ended = deck.wait(job.id, WAIT_S).state
    assert isinstance(ended, Cancelled)
    assert ended.at > time.time() - WAIT_S
    assert not lives(int(lines(ran)[0][2]))


def test_kill_9_of_the_daemon_loses_none_and_runs_none_twice(deck: Client, tmp_path: Path) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    long = deck.submit(shell(HOLD, ran, go), where="slurm:here")
    eventually(lambda: up(long), WAIT_S)
    ids = [long.id]
    for round_ in range(4):
        with Client() as client:
            ids += [client.submit(shell(RAN, ran), where="slurm:here").id for _ in range(2)]
            time.sleep(0.1 * round_**2)
            kill_daemon()
    with Client() as client:
        assert isinstance(state(client, long), Running)
        go.touch()
        ends = [client.wait(number, WAIT_S) for number in ids]
    assert [end.status for end in ends] == ["done"] * len(ids)
    assert sorted(int(job) for job, _, _ in lines(ran)) == sorted(ids)
    assert log_of(long) == "up\ndown\n"


def test_of_two_copies_that_slurm_accepted_one_runs(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submit an attempt twice, as after an sbatch that timed out although it arrived."""
    folder, ran = paths.ensure(tmp_path / "folder"), tmp_path / "ran"
    (folder / "artefacts").mkdir()
    (folder / "attempt").write_text("nonce-of-two")
    spec = Spec(tuple(shell(RAN, ran)), "x", "/")
    request = SubmitAttempt(1, "nonce-of-two", "", spec, {}, str(folder))
    for cluster in (Slurm(), Slurm()):
        monkeypatch.setattr(cluster, "refresh", lambda: None)
        cluster.submit(request, "deck")
    slurm = Slurm()

    def over() -> bool:
        slurm.refresh()
        found = slurm.status("nonce-of-two", folder)
        return found is not None and found.phase == "over"

    eventually(over, WAIT_S)
    time.sleep(1)
    assert len(lines(ran)) == 1
