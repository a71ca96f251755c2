"""Draw a night on the dashboard: a training leaves its GPU for a game, and comes back.

    python -m tests.gui.night_picture

This writes docs/pictures/night.png. The window and the daemon are real; the night is invented from
readings of the recorded H100.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

import tests.gui.drawing  # noqa: F401 # before Qt starts
from gpudeck.app.shell.desktop import Desktop
from gpudeck.app.widgets import theme
from gpudeck.language.text import Bytes, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.jobs import Done, Event, Job, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.keeper import HistoryKeeper
from tests.gui.pictures import moment
from tests.gui.snapshots import GIB, NOW
from tests.support import eventually

PICTURE = Path(__file__).parents[2] / "docs/pictures/night.png"
SIZE = (1280, 640)
HOUR = 3600.0
BEGAN, OFF, BACK, ENDED = (NOW - hours * HOUR for hours in (21.0, 20.0, 17.0, 7.0))
"""From 19 o'clock on a job trains; from 20 to 23 o'clock somebody plays; at 9 the job is done."""
OUT_S, IN_S = 9.0, 4.0
HELD = 16 * GIB
STEP_S = 30.0
NAME = "train-night"


def make_readings(source: ReplaySource) -> Iterator[Reading]:
    """Yield readings of the night: those of the recording under load, and idle ones around."""
    drawn = random.Random(41)
    recorded = [source.read(NOW - second)[0] for second in range(600)]
    loaded = [r for r in recorded if r.values.get("tflops", 0.0) > 300]
    idle = min(recorded, key=lambda reading: reading.values["power"])
    at = BEGAN - HOUR / 2
    while at < ENDED + HOUR / 2:
        works, plays = BEGAN < at < OFF or BACK < at < ENDED, OFF + 600 < at < BACK - 600
        reading, changed = (drawn.choice(loaded) if works else idle), dict[str, float]()
        if works:
            changed = {"mem_used": HELD}
        elif plays:
            share = drawn.uniform(0.5, 0.8)
            changed = {"util": 100 * share, "power": 350 * share, "mem_used": 9 * GIB, "temp": 48.0}
        values = {name: reading.values[name] for name in HEADLINE} | changed
        yield msgspec.structs.replace(reading, time=at, values=values)
        at += STEP_S


def fill_night() -> None:
    """Write the readings, the job and the reservation, as a daemon leaves them."""
    file = paths.assets() / "h100.trace.gz"
    source, keeper = ReplaySource(file, 1, NOW), HistoryKeeper(paths.history_file(), print)
    (device,) = source.devices()
    for reading in make_readings(source):
        keeper.add([(reading, STEP_S)])
    keeper.close()
    freed = Booking((device.id,), OFF, BACK, frees=True)
    settings.save(Settings(source=f"replay:{file}", reservations={"1": freed}))
    spec = Spec(("python", "train.py"), NAME, "/home/ada", gpus=1)
    job = Job(7, spec, BEGAN, Done(BEGAN, ENDED, (device.id,), suspended=BACK - OFF))
    events = (
        Event(BEGAN, "started"),
        Event(OFF, "suspending"),
        Event(OFF + OUT_S, "suspended", phrase("{text}", text=Bytes(int(HELD)))),
        Event(BACK, "resuming"),
        Event(BACK + IN_S, "resumed"),
        Event(ENDED, "done"),
    )
    store = Store(paths.store_file())
    store.restore([(job, {})], [(job.id, event) for event in events], (), False, job.id)
    store.close()
    paths.job_folder(job.id).mkdir(parents=True)


def main() -> int:
    app = theme.application()
    with moment():
        fill_night()
        with Client() as deck:
            eventually(lambda: any(state.reading for state in deck.snapshot().devices))
        desktop = Desktop(app)
        window, dashboard = desktop.window, desktop.window.dashboard
        desktop.start()
        window.resize(*SIZE)

        def is_connected() -> bool:
            app.processEvents()
            return window.state.link.connected

        def shows_the_night() -> bool:
            app.processEvents()
            dashboard.show_time(BEGAN, ENDED)
            return len(dashboard.jobs.spans) > 1

        eventually(is_connected)
        window.show_page("dashboard")
        eventually(shows_the_night)
        for _ in range(200):
            app.processEvents()
        PICTURE.parent.mkdir(exist_ok=True)
        dashboard.grab().save(str(PICTURE))
        window.close()
        desktop.stop()
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
