"""Waiting for idle devices."""

from __future__ import annotations

import pytest
from examples import CPU_STATE, snapshot

from gpudeck.assistant.idle import Cancelled, wait_until_idle, why_busy
from gpudeck.language.text import Text
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, Loaded, OtherProcesses, Settling
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.errors import DaemonGone
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle

GPU = Device("GPU-1", 0, "NVIDIA H100", "nvidia")


OWN = Process(4321, "python", assistant=True)
OTHERS = Process(1, "python")


def gpu(
    use: Idle | Busy, *processes: Process, holders: tuple[int, ...] = (), leased: bool = False
) -> DeviceState:
    return DeviceState(GPU, Reading("GPU-1", 0.0, {}, processes=processes), use, holders, leased)


BUSY = snapshot(gpu(Busy(Loaded(93.0)), OTHERS), jobs=())
OTHER = snapshot(gpu(Busy(Settling(3.0, 15.0)), OTHERS), jobs=())
IDLE = snapshot(gpu(Idle(0.0)), jobs=())


def test_the_wait_ends_at_the_first_idle_snapshot_and_reports_each_reason_once() -> None:
    reasons: list[Text] = []
    snapshots = iter([BUSY, BUSY, OTHER, IDLE, BUSY])
    wait_until_idle(snapshots, on_wait=reasons.append)
    assert list(map(str, reasons)) == [
        "NVIDIA H100: utilisation 93 %",
        "NVIDIA H100: idle in 12 s",
    ]
    assert next(snapshots) is BUSY, "nothing is read after the wait has ended"


def test_a_cancelled_wait_raises() -> None:
    with pytest.raises(Cancelled):
        wait_until_idle([BUSY, IDLE], cancelled=lambda: True)


def test_a_daemon_that_goes_away_ends_the_wait() -> None:
    with pytest.raises(DaemonGone):
        wait_until_idle([BUSY])


def test_one_busy_device_of_several_is_enough_to_wait() -> None:
    assert (
        str(why_busy(snapshot(gpu(Idle(0.0)), CPU_STATE, jobs=()))) == "AMD EPYC 9654: job 8 runs"
    )


def test_no_device_is_not_idle() -> None:
    assert str(why_busy(snapshot(jobs=()))) == "no device has been read yet"


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        (gpu(Busy(Loaded(50.0)), OWN, leased=True), False),
        (gpu(Busy(Loaded(50.0)), OWN), True),
        (gpu(Busy(HeldByJobs((3,))), OWN, holders=(3,), leased=True), True),
        (gpu(Busy(OtherProcesses(1)), OTHERS), True),
        (gpu(Idle(0.0), OWN), False),
    ],
)
def test_only_work_of_others_is_a_reason_to_wait(state, waits) -> None:
    assert (why_busy(snapshot(state, jobs=())) is not None) == waits
