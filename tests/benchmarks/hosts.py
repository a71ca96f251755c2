"""Measure the CPU time that ten machines over ssh cost here: daemon and ssh clients, less what the
daemon and its probe use without them.

The machines are one sshd on loopback, which sends the readings of eight GPUs every two seconds.

    python -m tests.benchmarks.hosts
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path

import psutil

from gpudeck.app.cli.connection import daemon_status
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.cpu import cpu_name
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.benchmarks.cpu_share import listen, spent
from tests.benchmarks.rows import context, spread, write
from tests.integration.sshd import serving
from tests.support import eventually, state_folder

HOSTS, GPUS = 10, 8
_FIELDS = ("util", "mem_util", "mem_used", "mem_total", "mem_free", "temp", "power", "power_limit")
_MORE = ("power_limit_min", "power_limit_max", "clock_sm", "clock_mem")


def moment() -> bytes:
    """Return the line that a machine with eight GPUs sends."""
    values = dict.fromkeys((*_FIELDS, *_MORE), 81559.25)
    process = [[4242, "python", "somebody", 7.5e10]]
    gpus = [
        {
            "id": f"GPU-{i}", "index": i, "name": "NVIDIA H100 80GB HBM3", "kind": "nvidia",
            "facts": {"driver": "550.54.15"}, "values": values,
            "absent": {"fan": "NVML: Not Supported"}, "processes": process,
        }
        for i in range(GPUS)
    ]  # fmt: skip
    return b"gpudeck1 " + json.dumps({"devices": gpus, "how": "NVML"}).encode() + b"\n"


def shares(spans: int = 8, seconds: float = 8.0) -> dict[str, float]:
    """Return the percent of one core that the daemon and its children use."""
    pid = daemon_status().pid
    assert pid is not None
    daemon = psutil.Process(pid)
    family = [daemon, *daemon.children(recursive=True)]
    samples = []
    for _ in range(spans):
        before, start = spent(family), time.monotonic()
        time.sleep(seconds)
        samples.append((spent(family) - before) / (time.monotonic() - start) * 100)
    return spread(samples)


def main() -> None:
    """Measure without machines, then with them, once with a subscriber and once without."""
    rows = []
    for watched in (False, True):
        rows += ten_machines(watched)
    for row in rows:
        print(row)
    write("hosts", rows)


def ten_machines(watched: bool, spans: int = 8, settle_s: float = 15.0) -> list[dict[str, object]]:
    """Return the rows of `measure` for machines that one sshd plays."""
    with tempfile.TemporaryDirectory() as name, serving(Path(name) / "sshd") as sshd:
        sshd.send(b"", f"while cat {sshd.folder}/sent; do sleep 2; done")
        (sshd.folder / "sent").write_bytes(moment())
        with state_folder(Path(name) / "home"):
            settings.save(Settings(source="cpu", model_folder=TEMPLATE))
            return measure(sshd.settings, watched, spans, settle_s)


def measure(
    host: settings.HostSettings, watched: bool, spans: int = 8, settle_s: float = 15.0
) -> list[dict[str, object]]:
    """Return one row without machines and one with them."""
    rows: list[dict[str, object]] = []
    with Client() as deck, Client() as subscriber:
        if watched:
            threading.Thread(target=listen, args=(subscriber,), daemon=True).start()
        time.sleep(settle_s)  # the daemon has started, and nobody has asked lately
        for count in (0, HOSTS):
            for i in range(count):
                deck.set_host(f"lab{i}", host)
            eventually(lambda: len(reached(deck)) == count, 60)  # noqa: B023
            time.sleep(settle_s)
            found = shares(spans)
            rows.append(
                {"hosts": count, "gpus_each": GPUS if count else 0, "watched": watched}
                | {f"percent_{key}": value for key, value in found.items()}
                | context(cpu_name(), ["msgspec", "psutil"])
            )
    return rows


def reached(deck: Client) -> list[str]:
    """Return the machines that send readings."""
    return [host.name for host in deck.snapshot(live=False).hosts if host.problem is None]


if __name__ == "__main__":
    main()
