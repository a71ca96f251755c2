"""Torture a daemon that several users share: foreign locks, hostile requests, a daemon that dies.

    sudo python -m tests.integration.torture.others [--minutes 15] [--seed 4]

Two users submit jobs, and arrays that are stored in several transactions. Meanwhile a process of a
stranger locks GPUs and lets them go, a third user asks for what is not theirs, and the daemon is
killed. Afterwards each acknowledged job must have run once, no GPU may have been held twice, and
nothing may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors.lock_file import ranges_of
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import DaemonGone, OutcomeUnknown, UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import kill_daemon
from tests.support import eventually, state_folder

ROOT = Path(__file__).parents[3]
GROUP = 40_000 + os.getpid() % 1000
USERS = (GROUP + 2000, GROUP + 4000)
INTRUDER, STRANGER = GROUP + 6000, 65_533
"""A member of the group, and a user who is none."""
ARRAY = 110
"""Jobs of an array: more than are stored in one transaction."""
BACKLOG = 30
"""The most jobs that wait or run when a round begins."""
SETTLE_S = 60.0
"""Seconds without the end of a job after which none is expected."""
JOB = (
    'echo "$1.$GPUDECK_ARRAY_INDEX b $CUDA_VISIBLE_DEVICES" >> "$0"; sleep "$2"; '
    'echo "$1.$GPUDECK_ARRAY_INDEX e $CUDA_VISIBLE_DEVICES" >> "$0"'
)


class Outcome(NamedTuple):
    """Count what happened."""

    faults: Counter[str]
    acknowledged: int
    violations: list[str]


class Torture:
    """Run rounds against one shared daemon. Only root can."""

    def __init__(self, folder: Path, home: Path, locks: Path, seed: int) -> None:
        self.folder, self.home, self.locks = folder, home, locks
        self.draw = random.Random(seed)
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.ledger.chmod(0o666)
        self.faults: Counter[str] = Counter()
        self.known: dict[str, int] = {}
        """Acknowledged jobs by their names, each with its number."""
        self.violations: list[str] = []
        self.serial = 0
        with Client() as deck:
            self.gpus = [state.device.id for state in deck.snapshot().devices]

    def round(self) -> None:
        """Let both users submit while one fault strikes."""
        with Client() as deck:
            while len(deck.jobs(1000, active=True)) > BACKLOG:
                time.sleep(0.1)
        self.serial += 1
        wants = [self.wants(), self.wants()]
        results = [self.folder / f"acknowledged.{n}" for n in range(2)]
        children = [
            forked(uid, lambda w=want, r=result: submit(self.home, self.ledger, w, r), GROUP)
            for uid, want, result in zip(USERS, wants, results, strict=True)
        ]
        name, fault = self.draw.choice(self.kinds())
        time.sleep(self.draw.random() * 0.4)
        fault()
        self.faults[name] += 1
        for child in children:
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                self.violations.append(f"stuck: a user got no answer in round {self.serial}")
        for result in results:
            self.known |= json.loads(result.read_text()) if result.exists() else {}
            result.unlink(missing_ok=True)

    def wants(self) -> list[tuple[str, int, int, float]]:
        """Return what a user submits: names, GPUs, counts and seconds."""
        found = []
        for number in range(self.draw.randint(1, 4)):
            many = self.draw.random() < 0.03
            name = f"j{self.serial}-{self.draw.getrandbits(32):08x}-{number}"
            gpus = 0 if many else self.draw.randint(0, 1)
            found.append(
                (name, gpus, ARRAY if many else 1, 0.0 if many else self.draw.random() * 0.1)
            )
        return found

    def kinds(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("a foreign lock on a GPU", lambda: self.lock([self.draw.choice(self.gpus)])),
            ("foreign locks on all GPUs", lambda: self.lock(self.gpus)),
            ("foreign locks on all GPUs, the daemon killed", self.lock_and_kill),
            ("hundreds of foreign locks", lambda: self.lock(self.gpus[:1], parts=300)),
            ("another user's requests", self.intrude),
            ("another user's requests, the daemon killed", self.intrude_and_kill),
            ("the daemon killed", self.kill_daemon),
        ]

    def lock(self, gpus: list[str], parts: int = 1, kill: bool = False) -> None:
        """Have a stranger hold GPUs for a moment; some are killed instead of letting go."""
        seconds = self.draw.random() * 0.6
        child = forked(STRANGER, lambda: hold(self.locks, self.ledger, gpus, parts, seconds))
        if kill:
            self.kill_daemon()
        os.waitpid(child, 0)

    def lock_and_kill(self) -> None:
        self.lock(self.gpus, kill=True)

    def intrude(self, kill: bool = False) -> None:
        """Have a member ask for what is not theirs."""
        seed, known = self.draw.random(), list(self.known.values())[-40:]
        child = forked(INTRUDER, lambda: intrude(self.home, known, seed), GROUP)
        if kill:
            time.sleep(self.draw.random() * 0.2)
            self.kill_daemon()
        if (got := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) == TRESPASSED:
            self.violations.append(f"a request for another's job was obeyed in round {self.serial}")
        elif got:
            self.violations.append(f"the intruder ended with {got} in round {self.serial}")

    def intrude_and_kill(self) -> None:
        self.intrude(kill=True)

    def kill_daemon(self) -> None:
        kill_daemon()
        with Client() as deck:
            deck.jobs(1)

    def settle(self) -> Outcome:
        """Wait until no job is left, and judge."""
        with Client() as deck:
            before, end = -1, 0.0
            while left := deck.jobs(1000, active=True):
                if len(left) != before:
                    before, end = len(left), time.monotonic() + SETTLE_S
                if time.monotonic() > end:
                    break  # nothing has ended for so long
                time.sleep(0.2)
            self.violations += [f"stuck: job {j.id}: {j.state}" for j in left]
            ends = {}
            for name, number in self.known.items():
                try:
                    ends[name] = deck.job(number)
                except UserError as e:
                    self.violations.append(f"lost: job {number} ({name}): {e}")
        ran = Counter(
            w[0] for w in map(str.split, self.ledger.read_text().splitlines()) if w[1] == "b"
        )
        for name, job in ends.items():
            if job.status != "done":
                self.violations.append(f"lost: job {job.id} ({name}) is {job.status}: {job.state}")
            if ran[name] != 1:
                self.violations.append(f"job {job.id} ({name}) ran {ran[name]} times")
        for name, times in ran.items():
            if times > 1 and name not in ends and not name.startswith("stranger"):
                self.violations.append(f"doubled: {name} ran {times} times, unacknowledged")
        self.violations += held_twice(self.ledger.read_text())
        return Outcome(self.faults, len(self.known), self.violations)


def held_twice(ledger: str) -> list[str]:
    """Return where two held a GPU at once."""
    holders: dict[str, str] = {}
    found = []
    for line in ledger.splitlines():
        who, what, *gpus = line.split()
        for gpu in gpus:
            if what == "b":
                if gpu in holders:
                    found.append(f"doubled: {who} got {gpu} while {holders[gpu]} had it")
                holders[gpu] = who
            elif holders.get(gpu) == who:
                del holders[gpu]
    return found


TRESPASSED = 17


def submit(home: Path, ledger: Path, wants: list[tuple[str, int, int, float]], result: Path) -> int:
    """Submit jobs as a user, each again with its token until it is acknowledged."""
    acknowledged: dict[str, int] = {}
    for name, gpus, count, seconds in wants:
        words = ["sh", "-c", JOB, str(ledger), name, f"{seconds:.3f}"]
        env = {"PATH": "/usr/bin:/bin"}
        spec = make_spec(words, {"gpus": gpus, "name": name, "env": env, "cwd": "/"})
        array = [msgspec.structs.replace(spec, index=index) for index in range(count)]
        end = time.monotonic() + 60.0
        while True:
            try:
                with Client(timeout=20.0) as deck:
                    if count > 1:
                        jobs = deck.submit_many(array, token=name)
                        acknowledged |= {f"{name}.{i}": job.id for i, job in enumerate(jobs)}
                    else:
                        (job,) = deck.submit_many([spec], token=name)
                        acknowledged[f"{name}."] = job.id
                break
            except (DaemonGone, OutcomeUnknown, UserError):
                if time.monotonic() > end:
                    return 1
                time.sleep(0.1)
    with os.fdopen(os.open(result, os.O_WRONLY | os.O_CREAT), "w") as file:
        json.dump(acknowledged, file)
    return 0


def hold(locks: Path, ledger: Path, gpus: list[str], parts: int, seconds: float) -> int:
    """Lock GPUs as a stranger, in one piece or in many, and note those that were free."""
    got = []
    fds = []
    for gpu in gpus:
        fd = os.open(locks, os.O_RDWR)
        start, end = ranges_of(gpu)[0]
        try:
            for part in range(parts):
                first, size = (start, end - start) if parts == 1 else (start + 2 * part, 1)
                flock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, first, size, 0)
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, flock)
            got.append(gpu)
        except OSError:
            os.close(fd)
            continue
        fds.append(fd)
    note(ledger, f"stranger-{os.getpid()} b {' '.join(got)}")
    time.sleep(seconds)
    note(ledger, f"stranger-{os.getpid()} e {' '.join(got)}")
    return 0


def note(ledger: Path, line: str) -> None:
    with ledger.open("a") as file:
        file.write(line + "\n")


def intrude(home: Path, known: list[int], seed: float) -> int:
    """Ask for what belongs to others. Return TRESPASSED where that was given."""
    draw = random.Random(seed)
    for _ in range(12 if known else 0):
        try:
            with Client(timeout=20.0) as deck:
                ask(deck, draw.randrange(10), draw.choice(known), draw.choice(known))
        except (DaemonGone, OutcomeUnknown):
            time.sleep(0.05)
        except UserError:
            pass
        else:
            return TRESPASSED
    return 0


def ask(deck: Client, what: int, job: int, other: int) -> None:
    """Ask for one of the things that another user's jobs and administrators are needed for."""
    asks: list[Callable[[], object]] = [
        lambda: deck.cancel(job),
        lambda: deck.cancel_many([range(job, job + 50)]),
        lambda: deck.edit(job, hold=True),
        lambda: deck.edit(job, priority=5),
        lambda: deck.move(job, before=other),
        lambda: deck.log(job),
        deck.pause,
        deck.stop_daemon,
        lambda: deck.submit(["true"], priority=9),
        lambda: deck.restore([job]),
    ]
    asks[what]()


