"""What would help a job that failed, or one that waits, follows from its values."""

from __future__ import annotations

import pytest

from gpudeck.assistant.query.remedies import obstacle_note, retry_note
from gpudeck.assistant.query.rows import Note
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.jobs import Failed, Job, Lost, Queued, Spec
from gpudeck.scheduler.protocol.units import GIB
from tests.gui.snapshots import gpu_snapshot

FULL = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 80.00 GiB. Including non-PyTorch memory, this process has 21.50 GiB memory in use."
]


def failed(seconds: float = 60.0, **options: object) -> Job:
    spec = Spec(("true",), "train", "/data", gpus=1, **options)  # type: ignore[arg-type]
    return Job(7, spec, 0.0, Failed(100.0, 100.0 + seconds, "exit code 1", 1))


@pytest.mark.parametrize(
    ("job", "kind", "expected"),
    [
        (failed(memory=20 * GIB), "gpu memory", ("memory", 24 * GIB)),
        (failed(memory=79 * GIB), "gpu memory", ("memory", 0)),
        (failed(3600.0, timeout=3600.0), "", ("timeout", 7200.0)),
        (failed(), "network", ("", 0)),
        (failed(), "gpu memory", None),
        (failed(), "import", None),
        (failed(30.0, timeout=3600.0), "", None),
    ],
)
def test_a_job_is_run_again_with_what_its_failure_suggests(
    job: Job, kind: str, expected: tuple[object, ...] | None
) -> None:
    found = retry_note(job, kind, FULL, gpu_snapshot())
    assert found == (None if expected is None else Note("retry", (7, *expected)))


def test_a_lost_job_is_run_again_as_it_was() -> None:
    lost = Job(7, failed().spec, 0.0, Lost(100.0, 160.0, "the machine stopped"))
    assert retry_note(lost, "", [], gpu_snapshot()) == Note("retry", (7, "", 0))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (w.Held(7), ("held", 7)),
        (w.QueuePaused(), ("queue paused", "")),
        (w.GroupPaused("night"), ("group paused", "night")),
        (w.DependencyFailed(3, "failed"), ("first failed", 3)),
        (w.AllDrained(w.Needs(1), ("GPU 0",), False), ("drained", 0)),
        (w.NotBefore(1e9), None),
        (w.NoRoom(w.Needs(1), (w.HeldBy("GPU 0", 3, "eval", None),)), None),
    ],
)
def test_what_a_person_can_change_about_a_wait_is_named(
    reason: w.WaitReason, expected: tuple[object, ...] | None
) -> None:
    job = Job(7, failed().spec, 0.0, Queued(wait=reason))
    found = obstacle_note(job, gpu_snapshot())
    assert found == (None if expected is None else Note("obstacle", expected))
