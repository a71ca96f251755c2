"""The rows of the queue on a time axis, and what is free."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from gpudeck.app.format.free_devices import free_devices
from gpudeck.app.jobs.queue_timeline import changed_starts, queue_timeline
from gpudeck.app.language.texts import tr_moment
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, Loaded, OtherProcesses, Settling
from gpudeck.scheduler.protocol.jobs import (
    Done,
    Failed,
    Job,
    Progress,
    Queued,
    Running,
    Spec,
    State,
)
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle, Snapshot
from tests.gui.snapshots import NOW, gpu, gpu_reading

GPUS = [gpu(i) for i in range(4)]
HOUR = 3600.0


def job(number: int, state: State, gpus: int = 1, timeout: float = 0.0) -> Job:
    spec = Spec(("true",), f"job-{number}", "/", gpus=gpus, timeout=timeout)
    return Job(number, spec, NOW - 9 * HOUR, state)


def runs(number: int, at: float, *devices: int, done: float = 0.0) -> Job:
    progress = Progress(done, 1.0, time=NOW) if done else None
    held = tuple(GPUS[i].id for i in devices)
    return job(number, Running("a", held, at, 1, 1, "", progress), len(devices))


def snapshot(*jobs: Job, settings: Settings | None = None) -> Snapshot:
    holders = {
        device: tuple(
            j.id for j in jobs if isinstance(j.state, Running) and device in j.state.devices
        )
        for device in (g.id for g in GPUS)
    }
    states = tuple(
        DeviceState(
            g,
            gpu_reading(g),
            Busy(HeldByJobs(holders[g.id])) if holders[g.id] else Idle(NOW - 60),
            holders[g.id],
        )
        for g in GPUS
    )
    return Snapshot(1, NOW, states, jobs, settings or Settings(), "nvml")


def test_every_device_has_a_row_with_what_was_is_and_will_be() -> None:
    over = job(1, Failed(NOW - 2000, NOW - 1000, "exit code 1", 1, (GPUS[0].id,)))
    half = runs(2, NOW - HOUR, 0, done=0.5)
    both = job(3, Queued(), gpus=2)
    later = job(4, Queued())
    landings = (Landing(3, (GPUS[0].id, GPUS[1].id), NOW + HOUR, NOW + 2 * HOUR),)
    found = queue_timeline(snapshot(over, half, both, later), landings)
    assert [row.title for row in found.rows] == [f"GPU {i}" for i in range(4)]
    first = [(bar.kind, bar.key, bar.start, bar.end, bar.meaning) for bar in found.rows[0].bars]
    assert first == [
        ("running", 2, NOW - HOUR, NOW + HOUR, ""),
        ("past", 1, NOW - 2000, NOW - 1000, "failed"),
        ("waiting", 3, NOW + HOUR, NOW + 2 * HOUR, ""),
    ]
    assert found.rows[0].bars[0].share == 0.5
    assert [bar.key for bar in found.rows[1].bars] == [3]
    assert [(one.key, one.label) for one in found.unplaced] == [(4, "4 · job-4")]
    assert found.start < NOW - 2000
    assert found.end > NOW + 2 * HOUR


def test_jobs_that_share_a_device_lie_in_lanes_of_their_own() -> None:
    jobs = [runs(1, NOW - 900, 0), runs(2, NOW - 800, 0)]
    ended = job(3, Done(NOW - 700, NOW - 600, (GPUS[0].id,)))
    (row, *_) = queue_timeline(snapshot(*jobs, ended), ()).rows
    assert [(bar.key, bar.lane, bar.end) for bar in row.bars] == [
        (1, 0, None),
        (2, 1, None),
        (3, 2, NOW - 600),
    ]
    assert row.lanes == 3


def test_bookings_lie_behind_the_jobs_of_their_devices() -> None:
    booking = Booking((GPUS[1].id,), NOW + 60, NOW + HOUR, group="night")
    rows = queue_timeline(snapshot(settings=Settings(reservations={"7": booking})), ()).rows
    assert [(bar.kind, bar.key, bar.label) for bar in rows[1].bars] == [
        ("booked", 7, "booked: group night")
    ]
    assert not rows[0].bars
    assert rows[1].bars[0].text_at == NOW + 60


def test_the_text_of_a_reservation_begins_where_no_job_lies() -> None:
    booking = Booking((GPUS[0].id,), NOW + 60, NOW + HOUR, group="night")
    known = Settings(reservations={"7": booking})
    half = snapshot(runs(2, NOW - 600, 0, done=0.5), settings=known)
    assert queue_timeline(half, ()).rows[0].bars[0].text_at == NOW + 600
    endless = snapshot(runs(2, NOW - 600, 0), settings=known)
    assert queue_timeline(endless, ()).rows[0].bars[0].text_at == NOW + HOUR


def test_a_job_without_devices_has_a_row_of_its_own() -> None:
    found = queue_timeline(snapshot(job(5, Running("a", (), NOW - 900, 1, 1, ""), gpus=0)), ())
    assert [(row.title, len(row.bars)) for row in found.rows][-1] == ("No GPU", 1)


def test_only_jobs_whose_start_changes_are_named() -> None:
    before = (Landing(1, (), 10.0, None), Landing(2, (), 20.0, None), Landing(3, (), 5.0, None))
    after = (Landing(3, (), 5.0, None), Landing(2, (), 10.0, None), Landing(4, (), 9.0, None))
    assert changed_starts(before, after) == {2: (20.0, 10.0), 4: (None, 9.0), 1: (10.0, None)}


def test_what_is_free_and_what_will_be_next() -> None:
    shown = snapshot(runs(2, NOW - HOUR, 0, done=0.5), runs(3, NOW - HOUR, 1, done=0.8))
    found = free_devices(shown)
    assert found.headline == "2 of 4 free: 2, 3"
    assert found.free == (GPUS[2].id, GPUS[3].id)
    assert found.next.startswith("next: GPU 1 about ")
    booking = Booking((GPUS[1].id,), NOW, NOW + 9 * HOUR, user=0)
    kept = msgspec.structs.replace(shown, settings=Settings(reservations={"1": booking}))
    assert free_devices(kept).next.startswith("next: GPU 0 about ")
    drained = msgspec.structs.replace(shown, settings=Settings(drained=GPUS[2].id))
    assert free_devices(drained).headline == "1 of 4 free: 3"


def test_a_device_is_not_free_while_others_compute_on_it() -> None:
    shown = snapshot()
    for cause, free in ((OtherProcesses(1), 3), (Settling(1.0, 10.0), 4)):
        busy = msgspec.structs.replace(shown.devices[0], use=Busy(cause))
        found = free_devices(msgspec.structs.replace(shown, devices=(busy, *shown.devices[1:])))
        assert len(found.free) == free
        assert found.next == ""


@pytest.mark.parametrize(
    ("kind", "use", "said"),
    [
        ("cpu", Idle(NOW), "is free"),
        ("cpu", Busy(Settling(1.0, 10.0)), "is free"),
        ("cpu", Busy(Loaded(96.6)), "has no job, and is 97 % busy"),
        ("nvidia", Busy(Loaded(96.6)), "has no job, and is 97 % busy"),
        ("nvidia", Busy(OtherProcesses(1)), "is in use"),
    ],
)
def test_the_only_device_is_not_called_free_while_it_is_loaded(
    kind: Literal["cpu", "nvidia"], use: Idle | Busy, said: str
) -> None:
    only = DeviceState(msgspec.structs.replace(GPUS[0], kind=kind), None, use)
    found = free_devices(msgspec.structs.replace(snapshot(), devices=(only,)))
    assert found.headline.endswith(said)
    assert bool(found.free) == (said == "is free")


@pytest.mark.parametrize("kind", ["cpu", "nvidia"])
def test_a_device_that_is_reserved_names_its_booking(kind: Literal["cpu", "nvidia"]) -> None:
    only = DeviceState(msgspec.structs.replace(GPUS[0], kind=kind), None, Idle(NOW))
    booking = Booking((GPUS[0].id,), NOW, NOW + HOUR, group="night")
    settings = Settings(reservations={"1": booking})
    shown = msgspec.structs.replace(snapshot(), devices=(only,), settings=settings)
    until = tr_moment(NOW + HOUR, NOW)
    assert free_devices(shown).headline.endswith(f"is reserved for group night until {until}")
    held = msgspec.structs.replace(only, holders=(7,))
    shown = msgspec.structs.replace(shown, devices=(held,))
    assert "reserved" not in free_devices(shown).headline