def forked(uid: int, act: Callable[[], int], group: int | None = None) -> int:
    """Fork a process of another user, which has all modules that root could read."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.setgroups([])
        os.setgid(group or uid)
        os.setuid(uid)
        os.environ["GPUDECK_SHARED"] = os.environ.pop("GPUDECK_HOME")
        del os.environ["GPUDECK_SYSTEM"]
        status = act()
    finally:
        os._exit(status)


@contextlib.contextmanager
def shared_daemon(base: Path) -> Iterator[tuple[Path, Path]]:
    """Run a daemon that users share, on two recorded GPUs; yield its home and the locks."""
    (base / "nvml.json").write_text('{"gpus": 2}')
    (base / "nvml.json").chmod(0o644)
    names = [f"gpudeck-t{uid}" for uid in (*USERS, INTRUDER)]
    group = f"gpudeck-t{GROUP}"
    subprocess.run(["groupadd", "-g", str(GROUP), group], check=True)
    for name, uid in zip(names, (*USERS, INTRUDER), strict=True):
        subprocess.run(
            ["useradd", "-M", "-N", "-u", str(uid), "-g", group, "-s", "/bin/sh", name], check=True
        )
    locks = base / "locks"
    locks.touch()
    locks.chmod(0o666)
    try:
        with state_folder(base / "state") as home:
            os.environ |= {
                "PYTHONPATH": f"{ROOT / 'tests' / 'integration' / 'edge'}:{ROOT}",
                "RECORDED_NVML": str(base / "nvml.json"),
                "GPUDECK_GPU_LOCKS": str(locks),
                "GPUDECK_SYSTEM": "1",
                "GPUDECK_GROUP": group,
            }
            settings.save(Settings(source="nvml", idle_dwell_s=0.0, model_folder=TEMPLATE))
            with Client() as deck:
                eventually(lambda: len([d for d in deck.snapshot().devices if d.reading]) > 1)
            yield home, locks
    finally:
        for name in names:
            subprocess.run(["userdel", name], check=False, capture_output=True)
        subprocess.run(["groupdel", group], check=False, capture_output=True)


def torture(seed: int, seconds: float, most: int = 10**9) -> Outcome:
    """Run rounds for so long, or so many."""
    base = Path(tempfile.mkdtemp(prefix="gpudeck-others-", dir="/tmp"))
    base.chmod(0o755)
    (base / "users").mkdir(mode=0o777)
    (base / "users").chmod(0o777)
    try:
        with shared_daemon(base) as (home, locks):
            run = Torture(base / "users", home, locks, seed)
            end = time.monotonic() + seconds
            while time.monotonic() < end and run.serial < most:
                run.round()
            return run.settle()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    found = torture(arguments.seed, arguments.minutes * 60)
    for name, count in sorted(found.faults.items()):
        print(f"{count:6} {name}")
    print(f"{found.faults.total()} faults, {found.acknowledged} jobs acknowledged")
    print("\n".join(found.violations) or "0 lost, 0 doubled, 0 stuck")
    return bool(found.violations)


if __name__ == "__main__":
    sys.exit(main())
