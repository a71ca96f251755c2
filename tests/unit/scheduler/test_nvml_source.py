"""NVIDIA GPUs through NVML: every field or why not, and what happens when a GPU, the driver or a
counter is gone."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace as Answer

import pynvml
import pytest

from gpudeck.scheduler.devices.cpu import CpuSource
from gpudeck.scheduler.devices.nvidia import errors
from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.devices.sources import open_source
from gpudeck.scheduler.protocol.devices import DevicesChanged
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.fields import FIELDS, HEADLINE
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


def test_the_device_and_its_facts(card: RecordedNvml) -> None:
    (device,) = NvmlSource().devices()
    assert (device.id, device.index, device.name, device.kind) == (
        UUID,
        0,
        "NVIDIA H200",
        "nvidia",
    )
    assert device.facts == {
        "driver": "580.159.04",
        "CUDA": "13.0",
        "compute capability": "9.0",
        "SMs": "132",
        "VBIOS": "96.00.A5.00.1A",
    }


VALUES = {
    "util": 100.0,
    "mem_util": 25.0,
    "tflops": 679.6,
    "tflops_gpm": 679.6,
    "tflops_error": 14.4179,
    "tflops_gpm_error": 14.4179,
    "bandwidth": 0.8180e12,
    "graphics": 99.999,
    "sm_active": 96.657,
    "sm_occupancy": 14.284,
    "tensor": 93.812,
    "tensor_hmma": 93.81,
    "tensor_imma": 3.25,
    "tensor_dfma": 2.25,
    "fp16": 5.25,
    "fp32": 0.0,
    "fp64": 6.25,
    "integer": 1.363,
    "dram": 16.991,
    "encoder": 11.0,
    "decoder": 12.0,
    "jpeg": 13.0,
    "ofa": 14.0,
    "mem_used": 10_545_332_224.0,
    "mem_total": 150_754_820_096.0,
    "mem_reserved": 644_939_776.0,
    "mem_free": 139_564_548_096.0,
    "bar1_used": 10_547_101_696.0,
    "bar1_total": 274_877_906_944.0,
    "clock_sm": 1340.0,
    "clock_mem": 2619.0,
    "clock_video": 1515.0,
    "clock_sm_max": 1980.0,
    "clock_mem_max": 3201.0,
    "clock_video_max": 1545.0,
    "pstate": 0.0,
    "throttle": 4.0,
    "throttle_power": 1.0,
    "throttle_heat": 0.0,
    "throttled": 0.0,
    "power": 719.588,
    "power_avg": 690.246,
    "power_limit": 650.0,
    "power_limit_default": 700.0,
    "power_limit_min": 200.0,
    "power_limit_max": 710.0,
    "energy": 44_766.693,
    "temp": 61.0,
    "temp_mem": 51.0,
    "temp_margin": 24.0,
    "temp_limit": 89.0,
    "temp_shutdown": 95.0,
    "temp_max": 87.0,
    "temp_mem_max": 97.0,
    "pcie_gen": 4.0,
    "pcie_gen_max": 5.0,
    "pcie_width": 8.0,
    "pcie_width_max": 16.0,
    "pcie_rx": 28.864 * 1_048_576,
    "pcie_tx": 18.464 * 1_048_576,
    "pcie_replays": 7.0,
    "nvlink_rx": 40.5 * 1_048_576,
    "nvlink_tx": 50.5 * 1_048_576,
    "nvlink_links": 18.0,
    "nvlink_errors": 0.0,
    "ecc": 1.0,
    "ecc_corrected": 21.0,
    "ecc_uncorrected": 2.0,
    "ecc_corrected_total": 34.0,
    "ecc_uncorrected_total": 6.0,
    "rows_corrected": 5.0,
    "rows_uncorrected": 3.0,
    "rows_pending": 1.0,
    "rows_failure": 0.0,
    "xid": 0.0,
    "xid_count": 0.0,
    "mig": 0.0,
}
"""Every field of the recorded card, written down from its recording and nvidia-smi's units."""


def test_every_field_has_the_value_and_unit_of_its_own(card: RecordedNvml) -> None:
    card.clocks = [1410, 1320, 1290]
    opened = NvmlSource()
    for _ in range(3):
        card.now += 0.5
        opened.sample()
    reading = one(opened, card)
    none = {"fan", "fan_rpm", "pages_corrected", "pages_uncorrected", "pages_pending"}
    none |= {"recovery_action"}  # which was not recorded
    assert reading.explained() == dict.fromkeys(none, "NVML: Not Supported")
    assert reading.values == pytest.approx(VALUES, rel=1e-4)
    assert set(VALUES) | none == {f for f in FIELDS if f not in OF_MACHINES}, (
        "every field there is, or why not"
    )
    assert set(HEADLINE) <= set(reading.values)
    assert reading.texts == {"throttle": "power limit"}


