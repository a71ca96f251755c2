"""Convert snapshots to metrics: every field under its name, in the unit of that name."""

from __future__ import annotations

import pytest

from gpudeck.app.cli.devices.prometheus import families
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert, Busy, DeviceState, Idle, Snapshot
from tests.unit.scheduler.test_nvml_source import VALUES

OLDER_CARD = {
    "fan": 62.0,
    "fan_rpm": 1400.0,
    "pages_corrected": 3.0,
    "pages_uncorrected": 2.0,
    "pages_pending": 1.0,
}
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": 100.0,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 25.0,
    "gpudeck_tflops": 679.6,
    "gpudeck_tflops_gpm": 679.6,
    "gpudeck_tflops_error_percent": 14.4179,
    "gpudeck_tflops_gpm_error_percent": 14.4179,
    "gpudeck_bandwidth_bytes_per_second": 818000000000.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.99999,
    "DCGM_FI_PROF_SM_ACTIVE": 0.96657,
    "DCGM_FI_PROF_SM_OCCUPANCY": 0.14284,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.93812,
    "gpudeck_tensor_hmma_percent": 93.81,
    "gpudeck_tensor_imma_percent": 3.25,
    "gpudeck_tensor_dfma_percent": 2.25,
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.0525,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.0,
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.0625,
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": 0.01363,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.16991,
    "DCGM_FI_DEV_ENC_UTIL": 11.0,
    "DCGM_FI_DEV_DEC_UTIL": 12.0,
    "gpudeck_jpeg_percent": 13.0,
    "gpudeck_ofa_percent": 14.0,
    "DCGM_FI_DEV_FB_USED": 10056.8125,
    "DCGM_FI_DEV_FB_TOTAL": 143771.0,
    "DCGM_FI_DEV_FB_RESERVED": 615.0625,
    "DCGM_FI_DEV_FB_FREE": 133099.125,
    "DCGM_FI_DEV_BAR1_USED": 10058.5,
    "DCGM_FI_DEV_BAR1_TOTAL": 262144.0,
    "DCGM_FI_DEV_SM_CLOCK": 1340.0,
    "DCGM_FI_DEV_MEM_CLOCK": 2619.0,
    "DCGM_FI_DEV_VIDEO_CLOCK": 1515.0,
    "DCGM_FI_DEV_MAX_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_MAX_MEM_CLOCK": 3201.0,
    "gpudeck_clock_video_max_megahertz": 1545.0,
    "DCGM_FI_DEV_PSTATE": 0.0,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 4.0,
    "gpudeck_throttle_power": 1.0,
    "gpudeck_throttle_heat": 0.0,
    "gpudeck_throttled_seconds": 0.0,
    "DCGM_FI_DEV_POWER_USAGE": 719.588,
    "gpudeck_power_avg_watts": 690.246,
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": 650.0,
    "gpudeck_power_limit_default_watts": 700.0,
    "gpudeck_power_limit_min_watts": 200.0,
    "gpudeck_power_limit_max_watts": 710.0,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 44766693.0,
    "DCGM_FI_DEV_GPU_TEMP": 61.0,
    "DCGM_FI_DEV_MEMORY_TEMP": 51.0,
    "gpudeck_temp_margin_celsius": 24.0,
    "DCGM_FI_DEV_SLOWDOWN_TEMP": 89.0,
    "DCGM_FI_DEV_SHUTDOWN_TEMP": 95.0,
    "gpudeck_temp_max_celsius": 87.0,
    "gpudeck_temp_mem_max_celsius": 97.0,
    "DCGM_FI_DEV_FAN_SPEED": 62.0,
    "gpudeck_fan_rpm": 1400.0,
    "DCGM_FI_DEV_PCIE_LINK_GEN": 4.0,
    "gpudeck_pcie_gen_max": 5.0,
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": 8.0,
    "gpudeck_pcie_width_max": 16.0,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 30266097.664,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 19360907.264,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 7.0,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 42467328.0,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 52953088.0,
    "gpudeck_nvlink_links": 18.0,
    "gpudeck_nvlink_errors": 0.0,
    "gpudeck_ecc": 1.0,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 21.0,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2.0,
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 34.0,
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 6.0,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 5.0,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 3.0,
    "DCGM_FI_DEV_ROW_REMAP_PENDING": 1.0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0.0,
    "DCGM_FI_DEV_RETIRED_SBE": 3.0,
    "DCGM_FI_DEV_RETIRED_DBE": 2.0,
    "DCGM_FI_DEV_RETIRED_PENDING": 1.0,
    "DCGM_FI_DEV_XID_ERRORS": 0.0,
    "gpudeck_xid_count": 0.0,
    "gpudeck_mig": 0.0,
}
"""What a GPU with VALUES shows, in the units of dcgm-exporter: MiB, mJ, shares up to 1."""
GPU = Device("GPU-x", 3, "NVIDIA H200", "nvidia", facts={"driver": "580.159.04"})


def samples(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    """Return the values by name and the labels that tell samples of one name apart."""
    apart = ("state", "rule", "UUID", "device")
    return {
        (s.name, *(s.labels[label] for label in apart if label in s.labels)): s.value
        for family in families(snapshot)
        for s in family.samples
    }


def snapshot(*states: DeviceState, alerts: tuple[Alert, ...] = (), waiting: int = 0) -> Snapshot:
    return Snapshot(
        1, 1234.5, states, (), Settings(), "nvml", ("a",), True, alerts=alerts, waiting=waiting
    )


def test_every_field_has_its_name_and_unit() -> None:
    reading = Reading("GPU-x", 1.0, VALUES | OLDER_CARD)
    found = samples(snapshot(DeviceState(GPU, reading, Idle(0.0))))
    of_gpu = {name: value for (name, *labels), value in found.items() if "GPU-x" in labels}
    for name, value in {"gpudeck_idle": 1.0, "gpudeck_jobs": 0.0, "gpudeck_answers": 1.0}.items():
        assert of_gpu.pop(name) == value
    assert of_gpu == pytest.approx(METRICS, rel=1e-9)
    (family,) = (
        f
        for f in families(snapshot(DeviceState(GPU, reading, Idle(0.0))))
        if f.name == "DCGM_FI_DEV_GPU_UTIL"
    )
    assert (
        family.samples[0].labels.items()
        >= {
            "gpu": "3",
            "UUID": "GPU-x",
            "device": "nvidia3",
            "modelName": "NVIDIA H200",
            "DCGM_FI_DRIVER_VERSION": "580.159.04",
        }.items()
    )


def test_the_queue_and_the_state_of_devices_are_counted() -> None:
    held = DeviceState(GPU, None, Busy(HeldByJobs((4, 5))), holders=(4, 5))
    alert = Alert(1, "too hot", "GPU-x", None, "", 0.0, 0.0)
    found = samples(snapshot(held, alerts=(alert, alert), waiting=7))
    assert found == {
        ("gpudeck_idle", "GPU-x", "nvidia3"): 0.0,
        ("gpudeck_jobs", "GPU-x", "nvidia3"): 2.0,
        ("gpudeck_answers", "GPU-x", "nvidia3"): 0.0,
        ("gpudeck_queue_jobs", "queued"): 7.0,
        ("gpudeck_queue_jobs", "starting"): 0.0,
        ("gpudeck_queue_jobs", "running"): 0.0,
        ("gpudeck_queue_paused",): 1.0,
        ("gpudeck_alerts", "too hot", "GPU-x"): 2.0,
        ("gpudeck_notices",): 1.0,
        ("gpudeck_snapshot_timestamp_seconds",): 1234.5,
    }
