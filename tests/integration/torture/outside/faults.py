"""Inject the faults of the plan, and report which of them struck."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.integration.torture.outside.campaign import Campaign, read_ledger
from tests.integration.torture.outside.plan import Round
from tests.integration.torture.outside.world import restore_modes
from tests.support import send

DAEMON, PROBE, HOST, RUNNER = (
    "gpudeck.scheduler.daemon",
    "gpudeck.scheduler.devices.probe",
    "gpudeck.assistant.host",
    "runner.py",
)
STRIKE_S = 2.0
"""Seconds within which the target of a fault shows up, or there is none."""
FLOOD = 300
"""Connections that are opened at once."""
DAY_S, HOUR_S = 86400, 3600
HELD = 1.0
"""Seconds that a fault lasts at most where commands wait for its end."""


def inject(campaign: Campaign, planned: Round) -> bool:
    """Inject the fault of a round, and return whether it struck."""
    fault = planned.fault
    match fault.family:
        case "signal":
            return _signal(campaign, fault.kind, fault.seconds)
        case "attack":
            return _attack(campaign, fault.kind, fault.seconds)
        case "disk":
            return _disk(campaign, fault.kind, fault.seconds)
        case "store":
            return _store(campaign, fault.kind, planned.delay)
        case _:
            return _clock(campaign, fault.kind)


# Signals


def _signal(campaign: Campaign, kind: str, seconds: float) -> bool:
    world = campaign.world
    match kind:
        case "kill daemon":
            return bool(world.signal(DAEMON, signal.SIGKILL))
        case "kill probe":
            return bool(_soon(lambda: world.signal(PROBE, signal.SIGKILL)))
        case "kill runner":
            return _kill_runner(campaign)
        case "kill daemon and runner":
            struck = _kill_runner(campaign)
            return bool(world.signal(DAEMON, signal.SIGKILL)) and struck
        case "kill idle runner":
            return _kill_idle_runner(campaign)
        case "kill client":
            return bool(_soon(lambda: [c for c in campaign.clients if c.kill()]))
        case "kill assistant host":
            return _kill_host(campaign)
        case "stop daemon" | "stop daemon for 32 s":
            return _stop(campaign, DAEMON, 32.0 if kind.endswith("s") else min(seconds, HELD))
        case "stop probe":
            return _stop(campaign, PROBE, seconds)
        case "stop runner":
            return _stop(campaign, RUNNER, seconds)
        case "restart of everything":
            world.restart()
            campaign.excuse_active()
            return True
        case "idle connections" | "half a request":
            return _flood(campaign, b"" if kind.startswith("idle") else b'{"type":', seconds)
    raise ValueError(kind)


def _soon(act: Callable[[], list[object] | list[int]]) -> list[object] | list[int]:
    """Return the first thing that is found by acting again and again; nothing after a while."""
    end = time.monotonic() + STRIKE_S
    while not (found := act()) and time.monotonic() < end:
        time.sleep(0.005)
    return found


def _kill_runner(campaign: Campaign) -> bool:
    """Kill the runner of a job that runs."""
    end = time.monotonic() + STRIKE_S
    while time.monotonic() < end:
        for token, job in campaign.world.jobs(campaign.ledger).items():
            campaign.excuse(token)
            send(job.parent, signal.SIGKILL)
            return True
        time.sleep(0.01)
    return False


def _kill_idle_runner(campaign: Campaign) -> bool:
    """Kill a runner that has no job, which can get one in this moment."""
    busy = {job.parent for job in campaign.world.jobs(campaign.ledger).values()}
    for process in campaign.world.find(RUNNER):
        if process.pid not in busy:
            send(process.pid, signal.SIGKILL)
            campaign.excuse_active()  # whose jobs it may have had by then
            return True
    return False


def _kill_host(campaign: Campaign) -> bool:
    """Have the assistant asked, and kill its process while it starts or answers."""
    asker = threading.Thread(target=campaign.attacker, args=("ask", "what runs now?"))
    asker.start()
    try:
        end = time.monotonic() + 10 * STRIKE_S
        while time.monotonic() < end:
            if campaign.world.signal(HOST, signal.SIGKILL):
                return True
            time.sleep(0.02)
        return False
    finally:
        asker.join()


def _stop(campaign: Campaign, module: str, seconds: float) -> bool:
    stopped = _soon(lambda: campaign.world.signal(module, signal.SIGSTOP))
    time.sleep(seconds)
    for pid in stopped:
        assert isinstance(pid, int)
        send(pid, signal.SIGCONT)
    return bool(stopped)


def _flood(campaign: Campaign, sent: bytes, seconds: float) -> bool:
    with ExitStack() as stack:
        for _ in range(FLOOD):
            try:
                one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.settimeout(0.2)
                with _at(campaign.world.home) as place:
                    one.connect(f"{place}/daemon.sock")
                one.sendall(sent)
            except OSError:
                break  # the daemon refuses more, or is not there
        else:
            time.sleep(min(seconds, HELD))
            return True
    return False


@contextmanager
def _at(folder: Path) -> Iterator[str]:
    """Yield a short name of a folder, as those of sockets must be."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


