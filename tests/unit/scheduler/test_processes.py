"""What a process on a device is to us: told by the marks in its environment, whatever stands there."""

from __future__ import annotations

import os
import subprocess

import pytest

from scheduler.devices.model import ASSISTANT_MARK
from scheduler.devices.processes import describe


@pytest.mark.parametrize(
    ("marks", "job", "assistant"),
    [
        ({}, None, False),
        ({"GPUDECK_JOB": "7"}, 7, False),
        ({ASSISTANT_MARK: "1"}, None, True),
        ({"GPUDECK_JOB": "seven"}, None, False),
        ({"GPUDECK_JOB": "9" * 5000}, None, False),
        ({"NOT_" + ASSISTANT_MARK: "1"}, None, False),
    ],
)
def test_a_process_is_a_jobs_the_assistant_or_foreign(marks: dict[str, str], job: int | None, assistant: bool) -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=marks, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"up\n")
        assert process.stdout.read(3) == b"up\n"  # until it answers, the kernel may not show its environment yet
        found = describe(process.pid, 5.0)
    assert (found.name, found.memory) == ("cat", 5.0)
    assert (found.job, found.assistant) == (job, assistant)
    assert found.foreign == (job is None and not assistant)


def test_a_process_that_is_gone_is_foreign() -> None:
    with subprocess.Popen(["/bin/true"], env=dict(os.environ)) as process:
        pass
    found = describe(process.pid, None)
    assert found.name == "?"
    assert found.foreign
