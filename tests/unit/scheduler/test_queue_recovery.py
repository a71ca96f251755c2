"""Check what becomes of a job that was active when the daemon ended, in every case."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from gpudeck.language.rendering import render
from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import Exit, NeverRan, Outcome, Untraceable
from gpudeck.scheduler.background.process_stat import boot_id, pid_namespace, start_time
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol.jobs import (
    NO_RESULT,
    Cancelled,
    Done,
    Failed,
    Job,
    JobSuspension,
    Lost,
    Running,
    Spec,
    Starting,
)
from gpudeck.scheduler.queue.recovery import decide
from tests.support import in_english

STARTING = Starting("nonce", ("cpu",), 10.0)
RUNNING = Running("nonce", ("cpu",), 10.0, 4711, 99, "boot")
STOPPING = msgspec.structs.replace(RUNNING, stopping=True)
GONE, UNSTARTED = Untraceable("no record"), NeverRan("at its gate")
RESULT = msgspec.Raw(b'{"tflops": 1}')


def job(state: object) -> Job:
    return Job(7, Spec(("x",), "x", "/", gpus=1), 5.0, state)  # type: ignore[arg-type]


def ended(code: int | None, error: str = "") -> Exit:
    return Exit("nonce", 11.0, 12.0, code, error)


@pytest.mark.parametrize(
    ("state", "outcome", "alive", "becomes"),
    [
        (STARTING, UNSTARTED, False, NeverRan("the daemon ended before it started")),
        (STARTING, GONE, False, NeverRan("the daemon ended before it started")),
        (RUNNING, GONE, True, None),
        (RUNNING, UNSTARTED, True, None),
        (STOPPING, GONE, True, None),
        (RUNNING, ended(0), False, Done(11.0, 12.0, ("cpu",), RESULT)),
        (RUNNING, ended(0), True, Done(11.0, 12.0, ("cpu",), RESULT)),
        (
            RUNNING,
            ended(3),
            False,
            Failed(
                11.0,
                12.0,
                "exit code 3; last line: last words",
                3,
                ("cpu",),
                RESULT,
                quote="last words",
            ),
        ),
        (STOPPING, ended(-15), False, Cancelled(12.0, 11.0, ("cpu",))),
        (STOPPING, GONE, False, Cancelled(20.0, 10.0, ("cpu",))),
        (STOPPING, UNSTARTED, False, Cancelled(20.0, 10.0, ("cpu",))),
        (RUNNING, GONE, False, Lost(10.0, 20.0, "no record", ("cpu",))),
        (RUNNING, UNSTARTED, False, UNSTARTED),
    ],
)
def test_the_state_of_each_outcome(
    state: Starting | Running, outcome: Outcome, alive: bool, becomes: object
) -> None:
    verdict = decide(state, outcome, alive, RESULT, "last words", 20.0)
    assert type(verdict) is type(becomes)
    assert in_english(verdict) == in_english(becomes)


def test_a_runner_with_the_same_pid_after_a_reboot_is_not_ours(home: Path) -> None:
    executor = Local(lambda job, runner: None)
    me = Running("nonce", ("cpu",), 10.0, os.getpid(), start_time(os.getpid()) or 0, boot_id())
    assert executor.alive(me)
    before = msgspec.structs.replace(me, boot="before the power cut")
    assert not executor.alive(before)
    assert executor.outcome(job(before)) == Untraceable(
        phrase("the machine was restarted while it ran")
    )
    off = msgspec.structs.replace(before, suspension=JobSuspension("suspended", 5.0))
    assert executor.outcome(job(off)) == Untraceable(
        phrase("the machine was restarted while it was suspended")
    )


def test_the_runner_of_a_job_of_another_machine_is_not_looked_for_in_this_one(home: Path) -> None:
    """That machine may be a container here, with processes and a PID namespace of its own."""
    there = Running("nonce", (), 10.0, os.getpid(), 1, boot_id(), namespace=pid_namespace() + 1)
    away = Job(8, Spec(("x",), "x", "/", where="ssh:lab"), 5.0, there)
    found = Local(lambda number, runner: None).inspect([job(there), away], {}, [])
    assert [(each.job, each.ended) for each in found] == [(7, True)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            Exit("nonce", 11.0, 12.0, -15, "", 7200.0),
            "ran longer than its limit of 2 h; last line: last words",
        ),
        (
            Exit("nonce", 11.0, 12.0, 0, "", 90.0),
            "ran longer than its limit of 90 s; last line: last words",
        ),
        (ended(-9), "killed by SIGKILL (often the kernel, out of memory)"),
        (ended(-11), "killed by SIGSEGV"),
        (ended(-64), "killed by SIGRTMAX"),
        (ended(-200), "killed by signal 200"),
        (ended(1), "exit code 1; last line: last words"),
        (
            ended(None, "cannot start 'nope' in '/': No such file or directory"),
            "cannot start 'nope' in '/': No such file or directory",
        ),
    ],
)
def test_a_failure_has_a_reason(found: Exit, words: str) -> None:
    verdict = decide(RUNNING, found, False, NO_RESULT, "last words", 20.0)
    assert isinstance(verdict, Failed)
    assert str(verdict.reason) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ValueError: no rows", "exit code 1: ValueError: no rows"),
        ("ls: cannot access '|': No such file or directory",
         "exit code 1: ls: cannot access '|': No such file or directory"),
        ("notes.md", "exit code 1; last line: notes.md"),
    ],
)  # fmt: skip
def test_a_last_line_is_told_as_the_cause_only_if_it_is_an_error(line: str, words: str) -> None:
    verdict = decide(RUNNING, ended(1), False, NO_RESULT, line, 20.0)
    assert isinstance(verdict, Failed) and verdict.quote == line
    assert str(verdict.reason) == words


def test_a_failure_is_told_in_the_readers_language() -> None:
    assert found_reason(ended(1)) == "Exit-Code 1; letzte Zeile: letzte Worte"
    program = Exit("nonce", 1.0, 2.0, None, "", program="nope", folder="/gone", folder_gone=True)
    assert found_reason(program) == (
        "'nope' kann in /gone nicht gestartet werden: diesen Ordner gibt es nicht mehr"
    )
    older = ended(None, "cannot start 'nope' in '/': No such file or directory")
    assert found_reason(older) == older.error, "a runner of an older version wrote a sentence"


def found_reason(record: Exit) -> str:
    verdict = decide(RUNNING, record, False, NO_RESULT, "letzte Worte", 20.0)
    assert isinstance(verdict, Failed)
    return render(verdict.reason, "de")
