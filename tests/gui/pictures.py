"""Make pictures of every page of the real window, with the real daemon and the recorded trace.

    python -m tests.gui.pictures [--out DIR]

This renews the references of `test_pictures.py` and the picture of the README, and writes all
pictures and a sheet of them to DIR. The pictures show an hour of H100s that follow the trace, jobs
with every outcome, alerts and a conversation. `tests.gui.page_pictures` draws every page in other
sizes.

The clocks of the window, the daemon and its probe run at a thousandth of their speed, so the
charts end at the same moment on every machine, and no two readings have the same time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QTimer
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QLabel, QWidget

import tests.gui.drawing  # noqa: F401 # before Qt starts
from gpudeck.accel.result import read
from gpudeck.app.assistant.requests import FindSessions, SaveSession
from gpudeck.app.cleanup.requests import Scan, ScanResult, TrashContents
from gpudeck.app.jobs.requests import ReadLog
from gpudeck.app.language import texts
from gpudeck.app.link.call import Call
from gpudeck.app.models.requests import FindServed, ListModels
from gpudeck.app.processes.past import ReadPast, ReadUse, process_curves
from gpudeck.app.shell.desktop import Desktop
from gpudeck.app.widgets import theme
from gpudeck.app.workloads.search_record import ReadSearch
from gpudeck.assistant.housekeeping import Finding
from gpudeck.assistant.housekeeping.findings import encoded
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.jobs import Done, Job
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.past_processes import as_details
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.settings import HostSettings, Settings
from gpudeck.scheduler.protocol.snapshot import Columns, Snapshot
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.keeper import HistoryKeeper
from gpudeck.scheduler.verbs.change import GetSchedule
from gpudeck.scheduler.verbs.devices import GetDetails
from gpudeck.scheduler.verbs.jobs import GetTimeline
from tests.gui import searched, served, world
from tests.gui.likeness import REFERENCES, sheet, thumbnail, unlike
from tests.gui.snapshots import GIB, NOW
from tests.gui.test_other_machines import with_hosts
from tests.support import eventually, state_folder

SIZE = (1280, 800)
SCHEMES: tuple[theme.Scheme, ...] = ("light", "dark")
FLEETS = (1, 8, 72)
"""Numbers of GPUs: one, several tiles, and a map."""
README_PICTURE = Path(__file__).parents[2] / "docs/pictures/dashboard.png"
PATIENCE_S = 60.0
_SPEED = 1e-3
_BEGIN_S, _PAST_S, _GAP_S = 96.0, 900.0, (300.0, 345.0)
"""Seconds: the position in the trace, the time played before it, and a gap in the readings."""
_STEP_S, _MAP_STEP_S = 0.5, 2.0
"""Seconds between readings: of up to eight devices, and of many."""
_CLOCK = (
    "import time\n"
    "real, began = time.time, {began!r}\n"
    "time.time = lambda: {now!r} + (real() - began) * {speed!r}\n"
)


def _of_job(number: int, name: str, status: str) -> Text:
    return phrase("of job {job} ({name}), {status}", job=number, name=name, status=Text(status))


def _compiled_for(program: str) -> Text:
    return phrase("compiled for {program}; recompiled when needed", program=program)


_DEBRIS = (
    ("artefacts", "jobs/171", 3.0, 100, _of_job(171, "finetune-llama", "done")),
    ("artefacts", "jobs/168", 1.6, 121, _of_job(168, "shuffle-shards", "cancelled")),
    (
        "duplicate", "models/Qwen3-8B-copy", 15.3, 34,
        phrase("the same as {path}, which stays", path="models/Qwen3-8B"),
    ),
    ("core", "llama/core.21877", 1.0, 3, phrase("left by a program that crashed")),
    ("cache", "cache/triton", 0.9, 40, _compiled_for("Triton")),
    ("cache", "cache/torchinductor", 0.4, 52, _compiled_for("torch")),
    ("log", "logs/164", 0.2, 88, _of_job(164, "attention", "done")),
)  # fmt: skip
SCANNED = (
    ScanResult(
        tuple(
            Finding(
                kind,
                encoded(f"/data/{name}"),
                encoded("/data"),
                int(size * GIB),
                reason,
                days * 86400.0,
                "seal",
            )
            for kind, name, size, days, reason in _DEBRIS
        )
    ),
    TrashContents(),
)


@contextmanager
def moment() -> Iterator[Path]:
    """Provide a state folder in which the time is NOW in UTC, also for child processes."""
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        began, real = time.time(), time.time
        (Path(made) / "sitecustomize.py").write_text(
            _CLOCK.format(began=began, now=NOW, speed=_SPEED)
        )
        patch.setenv("PYTHONPATH", made)
        patch.setenv("TZ", "UTC")
        time.tzset()
        with state_folder(Path(made) / "home") as home:
            patch.setattr(time, "time", lambda: NOW + (real() - began) * _SPEED)
            try:
                paths.ensure(home)
                yield home
            finally:
                patch.undo()
                os.environ["GPUDECK_HOME"] = str(home)  # as it was when the daemon was started
                time.tzset()


History = dict[str, list[Reading]]


def fill(home: Path, count: int) -> History:
    """Write readings, jobs and alerts, as a daemon that ran for a while leaves them.

    Returns:
        The readings of the first devices.
    """
    header, moments = trace.read(paths.assets() / "h100.trace.gz")
    start = next(i for i, m in enumerate(moments) if m.time - moments[0].time >= _BEGIN_S)
    length = moments[-1].time - moments[0].time + 0.5
    file = home / "h100.trace.gz"
    with trace.TraceWriter(file, header.devices, header.started, header.notes) as writer:
        for at in (
            *moments[start:],
            *(msgspec.structs.replace(m, time=m.time + length) for m in moments[:start]),
        ):
            writer.add(at)
    settings.save(Settings(source=f"replay:{file}*{count}", alert_temperature=world.WARN_BELOW))
    source, keeper = ReplaySource(file, count, NOW), HistoryKeeper(paths.history_file(), print)
    step = _STEP_S if count <= 8 else _MAP_STEP_S
    known: History = {device.id: [] for device in source.devices()[:8]}
    for i in range(int(_PAST_S / step), 0, -1):
        if not _GAP_S[0] < i * step < _GAP_S[1]:
            readings = source.read(NOW - i * step)
            keeper.add((_charted(reading), step) for reading in readings)
            for reading in readings[:8]:
                known[reading.device].append(reading)
    jobs = world.jobs(known)
    keeper.close()
    for job in jobs:
        folder = paths.job_folder(job.id)
        folder.mkdir(parents=True)
        (folder / "log").write_text(world.log(job))
    store = Store(paths.store_file())
    store.restore(
        [(job, {}) for job in jobs], [(j.id, e) for j in jobs for e in world.events(j)], (), False,
        jobs[-1].id,
    )  # fmt: skip
    store.put_alerts(world.alerts(known))
    store.close()
    return known


def _charted(reading: Reading) -> Reading:
    return msgspec.structs.replace(
        reading,
        values={field: reading.values[field] for field in HEADLINE if field in reading.values},
    )


class Stage:
    """A window on a machine whose clock nearly stands still.

    The feed ends once everything has arrived, so that only the shown page changes.
    """

    def __init__(self, app: QApplication, known: History) -> None:
        self.app, self.desktop = app, Desktop(app)
        self.known, self.jobs = known, world.jobs(known)
        self.window = self.desktop.window
        self._open = 0
        self.landings: Sequence[Landing] = ()
        """Where the waiting jobs start."""
        self.served = False
        """A minute of served models was shown."""
        self.replies: dict[type[object], object] = {}
        """What else is answered without the daemon, by the type of the request."""
        self._start = self.desktop.link.start
        self.desktop.link.start = self._carry_out  # type: ignore[method-assign]
        self.desktop.start()
        self.window.resize(*SIZE)
        self.until(
            lambda: self.window.state.link.connected and self.window.state.history.rows() > 10
        )
        self.desktop.feed.stop()
        self.window.dashboard.load_day()
        self.settle()
        self.plain = self._as_invented(self.window.state.snapshot)
        self.restore()

    def _as_invented(self, snapshot: Snapshot | None) -> Snapshot:
        """Add the jobs and alerts that last: the daemon cannot find the one in what it reads."""
        assert snapshot is not None
        lasting = world.active(self.jobs[-1].id + 1)
        alerts = tuple(a for a in world.alerts(self.known) if a.cleared is None)
        count = len(snapshot.devices)
        source = f"replay:/home/ada/h100.trace.gz*{count}"  # not the folder of this run
        return msgspec.structs.replace(
            snapshot,
            jobs=(*reversed(lasting), *snapshot.jobs),
            alerts=alerts,
            settings=msgspec.structs.replace(snapshot.settings, source=source),
        )

    def newest(self, workload: str) -> Job:
        """Return the newest job of a workload on the first device that passed."""
        first = next(iter(self.known))
        return next(
            j for j in reversed(self.jobs)
            if j.spec.workload == workload and isinstance(j.state, Done)
            and j.state.devices == (first,) and read(j.state.result).passed
        )  # fmt: skip

    def _carry_out(self, call: Call) -> None:
        """Answer with what is invented; let the daemon answer all else."""
        invented: dict[type[object], object] = {
            GetDetails: world.inspected(self.newest_readings()),
            Scan: SCANNED,
            ListModels: served.MODELS,
            FindServed: served.NOW,
            FindSessions: (world.SESSIONS, ""),
            SaveSession: (),
            GetSchedule: self.landings,
            ReadSearch: searched.record(),
            ReadPast: as_details(
                world.past_processes(list(self.known), self.jobs),
                {job.id: job.spec.name for job in self.jobs},
            ),
            **self.replies,
        }
        reply = invented.get(type(call.request))
        if isinstance(call.request, ReadUse):
            past = world.past_processes(list(self.known), self.jobs)
            ended = next((p for p in past if p.use.key == call.request.key), None)
            since = call.request.since
            found = world.process_history(since) if ended is None else world.whole_use(ended)
            reply = process_curves(call.request, found)
        if isinstance(call.request, ReadLog | GetTimeline) and call.request.job > self.jobs[-1].id:
            reply = Output(0, b"", 0) if isinstance(call.request, ReadLog) else ()
        if reply is not None:
            QTimer.singleShot(0, self.window, lambda: call.reply(reply))
        else:
            self._open += 1
            for name in ("reply", "fail"):
                setattr(call, name, partial(self._end, getattr(call, name)))
            self._start(call)

    def newest_readings(self) -> dict[str, Reading]:
        """Return the newest reading of every device."""
        snapshot = self.window.state.snapshot
        every = {s.device.id: s.reading for s in snapshot.devices if s.reading} if snapshot else {}
        return {d: r[-1] for d, r in self.known.items()} | {
            device: reading for device, reading in every.items() if device not in self.known
        }

    def _end(self, handler: Callable[[object], None], value: object) -> None:
        handler(value)
        self._open -= 1

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("what is to be pictured does not come")
            self.app.processEvents()
            time.sleep(0.002)

    def settle(self) -> None:
        """Process events until everything is answered and drawn."""
        for _ in range(3):
            self.app.processEvents()
            self.until(lambda: self._open == 0)
            self.window.refresh()
            self.app.processEvents()

    def restore(self) -> None:
        """Show the daemon's snapshot again, after one with invented machines."""
        self.window.state.snapshot = self.plain

    def close(self) -> None:
        self.window.close()
        self.desktop.stop()
        self.app.processEvents()
        self.window.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@contextmanager
