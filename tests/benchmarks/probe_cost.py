"""Measure the CPU time of watching a GPU, beside nvitop's collector on the same GPU.

    pip install 'gpudeck[bench]'

    python -m tests.benchmarks.probe_cost [--hz 2] [--out DIR]

Our probe, and daemon and probe together, are measured while nvitop's ResourceMetricCollector runs
in a process of its own at the same rate. The fields that each reports of one GPU are counted; the
mean, lowest, highest and last value of one of nvitop's figures count as one.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pynvml

from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.paths import daemon_lock
from tests.benchmarks.cpu_share import listen, spent
from tests.benchmarks.gpu_probe import Probe, need_gpu
from tests.benchmarks.rows import RESULTS, context, spread, write

SPANS, SECONDS = 8, 5.0
_NVITOP = """
import sys, time
from nvitop import Device, ResourceMetricCollector
collector = ResourceMetricCollector(Device.all(), interval=1 / float(sys.argv[1]))
collector.start("bench")
time.sleep(1.0)
found = collector.collect()
names = {key.rpartition(" (")[0] if " (" in key else key.rpartition("/")[0] for key in found}
print(len(names), flush=True)
while True:
    time.sleep(1 / float(sys.argv[1]))
    collector.collect()
"""


def daemon_family(hz: float) -> list[psutil.Process]:
    """Run a daemon with its probe, and one client that subscribes as an open window would."""
    settings.save(settings.Settings(source="nvml", telemetry_hz=hz))
    client = Client()
    wait_for_reading(client)
    threading.Thread(target=listen, args=(client,), daemon=True).start()
    daemon = psutil.Process(int(daemon_lock().read_text()))
    return [daemon, *daemon.children()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    need_gpu()
    if importlib.util.find_spec("nvitop") is None:
        raise SystemExit(
            "nvitop is not installed, and this compares with it: pip install 'gpudeck[bench]'"
        )
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        measure(arguments.hz, arguments.out)
        with Client(start=False) as deck:
            deck.stop_daemon()


def measure(hz: float, out: Path) -> None:
    """Measure all of them over the same spans of time; write the rows after each span."""
    family = daemon_family(hz)
    probe = Probe(hz)
    nvitop = subprocess.Popen(
        [sys.executable, "-c", _NVITOP, str(hz)], stdout=subprocess.PIPE, text=True
    )
    assert nvitop.stdout is not None
    fields = {"nvitop collector": int(nvitop.stdout.readline())}
    time.sleep(8.0)  # the fields that are read once or slowly have been read
    ours = len(probe.readings[-1].values)
    groups = {
        "probe": [psutil.Process(probe.pid)],
        "daemon and probe": family,
        "nvitop collector": [psutil.Process(nvitop.pid)],
    }
    shares: dict[str, list[float]] = {name: [] for name in groups}
    pynvml.nvmlInit()
    where = context(
        str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))),
        ["nvidia-ml-py", "nvitop", "psutil"],
    )
    for _ in range(SPANS):
        before, start = {name: spent(found) for name, found in groups.items()}, time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - start
        for name, found in groups.items():
            shares[name].append((spent(found) - before[name]) / seconds * 100)
        write(
            "probe_cost",
            [
                row | where
                for row in rows_of(shares, hz, {name: fields.get(name, ours) for name in shares})
            ],
            out,
        )
    nvitop.kill()
    nvitop.wait()
    probe.close()


def rows_of(
    shares: Mapping[str, Sequence[float]], hz: float, fields: Mapping[str, int]
) -> list[dict[str, object]]:
    """Return a row for each that was measured, and print them."""
    peer = statistics.median(shares["nvitop collector"])
    rows: list[dict[str, object]] = []
    for name, samples in shares.items():
        row = {
            "what": name,
            "hz": hz,
            "unit": "% of a core",
            **spread(samples),
            "fields_with_a_value": fields[name],
        }
        share = round(statistics.median(samples) / peer, 3) if peer else ""
        rows.append({**row, "share_of_nvitop": share})
        print(
            f"{name:18} {row['median']:8} % of a core  ({fields[name]} fields, {share} of nvitop)",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
