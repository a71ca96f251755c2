"""Test the output on terminals, pipes and full disks."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from tests.integration.deck import python, running
from tests.integration.shell import Shell, gpudeck, start_waiting

WAIT_S = 60.0


def in_terminal(*words: str, until: bytes, **env: str) -> bytes:
    """Return what a command writes on a terminal of 100 x 30.

    The command is interrupted once it has written `until`.
    """
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "gpudeck", *words],
            {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **env},
        )
    seen = b""
    try:
        while until not in seen:
            seen += os.read(fd, 65536)
        os.kill(pid, signal.SIGINT)
        while True:
            seen += os.read(fd, 65536)
    except OSError:
        pass  # the terminal is closed
    finally:
        os.close(fd)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    return seen


def test_logs_are_neutral_on_a_terminal_and_unchanged_in_a_pipe(shared: Client) -> None:
    job = shared.submit(["printf", "\\033]0;owned\\007\\033[2Jred\\r\\nnext\\b\\n"])
    shared.wait(job.id, WAIT_S)
    assert (
        gpudeck("logs", str(job.id)).stdout.replace("\r\n", "\n")
        == "\x1b]0;owned\x07\x1b[2Jred\nnext\b\n"
    )
    main_end, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudeck", "logs", str(job.id)],
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while data := os.read(main_end, 1000):
            shown += data
    except OSError:
        pass  # the terminal's last process has ended
    os.close(main_end)
    assert process.wait(WAIT_S) == 0
    assert b"owned" in shown
    assert b"next" in shown
    assert not {0x1B, 0x07, 0x08} & set(shown)


def test_a_hostile_name_cannot_control_the_terminal(sh: Shell, shared: Client) -> None:
    shared.wait(shared.submit(["true"], name="\x1b[2Jx\r\n\u202e").id, WAIT_S)
    out = sh("jobs", "--limit", "1") + sh("status")
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_a_closed_pipe_ends_the_command_quietly(shared: Client) -> None:
    job = shared.submit(python("print('x' * 3_000_000)"))
    shared.wait(job.id, WAIT_S)
    command = f"{sys.executable} -m gpudeck logs {job.id} | head -c 10"
    found = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.stdout, found.stderr) == ("x" * 10, "")


def test_a_full_disk_is_reported_in_one_line(shared: Client) -> None:
    found = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m gpudeck jobs > /dev/full"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in found.stderr


def test_ctrl_c_while_waiting_leaves_the_job_running(shared: Client) -> None:
    job = shared.submit(["sleep", "600"])
    running(shared, job)
    waiting = start_waiting(job)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=WAIT_S)
    assert (waiting.returncode, err.count("\n")) == (130, 1)
    assert f"to end it: gpudeck cancel {job.id}" in err
    assert shared.job(job.id).status == "running"
    shared.cancel(job.id)
    shared.wait(job.id, WAIT_S)
    assert gpudeck("jobs", "--active").stdout == "No jobs are waiting or running.\n"


def test_watch_restores_the_terminal(shared: Client) -> None:
    seen = in_terminal("watch", until=b"q or Ctrl+C to quit")
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert seen.index(b"\x1b[?1049h") < seen.index(b"UTIL") < seen.index(b"\x1b[?1049l")
    assert b"\x1b[2m" in seen
    assert b"\x1b[2m" not in in_terminal("watch", until=b"q or Ctrl+C to quit", NO_COLOR="1")


def test_watch_without_a_terminal_suggests_json(sh: Shell, shared: Client) -> None:
    assert "gpudeck status --json" in sh.fails("watch")
    with subprocess.Popen(
        [sys.executable, "-m", "gpudeck", "watch", "--json"], stdout=subprocess.PIPE, text=True
    ) as feed:
        assert feed.stdout is not None
        first, second = (json.loads(feed.stdout.readline()) for _ in range(2))
        feed.send_signal(signal.SIGINT)
        feed.stdout.close()
    assert second["seq"] > first["seq"]


_EARLY = """
import atexit, os, signal, sys

class InterruptedImport:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == os.environ["INTERRUPTED"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, InterruptedImport)
if os.environ["INTERRUPTED"] == "the end":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""
"""Presses Ctrl+C while a module is imported, or when a command has ended."""


@pytest.mark.parametrize(
    "at", ["typing", "gpudeck.app", "argparse", "msgspec", "gpudeck.app.cli.queue.jobs", "the end"]
)
def test_ctrl_c_at_any_moment_prints_no_traceback(cpu_home: Path, tmp_path: Path, at: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(_EARLY)
    done = subprocess.run(
        [sys.executable, "-m", "gpudeck", "jobs"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPTED": at},
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode in (-signal.SIGINT, 130)
    assert done.stderr == b""


def test_nothing_but_gpudeck_is_imported_before_ctrl_c_is_handled() -> None:
    """Import next to nothing: Ctrl+C prints a traceback until the first line of `run`."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom gpudeck.__main__ import run\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gpudeck", "gpudeck.__main__"]


def test_a_command_that_ignores_ctrl_c_goes_on_ignoring_it(cpu_home: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_EARLY)
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "gpudeck", "jobs"],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "INTERRUPTED": "gpudeck.app.cli.queue.jobs",
        },
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0


def test_a_wait_without_a_terminal_tells_why_the_job_waits(shared: Client) -> None:
    held = shared.submit(["true"], hold=True)
    waiting = start_waiting(held)
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(f"gpudeck: job {held.id} waits: On hold")
    shared.edit(held.id, hold=False)
    out, err = waiting.communicate(timeout=WAIT_S)
    assert (waiting.returncode, err) == (0, "")
    assert f"job {held.id}: done" in out