def stage(app: QApplication, count: int) -> Iterator[Stage]:
    """Open the window of a machine with `count` GPUs."""
    with moment() as home:
        known = fill(home, count)
        with Client() as deck:
            eventually(
                lambda: (
                    len(deck.snapshot().devices) == count
                    and all(s.reading for s in deck.snapshot().devices)
                )
            )
        made = Stage(app, known)
        try:
            yield made
        finally:
            made.close()
            theme.apply(app, "light")  # without a window that would be styled again


def pictures(made: Stage, count: int) -> Iterator[tuple[str, QWidget]]:
    """Show every view of that machine in turn, and yield the name of its picture."""
    for scheme in SCHEMES:
        theme.apply(made.app, scheme)
        for name, show in VIEWS[count].items():
            made.restore()
            widget = show(made) or made.window
            made.settle()
            yield f"{count}-{name}-{scheme}", widget


def _page(name: str) -> Callable[[Stage], None]:
    return lambda on: on.window.show_page(name)


def _welcome(on: Stage) -> None:
    on.window.show_welcome()
    for label in on.window.findChildren(QLabel):  # not the folder of this run
        label.setText(label.text().replace(str(paths.home()), "/home/ada/.local/share/gpudeck"))


def _jobs(on: Stage) -> None:
    on.window.show_page("jobs")
    on.window.jobs.show_job(on.newest("attention").id)
    on.until(lambda: "searching" not in on.window.jobs.count.text())


