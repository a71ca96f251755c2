"""Test clusters without one: decisions about attempts, copies of output, and the remote runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import Exit, Untraceable
from gpudeck.scheduler.executors import agent_protocol as a
from gpudeck.scheduler.executors import output_copy, remote_runner
from gpudeck.scheduler.executors.agent import Agent
from gpudeck.scheduler.executors.attempt_folder import exit_record, write_records
from gpudeck.scheduler.executors.cluster import RESTARTED, Cluster, decide_missing
from gpudeck.scheduler.executors.ray import read_token
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_reasons import ClusterFull, ClusterUnavailable, StartFailed
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue import policy
from gpudeck.scheduler.store import Store
from tests.support import eventually, in_english, lives
from tests.unit.scheduler.own_queue import make_queue, submit_all, wait_reason

NONCE = "0123456789abcdef"
BEGIN, END = remote_runner.begin_line(NONCE), remote_runner.end_mark(NONCE)
REPORT = output_copy.FinalReport(1.0, 2.0, 3, "", 0.0, '{"x": 1}')
LAST_LINE = END + b", " + msgspec.json.encode(REPORT)[1:] + b"\n"
RUNNING = Running(NONCE, (), 1.0, 0, 0, "session-a")


class FakeHub:
    """Record what a daemon would be called with."""

    def __init__(self, state: Running) -> None:
        self.job = Job(7, Spec(("x",), "x", "/", where="ray:lab"), 1.0, state)
        self.calls: list[object] = []
        self.sent: list[a.Command] = []
        self.cluster = Cluster("ray:lab", self, self.sent.append)

    def jobs_on(self, where: str) -> list[Job]:
        return [self.job]

    def environment(self, job_id: int) -> dict[str, str]:
        return {"MINE": "1"}

    def acknowledge(self, job_id: int) -> None:
        self.calls.append("acknowledged")

    def set_note(self, job_id: int, note: Message) -> None:
        self.calls.append(str(note))

    def attempt_ended(self, job_id: int) -> None:
        self.calls.append(self.cluster.outcome(self.job))

    def cluster_changed(self, where: str, unavailable: ClusterUnavailable | None) -> None:
        self.calls.append(unavailable)


@pytest.mark.parametrize(
    ("state", "session", "verdict"),
    [
        (RUNNING, "session-a", "submit"),
        (RUNNING, "session-b", Untraceable(RESTARTED)),
        (
            msgspec.structs.replace(RUNNING, known=True),
            "session-a",
            Untraceable(phrase("the cluster no longer has it: somebody deleted it there")),
        ),
        (
            msgspec.structs.replace(RUNNING, known=True),
            "session-b",
            Untraceable(RESTARTED),
        ),
        (
            msgspec.structs.replace(RUNNING, stopping=True),
            "session-a",
            Untraceable(phrase("it was cancelled before the cluster had it")),
        ),
    ],
)
def test_a_missing_attempt_is_submitted_again_only_if_it_cannot_have_run(
    home: Path, state: Running, session: str, verdict: object
) -> None:
    assert decide_missing(state, session) == verdict
    hub = FakeHub(state)
    hub.cluster.receive(a.Missing(7, NONCE, session))
    assert hub.calls == ([] if verdict == "submit" else [verdict])
    assert [type(c) for c in hub.sent] == ([a.SubmitAttempt] if verdict == "submit" else [])


def test_attempts_are_followed_again_once_an_unavailable_cluster_answers(home: Path) -> None:
    hub = FakeHub(msgspec.structs.replace(RUNNING, known=True, stopping=True))
    with pytest.raises(
        UserError, match=r"ray:lab has not answered since .*: its agent has not reported yet"
    ):
        hub.cluster.prepare(hub.job, NONCE, ())
    hub.cluster.receive(a.Available("session-a", (NONCE, "orphan")))
    assert hub.sent == [a.Follow(7, NONCE), a.Halt(NONCE), a.Halt("orphan")]
    hub.cluster.receive(a.Available("session-a"))
    assert len(hub.sent) == 3
    hub.cluster.receive(a.Unavailable("no route"))
    unavailable = hub.cluster.unavailable
    assert unavailable is not None and unavailable.problem == "no route"
    note = render(unavailable, time.time())
    assert hub.calls == ["", None, note, unavailable]
    hub.cluster.receive(a.Available("session-a"))
    assert hub.sent[3:] == [a.Follow(7, NONCE), a.Halt(NONCE)]


def test_reports_on_another_attempt_change_nothing(home: Path) -> None:
    hub = FakeHub(RUNNING)
    for report in (
        a.Acknowledged(7, "old"),
        a.Ended(7, "old"),
        a.NotSubmitted(7, "old", ""),
        a.Missing(7, "old", "s"),
        a.Progressing(8, NONCE, "x"),
    ):
        hub.cluster.receive(report)
    assert (hub.calls, hub.sent) == ([], [])
    hub.cluster.receive(a.NotSubmitted(7, NONCE, "no route"))
    assert in_english(hub.calls) == [["ray:lab: no route", True]]


class ClusterQueue(FakeHub):
    """Connect a queue on a real store with a cluster whose reports the test makes."""

    def __init__(self, store: Store) -> None:
        super().__init__(RUNNING)
        self.store, self.committed = store, []
        self.cluster = Cluster("ray:lab", self, self.send)
        self.queue = make_queue(store, clusters={"ray:lab": self.cluster})
        self.jobs_on, self.environment, self.acknowledge = (
            self.queue.jobs_on,
            self.queue.environment,
            self.queue.acknowledge,
        )  # type: ignore[method-assign]

    def send(self, command: a.Command) -> None:
        self.sent.append(command)
        self.committed.append(self.store.get(1).state)

    def attempt_ended(self, job_id: int) -> None:
        self.queue.reap([job_id])


def test_an_attempt_is_on_disk_before_it_is_submitted_and_is_the_same_for_the_next_daemon(
    home: Path,
) -> None:
    store = Store(paths.store_file())
    first = ClusterQueue(store)
    (job,) = submit_all(
        first.queue, [Spec(("x",), "x", "/", env={"MINE": "1"}, gpus=8, where="ray:lab")], []
    )
    first.queue.step([])
    assert isinstance(wait_reason(first.queue, job.id), ClusterUnavailable)
    assert first.sent == []
    first.cluster.receive(a.Available("session-a"))
    first.queue.step([])
    (asked,) = first.sent
    assert isinstance(asked, a.SubmitAttempt)
    assert (asked.env["MINE"], asked.spec.gpus, asked.session) == ("1", 8, "session-a")
    (before,) = first.committed
    assert isinstance(before, Running)
    assert (before.attempt, before.boot, before.known) == (asked.attempt, "session-a", False)

    second = ClusterQueue(store)  # the first crashed: nobody knows whether the cluster heard it
    second.queue.recover()
    second.queue.step([])
    assert second.sent == []
    second.cluster.receive(a.Available("session-a"))
    second.cluster.receive(a.Missing(job.id, asked.attempt, "session-a"))
    assert second.sent == [
        a.Follow(job.id, asked.attempt),
        msgspec.structs.replace(asked, again=True),
    ]
    second.cluster.receive(a.Acknowledged(job.id, asked.attempt))
    assert second.store.get(job.id).state.known  # type: ignore[union-attr]

    third = ClusterQueue(store)
    third.queue.recover()
    write_records(paths.job_folder(job.id), Exit(asked.attempt, 1.0, 2.0, 0, ""), "")
    third.cluster.receive(a.Available("session-b"))
    third.cluster.receive(a.Ended(job.id, asked.attempt))
    assert isinstance(store.get(job.id).state, Done)
    store.close()


def test_a_job_that_was_not_submitted_waits_for_a_new_attempt(home: Path) -> None:
    store = Store(paths.store_file())
    hub = ClusterQueue(store)
    hub.cluster.receive(a.Available("session-a"))
    (job,) = submit_all(hub.queue, [Spec(("x",), "x", "/", where="ray:lab")], [])
    hub.queue.step([])
    (asked,) = hub.sent
    assert isinstance(asked, a.SubmitAttempt)
    hub.cluster.receive(a.NotSubmitted(job.id, asked.attempt, "no route"))
    assert isinstance(store.get(job.id).state, Queued)
    reason = wait_reason(hub.queue, job.id)
    assert isinstance(reason, StartFailed) and str(reason.problem) == "ray:lab: no route"
    store.close()


def test_the_jobs_given_to_a_cluster_are_limited_and_do_not_count_here(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "MAX_PER_CLUSTER", 2)
    store = Store(paths.store_file())
    hub = ClusterQueue(store)
    hub.cluster.receive(a.Available("session-a"))
    jobs = submit_all(hub.queue, [Spec(("x",), "x", "/", where="ray:lab", gpus=1)] * 3, [])
    hub.queue.step([])
    assert [hub.queue.get(job.id).status for job in jobs] == ["running", "running", "queued"]
    assert wait_reason(hub.queue, jobs[2].id) == ClusterFull("ray:lab", 2)
    assert finish(hub.queue.submission.forecast(Spec(("x",), "x", "/"), [])).at is not None
    for spec, words in (
        (
            Spec(("x",), "x", "/", where="ray:other"),
            r"no cluster is called ray:other \(there is: ray:lab\)",
        ),
        (
            Spec(("x",), "x", "/", where="ray:lab", gpus=1, memory=1),
            "memory cannot be chosen for a cluster",
        ),
        (
            Spec(("x",), "x", "/", where="ray:lab", env={"X": "x" * 2**17}),
            "name only the variables that the job needs",
        ),
    ):
        with pytest.raises(UserError, match=words):
            submit_all(hub.queue, [spec], [])
    store.close()


def test_jobs_in_a_cluster_that_is_no_longer_in_the_settings_are_lost(home: Path) -> None:
    store = Store(paths.store_file())
    hub = ClusterQueue(store)
    hub.cluster.receive(a.Available("session-a"))
    (job,) = submit_all(hub.queue, [Spec(("x",), "x", "/", where="ray:lab", retries=3)], [])
    hub.queue.step([])
    without = make_queue(store)
    without.recover()
    assert store.get(job.id).status == "lost"
    store.close()


class UnreachableCluster:
    """Stand for a cluster that cannot be reached."""

    def session(self) -> str:
        raise a.Unreachable("no route")


@pytest.mark.parametrize("again", [False, True])
def test_an_agent_reports_not_submitted_only_for_an_attempt_that_was_never_sent(
    home: Path, again: bool
) -> None:
    """Check that the queue starts no other attempt while the cluster may run this one."""
    reports: list[a.Report] = []
    agent = Agent(UnreachableCluster(), "deck", reports.append)  # type: ignore[arg-type]
    agent.execute(
        a.SubmitAttempt(7, NONCE, "session-a", Spec(("x",), "x", "/"), {}, str(home), again)
    )
    assert reports == [
        *([] if again else [a.NotSubmitted(7, NONCE, "no route")]),
        a.Unavailable("no route"),
    ]
    assert agent.following == ([NONCE] if again else [])


@settings(max_examples=40)  # each writes files
@given(
    printed=st.one_of(
        st.binary(max_size=200),
        st.sampled_from([END[:7], b"\n" * 9, END[:-1], b"x" + END[:20] + END[:5]]),
    ),
    cuts=st.lists(st.integers(1, 40), max_size=40),
    break_at=st.integers(0, 400),
)
def test_output_is_copied_byte_for_byte_in_any_pieces_and_after_restarts(
    tmp_path_factory: pytest.TempPathFactory, printed: bytes, cuts: list[int], break_at: int
) -> None:
    log = tmp_path_factory.mktemp("sink") / "log"
    whole = b"words of the cluster\n" + BEGIN + printed + LAST_LINE
    pieces, rest = [], whole
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    output_copy.copy([*pieces, rest][: break_at // 10], log, NONCE, whole=False)
    assert printed.startswith(log.read_bytes())
    read = output_copy.copy([*pieces, rest], log, NONCE)
    assert log.read_bytes() == printed
    assert read.report == REPORT


def test_output_over_the_limit_keeps_its_beginning_and_its_end(
    tmp_path: Path,
) -> None:
    log, limit = tmp_path / "log", 2**20
    printed = b"".join(b"%1023d\n" % i for i in range(8 * 1024))
    whole = BEGIN + printed + LAST_LINE
    pieces = [whole[at : at + 2**16] for at in range(0, len(whole), 2**16)]
    output_copy.copy(pieces[:50], log, NONCE, limit, whole=False)
    for _ in range(2):
        read = output_copy.copy(pieces, log, NONCE, limit)
        assert (read.report, read.uncapped) == (REPORT, "")
        assert (log.stat().st_size, log.stat().st_blocks * 512 <= limit + 2**16) == (
            len(printed),
            True,
        )
        kept = log.read_bytes()
        assert (kept[: limit // 8], kept[-limit // 2 :]) == (
            printed[: limit // 8],
            printed[-limit // 2 :],
        )


def test_the_output_of_the_cluster_is_the_log_if_no_command_began(tmp_path: Path) -> None:
    assert output_copy.copy([b"no such ", b"machine\n"], tmp_path / "log", NONCE).report is None
    assert (tmp_path / "log").read_bytes() == b"no such machine\n"


def test_an_exit_record_and_its_result_are_written_for_the_queue(home: Path) -> None:
    folder = paths.ensure(paths.job_folder(7))
    write_records(folder, Exit(NONCE, 1.0, 2.0, 3, ""), '{"x": 1}')
    assert exit_record(7, NONCE) == Exit(NONCE, 1.0, 2.0, 3, "")
    assert (folder / "result.json").read_text() == '{"x": 1}'


def run_remotely(tmp_path: Path, *argv: str, timeout: float = 0.0) -> subprocess.Popen[bytes]:
    launch = {
        "attempt": NONCE,
        "cwd": str(tmp_path),
        "timeout": timeout,
        "folder": str(tmp_path / "folder"),
        "env": {"MINE": "1"},
    }
    env = {
        **os.environ,
        "GPUDECK_RUNNER": Path(remote_runner.__file__).read_text(),
        "GPUDECK_LAUNCH": json.dumps(launch),
    }
    code = 'import os; exec(os.environ["GPUDECK_RUNNER"])'
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code, *argv], env=env, stdout=subprocess.PIPE
    )


def copy_of(output: bytes, tmp_path: Path) -> tuple[bytes, output_copy.FinalReport | None]:
    read = output_copy.copy([output], tmp_path / "log", NONCE)
    return (tmp_path / "log").read_bytes(), read.report


def test_the_remote_runner_reports_in_its_output(tmp_path: Path) -> None:
    script = 'echo $MINE "$0"; pwd >&2; printf "{}" > $GPUDECK_RESULT; exit 3'
    with run_remotely(tmp_path, "sh", "-c", script, "a b") as process:
        output, _ = process.communicate(timeout=60)
    printed, report = copy_of(output, tmp_path)
    assert printed == f"1 a b\n{tmp_path}\n".encode()
    assert report is not None
    assert (process.returncode, report.code, report.result, report.over) == (3, 3, "{}", 0.0)


def test_the_remote_runner_ends_the_tree_at_its_time_limit(tmp_path: Path) -> None:
    with run_remotely(
        tmp_path, "sh", "-c", "setsid sleep 600 & echo $! > pid; wait", timeout=0.5
    ) as process:
        output, _ = process.communicate(timeout=60)
    _, report = copy_of(output, tmp_path)
    assert report is not None
    assert (process.returncode, report.over, report.code) == (124, 0.5, -signal.SIGTERM)
    assert not lives(int((tmp_path / "pid").read_text()))


def test_the_remote_runner_ends_its_command_on_request(tmp_path: Path) -> None:
    with run_remotely(tmp_path, "sh", "-c", "touch up; exec sleep 600") as process:
        eventually((tmp_path / "up").exists)
        process.terminate()
        output, _ = process.communicate(timeout=60)
    _, report = copy_of(output, tmp_path)
    assert report is not None
    assert report.code == -signal.SIGTERM


def test_a_second_copy_of_an_attempt_runs_nothing_where_the_file_system_is_shared(
    tmp_path: Path,
) -> None:
    folder = paths.ensure(tmp_path / "folder")
    (folder / "artefacts").mkdir()
    (folder / "attempt").write_text(NONCE)
    for status in (0, 1):
        with run_remotely(
            tmp_path, "sh", "-c", "echo ran >> ran; echo $GPUDECK_ARTEFACTS"
        ) as process:
            output, _ = process.communicate(timeout=60)
        assert process.returncode == status
        assert (str(folder / "artefacts").encode() in output) is (status == 0)
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_token_is_read_from_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(" secret\n")
    assert read_token(str(file)) == "secret"
    assert read_token("") == ""
    for spoilt, words in (("", "there is no token"), ("a\nb", "there is no token")):
        file.write_text(spoilt)
        with pytest.raises(a.Unreachable, match=words):
            read_token(str(file))
    file.chmod(0o640)
    with pytest.raises(a.Unreachable, match=r"Try: chmod 600"):
        read_token(str(file))
    with pytest.raises(a.Unreachable, match="cannot be read: No such file"):
        read_token(str(tmp_path / "absent"))
