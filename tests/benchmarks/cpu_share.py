"""Measure the CPU time of the daemon and its probe while they only read the devices."""

from __future__ import annotations

import threading
import time

import psutil

from gpudeck.app.cli.connection import daemon_status
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone
from tests.benchmarks.rows import spread


def measure(spans: int = 5, seconds: float = 4.0) -> dict[str, float]:
    """Return the percent of one core that daemon and probe use, over several spans.

    One client subscribes, as an open window would.
    """
    listener = Client()
    threading.Thread(target=listen, args=(listener,), daemon=True).start()
    pid = daemon_status().pid
    assert pid is not None
    daemon = psutil.Process(pid)
    family = [daemon, *daemon.children()]
    samples = []
    for _ in range(spans):
        before, start = spent(family), time.monotonic()
        time.sleep(seconds)
        samples.append((spent(family) - before) / (time.monotonic() - start) * 100)
    listener.close()
    return spread(samples)


def listen(client: Client) -> None:
    """Follow the daemon until the connection is closed."""
    try:
        for _ in client.subscribe():
            pass
    except DaemonGone:
        pass  # the measurement has closed the connection


def spent(family: list[psutil.Process]) -> float:
    """Return the CPU seconds, to the clock tick (10 ms)."""
    return sum(t.user + t.system for t in (p.cpu_times() for p in family))
