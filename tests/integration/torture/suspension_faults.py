"""Let faults strike at drawn moments while a job leaves its GPU or comes back.

The daemon, the helper of the driver's calls, the job or its runner are killed, or the disk is full.
A violation is a job that is lost, runs twice, stays stopped, or is not where the driver has it.

    python -m tests.integration.torture.suspension_faults --schedules 1000 --seed 41
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from gpudeck.scheduler.attempts import running as state_of_running
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Failed, Job, Lost
from tests.benchmarks import rows
from tests.integration.deck import daemon_pid, ready
from tests.integration.suspended_jobs import Machine, goes_on, pid_of, restart, state_of
from tests.integration.test_suspend import stand_in
from tests.support import command_of, eventually, send

FAULTS = {"daemon": 4, "helper": 4, "daemon and helper": 4, "full disk": 4, "job": 1, "runner": 1}
"""The faults, and how often each of them is drawn."""


def run(folder: Path, schedules: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how often each fault struck, and the violations."""
    drawn, struck, wrong = random.Random(seed), Counter[str](), list[str]()
    with stand_in(folder) as gpu:
        machine = Machine(gpu, ready(Client(timeout=60.0)))
        for call in ("lock", "checkpoint", "restore", "unlock"):
            machine.write(f"{call}.slow", 20)
        job = machine.train()
        for number in range(schedules):
            (fault,) = drawn.choices(list(FAULTS), list(FAULTS.values()))
            struck[fault] += 1
            try:
                job = _strike(machine, job, fault, drawn)
            except AssertionError as e:
                wrong.append(f"{number} {fault}: {e}")
                with suppress(UserError):
                    machine.deck.cancel(job.id)
                job = _train_anew(machine)
        machine.deck.close()
    return struck, wrong


def _strike(machine: Machine, job: Job, fault: str, drawn: random.Random) -> Job:
    """Let a fault strike while a job leaves its GPU or comes back. Return the job that runs now."""
    attempt = state_of_running(machine.deck.job(job.id)).attempt
    with Client(timeout=drawn.uniform(0.01, 0.3)) as hasty:
        with suppress(UserError):
            (hasty.suspend_job if drawn.random() < 0.7 else hasty.resume_job)(job.id)
        time.sleep(drawn.uniform(0.0, 0.1))
    _do(machine, job, fault)
    if fault in ("job", "runner"):
        ended = machine.deck.wait(job.id, 60.0).state
        assert isinstance(ended, Failed | Lost), ended
        eventually(lambda: machine.deck.suspended() == ())
        return _train_anew(machine)
    eventually(lambda: machine.on(job) or machine.off(job))
    if machine.off(job):
        assert state_of(machine) == "2", "the driver has it on the GPU"
        machine.deck.resume_job(job.id)
    eventually(lambda: machine.on(job))
    assert state_of(machine) == "0" and goes_on(job), "it stays stopped"
    assert state_of_running(machine.deck.job(job.id)).attempt == attempt, "it runs twice"
    assert machine.events(job).count("started") == 1, "it runs twice"
    eventually(lambda: machine.deck.suspended() == ())
    return job


def _do(machine: Machine, job: Job, fault: str) -> None:
    daemon = daemon_pid()
    match fault:
        case "job":
            send(pid_of(machine), signal.SIGKILL)
        case "runner":
            send(state_of_running(machine.deck.job(job.id)).runner, signal.SIGKILL)
        case "full disk":
            blocked = paths.suspensions_file().with_suffix(".new")
            eventually(lambda: _make_folder(blocked))
            with suppress(UserError):
                machine.deck.suspend_job(job.id)
            blocked.rmdir()
    if "helper" in fault and (helper := _helper_of(daemon)) is not None:
        send(helper, signal.SIGKILL)
    if "daemon" in fault:
        restart(machine)


def _make_folder(folder: Path) -> bool:
    """Make a folder in place of a file that a killed daemon left there, or that one writes now."""
    with suppress(FileNotFoundError):
        folder.unlink()
    with suppress(FileExistsError):
        folder.mkdir()
    return folder.is_dir()


def _train_anew(machine: Machine) -> Job:
    """Start another job, once nothing of the last one is on the GPU."""
    for file in machine.folder.glob("[0-9]*"):
        file.unlink()
    return machine.train()


def _helper_of(daemon: int) -> int | None:
    """Return the process that makes the driver's calls, while there is one."""
    children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    found = (pid for pid in map(int, children) if b"suspension.helper" in command_of(pid))
    return next(found, None)


def main() -> int:
    """Run the schedules, write how often each fault struck, and print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=41)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="suspension-faults-") as name:
        struck, wrong = run(Path(name), arguments.schedules, arguments.seed)
    counts = {**struck, "schedules": struck.total(), "violations": len(wrong)}
    where = rows.context(f"{os.cpu_count()} cores, Linux {os.uname().release}", ["msgspec"])
    found = [
        {"count of": what, "count": count, "seed": arguments.seed, **where}
        for what, count in sorted(counts.items())
    ]
    print(rows.merge("suspension_faults", found, ["count of", "seed"]))
    print("\n".join([*wrong, f"{struck.total()} schedules, {len(wrong)} violations"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
