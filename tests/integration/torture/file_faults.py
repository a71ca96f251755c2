"""Let every access of the daemon and of runners to the folders of jobs fail, one after another.

A schedule draws whose access fails, which one, with which error, once or from then on, and whether
the daemon is killed meanwhile. Real processes run; a preloaded library (sabotage/faulty_files.c)
returns the errors. The daemon must stay up, and jobs whose folders are sound run once and are done.

    python -m tests.integration.torture.file_faults [--schedules 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import JobOptions, make_spec
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import daemon_pid, kill_daemon
from tests.support import lives, state_folder

SOURCE = Path(__file__).parent / "sabotage" / "faulty_files.c"
ERRORS = (errno.EACCES, errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC)
ROLES = {"daemon": 1, "runner": 2}
OTHERS_S, SETTLE_S = 60.0, 120.0
"""Seconds in which jobs with sound folders end, and in which all end once no access fails."""
COMMANDS: dict[str, tuple[str, JobOptions]] = {
    "plain": ("", {}),
    "result": ("""echo '{"a": 1}' > "$GPUDECK_RESULT"; echo done""", {}),
    "flaky": (
        'test -e "$GPUDECK_ARTEFACTS/tried" || { touch "$GPUDECK_ARTEFACTS/tried"; exit 1; }',
        {"retries": 1, "backoff": 0.05},
    ),
}
_RUNS = {"flaky": 2}


class Plan(ctypes.Structure):
    """Describe the fault that is armed, as the library maps it."""

    _fields_ = (
        ("role", ctypes.c_int),
        ("error", ctypes.c_int),
        ("lasting", ctypes.c_int),
        ("countdown", ctypes.c_int),
        ("struck", ctypes.c_int),
        ("job", ctypes.c_int),
        ("accesses", ctypes.c_int * 3),
        ("call", ctypes.c_char * 92),
        ("folders", (ctypes.c_char * 1024) * 2),
        ("files", ctypes.c_char * 1024),
    )


class Schedule(NamedTuple):
    """Describe one fault."""

    role: str
    access: int
    """The number of the access that fails, from 1, since the fault was armed."""
    error: int
    lasting: bool
    """True where all later accesses to that folder fail, too, until the fault is disarmed."""
    kill: bool
    """True where the daemon is killed while the fault is armed."""

    @property
    def reaches_runners(self) -> bool:
        """Return whether accesses of runners may fail."""
        return self.role == "runner" or self.lasting


class Report(NamedTuple):
    """Describe what was injected, and what was wrong."""

    injected: Counter[str]
    jobs: int
    unclear: int
    """Jobs that never ran and are lost, as the evidence of their beginning failed."""
    violations: list[str]


def draw_schedules(seed: int, count: int) -> list[Schedule]:
    """Draw schedules; the number of an access is spread over all that three jobs cause."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        role = draw.choice(("daemon", "runner"))
        access = int(draw.triangular(1, 160 if role == "daemon" else 90, 1))
        lasting = draw.random() < 0.4
        kill = draw.random() < 0.25
        found.append(Schedule(role, access, draw.choice(ERRORS), lasting, kill))
    return found


def build(folder: Path) -> Path | None:
    """Compile the library; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "faulty_files.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    return library


class FileFaults:
    """Run schedules against the state folder in GPUDECK_HOME, with the library preloaded."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._plan, self._ledger = plan, folder / "ledger"
        self._kinds: dict[int, str] = {}
        self._struck: dict[int, Schedule] = {}
        """Jobs whose folders failed: they may fail, and never run twice."""
        self._shared: dict[int, Schedule] = {}
        """Jobs that were submitted while a folder of all jobs failed: that they began may be
        unclear."""
        self._unclear = 0
        self._injected: Counter[str] = Counter()
        self._violations: list[str] = []

    def run(self, schedules: list[Schedule]) -> Report:
        """Run the schedules, let all jobs end, and judge them."""
        for schedule in schedules:
            self._run(schedule)
        self._settle()
        return Report(self._injected, len(self._kinds), self._unclear, self._violations)

    def _run(self, schedule: Schedule) -> None:
        plan = self._plan
        pid = daemon_pid()
        plan.struck = plan.job = 0
        plan.call = b""
        plan.error, plan.lasting = schedule.error, schedule.lasting
        plan.countdown, plan.role = schedule.access, ROLES[schedule.role]
        with Client(start=False) as deck:
            jobs = [self._submit(deck, kind) for kind in COMMANDS]
        if schedule.kill:
            time.sleep(0.15)
            kill_daemon()
            self._start(schedule)
            with Client() as deck:
                jobs.append(self._submit(deck, "plain"))
            pid = daemon_pid()
        self._await_others(jobs)
        plan.role = 0
        if plan.struck:
            how = "and all later ones" if schedule.lasting else "once"
            name = errno.errorcode[schedule.error]
            self._injected[f"{schedule.role}: {plan.call.decode()} {name} {how}"] += 1
            known = self._struck.get(plan.job)  # of an earlier schedule, as the job still waited
            if known is None or not known.reaches_runners:
                self._struck[plan.job] = schedule
            if not plan.job:
                self._shared.update((job.id, schedule) for job in jobs)
        if not lives(pid) or daemon_pid() != pid:
            self._violations.append(f"the daemon went down: {schedule}, {plan.call.decode()}")

    def _start(self, schedule: Schedule) -> None:
        """Start the daemon; without the fault, where it does not start with it."""
        try:
            Client().close()
        except UserError as e:
            self._plan.role = 0
            log = paths.daemon_log().read_text(errors="replace")[-2000:]
            self._violations.append(f"the daemon does not start: {schedule}: {e}\n{log}")

    def _submit(self, deck: Client, kind: str) -> Job:
        script, options = COMMANDS[kind]
        line = f'echo "$GPUDECK_JOB $GPUDECK_ATTEMPT" >> {self._ledger}; {script}'
        spec = make_spec(["sh", "-c", line], {**options, "name": kind, "env": {}, "cwd": "/"})
        (job,) = deck.submit_many([spec])
        self._kinds[job.id] = kind
        return job

    def _await_others(self, jobs: list[Job]) -> None:
        """Wait until the jobs with sound folders have ended, or a shared folder has failed."""
        end = time.monotonic() + OTHERS_S
        with Client() as deck:
            while True:
                if self._plan.struck and self._plan.lasting and not self._plan.job:
                    return
                active = [job.id for job in jobs if deck.job(job.id).active]
                if not set(active) - {self._plan.job if self._plan.struck else 0}:
                    return
                if time.monotonic() > end:
                    self._violations.append(
                        f"jobs {active} did not end while the folder of job {self._plan.job} failed"
                    )
                    return
                time.sleep(0.02)

    def _settle(self) -> None:
        end = time.monotonic() + SETTLE_S
        with Client() as deck:
            while (active := deck.jobs(1000, active=True)) and time.monotonic() < end:
                time.sleep(0.1)
            self._violations += [f"job {job.id} never ended: {job.status}" for job in active]
            begun = self._begun()
            for number, kind in self._kinds.items():
                self._judge(deck.job(number), kind, begun[number])
        log = paths.daemon_log().read_text(errors="replace")
        if "Traceback" in log:
            self._violations.append(f"the daemon crashed:\n{log[-3000:]}")

    def _begun(self) -> Counter[int]:
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        attempts = Counter(lines)
        self._violations += [f"ran twice: {line}" for line, times in attempts.items() if times > 1]
        return Counter(int(line.split()[0]) for line in lines)

    def _judge(self, job: Job, kind: str, begun: int) -> None:
        shared = self._shared.get(job.id)
        if shared is not None and shared.reaches_runners and job.status == "lost" and not begun:
            self._unclear += 1
        elif (wrong := verdict(job, kind, begun, self._struck.get(job.id))) is not None:
            self._violations.append(f"{wrong}; the folder of all: {shared}")


