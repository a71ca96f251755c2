"""Run rounds of faults in one world, with several clients that know only the command line."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.torture.outside.command_line import CommandLine, Reply
from tests.integration.torture.outside.plan import CLIENTS, Round
from tests.integration.torture.outside.verdict import (
    ENDS,
    Acknowledged,
    Evidence,
    LedgerLine,
    Listed,
)
from tests.integration.torture.outside.world import World, nonce

VICTIM = Path(__file__).with_name("victim.py")
ANSWER_S, SETTLE_S = 60.0, 60.0
"""Seconds within which the daemon answers after a fault, and without the end of a job after which
none is expected."""
TRIES = 3
"""How often a submission that fails is tried."""
BACKLOG = 16
"""The most jobs that wait or run when a round begins."""
ALL = "100000"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "flaky": ("--retries", "1", "--backoff", "0.1"),
    "hopeless": ("--retries", "2", "--backoff", "0.1"),
    "overtime": ("--timeout", "0.3"),
    "array": ("--array", "0-2"),
    "artefacts group writable": ("--retries", "2", "--backoff", "0.1"),
    "lock removed": ("--retries", "1", "--backoff", "0.1"),
    "lock is a folder": ("--retries", "2", "--backoff", "0.1"),
    "lock is a folder, runner killed": ("--retries", "1", "--backoff", "0.1"),
}
UNKNOWN = "unknown"
"""The name of a job that a store lists as lost of which it does not know any more."""
TREASURE = "no job may overwrite this\n"


class Campaign:
    """Submit jobs, inject faults, and collect what can be seen from the outside."""

    def __init__(self, world: World) -> None:
        self.world, self.ledger = world, world.folder / "ledger"
        self._treasure = world.folder / "treasure"
        self._treasure.write_text(TREASURE)
        self.struck: Counter[str] = Counter()
        self.refused = self.repeated = 0
        self.excused: set[str] = set()
        self._acknowledged: dict[str, Acknowledged] = {}
        self._unclear: dict[str, int] = {}
        self._ended: set[str] = set()
        self._at_risk: set[str] = set()
        self._damaged: set[str] = set()
        self._recorded: dict[str, list[Listed]] = {}
        """Jobs that had ended before the store was damaged, which may have forgotten them."""
        self._down: list[str] = []
        self._crashes: list[str] = []
        self._error = ""
        self._stuck: set[int] = set()
        """Jobs that are not waited for again."""
        self._word, self._numbers = nonce(), itertools.count()
        self.clients = [CommandLine(world, f"client{number}") for number in range(CLIENTS)]
        self.attacker = CommandLine(world, "attacker")
        """The client of whoever injects the faults."""
        self._operator = CommandLine(world, "operator")
        self.operate("daemon", "start", "--source", "cpu")

    # Commands

    def operate(self, *words: str, timeout: float = 90.0) -> Reply:
        """Run a command of the person who looks after the queue."""
        reply = self._operator(*words, timeout=timeout)
        self._note_crash(words, reply)
        return reply

    def submit(self, client: CommandLine, kind: str, *arguments: object) -> str:
        """Submit a job, and return its token, whether or not the job was acknowledged."""
        token = f"{self._word}-{next(self._numbers)}"
        options = OPTIONS.get(kind, ())
        runs = 1 + (int(options[1]) if "--retries" in options else 0)
        members = [f"{token}.{index}" for index in range(3)] if kind == "array" else [f"{token}."]
        self._unclear.update(dict.fromkeys(members, runs))
        command = [sys.executable, "-S", "-E", VICTIM, kind, self.ledger, token, *arguments]
        words = ["submit", "--json", "--cwd", "/", "--name", token, *options, "--"]
        reply = self._until(client, [*words, *map(str, command)])
        if reply.status:
            self.refused += 1
            return token
        jobs = reply.json if kind == "array" else [reply.json]
        for member, job in zip(members, jobs, strict=True):
            self._acknowledged[member] = Acknowledged(job["id"], kind, runs)
            del self._unclear[member]
        if kind in ("cancelled", "stubborn"):
            client("cancel", str(jobs[0]["id"]))
        return token

    def _until(self, client: CommandLine, words: Sequence[str]) -> Reply:
        """Repeat a command that fails, as a loop of a shell does until the machine crashes."""
        for _ in range(TRIES):
            boots = self.world.boots
            reply = client(*words)
            self._note_crash(words, reply)
            # one that is killed may have had its answer, which nobody else can know
            if reply.status in (0, -signal.SIGKILL) or self.world.boots != boots:
                break
            self.repeated += 1
        return reply

    def active(self) -> list[dict[str, Any]] | None:
        """Return the jobs that wait or run; None if nobody answers in time."""
        end = time.monotonic() + ANSWER_S
        before = set(self._acknowledged)
        while True:
            reply = self.operate("jobs", "--json", "--active", "--limit", ALL, timeout=ANSWER_S)
            if reply.status == 0:
                found: list[dict[str, Any]] = reply.json
                self._ended |= before - {_token(job) for job in found}
                return found
            if "--repair" in reply.err:
                self.operate("daemon", "stop")
                self.operate("doctor", "--repair")
            if time.monotonic() > end:
                self._error = reply.err.strip() or f"status {reply.status}"
                return None
            time.sleep(0.05)

    def _note_crash(self, words: Sequence[str], reply: Reply) -> None:
        if "Traceback" in reply.err:
            self._crashes.append(f"gpudeck {' '.join(words[:2])}: {reply.err.strip()[-1500:]}")

    # Excuses

    def excuse(self, token: str) -> None:
        """Let a job, or all members of an array, end in any way."""
        self.excused |= {f"{token}.{index}" for index in ("", 0, 1, 2)}

    def excuse_active(self) -> None:
        """Let all jobs end in any way that may not have ended yet."""
        self.excused |= {*self._acknowledged, *self._unclear} - self._ended

    def acknowledged(self) -> set[str]:
        """Return the jobs that were acknowledged so far."""
        return set(self._acknowledged)

    def risk_unsynced(self, synced: Collection[str]) -> None:
        """Let jobs vanish that were acknowledged while their disk was cut off.

        An fsync(2) that meets the abort of an ext4, or its shutdown, may return success for data
        that is not on the disk (seen on Linux 6.18). What the same did to jobs that had not ended
        is counted apart, too.

        Args:
            synced: the jobs that were acknowledged before.
        """
        self._at_risk |= self._acknowledged.keys() - synced
        self._damaged |= {*self._acknowledged, *self._unclear} - self._ended

    def risk(self, tokens: Sequence[str]) -> None:
        """Let these jobs vanish, as the store that holds them is about to be damaged."""
        self._at_risk |= {f"{token}." for token in tokens}
        self.excused |= self._at_risk
        self._damaged |= self._at_risk

    # Rounds

    def run(
        self,
        rounds: Sequence[Round],
        count: int,
        inject: Callable[[Campaign, Round], bool],
        progress: Callable[[str], object] = lambda kind: None,
    ) -> Evidence:
        """Run rounds until `count` faults have struck, and return the evidence."""
        for planned in rounds:
            if self.struck.total() >= count:
                break
            self._wait_for_room()
            if self._round(planned, inject):
                self.struck[f"{planned.fault.family}: {planned.fault.kind}"] += 1
                progress(planned.fault.kind)
            if self.active() is None:
                self._down.append(f"after {planned.fault.kind}: {self._error}")
                self.world.heal()
        return self.evidence()

    def _round(self, planned: Round, inject: Callable[[Campaign, Round], bool]) -> bool:
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = list(map(partial(pool.submit, self._submit_all), self.clients, planned.jobs))
            time.sleep(planned.delay)
            struck = inject(self, planned)
            for client in clients:
                client.result()
        return struck

    def _submit_all(self, client: CommandLine, kinds: Sequence[str]) -> None:
        for kind in kinds:
            self.submit(client, kind)

    def _wait_for_room(self) -> None:
        """Wait until few jobs are active, but not for ever: one may be stuck until the end."""
        end = time.monotonic() + 5.0
        while len(self.cancel_stubborn(self.active() or [])) > BACKLOG and time.monotonic() < end:
            time.sleep(0.05)

    def cancel_stubborn(self, active: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Cancel the jobs that would not end by themselves, and return all that are active."""
        kinds = ("stubborn", "lock removed, runner killed", "lock is a folder, runner killed")
        stubborn = [
            str(job["id"]) for job in active if any(k in job["spec"]["argv"] for k in kinds)
        ]
        if stubborn:
            self.operate("cancel", *stubborn)
        return active

    # The end

    def settle(self) -> None:
        """Undo all faults, and wait until every job has ended or none ends any more."""
        self.world.heal()
        left, end = -1, 0.0
        while active := [job for job in self.active() or () if job["id"] not in self._stuck]:
            if len(active) != left:
                left, end = len(active), time.monotonic() + SETTLE_S
            if time.monotonic() > end:
                self._stuck |= {job["id"] for job in active}
                return
            self.world.heal()
            self.cancel_stubborn(active)
            time.sleep(0.1)

    def record(self) -> None:
        """Record how all jobs ended, before the store may forget it."""
        self.settle()
        self._recorded = {**self._listed(), **self._recorded}  # the first record is the truest
        self._damaged |= {*self._acknowledged, *self._unclear}

    def _listed(self) -> dict[str, list[Listed]]:
        found = defaultdict(list)
        reply = self.operate("jobs", "--json", "--limit", ALL, timeout=300.0)
        for job in reply.json if reply.status == 0 else []:
            state = job["state"]
            why = state.get("reason") or state.get("why") or ""
            found[_token(job)].append(Listed(job["id"], state["type"], str(why)))
        found.pop(f"{UNKNOWN}.", None)
        return found

    def evidence(self) -> Evidence:
        """Let everything end, and return all that can be seen then."""
        self.settle()
        listed = self._listed()
        for token, recorded in self._recorded.items():
            if all(job.status in ENDS for job in listed.get(token, ())):
                listed[token] = recorded
        if self._treasure.read_text() != TREASURE:
            self._crashes.append("a file outside of the state folder was overwritten")
        log = self.world.home / "daemon.log"
        if log.exists() and "Traceback" in (text := log.read_text(errors="replace")):
            self._crashes.append(f"the daemon: {text[text.index('Traceback') :][:3000]}")
        return Evidence(
            self._acknowledged,
            self._unclear,
            listed,
            read_ledger(self.ledger),
            self.excused,
            self._at_risk,
            self._damaged,
            self._down,
            [f"{name}: {process.command}" for name, process in self._left().items()],
            self._crashes,
        )

    def _left(self) -> dict[str, Any]:
        """Return the processes that run for jobs, of which all have ended."""
        return {
            str(process.pid): process
            for process in self.world.processes()
            if str(self.ledger) in process.command
        }

    def close(self) -> None:
        """End the clients, then everything else."""
        for client in (*self.clients, self.attacker, self._operator):
            client.close()
        self.world.close()


def read_ledger(file: Path) -> list[LedgerLine]:
    """Return what the jobs wrote, in that order."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [
        LedgerLine(token, int(attempt), int(code[0]) if code else None)
        for token, attempt, _, *code in lines
    ]


def _token(job: Mapping[str, Any]) -> str:
    """Return the token of a listed job, which is the name it was given."""
    index = job["spec"]["index"]
    return f"{job['spec']['name'].partition('[')[0]}.{'' if index is None else index}"
