"""Convert a snapshot to Prometheus metrics.

A metric has the name, unit and labels of NVIDIA's dcgm-exporter if that has one, and is called
gpudeck_FIELD_UNIT otherwise.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily

from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.snapshot import DeviceState, Idle, Snapshot

_MIB, _MILLI, _RATIO = 2.0**-20, 1e3, 0.01


class DcgmField(NamedTuple):
    """Name one of DCGM's metrics, and the factor that converts our unit to DCGM's."""

    name: str
    factor: float = 1.0


DCGM = {
    "util": DcgmField("DCGM_FI_DEV_GPU_UTIL"),
    "mem_util": DcgmField("DCGM_FI_DEV_MEM_COPY_UTIL"),
    "encoder": DcgmField("DCGM_FI_DEV_ENC_UTIL"),
    "decoder": DcgmField("DCGM_FI_DEV_DEC_UTIL"),
    "mem_used": DcgmField("DCGM_FI_DEV_FB_USED", _MIB),
    "mem_free": DcgmField("DCGM_FI_DEV_FB_FREE", _MIB),
    "mem_reserved": DcgmField("DCGM_FI_DEV_FB_RESERVED", _MIB),
    "mem_total": DcgmField("DCGM_FI_DEV_FB_TOTAL", _MIB),
    "bar1_used": DcgmField("DCGM_FI_DEV_BAR1_USED", _MIB),
    "bar1_total": DcgmField("DCGM_FI_DEV_BAR1_TOTAL", _MIB),
    "clock_sm": DcgmField("DCGM_FI_DEV_SM_CLOCK"),
    "clock_mem": DcgmField("DCGM_FI_DEV_MEM_CLOCK"),
    "clock_video": DcgmField("DCGM_FI_DEV_VIDEO_CLOCK"),
    "clock_sm_max": DcgmField("DCGM_FI_DEV_MAX_SM_CLOCK"),
    "clock_mem_max": DcgmField("DCGM_FI_DEV_MAX_MEM_CLOCK"),
    "pstate": DcgmField("DCGM_FI_DEV_PSTATE"),
    "throttle": DcgmField("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
    "temp": DcgmField("DCGM_FI_DEV_GPU_TEMP"),
    "temp_mem": DcgmField("DCGM_FI_DEV_MEMORY_TEMP"),
    "temp_limit": DcgmField("DCGM_FI_DEV_SLOWDOWN_TEMP"),
    "temp_shutdown": DcgmField("DCGM_FI_DEV_SHUTDOWN_TEMP"),
    "fan": DcgmField("DCGM_FI_DEV_FAN_SPEED"),
    "power": DcgmField("DCGM_FI_DEV_POWER_USAGE"),
    "power_limit": DcgmField("DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    "energy": DcgmField("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _MILLI),
    "pcie_gen": DcgmField("DCGM_FI_DEV_PCIE_LINK_GEN"),
    "pcie_width": DcgmField("DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    "pcie_replays": DcgmField("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    "pcie_rx": DcgmField("DCGM_FI_PROF_PCIE_RX_BYTES"),
    "pcie_tx": DcgmField("DCGM_FI_PROF_PCIE_TX_BYTES"),
    "nvlink_rx": DcgmField("DCGM_FI_PROF_NVLINK_RX_BYTES"),
    "nvlink_tx": DcgmField("DCGM_FI_PROF_NVLINK_TX_BYTES"),
    "ecc_corrected": DcgmField("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    "ecc_uncorrected": DcgmField("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    "ecc_corrected_total": DcgmField("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
    "ecc_uncorrected_total": DcgmField("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
    "rows_corrected": DcgmField("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    "rows_uncorrected": DcgmField("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    "rows_pending": DcgmField("DCGM_FI_DEV_ROW_REMAP_PENDING"),
    "rows_failure": DcgmField("DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    "pages_corrected": DcgmField("DCGM_FI_DEV_RETIRED_SBE"),
    "pages_uncorrected": DcgmField("DCGM_FI_DEV_RETIRED_DBE"),
    "pages_pending": DcgmField("DCGM_FI_DEV_RETIRED_PENDING"),
    "xid": DcgmField("DCGM_FI_DEV_XID_ERRORS"),
    "graphics": DcgmField("DCGM_FI_PROF_GR_ENGINE_ACTIVE", _RATIO),
    "sm_active": DcgmField("DCGM_FI_PROF_SM_ACTIVE", _RATIO),
    "sm_occupancy": DcgmField("DCGM_FI_PROF_SM_OCCUPANCY", _RATIO),
    "tensor": DcgmField("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", _RATIO),
    "fp16": DcgmField("DCGM_FI_PROF_PIPE_FP16_ACTIVE", _RATIO),
    "fp32": DcgmField("DCGM_FI_PROF_PIPE_FP32_ACTIVE", _RATIO),
    "fp64": DcgmField("DCGM_FI_PROF_PIPE_FP64_ACTIVE", _RATIO),
    "integer": DcgmField("DCGM_FI_PROF_PIPE_INT_ACTIVE", _RATIO),
    "dram": DcgmField("DCGM_FI_PROF_DRAM_ACTIVE", _RATIO),
}
"""DCGM's name of a GPU's field, and the factor that converts ours to DCGM's unit."""

