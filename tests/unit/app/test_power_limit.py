"""Test the power limit with its range, and the command that root runs."""

from __future__ import annotations

import pytest

from gpudeck.app.devices.device_facts import device_facts
from gpudeck.app.format.power_limit import limit_command, limit_range, limit_text
from gpudeck.scheduler.protocol.absence import Refused
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import DeviceState, Idle, Snapshot

GPU = Device("GPU-1", 3, "RTX 4090", "nvidia")
READING = Reading(
    "GPU-1", 1.0, {"power": 80.0, "power_limit": 350.0, "power_limit_min": 100.4,
                   "power_limit_max": 450.0}
)  # fmt: skip


def test_the_command_is_the_one_that_root_runs():
    assert limit_command(GPU, READING, 300) == "sudo nvidia-smi -i 3 -pl 300"
    assert limit_command(GPU, READING, 450) == "sudo nvidia-smi -i 3 -pl 450"
    assert limit_text(READING) == "350 W (100 to 450 W)"


@pytest.mark.parametrize("watts", [100, 451, 0, -5, float("nan"), float("inf")])
def test_a_limit_outside_the_range_is_refused(watts):
    with pytest.raises(UserError, match="101 to 450 W"):
        limit_command(GPU, READING, watts)


def test_a_card_without_limits_says_why():
    absent = {f"power_limit_{end}": Refused("NVML", "Not Supported") for end in ("min", "max")}
    reading = Reading("GPU-1", 1.0, {"power_limit": 60.0}, absent)
    assert limit_range(reading) == "" and limit_text(reading) == "60 W"
    with pytest.raises(UserError, match="Not Supported"):
        limit_command(GPU, reading, 50)
    with pytest.raises(UserError, match="cannot be read"):
        limit_command(GPU, None, 50)
    with pytest.raises(UserError, match="no NVIDIA GPU"):
        limit_command(Device("cpu", 0, "EPYC", "cpu"), READING, 50)


def test_the_page_of_a_device_shows_the_range_and_the_command():
    state = DeviceState(GPU, READING, Idle(0.0))
    facts = device_facts(Snapshot(1, 1.0, (state,), (), Settings(), "nvml"), "GPU-1")
    power = next(group for group in facts.groups if group.title == "Power")
    limit = next(fact for fact in power.facts if fact.label == "Power limit")
    assert limit.value == "350 W (100 to 450 W)"
    assert "sudo nvidia-smi -i 3 -pl WATTS" in limit.tooltip
