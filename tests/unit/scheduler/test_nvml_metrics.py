"""Readings of a GPU include throttle reasons, links, errors, MIG instances and processes."""

from __future__ import annotations

import os
import time
from collections import Counter
from types import SimpleNamespace as Answer

import pynvml
import pytest

from gpudeck.scheduler.devices.nvidia import events
from gpudeck.scheduler.devices.nvidia.queries import QUERIES
from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.protocol.devices import DevicesChanged
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.snapshot import label
from tests.unit.scheduler.recorded_nvml import NOT_SUPPORTED, RecordedNvml, error, one

OLD = {
    "nvmlGpmQueryDeviceSupport": Answer(isSupportedDevice=0),
    "nvmlDeviceGetCudaComputeCapability": (8, 0),
    "nvmlDeviceGetPcieThroughput": lambda handle, kind: (
        2048 if kind == pynvml.NVML_PCIE_UTIL_RX_BYTES else 1024
    ),
}
"""A card without hardware counters, as the driver's documents describe it."""


def test_what_costs_much_and_changes_slowly_is_asked_seldom(card: RecordedNvml) -> None:
    opened = NvmlSource()
    first = one(opened, card)
    card.calls.clear()
    for _ in range(120):
        later = one(opened, card)
        assert later.values.keys() == first.values.keys(), "and told all the time"
    calls = Counter(card.calls)
    assert calls["nvmlDeviceGetUtilizationRates"] == 120, "two fields, one call"
    assert calls[f"GPM metric {pynvml.NVML_GPM_METRIC_SM_UTIL}"] == 120
    assert 11 <= calls[f"GPM metric {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL}"] <= 12, (
        "18 times as dear as any other"
    )
    assert 11 <= calls["nvmlDeviceGetTotalEccErrors"] / 4 <= 12
    assert 1 <= calls["nvmlDeviceGetTotalEnergyConsumption"] <= 2
    assert calls["nvmlDeviceGetMaxClockInfo"] == 0
    assert calls["nvmlDeviceGetTemperatureThreshold"] == 0
    assert all(len({FIELDS[f].pace for f in c.fields} - {"static"}) <= 1 for c in QUERIES)


def test_what_is_asked_seldom_keeps_its_reason_between(card: RecordedNvml) -> None:
    card.gpm_returns[pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL] = pynvml.NVML_ERROR_NOT_SUPPORTED
    opened = NvmlSource()
    one(opened, card)
    for _ in range(30):
        assert one(opened, card).explained()["graphics"] == "GPM: Not Supported"
    card.gpm_returns.clear()
    assert any("graphics" in one(opened, card).values for _ in range(12))


def test_a_look_that_fails_takes_nothing_away_but_that_reading(card: RecordedNvml) -> None:
    opened = NvmlSource()
    one(opened, card)
    whole = card.answers["nvmlGpmMetricsGet"]
    for number in range(36):
        card.answers["nvmlGpmMetricsGet"] = (
            pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) if number % 3 == 0 else whole
        )
        reading = one(opened, card)
        assert ("graphics" in reading.values) != ("graphics" in reading.absent)
        assert ("graphics" in reading.values) == (number % 3 != 0)


def test_slow_calls_take_turns(card: RecordedNvml) -> None:
    opened = NvmlSource()
    one(opened, card)
    most = 0
    for _ in range(40):
        card.calls.clear()
        one(opened, card)
        most = max(
            most,
            sum(
                c in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMarginTemperature")
                for c in card.calls
            ),
        )
    assert most <= 4, "five of them, and never all with one reading"


