"""Submit while the daemon hangs, is killed or hangs up: no job is doubled, and none is guessed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gpudeck.app.cli import connection
from gpudeck.app.cli.main import main
from gpudeck.app.cli.queue import delivery, unanswered
from gpudeck.app.cli.queue import submit as submit_command
from gpudeck.app.cli.queue import wait as wait_command
from gpudeck.scheduler import client as client_module
from gpudeck.scheduler.aio import AsyncClient
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import (
    DaemonGone,
    NotFound,
    OutcomeUnknown,
    Refused,
    UserError,
)
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Queued, Spec
from gpudeck.scheduler.protocol.submissions import indexed
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store import store as store_module
from gpudeck.scheduler.store.repair import rebuild
from gpudeck.scheduler.verbs.registry import decoding
from gpudeck.scheduler.verbs.submit import Submit
from tests.integration.deck import daemon_pid, kill_daemon, ready
from tests.integration.shell import Shell
from tests.support import eventually, send

SABOTAGE = Path(__file__).parent / "torture" / "sabotage"
TOKEN = "a-token"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients ask again for a moment only."""
    monkeypatch.setattr(client_module, "AGAIN_S", 0.4)
    monkeypatch.setattr(client_module, "ANSWER_S", 0.2)
    monkeypatch.setattr(submit_command, "Client", partial(Client, timeout=0.3))


@pytest.fixture
def stopped(cpu_home: Path) -> Iterator[int]:
    """Yield the pid of a daemon that was stopped by SIGSTOP, and continue it at the end."""
    with Client() as deck:
        ready(deck)
    pid = daemon_pid()
    send(pid, signal.SIGSTOP)
    yield pid
    send(pid, signal.SIGCONT)


def submitted() -> list[str]:
    """Return the names of all jobs, oldest first."""
    with Client() as deck:
        return [job.spec.name for job in reversed(deck.jobs(1000))]


def test_a_hung_daemon_is_reported_and_the_token_finds_out(impatient: None, stopped: int) -> None:
    with Client(timeout=0.3) as deck:
        with pytest.raises(OutcomeUnknown, match="not known whether the job was queued") as raised:
            deck.submit(["true"], name="one", hold=True, token=TOKEN)
        with pytest.raises(OutcomeUnknown):  # as the window sends it
            deck.send(Submit(make_spec(["true"], {"hold": True})))
        assert raised.value.token == TOKEN
        assert str(raised.value).endswith(f"To find out: gpudeck jobs --token {TOKEN}")
    send(stopped, signal.SIGCONT)
    with Client() as deck:
        with pytest.raises(NotFound, match=f"no job was queued with the token {TOKEN}"):
            deck.submission(TOKEN)  # the daemon drops what a client has given up
        job = deck.submit(["true"], name="one", hold=True, token=TOKEN)
        assert [found.id for found in deck.submission(TOKEN)] == [job.id]
    assert submitted() == ["one"]


