"""Test GPUs that share their memory with the CPU, as NVML of a GB10 answers for them."""

from __future__ import annotations

import psutil
import pynvml

from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.devices.nvidia.unified import METHOD
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.queue.placement import Slot, device_use
from tests.unit.scheduler.recorded_nvml import NOT_SUPPORTED, RecordedNvml


def read(card: RecordedNvml, error: Exception):
    card.answers["nvmlDeviceGetMemoryInfo"] = error
    source = NvmlSource()
    try:
        return source.devices()[0], source.read(1.0)[0], source.occupancy(2.0)[0]
    finally:
        source.close()


def test_unified_memory_is_the_machines_and_says_so(card):
    device, reading, occupancy = read(card, NOT_SUPPORTED)
    total = psutil.virtual_memory().total
    assert reading.values["mem_total"] == total and occupancy.values["mem_total"] == total
    assert reading.values["mem_used"] + reading.values["mem_free"] == total
    assert reading.methods["mem_total"] == reading.methods["mem_used"] == METHOD
    assert "mem_total" not in reading.absent
    assert device.facts["memory"] == "shared with the CPU"


def test_jobs_are_placed_by_unified_memory(card):
    device, reading, _ = read(card, NOT_SUPPORTED)
    slot = Slot(device, (), device_use(reading, ()), False)
    assert slot.total == psutil.virtual_memory().total
    assert slot.free == reading.values["mem_free"]


def test_another_error_is_no_reason_to_take_the_machines_memory(card):
    error = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    device, reading, occupancy = read(card, error)
    assert isinstance(reading.get("mem_total"), NA) and "memory" not in device.facts
    assert occupancy.values == {}