def test_why_the_clocks_are_held_down_and_since_when(card: RecordedNvml) -> None:
    opened = NvmlSource()
    assert one(opened, card, 100.0).since == {"power limit": 100.0}
    card.answers["nvmlDeviceGetCurrentClocksEventReasons"] = (
        pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonSwThermalSlowdown
    )
    reading = one(opened, card, 130.0)
    assert reading.since == {"power limit": 100.0, "too hot (software)": 130.0}
    assert reading.texts["throttle"] == "power limit, too hot (software)"
    assert (
        reading.values["throttle_power"],
        reading.values["throttle_heat"],
        reading.values["throttled"],
    ) == (1.0, 1.0, 30.0)
    card.answers["nvmlDeviceGetCurrentClocksEventReasons"] = (
        pynvml.nvmlClocksEventReasonSwThermalSlowdown
    )
    reading = one(opened, card, 135.0)
    assert (reading.values["throttle_power"], reading.values["throttle_heat"]) == (0.0, 1.0)
    card.answers["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.nvmlClocksEventReasonGpuIdle
    reading = one(opened, card, 140.0)
    assert reading.since == {"idle": 140.0}
    assert reading.values["throttled"] == reading.values["throttle_power"] == 0.0, (
        "rest is no throttling"
    )
    card.answers["nvmlDeviceGetCurrentClocksEventReasons"] = NOT_SUPPORTED
    reading = one(opened, card, 150.0)
    assert (
        reading.explained()["throttled"] == reading.explained()["throttle"] == "NVML: Not Supported"
    )
    assert "throttle" not in reading.texts
    card.answers["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.nvmlClocksEventReasonSwPowerCap
    assert one(opened, card, 160.0).since == {"power limit": 160.0}, (
        "what was not seen is not claimed"
    )


def test_an_xid_is_reported_for_its_gpu(card: RecordedNvml) -> None:
    card.gpus = 2
    opened = NvmlSource()
    card.now += 0.5
    assert [r.values["xid_count"] for r in opened.read(100.0)] == [0.0, 0.0]
    card.events = [(1, 31), (1, 63)]
    card.now += 0.5
    well, struck = opened.read(100.5)
    assert (well.values["xid"], well.values["xid_count"], well.texts.get("xid")) == (0.0, 0.0, None)
    assert (struck.values["xid"], struck.values["xid_count"]) == (63.0, 2.0)
    assert struck.texts["xid"] == "Xid 63: a memory page or row is being replaced"
    opened.close()
    assert "nvmlEventSetFree" in card.calls


def test_a_gpu_lost_with_an_xid_reports_it(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = NvmlSource()
    monkeypatch.setattr(events, "monotonic", lambda: card.now)
    card.events = [(0, 31)]
    one(opened, card)
    card.now += 60.0
    card.answers["nvmlDeviceGetMemoryInfo"] = error(pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(DevicesChanged, match=r"^GPU is lost$"):
        one(opened, card)
    card.events = [(0, 79)]
    with pytest.raises(
        DevicesChanged, match=r"GPU is lost \(Xid 79: the GPU has fallen off the bus\)"
    ):
        one(opened, card)


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_missing_event_support_is_explained(card: RecordedNvml, call: str) -> None:
    card.answers[call] = NOT_SUPPORTED
    assert one(NvmlSource(), card).explained()["xid"] == "NVML: Not Supported"


def test_a_silent_gpu_is_reopened(card: RecordedNvml) -> None:
    """Reproduce a suspend or a driver reload: no call reports a lost GPU, and none answers."""
    opened = NvmlSource()
    one(opened, card)
    for name in card.answers:
        if name.startswith("nvmlDeviceGet") and name != "nvmlDeviceGetCount":
            card.answers[name] = error(pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(DevicesChanged, match=r"GPU 0 no longer answers \(NVML: Unknown Error\)"):
        one(opened, card)


def test_links_tell_their_state_errors_and_traffic_one_by_one(card: RecordedNvml) -> None:
    sent, received = (
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    )
    card.answers["nvmlDeviceGetNvLinkState"] = lambda handle, link: int(link != 3)
    card.answers["nvmlDeviceGetNvLinkErrorCounter"] = lambda handle, link, kind: (
        5 if (link, kind) == (1, 0) else 0
    )
    card.fields |= {sent: 0, received: 0}
    opened = NvmlSource()
    reading = one(opened, card)
    assert (reading.values["nvlink_links"], reading.values["nvlink_errors"]) == (17.0, 0.0)
    assert opened.details(100.0)[0].parts[0].absent["nvlink_rx"].cause == "first reading"
    card.now += 2.0
    card.fields[received] = 2**33
    parts = opened.details(100.1)[0].parts
    assert [p.name for p in parts] == [f"NVLink {i}" for i in range(18)]
    assert parts[0].values["nvlink_rx"] == 2**42, "2^33 KiB in two seconds"
    assert parts[0].values["nvlink_tx"] == 0.0
    assert (
        parts[1].values["nvlink_errors"],
        parts[3].texts["state"],
        parts[0].texts["version"],
    ) == (5.0, "down", "4")
    card.answers["nvmlDeviceGetNvLinkState"] = NOT_SUPPORTED
    assert one(NvmlSource(), card).explained()["nvlink_links"] == "this card has no NVLink"


def test_without_counters_pcie_is_counted_by_the_driver(card: RecordedNvml) -> None:
    card.answers |= OLD
    card.fields |= {
        pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: 1000,
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: 2**32 - 1,
    }
    opened = NvmlSource()
    assert one(opened, card).explained()["pcie_rx"] == "not known before the second reading"
    card.fields |= {
        pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: 6000,
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: 10,
    }
    reading = one(opened, card)
    assert reading.values["pcie_rx"] == 10_000.0
    assert "byte counters" in reading.methods["pcie_rx"]
    assert reading.explained()["pcie_tx"] == "not known before the second reading", (
        "a counter that wrapped is no negative traffic"
    )
    assert "nvmlDeviceGetPcieThroughput" not in card.calls


def test_without_any_counter_pcie_is_measured_now_and_then(card: RecordedNvml) -> None:
    card.answers |= OLD
    opened = NvmlSource()
    for _ in range(10):
        reading = one(opened, card)
        assert (reading.values["pcie_rx"], reading.values["pcie_tx"]) == (2048 * 1024, 1024 * 1024)
    assert reading.methods["pcie_rx"] == "measured by the driver over 20 ms, every 5 s"
    assert card.calls.count("nvmlDeviceGetPcieThroughput") == 2, "it takes 20 ms a call"


def test_mig_instances_are_devices_beside_their_gpu(card: RecordedNvml) -> None:
    card.divide(2)
    mine = Answer(pid=os.getpid(), usedGpuMemory=2**30, gpuInstanceId=8)
    card.answers |= {
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [mine] if handle != 100 else [],
        "nvmlGpmMigSampleGet": lambda gpu, part, sample: card.calls.append(f"part {part} of {gpu}"),
    }
    opened = NvmlSource()
    gpu, *parts = opened.devices()
    assert gpu.mig and [i.uuid for i in gpu.instances] == ["MIG-100", "MIG-101"]
    assert [(label(d), d.id, d.name, d.mig, d.facts["SMs"]) for d in parts] == [
        ("GPU 0:0", "MIG-100", "NVIDIA H200 MIG 1g.18gb", False, "16"),
        ("GPU 0:1", "MIG-101", "NVIDIA H200 MIG 1g.18gb", False, "16"),
    ]
    card.now += 1.0
    whole, first, second = opened.read(100.0)
    assert whole.explained()["util"] == "NVML: Not Supported"
    assert [r.device for r in (whole, first, second)] == [d.id for d in opened.devices()]
    assert first.values["mem_used"] == 10545332224
    assert first.values["util"] == pytest.approx(99.999), "only the counters know it"
    assert first.methods["util"] and "tflops" not in first.values
    assert "part 7 of 0" in card.calls and "part 8 of 0" in card.calls
    assert [len(r.processes) for r in (first, second)] == [0, 1]
    assert [r.device for r in opened.occupancy(101.0)] == [gpu.id, "MIG-100", "MIG-101"]
    own, _, last = opened.details(102.0)
    assert [p.texts["uuid"] for p in own.parts if p.kind == "instance"] == ["MIG-100", "MIG-101"]
    assert (own.processes, [p.pid for p in last.processes]) == ((), [os.getpid()])
    opened.close()
    frees = card.calls.count("nvmlGpmSampleFree")
    assert frees == card.calls.count("nvmlGpmSampleAlloc") == 6


def test_an_instance_without_counters_says_so(card: RecordedNvml) -> None:
    card.divide(1)
    card.answers["nvmlGpmQueryDeviceSupport"] = NOT_SUPPORTED
    known = card.answers["nvmlDeviceGetMemoryInfo"]

    def memory(handle: int, *version: object) -> object:
        if handle >= 100:
            raise NOT_SUPPORTED
        return known

    card.answers["nvmlDeviceGetMemoryInfo"] = memory
    reading = NvmlSource().read(100.0)[1]
    assert "util" not in reading.values
    assert "Not Supported" in reading.explained()["util"]
    assert "Not Supported" in reading.explained()["mem_used"]


def test_a_repartitioned_gpu_is_reopened(card: RecordedNvml) -> None:
    opened = NvmlSource()
    card.divide(1)
    with pytest.raises(DevicesChanged, match="the MIG instances of GPU 0 changed"):
        for _ in range(12):
            one(opened, card)
    opened = NvmlSource()
    assert len(opened.devices()[0].instances) == 1
    card.divide(0)
    with pytest.raises(DevicesChanged, match="MIG instances of GPU 0 changed"):
        for _ in range(12):
            one(opened, card)
    opened = NvmlSource()
    assert opened.devices()[0].mig, (
        "it cannot be used as a whole, even while it is divided into nothing"
    )
    assert opened.devices()[0].facts["MIG"] == "on, without an instance"
    card.divide(3)
    with pytest.raises(DevicesChanged, match="MIG instances of GPU 0 changed"):
        for _ in range(12):
            one(opened, card)


def test_process_details_are_read_on_request(card: RecordedNvml) -> None:
    me, other = os.getpid(), 2**22 + 5
    now = int(time.time() * 1e6)
    card.answers["nvmlDeviceGetComputeRunningProcesses"] = [
        Answer(pid=me, usedGpuMemory=2**30, gpuInstanceId=2**32 - 1)
    ]
    card.answers["nvmlDeviceGetGraphicsRunningProcesses"] = [
        Answer(pid=me, usedGpuMemory=2**30, gpuInstanceId=2**32 - 1),
        Answer(pid=other, usedGpuMemory=None, gpuInstanceId=2**32 - 1),
    ]
    card.answers["nvmlDeviceGetProcessUtilization"] = [
        Answer(pid=me, timeStamp=now, smUtil=40),
        Answer(pid=me, timeStamp=now, smUtil=60),
        Answer(pid=me, timeStamp=now - 10**7, smUtil=99),
        Answer(pid=other, timeStamp=now, smUtil=4_000_000),
    ]
    opened = NvmlSource()
    (fast,) = one(opened, card).processes
    assert (fast.pid, fast.command, fast.sm) == (me, "", 50.0), (
        "a reading holds what the queue and the history need, and no more"
    )
    card.answers["nvmlDeviceGetProcessUtilization"][0].smUtil = 100
    assert one(opened, card).processes[0].sm == 50.0, "the shares are not read each time"
    card.now += 20.0
    assert one(opened, card).processes[0].sm == 80.0
    card.answers["nvmlDeviceGetProcessUtilization"][0].smUtil = 40
    mine, theirs = sorted(opened.details(100.0)[0].processes, key=lambda p: p.pid)
    assert (mine.kind, mine.sm, mine.memory) == ("both", 50.0, 2**30), (
        "the mean, without the samples that are old"
    )
    assert "python" in mine.command
    assert abs(mine.start - time.time()) < 3600
    assert (theirs.kind, theirs.sm, theirs.name, theirs.start) == ("graphics", 0.0, "?", 0.0)
    card.answers["nvmlDeviceGetProcessUtilization"] = NOT_SUPPORTED
    assert {p.sm for p in opened.details(100.0)[0].processes} == {None}