def _schedule(on: Stage) -> None:
    """Show the queue as a timeline, with invented jobs that wait for others."""
    snapshot = on.window.state.snapshot
    assert snapshot is not None
    devices = [state.device.id for state in snapshot.devices]
    busy, on.landings = world.busy_queue(devices, on.jobs[-1].id)
    nights = Booking(tuple(devices[6:]), NOW + 2400, NOW + 4500, group="nightly")
    on.window.state.snapshot = msgspec.structs.replace(
        snapshot,
        jobs=busy,
        settings=msgspec.structs.replace(snapshot.settings, reservations={"1": nights}),
    )
    on.window.show_page("jobs")
    page = on.window.jobs
    page.as_timeline.setChecked(True)
    page.choose(next(job.id for job in reversed(busy) if job.active))
    on.until(lambda: "searching" not in page.count.text())


def _workload(name: str) -> Callable[[Stage], None]:
    def show(on: Stage) -> None:
        on.window.show_page("workloads")
        on.window.workloads.choose(name)

    return show


def _search(on: Stage) -> None:
    """Show what a search of a kernel tried, and its winner."""
    snapshot = on.window.state.snapshot
    assert snapshot is not None
    job = searched.job(on.jobs[-1].id + 100, next(iter(on.known)))
    on.window.state.snapshot = msgspec.structs.replace(snapshot, jobs=(job, *snapshot.jobs))
    _workload("search")(on)


