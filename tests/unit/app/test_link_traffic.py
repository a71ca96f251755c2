"""The traffic between GPUs stands on the page of each while a job over several of them runs."""

from __future__ import annotations

from gpudeck.app.devices.device_facts import DeviceFact, device_facts
from gpudeck.scheduler.protocol.devices import Detail, Device, Part, Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import DeviceState, Idle, Snapshot

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(2)]


def links(traffic: dict[str, float]) -> list[dict[str, DeviceFact]]:
    values = {"nvlink_links": 18.0, **traffic}
    states = tuple(DeviceState(g, Reading(g.id, 1.0, values), Idle(0.0)) for g in GPUS)
    snapshot = Snapshot(1, 1.0, states, (), Settings(), "nvml")
    found = []
    for gpu in GPUS:
        facts = device_facts(snapshot, gpu.id)
        assert facts is not None
        found.append({f.label: f for group in facts.groups for f in group.facts})
    return found


def test_traffic_over_nvlink_is_shown_for_each_gpu_while_there_is_some():
    # what two H100s read during attention over both (results of distributed attention)
    for facts in links({"nvlink_rx": 3.8e9, "nvlink_tx": 3.7e9}):
        assert facts["NVLink in"].value == "3.80 GB/s"
        assert facts["NVLink out"].value == "3.70 GB/s"
        assert not facts["NVLink in"].minor
    for facts in links({"nvlink_rx": 0.0, "nvlink_tx": 0.0}):
        assert facts["NVLink in"].minor, "nobody looks at it then"


def test_a_link_that_is_down_says_so_before_its_readings():
    parts = tuple(
        Part("link", f"NVLink {i}", {"nvlink_rx": 2.5e9}, texts={"state": state})
        for i, state in enumerate(("up", "down"))
    )
    states = (DeviceState(GPUS[0], Reading(GPUS[0].id, 1.0, {}), Idle(0.0)),)
    snapshot = Snapshot(1, 1.0, states, (), Settings(), "nvml")
    facts = device_facts(snapshot, GPUS[0].id, Detail(GPUS[0].id, 1.0, parts))
    assert facts is not None
    found = {f.label: f.value for group in facts.groups for f in group.facts}
    assert found["NVLink 0"] == "2.50 GB/s in"
    assert found["NVLink 1"] == "down, 2.50 GB/s in"
