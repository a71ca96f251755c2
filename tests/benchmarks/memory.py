"""Measure the memory of the daemon and the window after a day with 8 GPUs, as fast as possible.

    python -m tests.benchmarks.memory daemon|window [HOURS]

There are two readings a second. Each program runs in a process of its own, with its real imports,
and prints a JSON line from time to time: the readings so far, and the resident megabytes. The
daemon receives the readings as from its probe, keeps the history on disk and sends snapshots; the
window receives every snapshot, shows each of its pages in turn, and draws at its own pace.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpudeck.scheduler.devices.probe import Hello, Readings
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.busy_causes import NoReading
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Snapshot

DEVICES, HZ, MARKS = 8, 2.0, 24
FLUSH_EVERY, TELL_EVERY, TURN_EVERY = 10, 20, 600
"""The number of readings between two flushes of the history, two snapshots for a window, and two
pages.
"""


def resident() -> float:
    """Return the resident megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def _moments(hours: float) -> Iterator[tuple[int, float, list[Device], list[Reading]]]:
    """Yield the readings, and print the memory after each of MARKS equal parts and after a tenth of
    the first.
    """
    count = int(hours * 3600 * HZ)
    start = time.time() - count / HZ
    source = ReplaySource(paths.assets() / "h100.trace.gz", DEVICES, start)
    devices, marks = (
        source.devices(),
        {count // MARKS // 10, *(count * i // MARKS for i in range(1, MARKS + 1))},
    )
    for i in range(count):
        yield i, start + i / HZ, devices, source.read(start + i / HZ)
        if i + 1 in marks:
            print(json.dumps({"moments": i + 1, "mb": round(resident(), 1)}), flush=True)


async def daemon(hours: float) -> None:
    from gpudeck.scheduler.daemon.daemon import Daemon
    from gpudeck.scheduler.store import Store

    settings.save(Settings(source="replay:h100.trace.gz*8"))
    made = Daemon(Store(paths.store_file()))
    for i, now, devices, readings in _moments(hours):
        if i == 0:
            made.probe_started(Hello("replay of h100.trace.gz", tuple(devices)))
        made.add_readings(Readings(now, tuple(readings)))
        if i % TELL_EVERY == 0:
            msgspec.json.encode(made.snapshot())
        if i % FLUSH_EVERY == 0:
            await made.recorder.flush()
    await made.recorder.close()


def window(hours: float) -> None:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from gpudeck.app.link.link import Link
    from gpudeck.app.shell.window import PAGES, MainWindow
    from gpudeck.app.widgets import theme

    app = theme.application()
    theme.apply(app, "light")
    shown = MainWindow(Link())
    shown.show_link(True, "connected")
    shown.show()
    for i, now, devices, readings in _moments(hours):
        states = tuple(
            DeviceState(d, r, Busy(NoReading())) for d, r in zip(devices, readings, strict=True)
        )
        shown.show_snapshot(Snapshot(i, now, states, (), Settings(), "replay of h100.trace.gz"))
        if i % TURN_EVERY == 0:
            shown.show_page(PAGES[i // TURN_EVERY % len(PAGES)])
        app.processEvents()


def main() -> None:
    what, hours = sys.argv[1], float((*sys.argv, "24")[2])
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        paths.ensure(Path(home))
        if what == "daemon":
            asyncio.run(daemon(hours))
        else:
            window(hours)


if __name__ == "__main__":
    main()