# Jobs that attack


def _attack(campaign: Campaign, kind: str, seconds: float) -> bool:
    """Submit a job that attacks, wait until it has, and undo what would stop all others."""
    if kind == "jobs deleted":
        campaign.excuse_active()
    token = campaign.submit(campaign.attacker, kind, min(seconds, HELD))
    end = time.monotonic() + 5 * STRIKE_S
    while not any(line.token == f"{token}." for line in read_ledger(campaign.ledger)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    if kind == "jobs deleted":
        campaign.excuse_active()
    if "chmod 0" in kind:
        time.sleep(seconds)
        if seconds or kind == "jobs chmod 0":  # the others stay as they are until the end
            restore_modes(campaign.world.home / "jobs")
    return True


# Disks, the store, the clock


def _disk(campaign: Campaign, kind: str, seconds: float) -> bool:
    world, what = campaign.world, kind.removesuffix(", daemon killed")
    synced = campaign.acknowledged()
    if what == "disk full":
        world.fill_disk()
    elif what == "power cut":
        world.cut_power()
    else:
        world.abort_disk()
    if what != kind:
        world.signal(DAEMON, signal.SIGKILL)
    time.sleep(min(seconds, HELD))
    if what == "disk full":
        world.free_disk()
        return True
    world.restart(world.repair_disk)
    campaign.risk_unsynced(synced)
    campaign.excuse_active()
    return True


def _store(campaign: Campaign, kind: str, delay: float) -> bool:
    """Damage the store of a daemon that was killed while few jobs wait or run."""
    campaign.record()
    campaign.risk([campaign.submit(campaign.attacker, kind) for kind in ("quick", "slow")])
    time.sleep(delay)
    campaign.world.signal(DAEMON, signal.SIGKILL)
    store = campaign.world.home / "gpudeck.sqlite"
    log = store.with_name("gpudeck.sqlite-wal")
    if kind == "store deleted":
        for file in store.parent.glob("gpudeck.sqlite*"):
            file.unlink()
        return True
    if not log.exists() or not log.stat().st_size:
        return False
    if kind.endswith("deleted"):
        log.unlink()
    else:
        os.truncate(log, int(log.stat().st_size * (1 - delay * 5)))
    return True


def _clock(campaign: Campaign, kind: str) -> bool:
    """Set the daemon's clock wrong, or less wrong than it was."""
    wrong = DAY_S if kind.endswith("on") else -DAY_S if kind.endswith("back") else -HOUR_S
    campaign.world.set_clock(wrong)
    if kind.endswith("killed"):
        campaign.world.signal(DAEMON, signal.SIGKILL)
    return True
