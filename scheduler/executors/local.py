"""Run jobs as processes of this machine: start them behind a gate, watch, adopt and end them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import (
    ARTEFACTS,
    Begun,
    Executor,
    Exit,
    NeverRan,
    Outcome,
    Unreadable,
    Untraceable,
    artefacts_folder,
    attempt_of,
    folder_problem,
    result_name,
    running,
    unlimited,
)
from gpudeck.scheduler.background import children
from gpudeck.scheduler.background.descriptors import restore_limit
from gpudeck.scheduler.background.process_stat import (
    boot_id,
    pid_namespace,
    read_proc,
    start_time,
    stat_fields,
)
from gpudeck.scheduler.background.user import identity_of
from gpudeck.scheduler.executors import cgroups, runner, tickets
from gpudeck.scheduler.executors.attempt_folder import (
    exit_record,
    next_folder,
    write_records,
)
from gpudeck.scheduler.executors.containers import (
    REMOVE_S,
    removal_command,
    removal_options,
    remove_container,
)
from gpudeck.scheduler.executors.evidence import Evidence, issue_ticket, note_end, ticket_of
from gpudeck.scheduler.executors.gpu_locks import GpuLocks
from gpudeck.scheduler.executors.inspection import ELSEWHERE, Finding, RunnerInspector, is_elsewhere
from gpudeck.scheduler.executors.launch import EnergyPrice, identity, launch_request
from gpudeck.scheduler.executors.lock_places import LocksClosed
from gpudeck.scheduler.executors.remote_runner import CONTINUE_CLOCK, PAUSE_CLOCK, YIELD
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Lost, Running, Starting
from gpudeck.scheduler.protocol.submissions import SubmissionRecord

MAX_SCANS = 20
"""A process stuck in the kernel stays visible after its SIGKILL: then it is not waited for."""


class GatedRunner(NamedTuple):
    """A runner that waits at its gate, and what locks the GPUs of its job."""

    process: subprocess.Popen[bytes]
    locks: GpuLocks | None
    """Our copies of descriptions that the runner keeps open until it ends; its command gets none.
    None where GPUs cannot be locked, which the daemon shows as a notice."""

    @property
    def ended(self) -> bool:
        """Return whether the runner has ended before it was given anything to run."""
        return self.process.poll() is not None


class Local(Executor):
    """Run each attempt in a runner process, which outlives the daemon."""

    def __init__(
        self,
        watch: Callable[[int, int | None], None],
        log_limit: Callable[[], int] = lambda: 0,
        memory_of: Callable[[str], float | None] = lambda device: None,
        energy_price: Callable[[], EnergyPrice] = EnergyPrice,
    ) -> None:
        """Start nothing yet.

        Args:
            watch: called with the job's number and its runner's pid for each runner whose end must
                be reported, with None for one that has ended; it may raise UserError.
            log_limit: returns how many bytes of its log an attempt may keep that starts now; 0
                keeps all.
            memory_of: returns the bytes of a GPU that is locked against other queues while a job
                holds it; None for a device that is not.
            energy_price: returns the price that an attempt is told that starts now.
        """
        self._watch = watch
        self._log_limit, self._memory_of = log_limit, memory_of
        self._energy_price = energy_price
        self._spare: GatedRunner | None = None
        """A runner that was started ahead: most of a start is the start of an interpreter."""
        self._at_gate: dict[str, GatedRunner] = {}
        """Runners that wait at their gates, by attempt."""
        self._released: dict[str, subprocess.Popen[bytes]] = {}
        """Runners that passed their gates and have to be reaped, by attempt."""
        self._groups: dict[str, Path] = {}
        """Cgroups of attempts whose runners wait at their gates."""
        self._refusals: dict[str, int] = {}
        """The errors for which runners did not begin their attempts, by attempt."""
        self._removals: set[str] = set()
        """Attempts whose containers were removed, or are being removed."""
        self._evidence = Evidence()
        self._inspector = RunnerInspector()
        self._cgroup, self._limit_problem = cgroups.find()

    def start_spare(self) -> None:
        """Have a runner ready for the next attempt, if a process can be started now."""
        self._spare = self._take_spare()
        if self._spare is None:
            try:
                self._spare = start_runner()
            except UserError:
                pass  # the next attempt raises it

    def _take_spare(self) -> GatedRunner | None:
        """Return the spare runner, which is ours no more; None where there is none that lives."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.ended:
            _discard(spare)
            return None
        return spare

    def prepare(
        self,
        job: Job,
        attempt: str,
        devices: tuple[str, ...],
        submission: SubmissionRecord | None = None,
    ) -> Running:
        boot, gated = boot_id(), self._take_spare() or start_runner()
        pid = gated.process.pid
        try:
            self._make_group(job, attempt)
            self._lock(gated, job, devices)
            next_folder(job)
            if not (started := start_time(pid)):
                raise UserError(phrase("the runner ended at once"))
            now, namespace = time.time(), pid_namespace()
            state = Running(attempt, devices, now, pid, started, boot, namespace=namespace)
            issue_ticket(job, state, submission)
            self._watch(job.id, pid)
        except UserError:
            _discard(gated)
            self._remove_group(attempt)
            tickets.discard(ticket_of(attempt))
            raise
        self._at_gate[attempt] = gated
        return state

    def _make_group(self, job: Job, attempt: str) -> None:
        """Make the cgroup of the attempt. Raises UserError where the job's limits are not kept."""
        limited, problem = cgroups.limits(job.spec), self._limit_problem
        try:
            if limited and problem:
                raise UserError(unlimited(problem))
            group = cgroups.make(self._cgroup, attempt, limited)
        except OSError as e:
            raise UserError(unlimited(f"{e.strerror} ({e.filename})")) from e
        if group is not None:
            self._groups[attempt] = group

    def _remove_group(self, attempt: str) -> None:
        self._groups.pop(attempt, None)
        cgroups.remove(self._cgroup, attempt)

    def _lock(self, gated: GatedRunner, job: Job, devices: tuple[str, ...]) -> None:
        """Lock the job's GPUs for as long as its runner lives. Raises GpuTaken, UserError."""
        memory = {device: self._memory_of(device) for device in devices}
        totals = {device: size for device, size in memory.items() if size is not None}
        if not totals:
            return
        if gated.locks is not None:
            gated.locks.claim(job.spec.memory, totals)
        elif (closed := _closed()) is not None:
            raise closed

    def abandon(self, running: Running) -> None:
        _discard(self._at_gate.pop(running.attempt))
        self._remove_group(running.attempt)

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        process, locks = self._at_gate.pop(running.attempt)
        self._released[running.attempt] = process
        if locks is not None:
            locks.close()  # from here on the runner alone holds them, by the same number
        folder = paths.job_folder(job.id)
        whole = {
            **_environment(job, running, env, devices, folder),
            **self._energy_price().variables,
        }
        launch = launch_request(
            job.spec, running.attempt, str(folder), whole,
            log_limit=self._log_limit(), ticket=str(ticket_of(running.attempt)),
            submitted=job.submitted, locks=() if locks is None else locks.fds,
            inherited=msgspec.to_builtins(job.spec.inherited),
            cgroup=str(self._groups.pop(running.attempt, None) or ""),
        )  # fmt: skip
        assert process.stdin is not None
        # a runner that was stopped would never read what is longer than its pipe
        process.send_signal(signal.SIGCONT)
        try:
            with process.stdin as gate:
                gate.write(json.dumps(launch).encode() + b"\n")
        except BrokenPipeError:
            pass  # the runner died at the gate; its end is reported like any other

    def adopt(self, job: Job) -> None:
        state = running(job)
        if not is_elsewhere(state):
            self._watch(job.id, state.runner if self.alive(state) else None)

    def leaves_container(self, job: Job) -> bool:
        attempt = attempt_of(job).attempt
        named = removal_command(job.spec.container, attempt)
        return bool(named) and not isinstance(exit_record(job.id, attempt), Exit)

    def alive(self, running: Running) -> bool:
        if is_elsewhere(running):
            return tickets.is_locked(ticket_of(running.attempt))
        return running.boot == boot_id() and start_time(running.runner) == running.started

    def inspect(
        self, jobs: Iterable[Job], readings: Mapping[str, Reading], devices: Sequence[Device]
    ) -> list[Finding]:
        """Return what runners wait for, and which ended unnoticed in another PID namespace.

        A runner that waits for processes of other users is let go once they left its GPUs.
        """
        found = []
        for job in jobs:
            if job.spec.where or not isinstance(job.state, Running) or job.state.over:
                continue
            if is_elsewhere(job.state):
                found.append(Finding(job.id, ELSEWHERE, ended=not self.alive(job.state)))
            elif self.alive(job.state):
                found.append(self._inspector.inspect(job, job.state, readings, devices))
        return found

    def end(self, job: Job) -> None:
        state = running(job)
        if not is_elsewhere(state) and self.alive(state):
            try:
                os.kill(state.runner, signal.SIGTERM)
                os.kill(state.runner, signal.SIGCONT)  # one that was stopped would not get it
            except ProcessLookupError:
                pass  # it ended in this moment

    def release_devices(self, job: Job) -> None:
        with GpuLocks.of(running(job).runner) as locks:
            locks.release()

    def take_devices(self, job: Job) -> None:
        memory = {device: self._memory_of(device) for device in running(job).devices}
        totals = {device: size for device, size in memory.items() if size is not None}
        with GpuLocks.of(running(job).runner) as locks:
            locks.release()  # what an interrupted return has taken already
            locks.claim(job.spec.memory, totals)

    def pause_clock(self, job: Job, paused: bool) -> None:
        self._signal(job, PAUSE_CLOCK if paused else CONTINUE_CLOCK)

    def ask_to_yield(self, job: Job) -> None:
        self._signal(job, YIELD)

    def _signal(self, job: Job, number: signal.Signals) -> None:
        """Send a signal to the runner of a job, if it lives here."""
        state = running(job)
        if not is_elsewhere(state) and self.alive(state):
            try:
                os.kill(state.runner, number)
            except ProcessLookupError:
                pass  # it ended in this moment

    def end_container(self, job: Job) -> Coroutine[None, None, None] | None:
        """Return what ends the container that a killed runner left; None where none is left.

        The engine runs as the job's user, who may make it hang: the daemon does not wait for it.
        """
        attempt = attempt_of(job).attempt
        if attempt in self._removals or not self.leaves_container(job):
            return None
        self._removals.add(attempt)
        return _run_removal(removal_command(job.spec.container, attempt), job)

    def kill(self, jobs: Sequence[Job]) -> None:
        attempts = {job.id: attempt_of(job) for job in jobs}
        for state in attempts.values():
            if (child := self._released.pop(state.attempt, None)) is not None:
                status = child.wait()
                if status >= runner.NOT_BEGUN:
                    self._refusals[state.attempt] = status - runner.NOT_BEGUN
            cgroups.kill(self._cgroup, state.attempt)
        records = [exit_record(number, state.attempt) for number, state in attempts.items()]
        for job, record in zip(jobs, records, strict=True):
            attempt = attempts[job.id].attempt
            # its runner, which removes it, was killed while no daemon ran
            if not isinstance(record, Exit) and attempt not in self._removals:
                words = removal_command(job.spec.container, attempt)
                if words and (options := _removal_options(job)) is not None:
                    remove_container(words, options)
        recorded = all(isinstance(record, Exit) for record in records)
        kill_remains(attempts.values(), recorded)

    def outcome(self, job: Job) -> Outcome:
        state = attempt_of(job)
        if (found := exit_record(job.id, state.attempt)) is not None:
            return found
        if (refusal := self._refusals.get(state.attempt)) is not None:
            why = phrase(
                "its runner could not record that it begins: {problem}",
                problem=os.strerror(refusal),
            )
            return NeverRan(why, passing=refusal in (errno.ENOSPC, errno.EDQUOT))
        try:
            if tickets.is_untaken(ticket_of(state.attempt)):
                return NeverRan(phrase("its runner ended before it ran anything"))
        except OSError as e:
            if (problem := folder_problem(e)) is not None:
                return problem
        if isinstance(state, Running) and state.boot != boot_id():
            if state.suspension is not None:
                return Untraceable(phrase("the machine was restarted while it was suspended"))
            return Untraceable(phrase("the machine was restarted while it ran"))
        try:
            (paths.job_folder(job.id) / ARTEFACTS).lstat()  # prepare made it
        except OSError as e:
            deleted = phrase("its folder was deleted while it ran, with the record of its end")
            return folder_problem(e) or Untraceable(deleted)
        return Untraceable(phrase("its runner was killed before it could record how the job ended"))

    def forget(self, attempt: str, job: Job) -> None:
        note_end(attempt, job)
        self._removals.discard(attempt)
        if self._refusals.pop(attempt, None) is not None:
            tickets.discard(ticket_of(attempt))  # it may look taken, where the disk failed then
        cgroups.remove(self._cgroup, attempt)

    def forget_all_but(self, attempts: Collection[str]) -> None:
        tickets.sweep(paths.attempts(), attempts)

    def limit_problem(self) -> Message:
        return self._limit_problem

    def record_lost(self, job: Job, state: Lost) -> bool:
        attempt, folder = attempt_of(job).attempt, paths.job_folder(job.id)
        record = Exit(attempt, state.started, state.at, None, f"lost: {state.reason}")
        try:
            write_records(paths.ensure(folder), record, "")
        except (OSError, UserError):
            return False
        return True

    def begun(self) -> Begun:
        return self._evidence.begun()

    def unrecorded(self, job: Job) -> Job | Unreadable | None:
        return self._evidence.unrecorded(job)


