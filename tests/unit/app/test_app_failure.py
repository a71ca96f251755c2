"""Why a job failed, by its log, and with what it is queued again."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.app.format.failure import attempts_text, explain_failure
from gpudeck.app.format.job_rows import doing
from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.jobs import Done, Failed, Job, Lost, Spec, repeated

FULL = (
    "step 7\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. "
    "This process has 29.10 GiB memory in use.\nwandb: run ended"
)


def failed(log_reason: str = "exit code 1", seconds: float = 60.0, **options: object) -> Job:
    spec = Spec(("true",), "train", "/data", gpus=1, **options)  # type: ignore[arg-type]
    return Job(7, spec, 0.0, Failed(100.0, 100.0 + seconds, log_reason, 1))


@pytest.mark.parametrize(
    ("memory", "title", "changes"),
    [
        (30 * GIB, "Retry with 39 GiB", {"memory": 39 * GIB}),
        (64 * GIB, "Retry with a whole GPU", {"memory": 0}),
        (0, "Retry", {}),
    ],
)
def test_a_full_memory_is_answered_with_more(memory, title, changes) -> None:
    log = FULL if memory < 64 * GIB else FULL.replace("29.10", "78.10")
    found = explain_failure(failed(memory=memory), log, 80.0 * GIB)
    assert (str(found.remedy.title), found.remedy.changes) == (title, changes)
    assert found.line.startswith("torch.OutOfMemoryError: CUDA out of memory.")
    assert "memory" in str(found.cause)


@pytest.mark.parametrize(
    ("log", "cause", "line"),
    [
        (
            "Traceback:\nModuleNotFoundError: No module named 'flash_attn'",
            "Python found no module flash_attn: install it in the job's environment.",
            "ModuleNotFoundError: No module named 'flash_attn'",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'\nbye",
            "The job found no file data/train.bin.",
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
        ),
        (
            "python: can't open file '/data/tran.py': [Errno 2] No such file or directory",
            "The job found no file /data/tran.py.",
            "python: can't open file '/data/tran.py': [Errno 2] No such file or directory",
        ),
        ("ok\nmy.ShapeError: 3 != 4\nbye", "exit code 1", "my.ShapeError: 3 != 4"),
        ("nothing to see", "exit code 1", ""),
        ("", "exit code 1", ""),
    ],
)
def test_the_cause_is_found_with_its_line(log, cause, line) -> None:
    found = explain_failure(failed(), log, None)
    assert (str(found.cause), found.line, found.remedy.changes) == (cause, line, {})


def test_a_job_that_ran_out_of_time_gets_twice_as_much() -> None:
    found = explain_failure(failed(seconds=3601.0, timeout=3600.0), "ValueError: x", None)
    assert found.remedy.changes == {"timeout": 7200.0}
    assert str(found.remedy.title) == "Retry with a limit of 2 h"
    early = explain_failure(failed(seconds=30.0, timeout=3600.0), "ValueError: x", None)
    assert early.remedy.changes == {}


def test_a_lost_job_names_its_reason() -> None:
    lost = msgspec.structs.replace(failed(), state=Lost(1.0, 2.0, "the machine went down"))
    found = explain_failure(lost, FULL, None)
    assert (found.cause, found.line) == ("the machine went down", "")


def test_a_job_that_is_queued_again_waits_for_nothing_and_keeps_the_rest() -> None:
    job = failed(after=(1,), after_any=(2,), hold=True, begin=9.0, memory=GIB, index=3)
    again = repeated(job, {"A": "1"}, artefacts=True, changes={"memory": 2 * GIB})
    assert again == msgspec.structs.replace(
        job.spec, env={"A": "1"}, after=(), after_any=(), hold=False, begin=0.0,
        memory=2 * GIB, artefacts_of=7,
    )  # fmt: skip
    assert repeated(job, {}).artefacts_of is None


def test_attempts_that_failed_are_named_where_the_job_is_listed() -> None:
    done = Job(7, failed().spec, 0.0, Done(100.0, 160.0), tries=3)
    assert doing(done).startswith("attempt 4, after 3 that failed")
    assert doing(msgspec.structs.replace(failed(), tries=1)).startswith("exit code 1, attempt 2")
    assert attempts_text(failed()) is None