_UNITS = {
    "%": "_percent",
    "B": "_bytes",
    "B/s": "_bytes_per_second",
    "W": "_watts",
    "°C": "_celsius",
    "MHz": "_megahertz",
    "J": "_joules",
    "s": "_seconds",
}
_GPU_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
_CPU_LABELS = ("device", "modelName", "Hostname")


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the metrics of the devices and of the queue.

    A value that cannot be read is left out, so that a chart shows a gap instead of a zero.
    """
    host = socket.gethostname()
    gpus = [s for s in snapshot.devices if s.device.kind != "cpu"]
    cpus = [s for s in snapshot.devices if s.device.kind == "cpu"]
    yield from _device_families(gpus, "gpudeck_", _GPU_LABELS, host, DCGM)
    yield from _device_families(cpus, "gpudeck_cpu_", _CPU_LABELS, host, {})
    yield from _queue_families(snapshot)


def _device_families(
    states: list[DeviceState],
    prefix: str,
    label_names: tuple[str, ...],
    host: str,
    dcgm: Mapping[str, DcgmField],
) -> Iterator[Metric]:
    if not states:
        return
    labels = {state.device.id: _labels(state.device, host) for state in states}
    for field, about in FIELDS.items():
        own_name = prefix + field.removesuffix("_cpu") + _UNITS.get(about.unit, "")
        name, factor = dcgm.get(field, DcgmField(own_name))
        # untyped, because DCGM's names lack the ending that a counter needs in Prometheus
        family = UnknownMetricFamily(name, f"{about.label}: {about.meaning}", labels=label_names)
        for state in states:
            value = state.reading.values.get(field) if state.reading is not None else None
            if value is not None:
                family.add_metric(labels[state.device.id], value * factor)
        if family.samples:
            yield family
    idle = GaugeMetricFamily(f"{prefix}idle", "1 if nothing uses the device", labels=label_names)
    jobs = GaugeMetricFamily(
        f"{prefix}jobs", "Jobs of GPU Deck that hold the device", labels=label_names
    )
    answers = GaugeMetricFamily(
        f"{prefix}answers", "1 if the device can be read", labels=label_names
    )
    for state in states:
        idle.add_metric(labels[state.device.id], float(isinstance(state.use, Idle)))
        jobs.add_metric(labels[state.device.id], len(state.holders))
        answers.add_metric(labels[state.device.id], float(state.reading is not None))
    yield from (idle, jobs, answers)


def _labels(device: Device, host: str) -> tuple[str, ...]:
    if device.kind == "cpu":
        return (device.id, device.name, host)
    return (
        device.number,
        device.id,
        f"nvidia{device.index}",
        device.name,
        host,
        str(device.facts.get("driver", "")),
    )


def _queue_families(snapshot: Snapshot) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "gpudeck_queue_jobs", "Jobs that are queued, starting or running", labels=("state",)
    )
    jobs.add_metric(("queued",), snapshot.waiting)
    for state in ("starting", "running"):
        jobs.add_metric((state,), sum(job.status == state for job in snapshot.jobs))
    yield jobs
    yield GaugeMetricFamily(
        "gpudeck_queue_paused", "1 if the queue is paused", value=float(snapshot.paused)
    )
    progress = GaugeMetricFamily(
        "gpudeck_job_progress_ratio", "Completed share of a running job", labels=("job", "name")
    )
    for job in snapshot.jobs:
        if (share := _completed_share(job)) is not None:
            progress.add_metric((str(job.id), job.spec.name), share)
    yield progress
    alerts = GaugeMetricFamily("gpudeck_alerts", "Current alerts", labels=("rule", "UUID"))
    for source, count in sorted(Counter((a.rule, a.device) for a in snapshot.alerts).items()):
        alerts.add_metric(source, count)
    yield alerts
    yield GaugeMetricFamily(
        "gpudeck_notices",
        "Notices of the daemon about itself, e.g. that the probe was replaced",
        value=len(snapshot.notices),
    )
    yield GaugeMetricFamily(
        "gpudeck_snapshot_timestamp_seconds",
        "Time of the snapshot, in seconds since the epoch",
        value=snapshot.time,
    )


def _completed_share(job: Job) -> float | None:
    progress = job.state.progress if isinstance(job.state, Running) else None
    return progress.done / progress.total if progress is not None and progress.total > 0 else None
