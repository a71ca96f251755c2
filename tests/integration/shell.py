"""Run the command line, in the test's own process or in another one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.protocol.jobs import Job


class Shell:
    """Run commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """Run a command and return what it printed: its output, or its error if it failed.

        The test fails if the exit status is not `status`.
        """
        self._capsys.readouterr()
        try:
            got = main(words)
        except SystemExit as e:  # argparse
            got = int(e.code or 0)
        out, err = self._capsys.readouterr()
        assert got == status, (out, err)
        if status:
            assert out == "" or status == 1
            assert "Traceback" not in err
            return err
        assert err == ""
        return out

    def fails(self, *words: str, status: int = 1) -> str:
        """Run a command that fails, and return the one line that reports the error."""
        line = self(*words, status=status)
        assert line.startswith("gpudeck: ")
        assert line.count("\n") == 1
        return line

    def json(self, *words: str) -> Any:
        """Run a command with --json and return the decoded output."""
        return json.loads(self(words[0], "--json", *words[1:]))


def gpudeck(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, as a user's shell does."""
    return subprocess.run(
        [sys.executable, "-m", "gpudeck", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def start_waiting(job: Job) -> subprocess.Popen[str]:
    """Start `gpudeck wait` in a process of its own, and return it once it waits."""
    command = [sys.executable, "-m", "gpudeck", "wait", str(job.id)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"job {job.id} ({job.spec.name})\n"
    return process
