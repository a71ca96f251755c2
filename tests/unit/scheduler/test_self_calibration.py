"""When the daemon queues a calibration itself, and what ends that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.language.text import Text
from gpudeck.scheduler.protocol import calibration, paths
from gpudeck.scheduler.protocol.busy_causes import Loaded
from gpudeck.scheduler.protocol.calibration import UNCALIBRATED
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.jobs import Done, Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle
from gpudeck.scheduler.services import self_calibration
from gpudeck.scheduler.services.self_calibration import REVIEW_S, START_S, SelfCalibration

VERSIONS = {"VBIOS": "96.00", "driver": "580.1"}
GPUS = tuple(Device(f"GPU-{n}", n, "NVIDIA H100", "nvidia", facts=VERSIONS) for n in range(2))


class World:
    """What the service sees and does."""

    def __init__(self, file: Path) -> None:
        self.after: float | str = 30.0
        self.states = [self.state(gpu) for gpu in GPUS]
        self.jobs: list[Job] = []
        self.cancelled: list[int] = []
        self.notice: Text | None = None
        self.now = 1000.0
        self.file = file
        self.service = self.started()

    def started(self) -> SelfCalibration:
        return SelfCalibration(
            self.file, lambda: self.after, lambda: self.states, lambda: self.jobs,  # type: ignore[arg-type, return-value]
            self.submit, self.cancelled.append, self.told,
        )  # fmt: skip

    @staticmethod
    def state(gpu: Device, **changes: object) -> DeviceState:
        reading = Reading(gpu.id, 0.0, {"tflops_gpm": 0.0})
        return msgspec.structs.replace(DeviceState(gpu, reading, Idle(0.0)), **changes)

    def submit(self, spec: Spec) -> Job:
        self.add(spec, Running("a", (), time.time(), 1, 1, "boot"))
        return self.jobs[-1]

    def add(self, spec: Spec, state: Queued | Running) -> None:
        self.jobs.append(Job(len(self.jobs) + 1, spec, time.time(), state))

    def told(self, text: Text | None) -> None:
        self.notice = text

    def rest(self, minutes: float) -> None:
        """Let the time pass, with a look at least every interval."""
        end = self.now + 60 * minutes
        while self.now < end:
            self.now += REVIEW_S
            self.service.review()

    def end(self) -> None:
        """Let the newest job end."""
        job = self.jobs[-1] = msgspec.structs.replace(self.jobs[-1], state=Done(0.0, 1.0))
        self.service.job_ended(job)


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    paths.ensure(home)
    found = World(paths.self_calibration_file())
    monkeypatch.setattr(self_calibration.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(self_calibration, "missing_of", lambda *_: "")
    yield found


def keep(*gpus: Device, driver: str = "580.1") -> None:
    calibration.keep(
        msgspec.structs.replace(UNCALIBRATED, device=g.id, vbios="96.00", driver=driver, made=1.0)
        for g in gpus
    )


def test_gpus_are_calibrated_after_a_long_rest_once_for_each_driver(world: World) -> None:
    world.rest(29.9)
    assert not world.jobs
    world.rest(0.2)
    assert [job.spec.gpus for job in world.jobs] == [2] and world.notice is not None
    world.end()
    assert world.notice is None
    world.service = world.started()  # after a restart of the daemon
    world.rest(90)
    assert len(world.jobs) == 1
    newer = msgspec.structs.replace(GPUS[1], facts={**VERSIONS, "driver": "590.1"})
    world.states[1] = world.state(newer)
    world.rest(31)
    assert len(world.jobs) == 2


@pytest.mark.parametrize(
    "changes",
    [{"use": Busy(Loaded(40.0))}, {"leased": True}],
    ids=["busy", "leased"],
)
def test_the_rest_of_all_gpus_is_waited_for_anew(world: World, changes: dict[str, object]) -> None:
    world.rest(29)
    world.states[1] = world.state(GPUS[1], **changes)
    world.rest(0.1)
    world.states[1] = world.state(GPUS[1])
    world.rest(29)
    assert not world.jobs
    world.rest(2)
    assert len(world.jobs) == 1


def test_nothing_is_done_where_nothing_is_due_or_it_is_off(world: World) -> None:
    keep(GPUS[0])
    keep(GPUS[1], driver="570.1")
    world.after = "off"
    world.rest(60)
    assert not world.jobs
    world.after = 1.0
    keep(*GPUS)
    world.rest(60)
    assert not world.jobs
    keep(GPUS[1], driver="570.1")
    world.rest(2)
    assert len(world.jobs) == 1, "one was calibrated with another driver"


def test_without_torch_or_counters_nothing_is_queued(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_calibration, "missing_of", lambda *_: "torch is missing")
    world.rest(60)
    monkeypatch.setattr(self_calibration, "missing_of", lambda *_: "")
    world.states = [world.state(gpu, reading=Reading(gpu.id, 0.0, {})) for gpu in GPUS]
    world.rest(60)
    assert not world.jobs


def test_a_job_that_had_to_leave_is_cancelled_and_tried_again(world: World) -> None:
    world.rest(31)
    assert world.jobs[0].spec.when_idle and not world.cancelled
    world.jobs[0] = msgspec.structs.replace(world.jobs[0], state=Queued(), tries=1)
    world.rest(0.1)
    assert set(world.cancelled) == {1}
    world.end()
    world.rest(31)
    assert len(world.jobs) == 2


def test_cards_without_counters_are_not_held(world: World) -> None:
    old = Device("GPU-9", 2, "NVIDIA GeForce RTX 2080", "nvidia", facts=VERSIONS)
    world.states.insert(0, world.state(old, reading=Reading(old.id, 0.0, {})))
    world.rest(31)
    assert [(job.spec.gpus, job.spec.gpu_type) for job in world.jobs] == [(2, "NVIDIA H100")]


def test_a_name_that_is_part_of_another_one_is_not_relied_on(world: World) -> None:
    older = Device("GPU-9", 2, "NVIDIA H100 PCIe", "nvidia", facts=VERSIONS)
    world.states.append(world.state(older, reading=Reading(older.id, 0.0, {})))
    world.rest(31)
    world.end()
    world.rest(31)
    assert [(job.spec.gpus, job.spec.gpu_type) for job in world.jobs] == [
        (1, "GPU-0"),
        (1, "GPU-1"),
    ]


def test_a_job_that_cannot_start_is_given_up(world: World) -> None:
    world.rest(31)
    world.jobs[0] = msgspec.structs.replace(world.jobs[0], state=Queued())
    world.rest(0.1)
    assert not world.cancelled
    long_ago = world.jobs[0].submitted - START_S - 1
    world.jobs[0] = msgspec.structs.replace(world.jobs[0], submitted=long_ago)
    world.rest(0.1)
    assert world.cancelled


def test_a_job_that_ended_while_no_daemon_ran_is_forgotten(world: World) -> None:
    world.rest(31)
    world.jobs.clear()
    world.service = world.started()
    world.rest(90)
    assert not world.jobs and not world.cancelled, "it was tried"
    world.file.write_bytes(b"{")
    world.service = world.started()
    world.rest(31)
    assert len(world.jobs) == 1