def start_runner() -> GatedRunner:
    """Return a runner at its gate. Raises UserError where no process can be started now."""
    # some Pythons find their own shared library only through this
    env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    try:
        locks: GpuLocks | None = GpuLocks.open()
    except UserError:
        locks = None  # the daemon's own one shows it as a notice
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-S", "-E", str(Path(__file__).with_name("runner.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=env,
            pass_fds=() if locks is None else locks.fds,
        )
    except OSError as e:
        if locks is not None:
            locks.close()
        raise UserError(phrase("no process can be started: {error}", error=str(e.strerror))) from e
    restore_limit(
        process.pid
    )  # also works on a zombie; a runner that ended at once is noticed later
    return GatedRunner(process, locks)


def _closed() -> LocksClosed | None:
    """Return why this user's jobs get no GPU, where only members lock them."""
    try:
        GpuLocks.open().close()
    except LocksClosed as e:
        return e
    except UserError:
        pass
    return None


def _discard(gated: GatedRunner) -> None:
    """End a runner at its gate. A stopped one would not see the gate close, so it is killed."""
    process, locks = gated
    assert process.stdin is not None
    process.kill()
    process.stdin.close()
    process.wait()
    if locks is not None:
        locks.close()


async def _run_removal(words: Sequence[str], job: Job) -> None:
    """Run the command that removes a container, and wait for its end up to REMOVE_S."""
    if (options := _removal_options(job)) is None:
        return
    try:
        engine = await asyncio.create_subprocess_exec(*words, **options)
    except OSError:
        return
    try:
        async with asyncio.timeout(REMOVE_S):
            await engine.wait()
    except TimeoutError:
        pass
    finally:
        children.kill(engine)


