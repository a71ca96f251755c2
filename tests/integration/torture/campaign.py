"""Run many rounds of faults against one state folder, with real daemons, runners and jobs."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.job_options import JobOptions, make_spec
from gpudeck.scheduler.protocol.jobs import Job, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.torture.faults import inject, shoot_daemon
from tests.integration.torture.plan import Round
from tests.integration.torture.verdict import NARROW, Evidence, violations
from tests.integration.torture.witness import processes_with, read_ledger, read_store
from tests.support import eventually, lives

HERE = Path(__file__).parent
SETTLE_S = 600.0
"""Seconds without the end of a job after which none is expected."""
BACKLOG = 10
"""The most jobs that wait or run when a round begins."""
MEMBERS = 3
"""Jobs in one array."""
_OPTIONS: dict[str, JobOptions] = {
    "flaky": {"retries": 1, "backoff": 0.1},
    "hopeless": {"retries": 2, "backoff": 0.1},
    "overtime": {"timeout": 0.3},
    "narrow": {"group": "narrow"},
}
T = TypeVar("T")


class Campaign:
    """Run rounds against the state folder in GPUDECK_HOME.

    The ledger and the plans are in `folder`, which is on another disk.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ledger, self.nonce = (
            folder,
            folder / "ledger",
            f"torture-{secrets.token_hex(8)}",
        )
        self.injected: Counter[str] = Counter()
        self.acknowledged: dict[int, str] = {}
        self.refused = 0
        self.excused: set[int] = set()
        self._struck = 0
        self.bystander = 0
        """Pid of a process that is not ours, and must survive."""

    @contextlib.contextmanager
    def sabotaged(self) -> Iterator[None]:
        """Let daemons that start meanwhile be hit by the faults that rounds arm."""
        path = os.pathsep.join(
            [str(HERE / "sabotage"), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        with (
            pytest.MonkeyPatch.context() as patch,
            subprocess.Popen(["sleep", "3600"]) as bystander,
        ):
            patch.setenv("PYTHONPATH", path)
            patch.setenv("TORTURE_FOLDER", str(self.folder))
            self.bystander = bystander.pid
            try:
                yield
            finally:
                bystander.kill()

    def run(self, rounds: list[Round]) -> list[str]:
        """Run all rounds, wait until every job has ended, and return the violations."""
        with self.sabotaged():
            self.insist(lambda deck: deck.set_group("narrow", limit=NARROW))
            for number, planned in enumerate(rounds):
                self._wait_for_room()
                self._round(number, planned)
            return self.settle()

    def crowd(self, count: int, kills: int) -> list[str]:
        """Submit `count` jobs while the daemon is killed `kills` times; return the violations."""
        with self.sabotaged():
            self.insist(lambda deck: deck.pause())
            clients = [
                threading.Thread(target=self._submit_all, args=(("quick",) * (count // 2),))
                for _ in range(2)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            self.insist(lambda deck: deck.pause(False))
            self.injected["jobs at once"] += 1
            for _ in range(kills):
                time.sleep(0.5)
                self.injected["at random: daemon"] += shoot_daemon()
                self.insist(lambda deck: deck.jobs(1))
            return self.settle()

    def flood(self, size: int) -> list[str]:
        """Kill the daemon while a job prints `size` bytes, and return the violations."""
        with self.sabotaged():
            job = self.submit("flood", size)
            assert job is not None
            log = paths.job_folder(job.id) / "log"
            eventually(lambda: log.exists() and log.stat().st_size > size // 4, SETTLE_S)
            self.injected["at random: daemon"] += shoot_daemon()
            self.submit("quick")
            found = self.settle()
        if log.stat().st_blocks * 512 > Settings().log_bytes:
            found.append(f"the log of job {job.id} is over its limit")
        log.unlink()
        return found

    def submit(
        self, kind: str, *arguments: object, gpus: int = 0, after: tuple[int, ...] = ()
    ) -> Job | None:
        """Submit a job, again if it is refused. Return None if it was never acknowledged."""
        options: JobOptions = {**_OPTIONS.get(kind, {}), "gpus": gpus}
        if after:
            options["after" if kind == "child" else "after_any"] = after
        jobs = self._insist_on([self._spec(kind, options, *arguments)])
        if jobs and kind in ("fork", "stubborn", "flood", "flaky", "hopeless", "overtime"):
            self.injected[f"job: {kind}"] += 1
        return jobs[0] if jobs else None

    def submit_array(self) -> tuple[Job, ...]:
        """Submit an array, of which all members are acknowledged, or none."""
        specs = [
            msgspec.structs.replace(self._spec("member", {}, index), index=index)
            for index in range(0, 2 * MEMBERS, 2)
        ]
        return self._insist_on(specs)

    def _spec(self, kind: str, options: JobOptions, *arguments: object) -> Spec:
        command = [
            sys.executable,
            "-S",
            "-E",
            str(HERE / "victim.py"),
            kind,
            str(self.ledger),
            self.nonce,
            *map(str, arguments),
        ]
        return make_spec(command, {**options, "name": kind, "env": {}, "cwd": "/"})

    def _insist_on(self, specs: list[Spec]) -> tuple[Job, ...]:
        for _ in range(5):
            try:
                with Client(timeout=10.0) as deck:
                    jobs = deck.submit_many(specs)
            except UserError:
                self.refused += 1
                time.sleep(0.02)
                continue
            self.acknowledged.update({job.id: job.spec.name for job in jobs})
            return jobs
        return ()

    def settle(self) -> list[str]:
        """Disarm all faults, let every job end, and return the violations."""
        for name in ("plan", "clock"):
            (self.folder / name).unlink(missing_ok=True)
        self.insist(lambda deck: deck.pause(False))
        left, end = 0, 0.0
        while active := self.insist(lambda deck: deck.jobs(1000, active=True)):
            if len(active) != left:
                left, end = len(active), time.monotonic() + SETTLE_S
            if time.monotonic() > end:
                break  # nothing has ended for so long
            self._end_stubborn(active)
            time.sleep(0.1)
        self._note_strikes()
        self.insist(lambda deck: deck.stop_daemon())
        store, orphans = read_store(paths.store_file()), processes_with(self.nonce)
        found = violations(
            Evidence(
                self.acknowledged, frozenset(self.excused), store, read_ledger(self.ledger), orphans
            )
        )
        if not lives(self.bystander):
            found.append("a process that is not ours was killed")
        log = paths.daemon_log().read_text(errors="replace") if paths.daemon_log().exists() else ""
        return found + ([f"the daemon crashed:\n{log[-3000:]}"] if "Traceback" in log else [])

    def arm(self, kind: str, at: str, n: int, number: int = 0) -> None:
        """Arm a fault of sabotage/sitecustomize.py; `number` makes it differ from the last one."""
        new = self.folder / "plan.new"
        new.write_text(json.dumps({"kind": kind, "at": at, "n": n, "number": number}))
        new.rename(self.folder / "plan")

    # One round

    def _round(self, number: int, planned: Round) -> None:
        fault = planned.fault
        if fault.kind in ("daemon", "runner"):
            self.arm(*fault, number)
        clients = [
            threading.Thread(target=self._submit_all, args=(planned.jobs[i::2],)) for i in range(2)
        ]
        for client in clients:
            client.start()
        try:
            if fault.kind not in ("daemon", "runner"):
                time.sleep(planned.delay)
                self.injected[f"{fault.kind}: {fault.at}".removesuffix(": ")] += inject(self, fault)
        finally:
            for client in clients:
                client.join()
        end = time.monotonic() + 1.0
        while (
            (self.folder / "plan").exists()
            and time.monotonic() < end
            and self.insist(lambda deck: deck.jobs(1, active=True))
        ):
            time.sleep(0.02)
        (self.folder / "plan").unlink(missing_ok=True)
        self._note_strikes()

    def _submit_all(self, kinds: tuple[str, ...]) -> None:
        parent: Job | None = None
        for place, kind in enumerate(kinds):
            if kind == "array":
                self.submit_array()
                continue
            after = (parent.id,) if parent is not None and kind in ("child", "follower") else ()
            job = self.submit(kind, gpus=place % 2, after=after)
            parent = job or parent
            if job is not None and kind == "stubborn":
                with contextlib.suppress(UserError), Client(timeout=10.0) as deck:
                    deck.cancel(job.id)

    # Help

    def _wait_for_room(self) -> None:
        end = time.monotonic() + SETTLE_S
        while (
            len(active := self.insist(lambda deck: deck.jobs(1000, active=True))) > BACKLOG
            and time.monotonic() < end
        ):
            self._end_stubborn(active)
            time.sleep(0.05)

    def _end_stubborn(self, active: tuple[Job, ...]) -> None:
        """Cancel all of them with one request."""
        if stubborn := [
            job.id for job in active if job.spec.name == "stubborn" and not stopping(job)
        ]:
            with contextlib.suppress(UserError), Client(timeout=10.0) as deck:
                deck.cancel_many(stubborn)

    def _note_strikes(self) -> None:
        """Count the faults that struck since the last call; excuse jobs whose runner was killed."""
        try:
            lines = (self.folder / "struck").read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines[self._struck :]:
            words, _, job = line.partition(":")
            kind, _, at = words.partition(" ")
            self.injected[f"{kind}: {at}"] += 1
            if job:
                self.excused.add(int(job))
        self._struck = len(lines)

    def insist(self, ask: Callable[[Client], T], timeout: float = 60.0) -> T:
        """What a daemon answers, however often it has to be started for that."""
        end = time.monotonic() + timeout
        while True:
            try:
                with Client(timeout=10.0) as deck:
                    return ask(deck)
            except NotFound:
                raise
            except UserError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


def stopping(job: Job) -> bool:
    """Return whether the job was asked to end."""
    return isinstance(job.state, Running) and job.state.stopping
