"""The CPU as a device: real readings of this machine."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from scheduler.devices import cpu
from scheduler.devices.cpu import CpuSource
from scheduler.devices.fields import FIELDS, HEADLINE


@pytest.fixture
def source() -> CpuSource:
    return CpuSource("no NVIDIA GPU can be reached: Driver Not Loaded")


def test_it_says_what_it_is_and_why(source: CpuSource) -> None:
    (device,) = source.devices()
    assert device.kind == "cpu"
    assert device.note == "CPU: no NVIDIA GPU found"
    assert device.facts["why"] == "no NVIDIA GPU can be reached: Driver Not Loaded"
    assert device.facts["threads"] == str(psutil.cpu_count())
    assert device.name


def test_every_field_is_there_or_says_why_not(source: CpuSource) -> None:
    source.read(time.time())
    (reading,) = source.read(time.time())
    assert set(reading.values) & set(reading.absent) == set()
    assert set(reading.values) | set(reading.absent) <= set(FIELDS), "each has a label and a unit"
    assert set(HEADLINE) <= set(reading.values) | set(reading.absent)
    assert all(reading.absent.values())


def test_figures_are_those_of_this_machine(source: CpuSource) -> None:
    (reading,) = source.read(time.time())
    memory = psutil.virtual_memory()
    values = reading.values
    assert 0 <= values["util"] <= 100
    assert values["mem_total"] == memory.total
    assert values["mem_used"] + values["mem_free"] == memory.total
    assert values["mem_used"] == pytest.approx(memory.total - memory.available, rel=0.2)
    assert values["cores"] == psutil.cpu_count()


def test_power_is_energy_over_time(source: CpuSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel's files, in a folder of ours: two packages, a core of one, the whole platform, and a counter that wraps."""
    monkeypatch.setattr(cpu, "_RAPL", tmp_path)

    def counters(package0: int, package1: int) -> None:
        zones = [(0, "package-0", package0), (1, "package-1", package1), ("0:0", "core", 10**12), (2, "psys", package0 + package1)]
        for number, name, microjoules in zones:
            zone = tmp_path / f"intel-rapl:{number}"
            zone.mkdir(exist_ok=True)
            (zone / "name").write_text(f"{name}\n")
            (zone / "energy_uj").write_text(f"{microjoules}\n")

    def power(now: float) -> float | str:
        (reading,) = source.read(now)
        return reading.values["power"] if "power" in reading.values else reading.absent["power"]

    assert power(0.0) == "this kernel exposes no RAPL energy counter (/sys/class/powercap)"
    counters(0, 0)
    assert power(1.0) == "not known before the second reading"
    counters(30_000_000, 10_000_000)
    assert power(3.0) == pytest.approx(20.0)
    counters(0, 11_000_000)
    assert power(5.0) == "not known before the second reading", "a wrapped counter is no negative power"
    counters(5_000_000, 11_000_000)
    assert power(6.0) == pytest.approx(5.0)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("garbage")
    assert "cannot be read" in str(power(7.0))
