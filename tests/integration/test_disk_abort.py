"""Abort a real file system under a daemon and its jobs, repair it, and go on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.jobs import Failed, Lost
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import daemon_pid, python, ready, running
from tests.support import eventually, lives, send, state_folder

WAIT_S = 40.0
JOB = """if True:
    import os, sys, time
    with open(sys.argv[1], "a") as f: f.write(os.environ["GPUDECK_JOB"] + "\\n")
    while not os.path.exists(sys.argv[2]): time.sleep(0.01)
    sys.exit(7)"""


class Disk:
    """An ext4 file system in a file, whose journal can be aborted as by a broken disk."""

    def __init__(self, folder: Path) -> None:
        self._image, self.mounted = folder / "image", folder / "disk"
        self.mounted.mkdir()
        with self._image.open("wb") as f:
            f.truncate(24 * 2**20)
        self._run("mkfs.ext4", "-q", str(self._image))
        self._run("mount", "-o", "loop", str(self._image), str(self.mounted))

    def abort(self) -> None:
        self._run("mount", "-o", "remount,abort", str(self.mounted))

    def repair(self) -> None:
        self.unmount()
        # a lazy unmount keeps the device until nobody uses it any more
        eventually(lambda: not self._run("losetup", "-j", str(self._image)))
        subprocess.run(["e2fsck", "-fy", self._image], capture_output=True, check=False)
        self._run("mount", "-o", "loop", str(self._image), str(self.mounted))

    def unmount(self) -> None:
        if os.path.ismount(self.mounted):
            self._run("umount", "-l", str(self.mounted))

    @staticmethod
    def _run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(done.stderr)
        return done.stdout


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        made = Disk(tmp_path)
    except (PermissionError, FileNotFoundError) as e:
        pytest.skip(f"no file system can be mounted here: {e}")
    try:
        with state_folder(made.mounted / "home"):
            settings.save(Settings(source="cpu"))
            yield made
    finally:
        made.unmount()


@pytest.mark.slow
@pytest.mark.parametrize("runner_dies", [False, True])
def test_jobs_run_once_and_keep_their_results_though_the_file_system_aborts(
    disk: Disk, tmp_path: Path, runner_dies: bool
) -> None:
    """Let one job end while nothing can be written; the other one waits for the repair."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    with Client() as deck:
        job = ready(deck).submit(python(JOB, ran, go), gpus=1, cwd="/")
        runner = running(deck, job).runner
        waiting = deck.submit(python(JOB, ran, go), gpus=1, cwd="/")
        eventually(lambda: ran.exists() and ran.read_text())
        disk.abort()
        go.touch()
        eventually(lambda: Path(f"/proc/{runner}/comm").read_text() == "unwritten 30\n")
        daemon = daemon_pid()
    send(daemon, signal.SIGKILL)
    if runner_dies:
        send(runner, signal.SIGKILL)
        eventually(lambda: not lives(runner))
    eventually(lambda: not lives(daemon))
    disk.repair()
    if not runner_dies:
        eventually(lambda: not lives(runner))
    with Client() as deck:
        state = deck.wait(job.id, WAIT_S).state
        deck.wait(waiting.id, WAIT_S)
        if runner_dies:
            assert isinstance(state, Lost)
        else:
            assert isinstance(state, Failed) and state.code == 7
    assert ran.read_text().split() == [str(job.id), str(waiting.id)]