def _assistant(on: Stage) -> None:
    on.window.show_page("assistant")
    page = on.window.assistant
    page.show_view()
    on.settle()
    if not page.view.conversation.messages:
        page.show_answer(
            "What happened in the last 10 minutes?",
            world.overview(on.jobs, world.alerts(on.known)),
        )
        job = on.newest("attention")
        first = next(iter(on.known.values()))
        page.show_answer(f"How did job {job.id} go?", world.answer(job, first))
        page.view.changed.emit(page.view.conversation)  # it is saved, and listed


def _models(on: Stage) -> None:
    """Show the models after a minute in which one of them answered."""
    on.window.show_page("models")
    on.settle()
    if not on.served:
        on.served = True
        for now in served.MINUTE:
            on.window.models.serving.show_served(now)


def _processes(on: Stage) -> None:
    """Show the processes after four minutes in which their loads rose and fell."""
    on.window.show_page("processes")
    on.settle()
    details = on.window.state.details
    assert details is not None
    on.window.processes.about.forget()
    for before in range(119, -1, -1):
        on.window.processes.about.take(
            msgspec.structs.replace(
                detail,
                processes=tuple(
                    msgspec.structs.replace(p, sm=p.sm * world.wave(before))
                    for p in detail.processes
                    if p.sm is not None and p.start <= NOW - 2 * before
                ),
            )
            for detail in details
        )