def _removal_options(job: Job) -> dict[str, Any] | None:
    """Return how the engine is called as the job's user; None where that user is gone."""
    if job.spec.user is None:
        return removal_options(os.environ, None)
    try:
        identity = identity_of(job.spec.user)
    except OSError:
        return None
    home = pwd.getpwuid(identity.uid).pw_dir
    env = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": home,
        "XDG_RUNTIME_DIR": f"/run/user/{identity.uid}",
    }  # fmt: skip
    return removal_options(env, identity)


_VISIBLE = {"amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
"""The variables by which other GPUs are chosen, by their indices."""


def _environment(
    job: Job, running: Running, env: dict[str, str], devices: Sequence[Device], folder: Path
) -> dict[str, str]:
    """Return the job's environment with its devices, and where its result and artefacts go."""
    held = [d for d in devices if d.id in running.devices]
    uuids = [d.id for d in held if d.kind == "nvidia"]
    others = {_VISIBLE[d.kind]: "" for d in held if d.kind in _VISIBLE}
    for name in others:
        others[name] = ",".join(str(d.index) for d in held if _VISIBLE.get(d.kind) == name)
    return {
        **env,
        **identity(job, running.attempt),
        # by UUID, as the order of indices differs between tools; empty for a job without GPUs,
        # which must not touch one that is held by another
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        **others,
        **rendezvous(env, len(held)),
        "GPUDECK_RESULT": str(folder / result_name(job)),
        "GPUDECK_ARTEFACTS": str(artefacts_folder(job)),
    }


def rendezvous(env: Mapping[str, str], gpus: int) -> dict[str, str]:
    """Return where the processes of a job with several GPUs meet, unless the job says it itself.

    torch.distributed reads these variables. The port is free now; nothing keeps it for the job.
    """
    if gpus < 2 or "MASTER_ADDR" in env or "MASTER_PORT" in env:
        return {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}


def kill_remains(states: Collection[Starting | Running], recorded: bool) -> None:
    """Kill what these attempts left behind, again and again until a scan finds nothing.

    That is every process with the nonce of one of them in its environment, and all of the runners'
    sessions. One that cleared its environment and left the session cannot be told from a stranger.
    Each scan reads all processes of the machine, however many attempts there are.

    Args:
        recorded: the runners recorded all ends. Otherwise two scans in a row have to find nothing,
            as a process may be born during one while its parent ends.
    """
    attempts = {f"GPUDECK_ATTEMPT={state.attempt}".encode() for state in states}
    if not attempts:
        return
    boot = boot_id()
    ran = [
        state
        for state in states
        if isinstance(state, Running) and state.boot == boot and not is_elsewhere(state)
    ]
    # no other process gets a runner's pid while anything is left in its session
    sessions = {state.runner for state in ran if start_time(state.runner) in (None, state.started)}
    clean = 0
    for _ in range(MAX_SCANS):
        killed = [pid for pid in find_remains(attempts, sessions) if _killed(pid)]
        clean = 0 if killed else clean + 1
        if clean > (not recorded):
            return


def find_remains(attempts: Set[bytes], sessions: Set[int]) -> Iterator[int]:
    """Yield the processes of these attempts, or of these sessions, by one scan of all processes."""
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        if (fields := stat_fields(pid)) is not None:
            environ = (read_proc(f"/proc/{pid}/environ") or b"").split(b"\0")
            if int(fields[3]) in sessions or not attempts.isdisjoint(environ):
                yield pid


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True
