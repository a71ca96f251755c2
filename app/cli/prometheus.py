"""A snapshot as Prometheus metrics: names of NVIDIA's dcgm-exporter where it has one (same unit, same labels), else gpudeck_FIELD_UNIT."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily

from scheduler.protocol.devices import Device
from scheduler.protocol.fields import FIELDS
from scheduler.protocol.jobs import Job, Running
from scheduler.protocol.snapshot import DeviceState, Idle, Snapshot

_MIB, _MILLI, _RATIO = 2.0**-20, 1e3, 0.01


class _Dcgm(NamedTuple):
    name: str
    factor: float = 1.0


DCGM = {
    "util": _Dcgm("DCGM_FI_DEV_GPU_UTIL"),
    "mem_util": _Dcgm("DCGM_FI_DEV_MEM_COPY_UTIL"),
    "encoder": _Dcgm("DCGM_FI_DEV_ENC_UTIL"),
    "decoder": _Dcgm("DCGM_FI_DEV_DEC_UTIL"),
    "mem_used": _Dcgm("DCGM_FI_DEV_FB_USED", _MIB),
    "mem_free": _Dcgm("DCGM_FI_DEV_FB_FREE", _MIB),
    "mem_reserved": _Dcgm("DCGM_FI_DEV_FB_RESERVED", _MIB),
    "mem_total": _Dcgm("DCGM_FI_DEV_FB_TOTAL", _MIB),
    "bar1_used": _Dcgm("DCGM_FI_DEV_BAR1_USED", _MIB),
    "bar1_total": _Dcgm("DCGM_FI_DEV_BAR1_TOTAL", _MIB),
    "clock_sm": _Dcgm("DCGM_FI_DEV_SM_CLOCK"),
    "clock_mem": _Dcgm("DCGM_FI_DEV_MEM_CLOCK"),
    "clock_video": _Dcgm("DCGM_FI_DEV_VIDEO_CLOCK"),
    "clock_sm_max": _Dcgm("DCGM_FI_DEV_MAX_SM_CLOCK"),
    "clock_mem_max": _Dcgm("DCGM_FI_DEV_MAX_MEM_CLOCK"),
    "pstate": _Dcgm("DCGM_FI_DEV_PSTATE"),
    "throttle": _Dcgm("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
    "temp": _Dcgm("DCGM_FI_DEV_GPU_TEMP"),
    "temp_mem": _Dcgm("DCGM_FI_DEV_MEMORY_TEMP"),
    "temp_limit": _Dcgm("DCGM_FI_DEV_SLOWDOWN_TEMP"),
    "temp_shutdown": _Dcgm("DCGM_FI_DEV_SHUTDOWN_TEMP"),
    "fan": _Dcgm("DCGM_FI_DEV_FAN_SPEED"),
    "power": _Dcgm("DCGM_FI_DEV_POWER_USAGE"),
    "power_limit": _Dcgm("DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    "energy": _Dcgm("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _MILLI),
    "pcie_gen": _Dcgm("DCGM_FI_DEV_PCIE_LINK_GEN"),
    "pcie_width": _Dcgm("DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    "pcie_replays": _Dcgm("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    "pcie_rx": _Dcgm("DCGM_FI_PROF_PCIE_RX_BYTES"),
    "pcie_tx": _Dcgm("DCGM_FI_PROF_PCIE_TX_BYTES"),
    "nvlink_rx": _Dcgm("DCGM_FI_PROF_NVLINK_RX_BYTES"),
    "nvlink_tx": _Dcgm("DCGM_FI_PROF_NVLINK_TX_BYTES"),
    "ecc_corrected": _Dcgm("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    "ecc_uncorrected": _Dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    "ecc_corrected_total": _Dcgm("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
    "ecc_uncorrected_total": _Dcgm("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
    "rows_corrected": _Dcgm("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    "rows_uncorrected": _Dcgm("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    "rows_pending": _Dcgm("DCGM_FI_DEV_ROW_REMAP_PENDING"),
    "rows_failure": _Dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    "pages_corrected": _Dcgm("DCGM_FI_DEV_RETIRED_SBE"),
    "pages_uncorrected": _Dcgm("DCGM_FI_DEV_RETIRED_DBE"),
    "pages_pending": _Dcgm("DCGM_FI_DEV_RETIRED_PENDING"),
    "xid": _Dcgm("DCGM_FI_DEV_XID_ERRORS"),
    "graphics": _Dcgm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", _RATIO),
    "sm_active": _Dcgm("DCGM_FI_PROF_SM_ACTIVE", _RATIO),
    "sm_occupancy": _Dcgm("DCGM_FI_PROF_SM_OCCUPANCY", _RATIO),
    "tensor": _Dcgm("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", _RATIO),
    "fp16": _Dcgm("DCGM_FI_PROF_PIPE_FP16_ACTIVE", _RATIO),
    "fp32": _Dcgm("DCGM_FI_PROF_PIPE_FP32_ACTIVE", _RATIO),
    "fp64": _Dcgm("DCGM_FI_PROF_PIPE_FP64_ACTIVE", _RATIO),
    "integer": _Dcgm("DCGM_FI_PROF_PIPE_INT_ACTIVE", _RATIO),
    "dram": _Dcgm("DCGM_FI_PROF_DRAM_ACTIVE", _RATIO),
}
"""Of a GPU's fields: what DCGM calls it, and by what ours is multiplied to be in DCGM's unit (MiB, mJ, 0 to 1)."""

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
    """Every value there is, of devices and of the queue. What cannot be read is left out: a gap, not a zero."""
    host = socket.gethostname()
    gpus = [s for s in snapshot.devices if s.device.kind != "cpu"]
    cpus = [s for s in snapshot.devices if s.device.kind == "cpu"]
    for states, prefix, names in (
        (gpus, "gpudeck_", _GPU_LABELS),
        (cpus, "gpudeck_cpu_", _CPU_LABELS),
    ):
        labels = {s.device.id: _labels(s.device, host) for s in states}
        for field, what in FIELDS.items():
            dcgm = DCGM.get(field) if states is gpus else None
            name, factor = dcgm or (
                prefix + field.removesuffix("_cpu") + _UNITS.get(what.unit, ""),
                1.0,
            )
            # of no type, as DCGM's names lack the ending that Prometheus' counters must have
            made = UnknownMetricFamily(name, f"{what.label}: {what.meaning}", labels=names)
            for state in states:
                if (
                    state.reading is not None
                    and (value := state.reading.values.get(field)) is not None
                ):
                    made.add_metric(labels[state.device.id], value * factor)
            if made.samples:
                yield made
        yield from _uses(states, prefix, names, labels)
    yield from _queue(snapshot)


def _labels(device: Device, host: str) -> tuple[str, ...]:
    if device.kind == "cpu":
        return (device.id, device.name, host)
    return (
        str(device.index),
        device.id,
        f"nvidia{device.index}",
        device.name,
        host,
        device.facts.get("driver", ""),
    )


def _uses(
    states: list[DeviceState],
    prefix: str,
    names: tuple[str, ...],
    labels: dict[str, tuple[str, ...]],
) -> Iterator[Metric]:
    """Who has the devices, and whether they answer."""
    if not states:
        return
    idle = GaugeMetricFamily(f"{prefix}idle", "1 while nobody uses the device", labels=names)
    held = GaugeMetricFamily(f"{prefix}jobs", "Jobs of GPU Deck that hold the device", labels=names)
    read = GaugeMetricFamily(f"{prefix}answers", "1 while the device is read", labels=names)
    for state in states:
        idle.add_metric(labels[state.device.id], float(isinstance(state.use, Idle)))
        held.add_metric(labels[state.device.id], len(state.holders))
        read.add_metric(labels[state.device.id], float(state.reading is not None))
    yield from (idle, held, read)


def _queue(snapshot: Snapshot) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "gpudeck_queue_jobs", "Jobs that wait, start and run", labels=("state",)
    )
    jobs.add_metric(("queued",), snapshot.waiting)
    for state in ("starting", "running"):
        jobs.add_metric((state,), sum(job.status == state for job in snapshot.jobs))
    yield jobs
    yield GaugeMetricFamily(
        "gpudeck_queue_paused", "1 while the queue starts nothing new", value=float(snapshot.paused)
    )
    progress = GaugeMetricFamily(
        "gpudeck_job_progress_ratio", "How much of a running job is done", labels=("job", "name")
    )
    for job in snapshot.jobs:
        if (share := _share(job)) is not None:
            progress.add_metric((str(job.id), job.spec.name), share)
    yield progress
    alerts = GaugeMetricFamily(
        "gpudeck_alerts", "Alerts that are raised now", labels=("rule", "UUID")
    )
    for rule, device in sorted({(a.rule, a.device) for a in snapshot.alerts}):
        alerts.add_metric(
            (rule, device), sum((a.rule, a.device) == (rule, device) for a in snapshot.alerts)
        )
    yield alerts
    yield GaugeMetricFamily(
        "gpudeck_notices",
        "What the daemon has to say of itself: the probe is replaced, ...",
        value=len(snapshot.notices),
    )
    yield GaugeMetricFamily(
        "gpudeck_snapshot_timestamp_seconds",
        "When this was told, since the epoch",
        value=snapshot.time,
    )


def _share(job: Job) -> float | None:
    progress = job.state.progress if isinstance(job.state, Running) else None
    return progress.done / progress.total if progress is not None and progress.total > 0 else None