def _device(number: int) -> Callable[[Stage], None]:
    return lambda on: on.window.show_device(f"REPLAY-{number}")


def _compared(on: Stage) -> None:
    """Show a comparison of two stretches of time, and a cursor."""
    on.window.show_page("dashboard")
    page = on.window.dashboard
    page.show_last(300)
    page.compare(True)
    page.pan(-300)
    page.point(NOW - 450)


def _live(on: Stage) -> None:
    page = on.window.dashboard
    page.compare(False)
    page.point(None)
    page.show_last(600)
    on.window.show_page("dashboard")


def _hosts(on: Stage) -> None:
    """Show three invented machines: one that is read, one that is gone, and a laptop."""
    snapshot = on.window.state.snapshot
    assert snapshot is not None
    named = {name: HostSettings(f"ada@{name}") for name in ("lab1", "lab2", "laptop")}
    known = msgspec.structs.replace(snapshot.settings, hosts=named)
    shown = with_hosts(msgspec.structs.replace(snapshot, settings=known))
    on.window.state.snapshot = shown
    for device in (state.device for state in shown.hosts[0].devices):
        times, columns = world.lab_history(device.index == 0)
        on.window.load_history(device.id, Columns(times, columns))
    on.window.show_page("hosts")


def _compact(on: Stage) -> QWidget:
    if not on.desktop.compact.isVisible():
        on.window.compacted.emit()
    return on.desktop.compact


VIEWS: dict[int, dict[str, Callable[[Stage], QWidget | None]]] = {
    1: {
        "welcome": _welcome,
        "dashboard": _live,
        "device": _device(0),
        "jobs": _jobs,
        "attention": _workload("attention"),
        "compare": _workload("compare"),
        "search": _search,
        "assistant": _assistant,
        "models": _models,
        "alerts": _page("alerts"),
        "processes": _processes,
        "hosts": _hosts,
        "settings": _page("settings"),
        "cleanup": _page("cleanup"),
        "compact": _compact,
    },
    8: {"dashboard": _live, "compared": _compared, "compact": _compact, "schedule": _schedule},
    72: {"map": _live},
}


def _refer(name: str, picture: QImage) -> None:
    """Save a picture as the reference if it differs from the present one."""
    file = REFERENCES / f"{name}.png"
    known = QImage(str(file))
    if known.isNull() or unlike(picture, known):
        picture.save(str(file))


def _renew_references(made: dict[str, QImage]) -> None:
    """Keep the references of pictures that look the same, and only those that are still made."""
    REFERENCES.mkdir(exist_ok=True)
    for name, picture in made.items():
        _refer(name, thumbnail(picture))
    for old in REFERENCES.glob("*.png"):
        if old.stem not in made:
            old.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gui.pictures")
    parser.add_argument("--out", type=Path, default=Path("build/pictures"))
    parser.add_argument("--language", choices=texts.LANGUAGES, default="en")
    arguments = parser.parse_args()
    texts.use(arguments.language)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    app = theme.application()
    made: dict[str, QImage] = {}
    for count in FLEETS:
        with stage(app, count) as on:
            for name, widget in pictures(on, count):
                made[name] = widget.grab().toImage()
                made[name].save(str(out / f"{name}.png"))
    if arguments.language == "en":
        _renew_references(made)
        made["8-dashboard-light"].save(str(README_PICTURE))
    sheet(made).save(str(out / "sheet.png"))
    print(f"{len(made)} pictures and sheet.png in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
