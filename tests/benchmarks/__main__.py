"""Measure the program itself (make bench), print the figures beside their targets and store them as
CSV.

No GPU is needed; if there is one, it is used.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile

from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.scheduler.client import Client
from tests.benchmarks import cpu_share, latency, repaint, window_start
from tests.benchmarks.rows import context, write

REPAINT = "dashboard repaint at 10 Hz, 8 replayed GPUs"
TARGETS = {
    "window start to first live chart, daemon running": (1.0, "s"),
    "window start to first live chart, no daemon": (1.0, "s"),
    "CPU share of daemon and probe at 2 Hz": (2.0, "% of a core"),
    REPAINT: (5.0, "ms"),
    f"{REPAINT}: P99": (12.0, "ms"),
    "submit to start": (150.0, "ms"),
}
"""The target of the median, unless it names another statistic."""


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        starts = window_start.measure()
        with Client() as deck:
            kind, device = _device(deck)
        measured = {
            "window start to first live chart, daemon running": starts["warm"],
            "window start to first live chart, no daemon": starts["cold"],
            "CPU share of daemon and probe at 2 Hz": cpu_share.measure(),
            "submit to start": latency.measure(),
            REPAINT: repaint.measure(),
        }
        measured[f"{REPAINT}: P99"] = measured[REPAINT]
        with Client() as deck:
            deck.stop_daemon()
    where = context(device, ["PySide6-Essentials", "pyqtgraph", "msgspec"])
    rows = []
    for name, (target, unit) in TARGETS.items():
        judged = measured[name]["p99" if name.endswith("P99") else "median"]
        rows.append(
            {
                "figure": name,
                "target": target,
                "unit": unit,
                **measured[name],
                "met": judged <= target,
                **where,
            }
        )
    for row in rows:
        verdict = f"target {row['target']:g}: {'met' if row['met'] else 'MISSED'}"
        print(
            f"{row['figure']:52} {row['median']:8.4g} {row['unit']:12} "
            f"(p95 {row['p95']:.4g}, p99 {row['p99']:.4g}; {verdict})"
        )
    print(write(f"app_{kind}", rows))
    return 0


def _device(deck: Client) -> tuple[str, str]:
    """Return the kind of the devices (cpu, nvidia), and a description of the machine."""
    devices = wait_for_reading(deck).devices
    names = ", ".join(s.device.name for s in devices)
    return (
        devices[0].device.kind,
        f"{names}; {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}",
    )


if __name__ == "__main__":
    sys.exit(main())
