"""Inject faults from outside the daemon: signals, false records, clocks, disks, system calls."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpudeck.scheduler.background.launch import start_process
from gpudeck.scheduler.background.process_stat import start_time
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Running
from tests.integration.deck import daemon_pid, kill_daemon, probe_pid
from tests.integration.torture.plan import Fault
from tests.integration.torture.witness import command_of, job_of, users_of_job
from tests.support import eventually, send, users_of

if TYPE_CHECKING:
    from tests.integration.torture.campaign import Campaign

DAY_S = 86400


def inject(campaign: Campaign, fault: Fault) -> bool:
    """Inject the fault, and return whether it struck, as its target may have ended just before."""
    match fault.kind, fault.at:
        case "at random", "daemon":
            done = shoot_daemon()
        case "at random", "runner":
            done = _with_running(campaign, lambda job, state: _kill_runner(campaign, job, state))
        case "at random" | "strange", "probe" | "probe stopped":
            probe = probe_pid(paths.home())
            if done := probe is not None:
                send(probe, signal.SIGSTOP if fault.at == "probe stopped" else signal.SIGKILL)
        case "at random", "assistant host":
            done = _kill_host()
        case "strange", "clock a day on" | "clock a day back":
            (campaign.folder / "clock").write_text(
                str(DAY_S if fault.at.endswith("on") else -DAY_S)
            )
            done = True
        case "strange", _:
            done = _with_running(campaign, lambda job, runner: _falsify(campaign, job, fault.at))
        case "disk full", _:
            done = _fill_disk(campaign, fault.at)
        case _:
            done = _at_system_call(campaign, fault)
    return done


def shoot_daemon() -> bool:
    """Kill the daemon without waiting for anything, and return whether there was one."""
    try:
        pid = daemon_pid()
        if b"gpudeck.scheduler.daemon" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


def _kill_host() -> bool:
    try:
        with contextlib.suppress(UserError):
            start_process("gpudeck.assistant.host", paths.home() / "assistant.log", "the assistant")
    finally:
        hosts = [
            pid for pid in users_of(paths.home()) if b"gpudeck.assistant.host" in command_of(pid)
        ]
        for pid in hosts:
            send(pid, signal.SIGKILL)
    return bool(hosts)


def _with_running(campaign: Campaign, act: Callable[[int, Running], bool]) -> bool:
    """Call `act` with a job that runs, and return its result; False if none runs soon."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        for job in campaign.insist(lambda deck: deck.jobs(1000, active=True)):
            if isinstance(job.state, Running) and not job.state.stopping:
                return act(job.id, job.state)
        time.sleep(0.01)
    return False


def _kill_runner(campaign: Campaign, job: int, state: Running) -> bool:
    if start_time(state.runner) != state.started:
        return False
    campaign.excused.add(job)
    send(state.runner, signal.SIGKILL)
    return True


def _falsify(campaign: Campaign, job: int, what: str) -> bool:
    """Kill the daemon, and let the recorded pid or boot of a runner name another process."""
    campaign.excused.add(job)
    kill_daemon()
    value = {
        "pid reused": campaign.bystander,
        "start time of another": 1,
        "another boot": "another",
    }[what]
    place = {
        "pid reused": "$.runner",
        "start time of another": "$.started",
        "another boot": "$.boot",
    }[what]
    with contextlib.closing(sqlite3.connect(paths.store_file(), timeout=5.0)) as db, db:
        done = db.execute(
            "UPDATE jobs SET state = json_set(state, ?, ?) WHERE id = ? AND status = 'running'",
            (place, value, job),
        ).rowcount
    return done == 1


def _at_system_call(campaign: Campaign, fault: Fault) -> bool:
    """Make the daemon's system calls inside a commit fail or kill it, with strace(1)."""
    if shutil.which("strace") is None:
        return False
    what, call = fault.at.split(" in ") if " in " in fault.at else fault.at.split(" from ")
    effect = (
        f"{call}:signal=KILL:when={fault.n}"
        if what == "SIGKILL"
        else f"{call}:error=EIO:when=1..{fault.n}"
    )
    out = campaign.folder / "strace"
    out.unlink(missing_ok=True)
    with contextlib.suppress(OSError, ValueError):
        attached = subprocess.Popen(
            [
                "strace",
                "-f",
                "-qq",
                "-o",
                str(out),
                "-e",
                f"trace={call}",
                "-e",
                f"inject={effect}",
                "-p",
                str(daemon_pid()),
            ],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.1)
        campaign.submit("quick")
        end = time.monotonic() + 0.5
        while not (struck := _struck(out)) and time.monotonic() < end:
            time.sleep(0.02)
        detach(attached)
        return struck or _struck(out)
    return False


def _fill_disk(campaign: Campaign, how: str) -> bool:
    if how == "by a job":
        job = campaign.submit("flood", 2**40)
        if job is None:
            return False
        campaign.excused.add(job.id)
        eventually(
            lambda: (
                shutil.disk_usage(paths.home()).free == 0
                or not campaign.insist(lambda deck: deck.job(job.id)).active
            )
        )
        campaign.submit("quick")
        campaign.insist(lambda deck: deck.job(job.id).active and deck.cancel(job.id))
        eventually(
            lambda: (
                not any(str(job.id).encode() == job_of(pid) for pid in users_of_job(campaign.nonce))
            )
        )
        (paths.job_folder(job.id) / "log").write_bytes(b"")
        return True
    ballast = paths.home().parent / "ballast"
    with ballast.open("wb", buffering=0) as f:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    f.write(b"x" * size)
    if how:
        shoot_daemon()
    campaign.submit("quick")
    time.sleep(0.2)
    ballast.unlink()
    return True


def detach(strace: subprocess.Popen[bytes]) -> None:
    """End a strace, by SIGKILL if it waits for a child that is being started."""
    strace.terminate()
    try:
        strace.wait(1.0)
    except subprocess.TimeoutExpired:
        strace.kill()  # the kernel lets go of what it traced
        strace.wait()


def _struck(trace: Path) -> bool:
    text = trace.read_text() if trace.exists() else ""
    return "killed by SIGKILL" in text or "(INJECTED)" in text


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "16m") -> Iterator[Path]:
    """Mount a small file system at `folder`. Raises PermissionError without that permission."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise PermissionError("only root may mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
