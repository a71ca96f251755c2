"""Run jobs in cgroups of their own, below a real one that is marked as delegated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors import cgroups
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Lost
from tests.integration.deck import ready, running
from tests.support import eventually, lives, send

WAIT_S = 30.0
WITHOUT_KILL = ("setpriv", "--bounding-set=-kill,-sys_ptrace", "--inh-caps=-kill,-sys_ptrace")
"""Lets root be refused what every other user is: to kill processes of others."""
OTHERS = (
    "setpriv --reuid=1 --clear-groups sleep 600 & echo $!; "
    'until [ "$(stat -c %u "/proc/$!")" = 1 ]; do :; done'
)


@pytest.fixture
def group() -> Iterator[Path]:
    """Return a cgroup as systemd delegates one."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    mount = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    made = (mount or Path("/nowhere")) / f"test-of-gpudeck-{os.getpid()}-{time.time_ns()}"
    try:
        made.mkdir()
        os.setxattr(made, "user.delegate", b"1")
    except OSError as e:
        pytest.skip(f"no cgroup can be made here: {e}")
    yield made
    eventually(lambda: _removed(made))


def _removed(group: Path) -> bool:
    """Kill what is in the group, and return whether it could be removed."""
    (group / "cgroup.kill").write_text("1")
    try:
        for inner in filter(Path.is_dir, group.iterdir()):
            inner.rmdir()
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture(params=[".", cgroups.SUBGROUP])
def deck(group: Path, cpu_home: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Return a client of a daemon in that group, which may not kill processes of others.

    Systemd from 254 on starts the daemon in a group below.
    """
    own = group / request.param
    own.mkdir(exist_ok=True)
    start = [*WITHOUT_KILL, sys.executable, "-P", "-m", "gpudeck", "daemon", "start"]
    enter = ["sh", "-c", f'echo $$ > {own}/cgroup.procs && exec "$@"', "sh"]
    subprocess.run([*enter, *start], check=True, capture_output=True)
    with Client(start=False) as client:
        yield ready(client)


def test_what_a_job_of_another_user_left_ends_with_its_cgroup(deck: Client, group: Path) -> None:
    job = deck.submit(["sh", "-c", OTHERS], gpus=1)
    assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
    assert not lives(int(job.log()))
    assert not list(group.glob(f"{cgroups.PREFIX}*"))
    stubborn = deck.submit(["sh", "-c", f"{OTHERS}; wait"], gpus=1, timeout=0.2)
    deck.wait(stubborn.id, WAIT_S)
    assert not lives(int(stubborn.log()))


@pytest.mark.slow
def test_a_process_that_hid_ends_though_the_runner_of_its_job_was_killed(deck: Client) -> None:
    hide = "env -i setsid sh -c 'sleep 600 & echo $!' & wait; exec sleep 600"
    job = deck.submit(["sh", "-c", hide], gpus=1)
    hidden = int(eventually(lambda: deck.log(job.id)))
    send(running(deck, job.job).runner, signal.SIGKILL)
    assert isinstance(deck.wait(job.id, WAIT_S).state, Lost | Cancelled)
    eventually(lambda: not lives(hidden))


def test_a_group_that_is_not_marked_is_not_used(group: Path) -> None:
    code = "from gpudeck.scheduler.executors.cgroups import find; print(find().base)"
    command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    found = []
    for _ in range(2):
        done = subprocess.run(
            [*command, sys.executable, "-c", code],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        found.append(done.stdout.strip())
        if len(found) == 1:
            os.removexattr(group, "user.delegate")
    assert found == [str(group), "None"]
