"""Let accesses of the daemon to its store, its settings or its log fail, one after another.

The daemon answers again once the fault is over, or one line said why it could not start; no job is
lost or runs twice that was acknowledged.

    python -m tests.integration.torture.state_faults [--schedules 100] [--seed 1]
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import kill_daemon
from tests.integration.torture.file_faults import ERRORS, ROLES, Plan, build, preloaded
from tests.support import state_folder

FILES = ("gpudeck.sqlite", "settings.json", "daemon.log")
ANSWER_S, SETTLE_S = 60.0, 60.0
HELD_S = 0.3
"""Seconds for which a fault lasts that strikes again and again."""


class StateSchedule(NamedTuple):
    """Describe one fault of a file of the state."""

    file: str
    access: int
    error: int
    lasting: bool
    kill: bool


def draw_schedules(seed: int, count: int) -> list[StateSchedule]:
    """Draw schedules; the store has most accesses."""
    draw = random.Random(seed)
    return [
        StateSchedule(
            file,
            int(draw.triangular(1, 80 if file == FILES[0] else 6, 1)),
            draw.choice(ERRORS),
            draw.random() < 0.4,
            draw.random() < 0.5,
        )
        for file in draw.choices(FILES, (6, 2, 2), k=count)
    ]


def run(
    folder: Path, library: Path, schedules: list[StateSchedule]
) -> tuple[Counter[str], list[str]]:
    """Run the schedules in a state folder of their own, and return what struck and was wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger, acknowledged, struck, wrong = folder / "ledger", set[int](), Counter[str](), list[str]()
    with state_folder(folder / "home"), preloaded(folder, library) as plan:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        for watched in plan.folders:
            watched.value = b""  # of the jobs, which `file_faults` lets fail
        Client().close()
        for number, schedule in enumerate(schedules):
            _run(plan, schedule, number, ledger, acknowledged, wrong)
            if plan.struck:
                name = errno.errorcode[schedule.error]
                struck[f"{plan.call.decode()} {name}"] += 1  # also of a file that is open since
        wrong += _judge(ledger, acknowledged)
    return struck, wrong


def _run(
    plan: Plan,
    schedule: StateSchedule,
    number: int,
    ledger: Path,
    acknowledged: set[int],
    wrong: list[str],
) -> None:
    plan.struck = plan.job = 0
    plan.call = b""
    plan.files = os.fsencode(paths.home() / schedule.file)
    plan.error, plan.lasting = schedule.error, schedule.lasting
    plan.countdown, plan.role = schedule.access, ROLES["daemon"]
    _use(number, ledger, acknowledged)
    if schedule.kill:
        kill_daemon()
        _use(number, ledger, acknowledged)
    time.sleep(HELD_S)
    plan.role = 0
    end = time.monotonic() + ANSWER_S
    while True:
        try:
            with Client() as deck:
                deck.snapshot()
            return
        except UserError as e:
            if time.monotonic() > end:
                wrong.append(f"the daemon does not answer after {schedule}: {e}")
                return
            time.sleep(0.1)


def _use(number: int, ledger: Path, acknowledged: set[int]) -> None:
    """Submit a job and change a setting; what is refused by one line is no violation."""
    try:
        with Client() as deck:
            line = f'echo "$GPUDECK_JOB" >> {ledger}'
            acknowledged.add(deck.submit(["sh", "-c", line], cwd="/", env={}).id)
            deck.configure(idle_dwell_s=float(1 + number % 7))
    except UserError as e:
        assert "\n" not in str(e)


def _judge(ledger: Path, acknowledged: set[int]) -> list[str]:
    end = time.monotonic() + SETTLE_S
    with Client() as deck:
        while deck.jobs(1000, active=True) and time.monotonic() < end:
            time.sleep(0.1)
        states = {number: deck.job(number).status for number in acknowledged}
    runs = Counter(map(int, ledger.read_text().split()))
    log = paths.daemon_log().read_text(errors="replace")
    return [
        *(f"job {n} is {status}" for n, status in states.items() if status != "done"),
        *(f"job {n} ran {times} times" for n, times in runs.items() if times > 1),
        *([f"the daemon crashed:\n{log[-3000:]}"] if "Traceback" in log else []),
    ]


def main() -> int:
    """Run the schedules, and print what struck and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="state-faults-") as name:
        if (library := build(Path(name))) is None:
            print("left out: no C compiler is installed, which builds the library of faults")
            return 2
        struck, wrong = run(
            Path(name) / "run", library, draw_schedules(arguments.seed, arguments.schedules)
        )
    for what, count in sorted(struck.items()):
        print(f"{count:5}  {what}")
    print("\n".join(wrong))
    print(f"{arguments.schedules} schedules, {struck.total()} struck, {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
