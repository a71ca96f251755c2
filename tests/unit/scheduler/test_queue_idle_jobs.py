"""Jobs that run only while GPUs are idle: where they start, and what they leave to others."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, Loaded
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Idle
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.admission import check_spec
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from gpudeck.scheduler.telemetry.monitor import Monitor
from tests.unit.scheduler.planning import laned

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(2)]
LOADED = {GPUS[0].id: Loaded(60.0), GPUS[1].id: HeldByJobs((7,))}


def job(number: int, when_idle: bool = True, gpu: int | None = None, **options: object) -> Job:
    spec = Spec(("true",), f"job{number}", "/", kind="nvidia", gpus=1, when_idle=when_idle)
    state = Queued() if gpu is None else Running("a", (GPUS[gpu].id,), 100.0, 1, 1, "boot")
    return Job(number, msgspec.structs.replace(spec, **options), 0.0, state)


def plan(*jobs: Job, busy: dict[str, object] = {}) -> Plan:  # noqa: B006 - a constant
    running, lanes = laned(jobs)
    conditions = Conditions(Availability(busy=busy), now=1000.0)  # type: ignore[arg-type]
    return make_plan(running, lanes, GPUS, conditions)


def test_it_starts_on_idle_gpus_alone_and_says_which_are_not() -> None:
    assert not plan(job(1), busy=LOADED).starts
    assert plan(job(1), busy=LOADED).reason(job(1)) == w.NotIdle(
        (("GPU 0", Loaded(60.0)), ("GPU 1", HeldByJobs((7,))))
    )
    (start,) = plan(job(1), busy={GPUS[0].id: Loaded(60.0)}).starts
    assert start.devices == (GPUS[1].id,)


def test_on_a_machine_without_gpus_the_reason_names_the_cpu() -> None:
    cpu = Device("CPU", 0, "EPYC", "cpu")
    waiting = job(1, kind="cpu")
    running, lanes = laned([waiting])
    found = make_plan(
        running, lanes, [cpu], Conditions(Availability(busy={"CPU": Loaded(60.0)}), now=1000.0)
    )
    reason = found.reason(waiting)
    assert reason == w.NotIdle((("CPU", Loaded(60.0)),), cpu=True)
    assert str(explain(reason, 1000.0)) == "runs while the CPU is idle; utilisation 60 %"


def test_it_keeps_no_gpu_from_others_whatever_its_priority() -> None:
    found = plan(job(1, priority=9, gpus=2), job(2, when_idle=False), busy=LOADED)
    assert [start.job.id for start in found.starts] == [2] and not found.reservations()


def test_it_does_not_use_what_another_job_waits_for() -> None:
    held, waiting = job(1, when_idle=False, gpu=0), job(2, when_idle=False, gpus=2)
    assert not plan(held, waiting, job(3, timeout=1.0), busy=LOADED).starts


def test_a_job_that_gives_way_is_no_load_and_its_gpu_is_idle_as_before() -> None:
    monitor, settings = Monitor(), Settings(idle_dwell_s=15.0)
    monitor.set_devices(tuple(GPUS[:1]))
    for second in range(40):
        own = [job(1, gpu=0)] if 20 <= second < 39 else []
        util = 100.0 if own else 0.0
        monitor.add([Reading(GPUS[0].id, 1000.0 + second, {"util": util})], own)
    (state,) = monitor.states([], settings, 1039.0)
    assert isinstance(state.use, Idle)
    monitor.add([Reading(GPUS[0].id, 1040.0, {"util": 100.0})], [job(2, when_idle=False, gpu=0)])
    (state,) = monitor.states([job(3)], settings, 1040.0)
    assert isinstance(state.use, Idle), "NVML's mean is still that of the job that gave way"


def test_it_needs_a_gpu() -> None:
    assert make_spec(["true"], {"when_idle": True}).gpus == 1
    with pytest.raises(UserError, match="needs a GPU"):
        check_spec(msgspec.structs.replace(make_spec(["true"], {}), when_idle=True), GPUS)
