"""Torture submissions to the queue of another machine, which a real sshd on loopback plays.

    python -m tests.integration.torture.remote [--faults 100] [--seed 4]

In each round one program submits jobs through ssh, each with a token, until all are acknowledged.
Meanwhile a fault strikes the connections, the daemon there, or the program. At the end each
acknowledged job must have run once, and no other job may have run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.hosts.tunnel import tunnel
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import DaemonGone, OutcomeUnknown, UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, HostSettings, Settings
from tests.integration.deck import kill_daemon, ready
from tests.integration.sshd import Sshd, serving
from tests.support import eventually, state_folder

JOBS = 3
"""Jobs of a round."""
PATIENCE_S = 120.0
"""Seconds after which a program that tries again and again counts as stuck."""


class Torture:
    """Run rounds against one machine, and count what its jobs did."""

    def __init__(self, sshd: Sshd, home: Path, seed: int) -> None:
        self.sshd, self.draw = sshd, random.Random(seed)
        self.host = HostSettings("lab", str(sshd.config), str(home))
        self.ledger = home / "ledger"
        self.ledger.touch()
        self.faults: Counter[str] = Counter()
        self.names: list[str] = []
        self.violations: list[str] = []
        self.strikes: dict[str, Callable[[int], None]] = {
            "the connections end": self.drop,
            "the connections freeze": self.freeze,
            "the daemon there is killed": self.kill_daemon,
            "the connections end and the daemon there is killed": self.kill_both,
            "the program is killed": self.kill_program,
        }
        """What may happen, each told the process that submits."""

    def round(self) -> None:
        """Let a program submit while one fault strikes, and again if the program was killed."""
        names = [f"job-{len(self.names) + number}" for number in range(JOBS)]
        fault = self.draw.choice(sorted(self.strikes))
        submitting = self.start(names)
        time.sleep(self.draw.random())
        self.strikes[fault](submitting)
        with Client() as deck:  # starts the daemon again, as a login there would
            ready(deck)
        status = self.end(submitting)
        if status == -signal.SIGKILL:
            status = self.end(self.start(names))
        if status:
            self.violations.append(f"stuck: {names} after {fault}")
        self.names += names
        self.faults[fault] += 1

    def start(self, names: list[str]) -> int:
        """Return the process of a program that submits until everything is acknowledged."""
        if pid := os.fork():
            return pid
        status = 1
        try:
            submit(self.host, self.ledger, names)
            status = 0
        finally:
            os._exit(status)

    def end(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def drop(self, _: int) -> None:
        self.sshd.signal_sessions(signal.SIGKILL)

    def freeze(self, _: int) -> None:
        self.sshd.signal_sessions(signal.SIGSTOP)
        time.sleep(self.draw.random())
        self.sshd.signal_sessions(signal.SIGCONT)

    def kill_daemon(self, _: int) -> None:
        kill_daemon()

    def kill_both(self, pid: int) -> None:
        self.drop(pid)
        kill_daemon()

    def kill_program(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def judge(self) -> None:
        """Wait until no job is left, and compare what ran with what was acknowledged."""
        with Client() as deck:
            eventually(lambda: not deck.jobs(1000, active=True), PATIENCE_S)
        ran = Counter(self.ledger.read_text().split())
        for name in self.names:
            if ran[name] != 1:
                self.violations.append(f"{name} ran {ran[name]} times")
        self.violations += [f"{name} was not acknowledged" for name in ran.keys() - {*self.names}]


def submit(host: HostSettings, ledger: Path, names: list[str]) -> None:
    """Submit jobs through ssh, each again with its token until it is acknowledged."""
    end, left = time.monotonic() + PATIENCE_S, list(names)
    while left:
        assert time.monotonic() < end
        with (
            contextlib.suppress(DaemonGone, OutcomeUnknown, UserError),
            tunnel("lab", host) as place,
            Client(place=place, timeout=20.0) as deck,
        ):
            while left:
                deck.submit(["sh", "-c", 'echo "$0" >> "$1"', left[0], str(ledger)], token=left[0])
                del left[0]


@contextlib.contextmanager
def machine() -> Iterator[tuple[Sshd, Path]]:
    """Play another machine: an sshd, and a daemon in a state folder of its own."""
    with tempfile.TemporaryDirectory(prefix="gpudeck-remote-") as base:
        folder = Path(base)
        with serving(folder / "sshd") as sshd, state_folder(folder / "home") as home:
            settings.save(Settings(source="cpu", model_folder=TEMPLATE))
            with Client() as deck:
                ready(deck)
            yield sshd, home


def torture(seed: int, faults: int) -> Torture:
    """Run so many rounds, and judge."""
    with machine() as (sshd, home):
        run = Torture(sshd, home, seed)
        for _ in range(faults):
            run.round()
        run.judge()
        return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    run = torture(arguments.seed, arguments.faults)
    for name, count in sorted(run.faults.items()):
        print(f"{count:6} {name}")
    print(f"{run.faults.total()} faults, {len(run.names)} jobs acknowledged")
    print("\n".join(run.violations) or "0 lost, 0 doubled, 0 stuck")
    return bool(run.violations)


if __name__ == "__main__":
    sys.exit(main())
