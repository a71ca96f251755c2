"""Suspend jobs and programs of ordinary users, with their own daemon and with a shared one.

    python -m tests.benchmarks.suspension.users FOLDER

Root makes two users. Nobody may suspend or resume what belongs to the other.
"""

from __future__ import annotations

import argparse
import atexit
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.suspension.bench import Bench, print_log
from tests.benchmarks.suspension.card import survive
from tests.benchmarks.suspension.programs import Ended, command, is_exact, parse_end
from tests.support import eventually, state_folder

NAMES = ("gpudeck-first", "gpudeck-second")
GROUP = "gpudeck-benchmark"
GIB = 2.0
FOREIGN = "belongs to another user"


class User:
    """An ordinary user, who runs commands of gpudeck."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.home = name, folder / name
        self.home.mkdir(mode=0o700)
        shutil.chown(self.home, name, GROUP)
        self.shared = {"GPUDECK_SHARED": os.environ["GPUDECK_HOME"]}
        self.own = {"GPUDECK_HOME": str(self.home / "state")}

    def __call__(self, *words: str, where: dict[str, str], fails: bool = False) -> str:
        """Run a command of gpudeck; return what it printed, or its error."""
        code, out, error = self.ask(*words, where=where)
        assert (code != 0) == fails, (words, out, error)
        return error if fails else out

    def ask(self, *words: str, where: dict[str, str]) -> tuple[int, str, str]:
        """Run a command of gpudeck; return its status, and what it printed."""
        process = self.start([sys.executable, "-m", "gpudeck", *words], where)
        out, error = process.communicate(timeout=120)
        return process.returncode, out, error

    def start(self, words: list[str], where: dict[str, str]) -> subprocess.Popen[str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("GPUDECK_HOME", "GPUDECK_SYSTEM", "GPUDECK_GROUP")
        }
        return subprocess.Popen(
            words, user=self.name, group=GROUP, extra_groups=[], cwd=self.home, text=True,
            env={**kept, "HOME": str(self.home), **where},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def submit(self, stop: Path, limit: int, where: dict[str, str]) -> int:
        words = ("submit", "--json", "--gpus", "1", "--", *command("CUDA C++", GIB, stop, limit))
        return int(json.loads(self(*words, where=where))["id"])


@contextmanager
def two_users(folder: Path) -> Iterator[tuple[User, User]]:
    """Make two users, and remove them at the end."""
    subprocess.run(("groupadd", "-f", GROUP), check=True)
    for name in NAMES:
        subprocess.run(("useradd", "-M", "-N", "-g", GROUP, "-s", "/bin/sh", name), check=True)
    try:
        yield User(NAMES[0], folder), User(NAMES[1], folder)
    finally:
        for name in NAMES:
            subprocess.run(("userdel", "-f", name), check=False)
        subprocess.run(("groupdel", GROUP), check=False)


def measure_jobs(bench: Bench, first: User, second: User) -> None:
    """Suspend a job of the first user on the shared daemon, for one of the second."""
    deck, stop = bench.deck, bench.scratch / "stop job"
    job = deck.job(first.submit(stop, 0, first.shared))
    bench.wait_ready(job)
    refused = [second("suspend", str(job.id), where=second.shared, fails=True)]
    began = time.monotonic()
    first("suspend", str(job.id), where=first.shared)
    took = time.monotonic() - began
    left = bench.card.used_mib
    other = deck.wait(second.submit(stop, 500, second.shared))
    refused.append(second("resume", str(job.id), where=second.shared, fails=True))
    assert not bench.is_on(job)
    first("resume", str(job.id), where=first.shared)
    bench.wait_on(job)
    stop.touch()
    deck.wait(job.id)
    ended = parse_end(deck.log(job.id).decode().split("\n")[-2])
    exact = is_exact("CUDA C++", GIB, 1, ended, bench.scratch)
    good = all(FOREIGN in text for text in refused)
    bench.keep("a user suspends a job on a shared daemon", GIB, [took],
               exact and good and other.status == "done",
               f"by the command; nvidia-smi then showed {left} MiB; the other user was refused to "
               f"suspend and resume it: {good}; their own job: {other.status}")  # fmt: skip


def measure_program(bench: Bench, first: User, second: User) -> None:
    """Suspend a program of the first user that is no job, by the shared daemon."""
    stop = bench.scratch / "stop program"
    program = start_program(bench, first, stop)
    pid = str(program.pid)
    refused = [second("suspend", "--pid", pid, where=second.shared, fails=True)]
    began = time.monotonic()
    first("suspend", "--pid", pid, where=first.shared)
    took = time.monotonic() - began
    refused.append(second("resume", "--pid", pid, where=second.shared, fails=True))
    first("resume", "--pid", pid, where=first.shared)
    exact = is_exact("CUDA C++", GIB, 1, end_program(program, stop), bench.scratch)
    good = all(FOREIGN in text for text in refused)
    bench.keep("a user suspends a program that is no job, on a shared daemon", GIB, [took],
               exact and good, f"the other user was refused: {good}")  # fmt: skip


def measure_own_daemon(bench: Bench, user: User, _other: User) -> None:
    """Suspend a job and a program of an ordinary user with a daemon of their own."""
    stop, where = bench.scratch / "stop own", user.own
    program = start_program(bench, user, stop)
    pid, took = str(program.pid), list[float]()
    try:
        eventually(lambda: pid in user.ask("processes", where=where)[1])
        for _ in range(3):
            began = time.monotonic()
            user("suspend", "--pid", pid, where=where)
            took.append(time.monotonic() - began)
            user("resume", "--pid", pid, where=where)
    finally:
        user("daemon", "stop", where=where)
    exact = is_exact("CUDA C++", GIB, 1, end_program(program, stop), bench.scratch)
    bench.keep("an ordinary user suspends a program, with a daemon of their own", GIB, took, exact,
               f"by the command; user {pwd.getpwnam(user.name).pw_uid}")  # fmt: skip


def start_program(bench: Bench, user: User, stop: Path) -> subprocess.Popen[str]:
    program = user.start(command("CUDA C++", GIB, stop), {"CUDA_VISIBLE_DEVICES": bench.card.uuid})
    atexit.register(program.kill)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    eventually(lambda: any(p.pid == program.pid for d in bench.deck.details() for p in d.processes))
    return program


def end_program(program: subprocess.Popen[str], stop: Path) -> Ended:
    stop.touch()
    assert program.stdout is not None
    ended = parse_end(program.stdout.readline())
    program.wait()
    return ended


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp") as name, state_folder(Path(name) / "home"):
        scratch = Path(name)
        scratch.chmod(0o755)
        with two_users(scratch) as (first, second):
            os.environ |= {"GPUDECK_SYSTEM": "1", "GPUDECK_GROUP": grp.getgrnam(GROUP).gr_name}
            settings.save(Settings())
            bench = Bench(arguments.folder, scratch)
            for part in (measure_own_daemon, measure_jobs, measure_program):
                with survive(part.__name__):
                    part(bench, first, second)
            print_log()


if __name__ == "__main__":
    main()