def test_an_older_card_counts_its_fans_and_retired_pages(card: RecordedNvml) -> None:
    card.answers |= {
        "nvmlDeviceGetNumFans": 2,
        "nvmlDeviceGetFanSpeed_v2": lambda handle, fan: (35, 62)[fan],
        "nvmlDeviceGetFanSpeedRPM": 1400,
        "nvmlDeviceGetRetiredPages": lambda handle, cause: {
            pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS: [1, 2, 3],
            pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR: [4, 5],
        }[cause],
        "nvmlDeviceGetRetiredPagesPendingStatus": 1,
    }
    values = one(NvmlSource(), card).values
    assert (values["fan"], values["fan_rpm"]) == (62.0, 1400.0), "of the fastest fan"
    assert [values[f"pages_{kind}"] for kind in ("corrected", "uncorrected", "pending")] == [
        3.0,
        2.0,
        1.0,
    ]


def test_a_field_that_is_not_supported_is_asked_for_again_only_after_a_while(
    card: RecordedNvml,
) -> None:
    card.answers |= {"nvmlDeviceGetNumFans": 1, "nvmlDeviceGetFanSpeed_v2": 40}
    card.answers["nvmlDeviceGetFanSpeedRPM"] = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
    opened = NvmlSource()
    for _ in range(3):
        assert one(opened, card, pause=19.0).explained()["fan_rpm"] == "NVML: Not Supported"
    assert card.calls.count("nvmlDeviceGetFanSpeedRPM") == 1
    card.answers["nvmlDeviceGetFanSpeedRPM"] = 1400
    assert one(opened, card, pause=30.0).values["fan_rpm"] == 1400.0


def test_a_field_that_fails_once_is_there_again_at_the_next_reading(card: RecordedNvml) -> None:
    well = card.answers["nvmlDeviceGetTemperature"]
    card.answers["nvmlDeviceGetTemperature"] = error(pynvml.NVML_ERROR_UNKNOWN)
    opened = NvmlSource()
    assert "temp" in one(opened, card, 100.0).absent
    card.answers["nvmlDeviceGetTemperature"] = well
    assert one(opened, card, 100.5).values["temp"] == 61.0


def test_a_field_that_fails_once_takes_no_other_with_it(card: RecordedNvml) -> None:
    card.answers["nvmlDeviceGetTemperature"] = error(pynvml.NVML_ERROR_UNKNOWN)
    card.answers["nvmlDeviceGetMemoryInfo"] = error(pynvml.NVML_ERROR_NO_PERMISSION)
    reading = one(NvmlSource(), card)
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
def test_a_lost_gpu_or_driver_reopens_the_source(card: RecordedNvml, code: int, call: str) -> None:
    opened = NvmlSource()
    card.answers[call] = error(code)
    card.now += 0.5
    with pytest.raises(DevicesChanged):
        opened.read(100.0)


def test_an_added_or_removed_gpu_reopens_the_source(card: RecordedNvml) -> None:
    opened = NvmlSource()
    card.gpus = 2
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
    card: RecordedNvml, call: str, answer: object, words: str
) -> None:
    card.answers[call] = answer
    with pytest.raises(UserError, match=words) as caught:
        open_source("nvml")
    assert "\n" not in str(caught.value)
    opened, said = open_source("auto")
    assert isinstance(opened, CpuSource)
    assert words in str(said)
    assert words in str(opened.devices()[0].facts["why"])


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
    card: RecordedNvml, call: str, code: int, words: str
) -> None:
    card.answers[call] = error(code)
    with pytest.raises(UserError, match=words) as caught:
        open_source("auto")
    assert "\n" not in str(caught.value)
    assert card.calls.count("nvmlShutdown") == (call != "nvmlInit")


