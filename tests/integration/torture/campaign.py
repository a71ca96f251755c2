"""A campaign: many rounds of faults against one state folder, with real daemons, runners and jobs; then the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from scheduler import paths
from scheduler.client import Client
from scheduler.errors import NotFound, UserError
from scheduler.executors.local import start_time
from scheduler.jobs import Job, Running
from scheduler.launch import start_process
from tests.integration.deck import daemon_pid, kill_daemon, probe_pid
from tests.integration.torture.plan import Fault, Round
from tests.integration.torture.verdict import Evidence, Row, violations
from tests.support import eventually, lives, send, users_of

HERE = Path(__file__).parent
SETTLE_S = 240.0
BACKLOG = 10
"""Jobs that may wait or run when a round begins."""
DAY_S = 86400
T = TypeVar("T")


class Campaign:
    """Against the state folder that GPUDECK_HOME names; ledger and plans lie in `folder`, which is on another disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ledger, self.nonce = folder, folder / "ledger", f"torture-{secrets.token_hex(8)}"
        self.injected: Counter[str] = Counter()
        self.acknowledged: dict[int, str] = {}
        self.refused = 0
        self._excused: set[int] = set()
        self._struck = 0
        self._bystander = subprocess.Popen(["sleep", "3600"])

    @contextlib.contextmanager
    def sabotaged(self) -> Iterator[None]:
        """Daemons that start meanwhile carry the faults that rounds arm."""
        path = os.pathsep.join([str(HERE / "sabotage"), *filter(None, [os.environ.get("PYTHONPATH")])])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", path)
            patch.setenv("TORTURE_FOLDER", str(self.folder))
            yield

    def run(self, rounds: list[Round]) -> list[str]:
        """All rounds, then peace until every job has ended. Returns the violations."""
        with self.sabotaged():
            for number, planned in enumerate(rounds):
                self._wait_for_room()
                self._round(number, planned)
            return self.settle()

    def crowd(self, count: int, kills: int) -> list[str]:
        """`count` jobs at once, from two clients at once, while the daemon dies `kills` times. Returns the violations."""
        with self.sabotaged():
            self.insist(lambda deck: deck.pause())
            clients = [threading.Thread(target=self._submit_all, args=(("quick",) * (count // 2),)) for _ in range(2)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            self.insist(lambda deck: deck.pause(False))
            self.injected["jobs at once"] += 1
            for _ in range(kills):
                time.sleep(0.5)
                self.injected["at random: daemon"] += self._kill_daemon()
                self.insist(lambda deck: deck.jobs(1))
            return self.settle()

    def flood(self, size: int) -> list[str]:
        """A job prints `size` bytes as fast as it can, and the daemon dies in the middle. Returns the violations."""
        with self.sabotaged():
            job = self.submit("flood", size)
            assert job is not None
            log = paths.job_folder(job.id) / "log"
            eventually(lambda: log.exists() and log.stat().st_size > size // 4, SETTLE_S)
            self.injected["at random: daemon"] += self._kill_daemon()
            self.submit("quick")
            found = self.settle()
        log.unlink()
        return found

    def submit(self, kind: str, *arguments: object, gpus: int = 0) -> Job | None:
        """As a user's script would: again where it was refused. None where it never was acknowledged."""
        command = [sys.executable, "-S", "-E", str(HERE / "victim.py"), kind, str(self.ledger), self.nonce, *map(str, arguments)]
        for _ in range(5):
            try:
                with Client(timeout=10.0) as deck:
                    job = deck.submit(command, name=kind, gpus=gpus, env={}, cwd="/", retries=int(kind == "flaky"), backoff=0.1)
            except UserError:
                self.refused += 1
                time.sleep(0.02)
                continue
            self.acknowledged[job.id] = kind
            if kind in ("fork", "stubborn", "flood", "flaky"):
                self.injected[f"job: {kind}"] += 1
            return job
        return None

    def settle(self) -> list[str]:
        """Take all faults away, let every job end, and judge."""
        for name in ("plan", "clock"):
            (self.folder / name).unlink(missing_ok=True)
        self.insist(lambda deck: deck.pause(False))
        end = time.monotonic() + SETTLE_S
        while (active := self.insist(lambda deck: deck.jobs(1000, active=True))) and time.monotonic() < end:
            self._end_stubborn(active)
            time.sleep(0.1)
        self._note_strikes()
        self.insist(lambda deck: deck.stop_daemon())
        store, orphans = read_store(paths.store_file()), processes_with(self.nonce)
        found = violations(Evidence(self.acknowledged, frozenset(self._excused), store, read_ledger(self.ledger), orphans))
        if self._bystander.poll() is not None:
            found.append("a process that is not ours was killed")
        self._bystander.kill()
        self._bystander.wait()
        log = paths.daemon_log().read_text(errors="replace") if paths.daemon_log().exists() else ""
        return found + ([f"the daemon crashed:\n{log[-3000:]}"] if "Traceback" in log else [])

    def arm(self, kind: str, at: str, n: int, number: int = 0) -> None:
        """See sabotage/sitecustomize.py; `number` tells this plan from the last one."""
        new = self.folder / "plan.new"
        new.write_text(json.dumps({"kind": kind, "at": at, "n": n, "number": number}))
        new.rename(self.folder / "plan")

    # One round

    def _round(self, number: int, planned: Round) -> None:
        fault = planned.fault
        if fault.kind in ("daemon", "runner"):
            self.arm(*fault, number)
        clients = [threading.Thread(target=self._submit_all, args=(planned.jobs[i::2],)) for i in range(2)]
        for client in clients:
            client.start()
        try:
            if fault.kind not in ("daemon", "runner"):
                time.sleep(planned.delay)
                self._inject(fault)
        finally:
            for client in clients:
                client.join()
        end = time.monotonic() + 1.0
        while (self.folder / "plan").exists() and time.monotonic() < end and self.insist(lambda deck: deck.jobs(1, active=True)):
            time.sleep(0.02)
        (self.folder / "plan").unlink(missing_ok=True)
        self._note_strikes()

    def _submit_all(self, kinds: tuple[str, ...]) -> None:
        for place, kind in enumerate(kinds):
            job = self.submit(kind, gpus=place % 2)
            if job is not None and kind == "stubborn":
                with contextlib.suppress(UserError), Client(timeout=10.0) as deck:
                    deck.cancel(job.id)

    def _inject(self, fault: Fault) -> None:
        match fault.kind, fault.at:
            case "at random", "daemon":
                done = self._kill_daemon()
            case "at random", "runner":
                done = self._with_running(self._kill_runner)
            case "at random" | "strange", "probe" | "probe stopped":
                probe = probe_pid(paths.home())
                if done := probe is not None:
                    send(probe, signal.SIGSTOP if fault.at == "probe stopped" else signal.SIGKILL)
            case "at random", "assistant host":
                done = self._kill_host()
            case "strange", "clock a day on" | "clock a day back":
                (self.folder / "clock").write_text(str(DAY_S if fault.at.endswith("on") else -DAY_S))
                done = True
            case "strange", _:
                done = self._with_running(lambda job, runner: self._falsify(job, fault.at))
            case "disk full", _:
                done = self._fill_disk(fault.at)
            case _:
                done = self._at_system_call(fault)
        if done:
            self.injected[f"{fault.kind}: {fault.at}".removesuffix(": ")] += 1

    def _kill_daemon(self) -> bool:
        try:
            pid = daemon_pid()
            if b"scheduler.daemon" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return False
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            return False  # there is none at this moment
        return True

    def _kill_host(self) -> bool:
        try:
            with contextlib.suppress(UserError):
                start_process("assistant.host", paths.home() / "assistant.log", "the assistant")
        finally:
            hosts = [pid for pid in users_of(paths.home()) if b"assistant.host" in _command(pid)]
            for pid in hosts:
                send(pid, signal.SIGKILL)
        return bool(hosts)

    def _with_running(self, act: Callable[[int, Running], bool]) -> bool:
        """`act` on a job that runs, where there is one soon."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            for job in self.insist(lambda deck: deck.jobs(1000, active=True)):
                if isinstance(job.state, Running) and not job.state.stopping:
                    return act(job.id, job.state)
            time.sleep(0.01)
        return False

    def _kill_runner(self, job: int, state: Running) -> bool:
        if start_time(state.runner) != state.started:
            return False
        self._excused.add(job)
        send(state.runner, signal.SIGKILL)
        return True

    def _falsify(self, job: int, what: str) -> bool:
        """The daemon dies, and meanwhile the pid, or the boot, of its runner comes to mean another."""
        self._excused.add(job)
        kill_daemon()
        value = {"pid reused": self._bystander.pid, "start time of another": 1, "another boot": "another"}[what]
        place = {"pid reused": "$.runner", "start time of another": "$.started", "another boot": "$.boot"}[what]
        with contextlib.closing(sqlite3.connect(paths.store_file(), timeout=5.0)) as db, db:
            done = db.execute(
                "UPDATE jobs SET state = json_set(state, ?, ?) WHERE id = ? AND status = 'running'", (place, value, job)
            ).rowcount
        return done == 1

    def _at_system_call(self, fault: Fault) -> bool:
        """Real errors and deaths inside a commit, by strace(1) at the daemon's system calls."""
        if shutil.which("strace") is None:
            return False
        what, call = fault.at.split(" in ") if " in " in fault.at else fault.at.split(" from ")
        effect = f"{call}:signal=KILL:when={fault.n}" if what == "SIGKILL" else f"{call}:error=EIO:when=1..{fault.n}"
        out = self.folder / "strace"
        out.unlink(missing_ok=True)
        with contextlib.suppress(OSError, ValueError):
            attached = subprocess.Popen(
                ["strace", "-f", "-qq", "-o", str(out), "-e", f"trace={call}", "-e", f"inject={effect}", "-p", str(daemon_pid())],
                stderr=subprocess.DEVNULL,
            )
            time.sleep(0.1)
            self.submit("quick")
            end = time.monotonic() + 0.5
            while not (struck := _struck(out)) and time.monotonic() < end:
                time.sleep(0.02)
            detach(attached)
            return struck or _struck(out)
        return False

    def _fill_disk(self, how: str) -> bool:
        if how == "by a job":
            job = self.submit("flood", 2**40)
            if job is None:
                return False
            self._excused.add(job.id)
            eventually(lambda: shutil.disk_usage(paths.home()).free == 0 or not self.insist(lambda deck: deck.job(job.id)).active)
            self.submit("quick")
            self.insist(lambda deck: deck.job(job.id).active and deck.cancel(job.id))
            eventually(lambda: not any(str(job.id).encode() == _job(pid) for pid in users_of_job(self.nonce)))
            (paths.job_folder(job.id) / "log").write_bytes(b"")
            return True
        ballast = paths.home().parent / "ballast"
        with ballast.open("wb", buffering=0) as f:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        f.write(b"x" * size)
        if how:
            self._kill_daemon()
        self.submit("quick")
        time.sleep(0.2)
        ballast.unlink()
        return True

    # Help

    def _wait_for_room(self) -> None:
        end = time.monotonic() + SETTLE_S
        while len(active := self.insist(lambda deck: deck.jobs(1000, active=True))) > BACKLOG and time.monotonic() < end:
            self._end_stubborn(active)
            time.sleep(0.05)

    def _end_stubborn(self, active: tuple[Job, ...]) -> None:
        for job in active:
            stopping = isinstance(job.state, Running) and job.state.stopping
            if job.spec.name == "stubborn" and not stopping:
                with contextlib.suppress(UserError), Client(timeout=10.0) as deck:
                    deck.cancel(job.id)

    def _note_strikes(self) -> None:
        """Count what struck since the last look; the job of a runner that was killed is excused."""
        try:
            lines = (self.folder / "struck").read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines[self._struck :]:
            words, _, job = line.partition(":")
            kind, _, at = words.partition(" ")
            self.injected[f"{kind}: {at}"] += 1
            if job:
                self._excused.add(int(job))
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


def read_store(file: Path) -> dict[int, Row]:
    """All jobs, by number."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return {job: Row(name, status) for job, name, status in db.execute("SELECT id, json_extract(spec, '$.name'), status FROM jobs")}


def read_ledger(file: Path) -> list[tuple[int, str]]:
    """Job and attempt, in the order in which they ran."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(job), attempt) for job, attempt in (line.split() for line in lines)]


def detach(strace: subprocess.Popen[bytes]) -> None:
    """End a strace; one that waits for a child in the middle of its start does not hear the polite signal."""
    strace.terminate()
    try:
        strace.wait(1.0)
    except subprocess.TimeoutExpired:
        strace.kill()  # the kernel lets go of what it traced
        strace.wait()


def _struck(trace: Path) -> bool:
    text = trace.read_text() if trace.exists() else ""
    return "killed by SIGKILL" in text or "(INJECTED)" in text


def processes_with(nonce: str) -> list[str]:
    """The command lines of living processes that carry it."""
    return [_command(pid).replace(b"\0", b" ").decode(errors="replace") for pid in users_of_job(nonce)]


def users_of_job(nonce: str) -> list[int]:
    return [
        int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit() and nonce.encode() in _command(int(e.name)) and lives(int(e.name))
    ]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _job(pid: int) -> bytes:
    """Number of the job that this process belongs to."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    return next((v.partition(b"=")[2] for v in variables if v.startswith(b"GPUDECK_JOB=")), b"")


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "16m") -> Iterator[Path]:
    """A file system of its own at `folder`. Raises PermissionError for who may not mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise PermissionError("only root may mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
