"""NVIDIA GPUs through NVML: every field or why not, and what happens when a GPU, the driver or a
counter is gone."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace as Answer

import pynvml
import pytest

from scheduler.devices.cpu import CpuSource
from scheduler.devices.nvidia import errors
from scheduler.devices.nvidia.source import NvmlSource
from scheduler.devices.sources import open_source
from scheduler.protocol.devices import DevicesChanged
from scheduler.protocol.errors import UserError
from scheduler.protocol.fields import FIELDS, HEADLINE
from tests.unit.scheduler.recorded_nvml import UUID, RecordedNvml, error, one

OF_MACHINES = {
    "cores",
    "clock_cpu",
    "load",
    "swap_used",
    "swap_total",
    "disk_read",
    "disk_write",
    "net_rx",
    "net_tx",
}


def test_the_device_and_its_facts(h100: RecordedNvml) -> None:
    (device,) = NvmlSource().devices()
    assert (device.id, device.index, device.name, device.kind) == (
        UUID,
        0,
        "NVIDIA H100 80GB HBM3",
        "nvidia",
    )
    assert device.facts == {
        "driver": "580.159.04",
        "compute capability": "9.0",
        "SMs": "132",
        "VBIOS": "96.00.DA.00.0C",
    }


def test_a_full_reading(h100: RecordedNvml) -> None:
    h100.clocks = [1410, 1320, 1290]
    opened = NvmlSource()
    opened.sample()
    opened.sample()
    reading = one(opened, h100)
    values = reading.values
    none = {"fan", "fan_rpm", "pages_corrected", "pages_uncorrected", "pages_pending"}
    assert reading.explained() == dict.fromkeys(none, "NVML: Not Supported")
    assert set(values) | none == {f for f in FIELDS if f not in OF_MACHINES}, (
        "every field there is, or why not"
    )
    assert set(HEADLINE) <= set(values)
    assert values["mem_used"] == 6692864000, "without the driver's reserve"
    assert values["power"] == 146.275, "the instantaneous one"
    assert values["power_avg"] == 146.305
    assert values["energy"] == 51699.022
    assert values["clock_sm"] == 1340.0, "averaged over the interval"
    assert (
        values["tflops"]
        == values["tflops_gpm"]
        == pytest.approx(0.93801 * 4096 * 132 * 1340e6 / 1e12)
    )
    assert "for FP8 this is a lower bound" in reading.methods["tflops"]
    assert "FP64 and FP16 without tensor cores are not in the sum" in reading.methods["tflops"], (
        "what the figure is worth is said with it"
    )
    assert values["bandwidth"] == pytest.approx(0.2522 * 5120 / 8 * 2619e6 * 2)
    assert values["pcie_rx"] == pytest.approx(16.831 * 2**20)
    assert reading.texts == {"throttle": "power limit"}


def test_a_field_that_is_not_supported_is_asked_for_again_only_after_a_while(
    h100: RecordedNvml,
) -> None:
    opened = NvmlSource()
    for _ in range(3):
        assert one(opened, h100, pause=19.0).explained()["fan_rpm"] == "NVML: Not Supported"
    assert h100.calls.count("nvmlDeviceGetFanSpeedRPM") == 1
    h100.answers["nvmlDeviceGetFanSpeedRPM"] = 1400
    assert one(opened, h100, pause=30.0).values["fan_rpm"] == 1400.0


def test_a_field_that_fails_once_is_there_again_at_the_next_reading(h100: RecordedNvml) -> None:
    well = h100.answers["nvmlDeviceGetTemperature"]
    h100.answers["nvmlDeviceGetTemperature"] = error(pynvml.NVML_ERROR_UNKNOWN)
    opened = NvmlSource()
    assert "temp" in one(opened, h100, 100.0).absent
    h100.answers["nvmlDeviceGetTemperature"] = well
    assert one(opened, h100, 100.5).values["temp"] == 54.0


def test_a_field_that_fails_once_takes_no_other_with_it(h100: RecordedNvml) -> None:
    h100.answers["nvmlDeviceGetTemperature"] = error(pynvml.NVML_ERROR_UNKNOWN)
    h100.answers["nvmlDeviceGetMemoryInfo"] = error(pynvml.NVML_ERROR_NO_PERMISSION)
    reading = one(NvmlSource(), h100)
    assert reading.explained()["temp"] == "NVML: Unknown Error"
    assert reading.explained()["mem_used"] == "NVML: Insufficient Permissions"
    assert reading.values["util"] == 100.0
    assert set(reading.values) & set(reading.absent) == set()


GONE = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_RESET_REQUIRED,
)


@pytest.mark.parametrize("code", GONE)
@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCount",
        "nvmlGpmSampleGet",
    ],
)
def test_a_lost_gpu_or_driver_opens_the_source_anew(
    h100: RecordedNvml, code: int, call: str
) -> None:
    opened = NvmlSource()
    h100.answers[call] = error(code)
    h100.now += 0.5
    with pytest.raises(DevicesChanged):
        opened.read(100.0)


def test_a_gpu_that_comes_or_goes_opens_the_source_anew(h100: RecordedNvml) -> None:
    opened = NvmlSource()
    h100.gpus = 2
    with pytest.raises(DevicesChanged, match="number of GPUs"):
        opened.read(100.0)
    assert [d.index for d in NvmlSource().devices()] == [0, 1]


@pytest.mark.parametrize(
    ("call", "answer", "words"),
    [
        ("nvmlInit", error(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), "NVML Shared Library Not Found"),
        ("nvmlInit", error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), "Driver Not Loaded"),
        ("nvmlDeviceGetCount", 0, "finds no GPU"),
    ],
)
def test_without_a_driver_the_cpu_is_watched_and_says_why(
    h100: RecordedNvml, call: str, answer: object, words: str
) -> None:
    h100.answers[call] = answer
    with pytest.raises(UserError, match=words) as caught:
        open_source("nvml")
    assert "\n" not in str(caught.value)
    opened, said = open_source("auto")
    assert isinstance(opened, CpuSource)
    assert words in said
    assert words in opened.devices()[0].facts["why"]


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (
            "nvmlInit",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            r"different versions.*Restart the machine, or reload the driver",
        ),
        ("nvmlInit", pynvml.NVML_ERROR_UNKNOWN, "Unknown Error.*set the source to cpu"),
        ("nvmlDeviceGetCount", pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
        ("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"),
    ],
)
def test_gpus_in_trouble_are_no_reason_to_take_the_cpu(
    h100: RecordedNvml, call: str, code: int, words: str
) -> None:
    h100.answers[call] = error(code)
    with pytest.raises(UserError, match=words) as caught:
        open_source("auto")
    assert "\n" not in str(caught.value)
    assert h100.calls.count("nvmlShutdown") == (call != "nvmlInit")


def test_a_kernel_that_has_the_driver_has_gpus(
    h100: RecordedNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(errors, "_DRIVER", tmp_path)
    h100.answers["nvmlInit"] = error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(UserError, match="cannot be reached"):
        open_source("auto")


def test_a_container_that_was_given_no_gpu_has_none(
    h100: RecordedNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        errors, "_DRIVER", tmp_path
    )  # it sees its host's driver, and has no library
    h100.answers["nvmlInit"] = error(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert open_source("auto")[0].devices()[0].kind == "cpu"


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"]
)
def test_gpus_that_answer_are_kept_and_say_which_does_not(h100: RecordedNvml, call: str) -> None:
    h100.gpus = 3
    well = h100.answers[call]

    def answer(index: int, *more: object) -> object:
        if index == 1:
            raise error(pynvml.NVML_ERROR_GPU_IS_LOST)
        return well(index, *more) if callable(well) else well

    h100.answers[call] = answer
    opened, _ = open_source("auto")
    assert [(d.index, d.note) for d in opened.devices()] == [
        (0, ""),
        (1, "GPU 1 does not answer: GPU is lost"),
        (2, ""),
    ]
    assert [d.silent for d in opened.devices()] == [None, "GPU is lost", None]
    for _ in range(3):
        h100.now += 50.0
        assert len(opened.read(100.0)) == 2
    h100.answers[call] = well
    with pytest.raises(DevicesChanged, match="GPU 1 answers again"):
        for _ in range(2):
            h100.now += 50.0
            opened.read(100.0)


def test_auto_takes_the_gpus_where_there_are_any(h100: RecordedNvml) -> None:
    opened, said = open_source("auto")
    assert isinstance(opened, NvmlSource)
    assert said == "nvml"


def test_an_older_card_has_no_counters_and_no_guess(h100: RecordedNvml) -> None:
    h100.answers["nvmlGpmQueryDeviceSupport"] = Answer(isSupportedDevice=0)
    h100.answers["nvmlDeviceGetCudaComputeCapability"] = (8, 6)
    h100.answers["nvmlDeviceGetAttributes"] = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
    h100.answers["nvmlDeviceGetNumGpuCores"] = 10496
    h100.answers["nvmlDeviceGetPcieThroughput"] = 2048
    opened = NvmlSource()
    assert opened.devices()[0].facts["SMs"] == "82"
    reading = one(opened, h100)
    assert "GPM needs Hopper" in reading.explained()["tflops"]
    assert "GPM needs Hopper" in reading.explained()["bandwidth"]
    assert reading.values["util"] == 100.0
    opened.close()


def test_counters_that_fail_are_named_one_by_one(h100: RecordedNvml) -> None:
    h100.gpm_returns[pynvml.NVML_GPM_METRIC_FP32_UTIL] = pynvml.NVML_ERROR_NOT_SUPPORTED
    h100.gpm_values[pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL] = float("nan")
    reading = one(NvmlSource(), h100)
    assert reading.explained()["fp32"] == "GPM: Not Supported"
    assert reading.explained()["tflops"] == "the counters or the clock cannot be read"
    assert (
        reading.explained()["bandwidth"]
        == reading.explained()["dram"]
        == "GPM counted nothing in this interval"
    )
    assert reading.values["tensor_hmma"] == pytest.approx(93.801)


def test_two_readings_too_close_have_no_counters_and_a_clock_that_is_set_changes_nothing(
    h100: RecordedNvml,
) -> None:
    opened = NvmlSource()
    assert "tflops" in one(opened, h100, 100.0).values
    assert (
        one(opened, h100, 200.0, pause=0.05).explained()["tflops"]
        == "read too soon after the last reading"
    )
    assert "tflops" in one(opened, h100, 50.0, pause=0.05).values, (
        "the clock of the wall was set back"
    )
    for _ in range(10):
        assert "tflops" in one(opened, h100, pause=0.095).values, (
            "ten readings a second are never quite even"
        )


def test_without_the_instantaneous_power_the_average_is_shown(h100: RecordedNvml) -> None:
    h100.answers["nvmlDeviceGetFieldValues"] = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
    reading = one(NvmlSource(), h100)
    assert reading.values["power"] == 146.305
    assert "it reports no instantaneous power" in reading.methods["power"], "and not silently"
    assert "power" not in reading.absent
    assert reading.explained()["temp_mem"] == "NVML: Not Supported"


def test_processes_are_ours_or_of_others(
    h100: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    h100.answers["nvmlDeviceGetComputeRunningProcesses"] = [
        Answer(pid=os.getpid(), usedGpuMemory=None),
        Answer(pid=2**22 + 5, usedGpuMemory=1024),
    ]
    ours, unknown = one(NvmlSource(), h100).processes
    assert (ours.pid, ours.memory, ours.job) == (os.getpid(), None, None)
    assert ours.name != "?"
    assert (unknown.name, unknown.memory) == ("?", 1024.0), (
        "one of another container has a pid and no name"
    )


def test_close_gives_everything_back(h100: RecordedNvml) -> None:
    NvmlSource().close()
    assert h100.calls.count("nvmlGpmSampleFree") == h100.calls.count("nvmlGpmSampleAlloc") == 2
    assert h100.calls[-1] == "nvmlShutdown"
