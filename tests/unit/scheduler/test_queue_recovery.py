"""What becomes of a job that was active when the daemon ended: every case there is."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.executors.local import Exit
from scheduler.jobs import NO_RESULT, Cancelled, Done, Failed, Job, Lost, Queued, Running, Spec, Starting
from scheduler.queue.recovery import recover

BOOT, OTHER_BOOT = "boot-a", "boot-b"
STARTING = Starting("nonce", ("cpu",), 10.0)
RUNNING = Running("nonce", ("cpu",), 10.0, 4711, 99, BOOT)
STOPPING = msgspec.structs.replace(RUNNING, stopping=True)
RESULT = msgspec.Raw(b'{"tflops": 1}')


def job(state: object) -> Job:
    return Job(7, Spec(("x",), "x", "/", gpus=1), 5.0, state)  # type: ignore[arg-type]


def ended(code: int | None, error: str = "") -> Exit:
    return Exit("nonce", 11.0, 12.0, code, error)


@pytest.mark.parametrize(
    ("state", "found", "boot", "alive", "becomes"),
    [
        (STARTING, None, BOOT, False, Queued()),
        (STARTING, None, OTHER_BOOT, False, Queued()),
        (RUNNING, None, BOOT, True, "adopt"),
        (STOPPING, None, BOOT, True, "adopt"),
        (RUNNING, ended(0), BOOT, False, Done(11.0, 12.0, ("cpu",), RESULT)),
        (RUNNING, ended(0), BOOT, True, Done(11.0, 12.0, ("cpu",), RESULT)),
        (RUNNING, ended(0), OTHER_BOOT, False, Done(11.0, 12.0, ("cpu",), RESULT)),
        (RUNNING, ended(3), BOOT, False, Failed(11.0, 12.0, "exit code 3: last words", 3, ("cpu",), RESULT)),
        (STOPPING, ended(-15), BOOT, False, Cancelled(12.0, 11.0, ("cpu",))),
        (STOPPING, None, BOOT, False, Cancelled(20.0, 10.0, ("cpu",))),
        (STOPPING, None, OTHER_BOOT, False, Cancelled(20.0, 10.0, ("cpu",))),
        (RUNNING, None, OTHER_BOOT, False, Lost(10.0, 20.0, "the machine was restarted while it ran", ("cpu",))),
        (
            RUNNING, None, BOOT, False,
            Lost(10.0, 20.0, "its runner was killed before it could say how the job ended", ("cpu",)),
        ),
        (Queued("waits"), None, BOOT, False, Queued("waits")),
    ],
)  # fmt: skip
def test_verdict(state: object, found: Exit | None, boot: str, alive: bool, becomes: object) -> None:
    verdict = recover(job(state), found, boot, alive, True, RESULT, "last words", 20.0)
    assert type(verdict) is type(becomes)
    assert msgspec.json.encode(verdict) == msgspec.json.encode(becomes)


def test_a_runner_with_the_same_pid_after_a_reboot_is_not_ours() -> None:
    assert isinstance(recover(job(RUNNING), None, OTHER_BOOT, True, True, NO_RESULT, "", 20.0), Lost)


@pytest.mark.parametrize(("state", "becomes"), [(RUNNING, Queued), (STOPPING, Cancelled)])
def test_a_runner_that_never_passed_its_gate_ran_nothing(state: object, becomes: type) -> None:
    assert isinstance(recover(job(state), None, BOOT, False, False, NO_RESULT, "", 20.0), becomes)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Exit("nonce", 11.0, 12.0, -15, "", 7200.0), "ran longer than its limit of 2 h: last words"),
        (Exit("nonce", 11.0, 12.0, 0, "", 90.0), "ran longer than its limit of 90 s: last words"),
        (ended(-9), "killed by SIGKILL (often the kernel, out of memory)"),
        (ended(-11), "killed by SIGSEGV"),
        (ended(-64), "killed by SIGRTMAX"),
        (ended(-200), "killed by signal 200"),
        (ended(1), "exit code 1: last words"),
        (ended(None, "cannot start 'nope' in '/': No such file or directory"), "cannot start 'nope' in '/': No such file or directory"),
    ],
)
def test_a_failure_says_why(found: Exit, words: str) -> None:
    verdict = recover(job(RUNNING), found, BOOT, False, True, NO_RESULT, "last words", 20.0)
    assert isinstance(verdict, Failed)
    assert verdict.reason == words