def test_a_daemon_that_hangs_for_a_while_is_asked_again(
    stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_S", 0.2)
    wake = threading.Timer(1.0, send, (stopped, signal.SIGCONT))
    wake.start()
    with Client(timeout=0.3) as deck:
        job = deck.submit(["true"], name="one", hold=True)
        many = deck.submit_array(["true"], range(3), name="many", hold=True)
    wake.join()
    assert submitted() == ["one", "many[0]", "many[1]", "many[2]"]
    assert [job.id, *(one.id for one in many)] == [1, 2, 3, 4]


def _submit_one(deck: Client) -> list[int]:
    return [deck.submit(["true"], name="job", hold=True, token=TOKEN).id]


def _submit_array(deck: Client) -> list[int]:
    jobs = deck.submit_array(["true"], range(3), name="job", hold=True, token=TOKEN)
    return [job.id for job in jobs]


def _submit_many(deck: Client) -> list[int]:
    specs = [make_spec(["true"], {"name": f"job {i}", "hold": True}) for i in range(3)]
    return [job.id for job in deck.submit_many(specs, token=TOKEN)]


@pytest.fixture
def sabotaged(cpu_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder whose file `plan` has the daemon killed at a place."""
    folder = tmp_path / "torture"
    folder.mkdir()
    monkeypatch.setenv("TORTURE_FOLDER", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SABOTAGE), *sys.path]))
    with Client() as deck:
        ready(deck)
    return folder


def kill_at(folder: Path, place: str) -> None:
    """Have the daemon killed the next time that it reaches this place."""
    (folder / "plan.new").write_text(json.dumps({"kind": "daemon", "at": place, "n": 1}))
    (folder / "plan.new").replace(folder / "plan")


@pytest.mark.parametrize(
    ("submit", "place"),
    [
        (_submit_one, "after COMMIT"),
        (_submit_array, "after COMMIT"),
        pytest.param(_submit_many, "after COMMIT", marks=pytest.mark.slow),
        pytest.param(_submit_one, "before COMMIT", marks=pytest.mark.slow),
        pytest.param(_submit_array, "before COMMIT", marks=pytest.mark.slow),
    ],
)
def test_a_daemon_that_is_killed_before_its_reply_queues_once(
    sabotaged: Path, submit: Callable[[Client], list[int]], place: str
) -> None:
    with Client() as deck:
        kill_at(sabotaged, place)
        first = submit(deck)
        assert (sabotaged / "struck").read_text() == f"daemon {place}\n"
        assert submit(deck) == first  # also long after the answer
        assert [job.id for job in deck.jobs(100)] == first[::-1]


def test_a_commit_that_could_not_be_synced_is_no_refusal(sabotaged: Path) -> None:
    """The next daemon may find it in the store's log, so the client asks again with its token."""
    with Client() as deck:
        kill_at(sabotaged, "sync of COMMIT")
        assert _submit_array(deck) == [1, 2, 3]
        assert (sabotaged / "struck").read_text() == "daemon sync of COMMIT\n"
    assert submitted() == ["job[0]", "job[1]", "job[2]"]


def test_a_job_that_was_committed_without_a_reply_is_found_by_its_token(
    sabotaged: Path, impatient: None
) -> None:
    with Client(start=False) as deck:
        kill_at(sabotaged, "after COMMIT")
        with pytest.raises(OutcomeUnknown):
            _submit_one(deck)
    with Client() as deck:
        (job,) = deck.submission(TOKEN)
        assert _submit_one(deck) == [job.id]


def test_a_loop_over_submit_doubles_no_job(
    stopped: int, impatient: None, alone: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("submit", "--hold", "--name", "one", "--", "true")
    line = alone(*words, status=3)
    assert line.startswith("gpudeck: no answer within 0 s, so it is not known whether the job was")
    token = line.split()[-1]
    assert "no answer" in alone(*words, status=3)  # the daemon still hangs
    send(stopped, signal.SIGCONT)
    capsys.readouterr()
    assert submit_command_status(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("job 1 (one)")
    assert err.startswith("gpudeck: the last submission of this command got no answer.")
    assert "one" in alone("jobs", "--token", token)
    assert submit_command_status(words) == 0  # that answer arrived: this is a new job
    assert submitted() == ["one", "one"]


def submit_command_status(words: tuple[str, ...]) -> int:
    """Run a command in this process and return its exit status."""
    return main(words)


@pytest.mark.slow
def test_a_client_that_is_killed_is_repeated_by_the_next(
    sabotaged: Path, alone: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("submit", "--hold", "--", "true")
    pid = daemon_pid()
    send(pid, signal.SIGSTOP)
    command = [sys.executable, "-m", "gpudeck", *words]
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = paths.home() / "submissions"
    _wait_for_request(client, folder)
    client.kill()
    client.wait()
    (left,) = folder.iterdir()
    send(pid, signal.SIGCONT)
    capsys.readouterr()
    assert submit_command_status(words) == 0
    assert "this one repeats it" in capsys.readouterr().err.lower()
    assert not list(folder.iterdir())
    with Client() as deck:
        assert [job.id for job in deck.submission(left.suffix[1:])] == [1]
    assert submitted() == ["true"]


def _wait_for_request(client: subprocess.Popen[bytes], folder: Path) -> None:
    """Return once the client has noted its submission."""
    eventually(lambda: folder.is_dir() and list(folder.iterdir()))
    assert client.poll() is None


def test_equal_submissions_at_the_same_time_are_different_jobs(cpu_home: Path) -> None:
    specs = [make_spec(["true"], {})]
    with unanswered.submission_token(None, specs) as one:
        with unanswered.submission_token(None, specs) as other:
            assert one != other
        with unanswered.submission_token(None, specs) as third:
            assert third not in (one, other)
    assert not list((cpu_home / "submissions").iterdir())


def test_a_daemon_that_ends_after_its_answer_fails_no_submission(
    cpu_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kill it before the command asks for more: a loop over the command would submit again."""
    Client().close()
    with Client(start=False) as deck:  # nobody starts another one in its place
        job = deck.submit(["true"], env={}).job
        kill_daemon()
        delivery.report(deck, [job], Namespace(json=False))
    assert f"job {job.id}" in capsys.readouterr().out


def test_waiting_for_a_submitted_job_goes_on_with_the_next_daemon(
    cpu_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kill the daemon while a command waits; then let no other one start."""
    go = tmp_path / "go"
    script = f"until test -e {go}; do sleep 0.05; done"
    with Client() as deck:
        job = ready(deck).submit(["sh", "-c", script], env={}).job

    def kill_and_go(text: str) -> None:
        monkeypatch.setattr(wait_command, "show_progress", lambda text: None)
        kill_daemon()
        go.touch()

    monkeypatch.setattr(wait_command, "show_progress", kill_and_go)
    assert wait_command.follow(job, Namespace(json=False)) == 0
    monkeypatch.setattr(connection, "GONE_S", 0.0)

    def refuse(*args: object, **more: object) -> Client:
        raise UserError("the daemon cannot start: the disk is full")

    monkeypatch.setattr(connection, "Client", refuse)
    capsys.readouterr()
    assert main(["submit", "--wait", "--", "true"]) == 3
    assert capsys.readouterr().err == (
        "gpudeck: the daemon cannot start: the disk is full, so it is not known how job 2 ends. It "
        "was queued, and goes on once a daemon runs. To find out: gpudeck wait 2\n"
    )
    monkeypatch.setattr(connection, "Client", Client)
    assert main(["submit", "--wait", "--", "true"]) == 0  # as in a loop over the command
    assert submitted() == ["sh", "true"]


def test_an_answer_that_could_not_be_printed_is_printed_again(cpu_home: Path) -> None:
    command = [sys.executable, "-m", "gpudeck", "submit", "--hold", "--", "true"]
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert failed.returncode == 1
    assert b"cannot write the output" in failed.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.startswith("job 1 (true)")
    assert "this one repeats it" in again.stderr.lower()
    assert submitted() == ["true"]


def test_a_reader_that_has_read_enough_has_the_answer(cpu_home: Path) -> None:
    spec = [make_spec(["true"], {})]
    with pytest.raises(BrokenPipeError), unanswered.submission_token(None, spec) as token:
        raise BrokenPipeError
    with unanswered.submission_token(None, spec) as other:
        assert other != token


def test_a_note_that_cannot_be_deleted_fails_no_submission(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with unanswered.submission_token(None, [make_spec(["true"], {})]) as token:
        note = next((paths.home() / "submissions").glob(f"*.{token}"))
        note.unlink()
        note.mkdir()  # even root cannot unlink it, as on a disk that turned read-only
    assert "cannot be deleted" in capsys.readouterr().err


def test_only_an_equal_and_recent_submission_without_an_answer_is_repeated(
    cpu_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(*argv: str, indices: range | None = None, begin: str = "") -> str:
        spec = make_spec(argv, {"begin": begin})
        specs = [spec] if indices is None else indexed(spec, indices)
        given = unanswered.submission_token(None, specs)
        with pytest.raises(OutcomeUnknown), given as token:
            raise OutcomeUnknown("x", token)
        return token

    one = unknown("true")
    assert unknown("true", indices=range(2)) != one
    assert unknown("false") != one
    assert unknown("true") == one
    later = unknown("sleep", "1", begin="+1h")
    time.sleep(0.01)
    assert unknown("sleep", "1", begin="+1h") == later, "the same command, a moment later"
    (file,) = (cpu_home / "submissions").glob(f"*.{one}")
    os.utime(file, (0, 0))
    assert unknown("true") != one
    assert not file.exists()
    kept, sort = unknown("sort"), [make_spec(["sort"], {})]
    with pytest.raises(UserError), unanswered.submission_token(None, sort) as token:
        raise UserError("no daemon can start now")  # the last time, one may have queued it
    assert token == kept == unknown("sort")
    with pytest.raises(Refused), unanswered.submission_token(None, sort):
        raise Refused("the daemon knows no such job, and refuses it")
    assert unknown("sort") != kept
    date = [make_spec(["date"], {})]
    with pytest.raises(DaemonGone), unanswered.submission_token(None, date) as token:
        raise DaemonGone("it was never sent")
    with unanswered.submission_token(None, date) as other:
        assert other != token


def test_a_token_is_for_one_submission(alone: Shell) -> None:
    words = ("submit", "--hold", "--token", "nightly-1")
    assert alone(*words, "--", "true").startswith("job 1 ")
    assert alone(*words, "--", "true").startswith("job 1 ")
    line = alone.fails(*words, "--gpus", "1", "--", "true")
    assert "the token nightly-1 belongs to another submission" in line
    assert "belongs to another" in alone.fails(*words, "--array", "0-1", "--", "true")
    array = ("submit", "--hold", "--token", "sweep", "--array", "0-1", "--", "true")
    assert alone(*array) == alone(*array) == "jobs 2 to 3 (2 of true)\n"
    assert [job["id"] for job in alone.json("jobs", "--token", "sweep")] == [2, 3]
    assert "cannot be combined" in alone.fails("jobs", "--token", "x", "--active", status=2)
    assert "no job was queued with the token x" in alone.fails("jobs", "--token", "x")
    assert "a token has up to 128" in alone.fails("submit", "--token", "a b", "--", "true")


def test_the_environment_does_not_make_it_another_submission(cpu_home: Path) -> None:
    with Client() as deck:
        first = deck.submit(["true"], hold=True, env={"SHLVL": "1"}, token=TOKEN)
        mask = os.umask(0o002)
        try:
            again = deck.submit(["true"], hold=True, env={"SHLVL": "2"}, token=TOKEN)
        finally:
            os.umask(mask)
        assert again.id == first.id


def test_a_repaired_store_still_knows_its_submissions(cpu_home: Path) -> None:
    with Client() as deck:
        job = deck.submit(["true"], hold=True, token=TOKEN)
        array = deck.submit_array(["true"], range(3), hold=True, token="array")
        deck.stop_daemon()
    rebuild(paths.store_file(), [])
    with Client() as deck:
        assert deck.submit(["true"], hold=True, token=TOKEN).id == job.id
        again = deck.submit_array(["true"], range(3), hold=True, token="array")
        assert [one.id for one in again] == [one.id for one in array]
        assert deck.submit(["true"], hold=True).id == 5


def test_a_refused_submission_leaves_its_token_free(cpu_home: Path) -> None:
    with Client() as deck:
        with pytest.raises(UserError, match="priority must be"):
            deck.submit(["true"], priority=10**9, token=TOKEN)
        assert deck.submit(["true"], hold=True, token=TOKEN).id == 1


def test_a_request_of_an_older_client_has_no_token_and_is_carried_out(cpu_home: Path) -> None:
    line = b'{"type":"submit","spec":{"argv":["true"],"name":"x","cwd":"/"}}'
    one, other = finish(decoding(line)), finish(decoding(line))
    assert isinstance(one, Submit) and isinstance(other, Submit)
    assert one.token != other.token


def test_the_store_keeps_the_newest_submissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "KEPT_SUBMISSIONS", 10)
    (tmp_path / "home").mkdir(mode=0o700)
    store = Store(tmp_path / "home" / "gpudeck.sqlite")
    spec = Spec(("true",), "true", "/")
    for number in range(25):
        store.insert_all([spec], 0.0, Queued(), f"token {number}", "digest")
    kept = [number for number in range(25) if store.submission(f"token {number}") is not None]
    assert kept == list(range(15, 25))
    store.close()


@pytest.mark.slow
def test_coroutines_take_a_token_too(cpu_home: Path) -> None:
    async def run() -> None:
        async with AsyncClient() as deck:
            one = await deck.submit(["true"], hold=True, token=TOKEN)
            assert (await deck.submit(["true"], hold=True, token=TOKEN)).id == one.id
            assert [job.id for job in await deck.submission(TOKEN)] == [one.id]

    asyncio.run(run())


@pytest.mark.slow
def test_a_client_without_a_daemon_submits_nothing(cpu_home: Path) -> None:
    with Client() as deck:
        ready(deck)
    with Client(start=False) as deck:
        kill_daemon()
        with pytest.raises(DaemonGone) as raised:
            deck.submit(["true"])
    assert not isinstance(raised.value, OutcomeUnknown)
