"""Processes on a device are identified by marks in their environment, whatever it contains."""

from __future__ import annotations

import os
import subprocess

import psutil
import pytest

from gpudeck.scheduler.devices import processes
from gpudeck.scheduler.devices.processes import MOST_COMMAND, ProcessTable, container_of
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from tests.support import eventually


@pytest.mark.parametrize(
    ("marks", "job", "assistant"),
    [
        ({}, None, False),
        ({"GPUDECK_JOB": "7"}, 7, False),
        ({ASSISTANT_MARK: "1", "GPUDECK_HOME": "/state"}, None, True),
        ({ASSISTANT_MARK: "1", "GPUDECK_HOME": "/state of another"}, None, False),
        ({"GPUDECK_JOB": "seven"}, None, False),
        ({"GPUDECK_JOB": "9" * 5000}, None, False),
        ({"NOT_" + ASSISTANT_MARK: "1"}, None, False),
    ],
)
def test_a_process_is_a_jobs_the_assistant_or_foreign(
    marks: dict[str, str], job: int | None, assistant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUDECK_HOME", "/state")
    with subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=marks, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"up\n")
        assert (
            process.stdout.read(3) == b"up\n"
        )  # until it answers, the kernel may not show its environment yet
        (found,) = ProcessTable().describe({process.pid: 5.0})
    assert (found.name, found.memory) == ("cat", 5.0)
    assert (found.job, found.assistant) == (job, assistant)
    assert found.foreign == (job is None and not assistant)


def test_a_process_that_is_gone_is_foreign() -> None:
    with subprocess.Popen(["/bin/true"], env=dict(os.environ)) as process:
        pass
    (found,) = ProcessTable().describe({process.pid: None})
    assert (found.name, found.start) == ("?", 0.0)
    assert found.foreign


def test_a_process_is_examined_once_and_a_reused_pid_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = psutil.Process.environ
    monkeypatch.setattr(
        psutil.Process, "environ", lambda self: (looks.append(self.pid), real(self))[1]
    )
    known = ProcessTable()
    first = known.describe({os.getpid(): 1.0})
    assert known.describe({os.getpid(): 2.0})[0].memory == 2.0
    assert len(looks) == 1
    monkeypatch.setattr(processes, "_ticks", lambda pid: first[0].ticks + 5)
    known.describe({os.getpid(): 1.0})
    assert len(looks) == 2


def test_an_environment_that_could_not_be_read_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was inspected too early is inspected again."""
    known = ProcessTable()
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "environ", lambda self: {})
        assert known.describe({os.getpid(): 1.0})[0].job is None
    monkeypatch.setattr(psutil.Process, "environ", lambda self: {"GPUDECK_JOB": "7"})
    assert known.describe({os.getpid(): 1.0})[0].job == 7


def test_command_lines_steer_no_terminal_and_are_bounded() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J" + "x" * 1000
    with subprocess.Popen(
        ["/bin/cat", "-", "--", hostile], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        # for a moment after it was started a process has its name and no command line yet
        found = eventually(
            lambda: next(
                (p for p in ProcessTable().describe({process.pid: None}, full=True) if p.command),
                None,
            )
        )
    assert found.command.startswith("/bin/cat - --  ]0;owned  [2Jxx")
    assert found.command.isprintable()
    assert len(found.command) == MOST_COMMAND + 1
    assert found.command.endswith("…")


ID = "0123456789ab" + "c" * 52


@pytest.mark.parametrize(
    ("line", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope", ID[:12]),
        (f"12:pids:/docker/{ID}", ID[:12]),
        (
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
            ID[:12],
        ),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{ID}.scope",
            ID[:12],
        ),
        (f"5:memory:/kubepods/burstable/pod8c6f3a4e-5c0e-4f3a-9d5b-0a1b2c3d4e5f/{ID}", ID[:12]),
        ("0::/lxc.payload.trainer/init.scope", "trainer"),
        ("0::/user.slice/user-1000.slice/session-2.scope", ""),
        ("0::/", ""),
        ("", ""),
    ],
)
def test_the_container_is_read_from_the_control_group(line: str, container: str) -> None:
    assert container_of(f"1:name=systemd:/\n{line}\n") == container