def test_a_kernel_that_has_the_driver_has_gpus(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(errors, "_DRIVER", tmp_path)
    card.answers["nvmlInit"] = error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(UserError, match="cannot be reached"):
        open_source("auto")


def test_a_container_that_was_given_no_gpu_has_none(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        errors, "_DRIVER", tmp_path
    )  # it sees its host's driver, and has no library
    card.answers["nvmlInit"] = error(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert open_source("auto")[0].devices()[0].kind == "cpu"


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"]
)
def test_gpus_that_answer_are_kept_and_say_which_does_not(card: RecordedNvml, call: str) -> None:
    card.gpus = 3
    well = card.answers[call]

    def answer(index: int, *more: object) -> object:
        if index == 1:
            raise error(pynvml.NVML_ERROR_GPU_IS_LOST)
        return well(index, *more) if callable(well) else well

    card.answers[call] = answer
    opened, _ = open_source("auto")
    assert [(d.index, d.note) for d in opened.devices()] == [
        (0, ""),
        (1, "GPU 1 does not answer: GPU is lost"),
        (2, ""),
    ]
    assert [d.silent for d in opened.devices()] == [None, "GPU is lost", None]
    for _ in range(3):
        card.now += 50.0
        assert len(opened.read(100.0)) == 2
    card.answers[call] = well
    with pytest.raises(DevicesChanged, match="GPU 1 answers again"):
        for _ in range(2):
            card.now += 50.0
            opened.read(100.0)


def test_auto_takes_the_gpus_where_there_are_any(card: RecordedNvml) -> None:
    opened, said = open_source("auto")
    assert isinstance(opened, NvmlSource)
    assert said == "nvml"


def test_an_older_card_has_no_counters_and_no_guess(card: RecordedNvml) -> None:
    card.answers["nvmlGpmQueryDeviceSupport"] = Answer(isSupportedDevice=0)
    card.answers["nvmlDeviceGetCudaComputeCapability"] = (8, 6)
    card.answers["nvmlDeviceGetAttributes"] = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
    card.answers["nvmlDeviceGetNumGpuCores"] = 10496
    card.answers["nvmlDeviceGetPcieThroughput"] = 2048
    opened = NvmlSource()
    assert opened.devices()[0].facts["SMs"] == "82"
    reading = one(opened, card)
    assert "GPM needs Hopper" in reading.explained()["tflops"]
    assert "GPM needs Hopper" in reading.explained()["bandwidth"]
    assert reading.values["util"] == 100.0
    opened.close()


def test_counters_that_fail_are_named_one_by_one(card: RecordedNvml) -> None:
    card.gpm_returns[pynvml.NVML_GPM_METRIC_FP32_UTIL] = pynvml.NVML_ERROR_NOT_SUPPORTED
    card.gpm_values[pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL] = float("nan")
    reading = one(NvmlSource(), card)
    assert reading.explained()["fp32"] == "GPM: Not Supported"
    assert reading.explained()["tflops"] == "the counters or the clock cannot be read"
    assert (
        reading.explained()["bandwidth"]
        == reading.explained()["dram"]
        == "GPM counted nothing in this interval"
    )
    assert reading.values["tensor_hmma"] == pytest.approx(93.81)


def test_two_readings_too_close_have_no_counters_and_a_clock_that_is_set_changes_nothing(
    card: RecordedNvml,
) -> None:
    opened = NvmlSource()
    assert "tflops" in one(opened, card, 100.0).values
    assert (
        one(opened, card, 200.0, pause=0.05).explained()["tflops"]
        == "read too soon after the last reading"
    )
    assert "tflops" in one(opened, card, 50.0, pause=0.05).values, (
        "the clock of the wall was set back"
    )
    for _ in range(10):
        assert "tflops" in one(opened, card, pause=0.095).values, (
            "ten readings a second are never quite even"
        )


def test_without_the_instantaneous_power_the_average_is_shown(card: RecordedNvml) -> None:
    card.answers["nvmlDeviceGetFieldValues"] = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
    reading = one(NvmlSource(), card)
    assert reading.values["power"] == 690.246
    assert "it reports no instantaneous power" in str(reading.methods["power"]), "and not silently"
    assert "power" not in reading.absent
    assert reading.explained()["temp_mem"] == "NVML: Not Supported"


def test_processes_are_ours_or_of_others(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    card.answers["nvmlDeviceGetComputeRunningProcesses"] = [
        Answer(pid=os.getpid(), usedGpuMemory=None),
        Answer(pid=2**22 + 5, usedGpuMemory=1024),
    ]
    ours, unknown = one(NvmlSource(), card).processes
    assert (ours.pid, ours.memory, ours.job) == (os.getpid(), None, None)
    assert ours.name != "?"
    assert (unknown.name, unknown.memory) == ("?", 1024.0), (
        "one of another container has a pid and no name"
    )


def test_close_gives_everything_back(card: RecordedNvml) -> None:
    NvmlSource().close()
    assert card.calls.count("nvmlGpmSampleFree") == card.calls.count("nvmlGpmSampleAlloc") == 2
    assert card.calls[-1] == "nvmlShutdown"
