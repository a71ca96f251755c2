"""Survey clocks without a GPU: the kernel compiles for every target, and loads are measured."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest
import torch

from gpudeck.accel.runtime import sm_clock
from gpudeck.accel.runtime.call import compile_kernel
from gpudeck.accel.runtime.capability import ComputeDevice
from gpudeck.accel.workloads import clock_survey, task
from gpudeck.accel.workloads.progress import Progress
from gpudeck.scheduler.services import calibration_service


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_the_kernel_that_counts_cycles_compiles(capability: int) -> None:
    kernel = compile_kernel(sm_clock.clock_call(), capability)
    assert kernel.metadata.num_warps == 1, "one warp leaves the load alone"
    assert "%clock64" in kernel.asm["ptx"]
    assert "%globaltimer" in kernel.asm["ptx"]


class Sampler:
    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> list[sm_clock.ClockSample]:
        return [sm_clock.ClockSample(100.0, 1500.0, 3), sm_clock.ClockSample(100.1, 1510.0, 3)]


def test_a_job_measures_its_clock_on_gpus_with_counters_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sm_clock, "ClockSampler", Sampler)
    gpu = torch.device("cuda", 0)
    for capability, expected in (((9, 0), 1505.0), ((8, 0), None)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        with sm_clock.ClockWatch(gpu, 10.0) as watch:
            pass
        assert (watch.mhz, str(watch.absent)) == (expected, "")
    with sm_clock.ClockWatch(torch.device("cpu"), 10.0) as watch:
        pass
    assert watch.mhz is None


def test_work_on_a_gpu_has_its_true_clock_and_work_on_a_cpu_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sm_clock, "ClockSampler", Sampler)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    gpu = ComputeDevice(torch.device("cuda", 0), "H100", 132, 0, (9, 0))
    with task._true_clock(gpu, 10.0) as watch:
        pass
    assert watch is not None and watch.mhz == 1505.0
    cpu = ComputeDevice(torch.device("cpu"), "EPYC", 8, 8, None)
    with task._true_clock(cpu, 10.0) as watch:
        assert watch is None


def test_a_clock_that_cannot_be_measured_stops_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.\nSet CC")

    monkeypatch.setattr(sm_clock, "ClockSampler", fail)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    with sm_clock.ClockWatch(torch.device("cuda", 0), 10.0) as watch:
        pass
    assert (watch.mhz, str(watch.absent)) == (None, "true clock: Failed to find C compiler.")


def test_every_load_is_measured_and_written_as_the_daemon_reads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sm_clock, "ClockSampler", Sampler)
    for name, value in {
        "SECONDS": 0.02,
        "PACED_SECONDS": 0.02,
        "_N": 16,
        "_SMALL": 8,
        "_TOKENS": 16,
        "_WIDTH": 128,
    }.items():
        monkeypatch.setattr(clock_survey, name, value)
    monkeypatch.setattr(clock_survey, "_COPIED", 64)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    for name, value in {
        "device_count": lambda: 1,
        "synchronize": lambda device: None,
        "Event": lambda: event,
        "empty_cache": lambda: None,
        "get_device_properties": lambda device: SimpleNamespace(uuid="a1-b2"),
        "device": lambda device: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(clock_survey, "_device", lambda index: torch.device("cpu"))
    found = clock_survey.survey(Progress(1.0))
    read = msgspec.json.decode(
        msgspec.json.encode(found), type=tuple[calibration_service.MeasuredGpu, ...]
    )
    (gpu,) = read
    assert gpu.device == "GPU-a1-b2"
    assert len(gpu.loads) == clock_survey.LOADS == len({load.name for load in gpu.loads})
    for load in gpu.loads:
        assert load.clocks == ((100.0, 1500.0), (100.1, 1510.0))
        assert load.busy[0][0] == load.start
        assert load.busy[-1][1] == load.end
        calls = load.flops / (2 * 8**3)
        assert calls == int(calls), "whole products"
    by_name = {load.name: load.flops for load in gpu.loads}
    assert by_name["bfloat16 product"] > 0
    assert by_name["TF32 product"] == by_name["copy"] == 0.0, "the counters misjudge one, not both"
    assert "bfloat16 product: 1505 MHz" in capsys.readouterr().out