def verdict(job: Job, kind: str, begun: int, fault: Schedule | None) -> str | None:
    """Return what is wrong with the end of a job; None where nothing is.

    Args:
        begun: how often its command began.
        fault: what struck its folder; None where that was sound.
    """
    expected = _RUNS.get(kind, 1)
    good = job.status == "done" and begun == expected
    if good and kind == "result" and (fault is None or fault.error != errno.EACCES):
        good = job.result is not None
    excused = fault is not None and begun <= expected and _excuses(fault, job, begun < expected)
    if good or excused:
        return None
    return f"job {job.id} ({kind}) ran {begun} times: {job.state}; its folder: {fault}"


def _excuses(fault: Schedule, job: Job, ran_less: bool) -> bool:
    """Return whether the fault explains how a job ended that is not done.

    The daemon must never lose what a runner could write: where only the daemon's accesses failed,
    the job failed before an attempt began.
    """
    if not fault.reaches_runners:
        return job.status == "failed" and ran_less
    return job.status in ("done", "failed", "lost") and (job.status != "done" or not ran_less)


@contextmanager
def preloaded(folder: Path, library: Path) -> Iterator[Plan]:
    """Preload the library into daemons that start meanwhile, and yield its plan, disarmed."""
    file = folder / "plan"
    file.write_bytes(bytes(ctypes.sizeof(Plan)))
    with file.open("r+b") as f, pytest.MonkeyPatch.context() as patch:
        plan = Plan.from_buffer(mmap.mmap(f.fileno(), 0))  # unmapped with the last reference
        for place, watched in enumerate(("jobs", "attempts")):
            plan.folders[place].value = os.fsencode(paths.home() / watched)
        patch.setenv("LD_PRELOAD", str(library))
        patch.setenv("FAULTS_PLAN", str(file))
        try:
            yield plan
        finally:
            plan.role = 0


def campaign(folder: Path, library: Path, schedules: list[Schedule]) -> Report:
    """Run schedules in a state folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    with state_folder(folder / "home"):
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with preloaded(folder, library) as plan:
            with Client():
                pass
            return FileFaults(folder, plan).run(schedules)


def main() -> int:
    """Run the schedules, four state folders at a time, and print what was injected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", type=int, default=4, help="state folders at a time")
    arguments = parser.parse_args()
    schedules = draw_schedules(arguments.seed, arguments.schedules)
    with tempfile.TemporaryDirectory(prefix="file-faults-") as name:
        folder = Path(name)
        if (library := build(folder)) is None:
            print("left out: no C compiler is installed, which builds the library of faults")
            return 2
        shares = [schedules[i :: arguments.folders] for i in range(arguments.folders)]
        with ProcessPoolExecutor(arguments.folders) as pool:
            futures = [
                pool.submit(campaign, folder / str(i), library, share)
                for i, share in enumerate(shares)
            ]
            reports = [future.result() for future in futures]
    injected = sum((report.injected for report in reports), Counter[str]())
    for what, count in sorted(injected.items()):
        print(f"{count:5}  {what}")
    violations = [violation for report in reports for violation in report.violations]
    print("\n".join(violations))
    print(
        f"{len(schedules)} schedules, {injected.total()} faults, "
        f"{sum(report.jobs for report in reports)} jobs, {len(violations)} violations; "
        f"lost, as it is unclear whether they began: {sum(report.unclear for report in reports)}"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
