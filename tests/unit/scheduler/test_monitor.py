"""The monitor turns readings into the state of every device."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import (
    ExclusiveProgram,
    HeldByJobs,
    JobWaits,
    Loaded,
    NoReading,
    OtherProcesses,
    QuietHours,
    Reserved,
)
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.jobs import Job, Progress, Queued, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle
from gpudeck.scheduler.telemetry.monitor import Monitor

GPU = Device("GPU-0", 0, "H100", "nvidia")
CPU = Device("cpu", 0, "EPYC", "cpu")
NOW = 1000.0


def job(number: int, gpus: int = 1, device: str | None = None) -> Job:
    state = Running("n", (device,), 0.0, 1, 1, "b") if device else Queued()
    return Job(number, Spec(("x",), "x", "/", gpus=gpus), 0.0, state)


def reading(time: float, device: str = "GPU-0", util: float = 0.0, **more: object) -> Reading:
    return msgspec.structs.replace(Reading(device, time, {"util": util, "tflops": 1.0}), **more)  # type: ignore[arg-type]


def watching(*devices: Device, seconds: int = 20, **more: object) -> Monitor:
    monitor = Monitor()
    monitor.set_devices(devices)
    for t in range(int(NOW) - seconds, int(NOW) + 1):
        monitor.add([reading(float(t), d.id, **more) for d in devices], [])
    return monitor


def state(monitor: Monitor, *jobs: Job, now: float = NOW, **settings: object) -> DeviceState:
    return monitor.states(jobs, msgspec.structs.replace(Settings(), **settings), now)[0]


def test_before_the_first_reading_there_is_none_and_it_is_busy() -> None:
    monitor = Monitor()
    monitor.set_devices((GPU,))
    assert state(monitor) == DeviceState(GPU, None, Busy(NoReading()))


def test_quiet_for_the_dwell_is_idle_and_a_job_ends_it_at_once() -> None:
    monitor = watching(GPU)
    assert isinstance(state(monitor).use, Idle)
    assert state(monitor, job(3, device="GPU-0")) == msgspec.structs.replace(
        state(monitor), use=Busy(HeldByJobs((3,))), holders=(3,)
    )
    shared = state(monitor, job(3, device="GPU-0"), job(4, device="GPU-0"))
    assert (shared.use, shared.holders) == (Busy(HeldByJobs((3, 4))), (3, 4))
    assert state(monitor, job(4)).use == Busy(JobWaits(4))
    assert isinstance(state(monitor, job(5, gpus=0)).use, Idle), (
        "a job that needs no device leaves it idle"
    )


@pytest.mark.parametrize("quiet", [False, True])
def test_who_uses_a_gpu_is_told_while_a_job_waits_and_in_quiet_hours(quiet: bool) -> None:
    jobs, settings = () if quiet else (job(4),), {"idle_hours_off": "00:00-23:59"} if quiet else {}
    kept = QuietHours("00:00-23:59") if quiet else JobWaits(4)
    loaded, shared = watching(GPU, util=99.0), watching(GPU, processes=(Process(1, "p"),))
    assert state(loaded, *jobs, **settings).use == Busy(Loaded(99.0))
    assert state(shared, *jobs, **settings).use == Busy(OtherProcesses(1))
    for seconds in (2, 20):
        assert state(watching(GPU, seconds=seconds), *jobs, **settings).use == Busy(kept)


def test_a_lost_probe_leaves_the_device_listed_without_a_reading() -> None:
    monitor = watching(GPU)
    monitor.lose_probe()
    assert state(monitor).reading is None
    assert state(monitor, now=NOW + 4).use == Busy(NoReading())


@pytest.mark.parametrize(("hz", "dwell"), [(0.1, 0.0), (0.1, 300.0), (10.0, 300.0), (2.0, 15.0)])
def test_every_setting_that_is_allowed_can_become_idle(hz: float, dwell: float) -> None:
    monitor = Monitor()
    monitor.set_devices((GPU,))
    for i in range(int(599 * hz)):
        monitor.add([reading(i / hz)], [])
    last = (int(599 * hz) - 1) / hz
    found = state(monitor, now=last + 0.9 / hz, telemetry_hz=hz, idle_dwell_s=dwell)
    assert isinstance(found.use, Idle)
    assert found.reading is not None


def test_a_cpu_may_do_a_little_a_gpu_may_not() -> None:
    assert isinstance(state(watching(CPU, util=30.0)).use, Idle)
    assert state(watching(GPU, util=30.0)).use == Busy(Loaded(30.0))


def test_processes_of_our_jobs_and_our_assistant_are_not_foreign() -> None:
    assert isinstance(state(watching(GPU, processes=(Process(1, "p", job=3),))).use, Idle)
    assert isinstance(state(watching(GPU, processes=(Process(1, "p", assistant=True),))).use, Idle)
    assert state(watching(GPU, processes=(Process(1, "p"),))).use == Busy(OtherProcesses(1))


def test_an_exclusive_program_keeps_the_assistant_away_unless_it_is_the_assistant() -> None:
    own = (Process(1, "game", assistant=True),)
    theirs = (Process(2, "game", job=3),)
    wanted = {"exclusive_programs": "game"}
    assert isinstance(state(watching(GPU, processes=own), **wanted).use, Idle)
    assert state(watching(GPU, processes=theirs), **wanted).use == Busy(ExclusiveProgram("game"))


def test_a_reserved_gpu_is_not_for_the_assistant_but_the_cpu_always_is() -> None:
    for begin, end, kept in ((-5, 5, True), (5, 9, False), (-9, -5, False)):
        booking = Booking(("GPU-0", "cpu"), NOW + begin, NOW + end, None, "night")
        wanted = {"reservations": {"1": booking}}
        use = state(watching(GPU), **wanted).use
        assert (
            use == Busy(Reserved(phrase("group {group}", group="night"), NOW + end))
            if kept
            else isinstance(use, Idle)
        )
        assert isinstance(state(watching(CPU), **wanted).use, Idle)


def test_a_count_has_no_error_of_the_counters() -> None:
    monitor = watching(GPU)
    monitor.add_progress(3, [Progress(1, 10, "", 0.0, NOW), Progress(2, 10, "", 5e12, NOW + 0.5)])
    values = {"tflops": 9.0, "tflops_error": 14.0, "tflops_gpm": 9.0, "tflops_gpm_error": 14.0}
    (shown,) = monitor.add([reading(NOW + 0.6, values=values)], [job(3, device="GPU-0")])
    assert shown.values == {
        "tflops": pytest.approx(10.0),
        "tflops_gpm": 9.0,
        "tflops_gpm_error": 14.0,
    }
    silent = reading(NOW + 0.7, values={}, absent={"tflops": "x", "tflops_error": "x"})
    assert monitor.add([silent], [job(3, device="GPU-0")])[0].absent == {}


def test_a_job_that_counts_is_believed_before_the_counters() -> None:
    monitor = watching(GPU)
    mine = job(3, device="GPU-0")
    monitor.add_progress(3, [Progress(1, 10, "", 0.0, NOW), Progress(2, 10, "", 5e12, NOW + 0.5)])
    (shown,) = monitor.add([reading(NOW + 0.6, absent={"fan": "x"})], [mine])
    assert shown.values["tflops"] == pytest.approx(10.0)
    assert str(shown.methods["tflops"]) == "counted by job 3 over its last 2 s"
    (other,) = monitor.add([reading(NOW + 0.7)], [job(3, device="GPU-1")])
    assert other.values["tflops"] == 1.0, "not on a device it does not hold"


def in_type(number: int, precision: str) -> Job:
    held = job(number, device="GPU-0")
    return msgspec.structs.replace(
        held, spec=msgspec.structs.replace(held.spec, precision=precision)
    )


def test_the_counters_are_told_for_the_type_that_the_jobs_state() -> None:
    monitor = watching(GPU)
    values = {"tflops": 600.0, "tflops_error": 4.0, "tflops_gpm": 600.0}
    read = reading(NOW + 1, values=values, methods={"tflops": "by counters"})
    (shown,) = monitor.add([read], [in_type(3, "fp8")])
    assert shown.values == {"tflops": 1200.0, "tflops_error": 4.0, "tflops_gpm": 600.0}
    assert str(shown.methods["tflops"]) == "for FP8, as job 3 states; by counters"
    assert shown.precision == "fp8"
    (half,) = monitor.add([read], [in_type(3, "tf32"), in_type(4, "tf32")])
    assert half.values["tflops"] == 300.0
    for jobs in ([in_type(3, "fp8"), in_type(4, "")], [in_type(3, "fp8"), in_type(4, "bf16")], []):
        assert monitor.add([read], jobs) == [read], "nothing is known of the types together"


def test_what_a_job_counts_is_not_doubled_by_the_type_that_it_states() -> None:
    monitor = watching(GPU)
    monitor.add_progress(3, [Progress(1, 10, "", 0.0, NOW), Progress(2, 10, "", 5e12, NOW + 0.5)])
    values = {"tflops": 9.0, "tflops_error": 14.0}
    (shown,) = monitor.add([reading(NOW + 0.6, values=values)], [in_type(3, "fp8")])
    assert shown.values == {"tflops": pytest.approx(10.0)}


def test_a_count_fills_the_gap_of_a_device_without_counters() -> None:
    monitor = watching(CPU)
    monitor.add_progress(3, [Progress(1, 10, "", 0.0, NOW), Progress(2, 10, "", 1e12, NOW + 1)])
    without = msgspec.structs.replace(
        reading(NOW + 1, "cpu"),
        values={"util": 90.0},
        absent={"tflops": "no counters", "temp": "none"},
    )
    (shown,) = monitor.add([without], [job(3, device="cpu")])
    assert shown.values["tflops"] == pytest.approx(1.0)
    assert shown.absent == {"temp": "none"}
    monitor.forget(set())
    assert monitor.add([without], [job(3, device="cpu")]) == [without]
