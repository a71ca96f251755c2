"""Test AMD and Intel GPUs on fake trees of sysfs, with the names and units of the documents."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.devices import runtime_power
from gpudeck.scheduler.devices.drm.intel import METHOD
from gpudeck.scheduler.devices.drm.source import NOTE, DrmSource
from gpudeck.scheduler.devices.sources import open_source
from gpudeck.scheduler.protocol.absence import explain
from gpudeck.scheduler.protocol.devices import NA, DevicesChanged, NoGpu
from gpudeck.scheduler.protocol.fields import FIELDS

RX7900 = {
    "vendor": "0x1002", "class": "0x030000", "device": "0x744c",
    "unique_id": "a1b2c3d4e5f60718", "product_name": "Radeon RX 7900 XTX",
    "power/runtime_status": "active", "power/control": "auto",
    "gpu_busy_percent": "37", "mem_busy_percent": "12",
    "mem_info_vram_total": str(24 * 2**30), "mem_info_vram_used": str(6 * 2**30),
    "hwmon/hwmon4/temp1_label": "edge", "hwmon/hwmon4/temp1_input": "61000",
    "hwmon/hwmon4/temp1_crit": "100000", "hwmon/hwmon4/temp1_emergency": "105000",
    "hwmon/hwmon4/temp2_label": "junction", "hwmon/hwmon4/temp2_input": "70000",
    "hwmon/hwmon4/temp3_label": "mem", "hwmon/hwmon4/temp3_input": "68000",
    "hwmon/hwmon4/power1_average": "123000000", "hwmon/hwmon4/power1_cap": "339000000",
    "hwmon/hwmon4/power1_cap_min": "0", "hwmon/hwmon4/power1_cap_max": "390000000",
    "hwmon/hwmon4/fan1_input": "1200",
    "hwmon/hwmon4/freq1_input": "2304000000", "hwmon/hwmon4/freq2_input": "1249000000",
}  # fmt: skip
B580 = {
    "vendor": "0x8086", "class": "0x030000", "device": "0xe20b",
    "power/runtime_status": "active", "power/control": "auto",
    "tile0/gt0/gtidle/idle_residency_ms": "10000",
    "tile0/gt0/freq0/act_freq": "2850", "tile0/gt0/freq0/max_freq": "2850",
    "hwmon/hwmon3/energy1_input": "5000000000", "hwmon/hwmon3/power1_max": "190000000",
    "hwmon/hwmon3/temp2_label": "pkg", "hwmon/hwmon3/temp2_input": "48000",
    "hwmon/hwmon3/temp3_label": "vram", "hwmon/hwmon3/temp3_input": "52000",
    "hwmon/hwmon3/fan1_input": "900",
}  # fmt: skip
A770 = {
    "vendor": "0x8086", "class": "0x030000", "device": "0x56a0",
    "power/runtime_status": "active", "power/control": "auto",
    "drm/card1/gt/gt0/rc6_residency_ms": "500", "drm/card1/gt_act_freq_mhz": "2400",
    "hwmon/hwmon2/energy1_input": "7000000",
}  # fmt: skip


@pytest.fixture
def tree(tmp_path, monkeypatch):
    folder = tmp_path / "devices"
    folder.mkdir()
    monkeypatch.setattr(runtime_power, "PCI", folder)

    def add(address, driver, files):
        (tmp_path / driver).mkdir(exist_ok=True)
        for name, text in files.items():
            file = folder / address / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        (folder / address / "driver").symlink_to(tmp_path / driver)
        return folder / address

    return add


def test_an_amd_card_reports_everything(tree):
    tree("0000:03:00.0", "amdgpu", RX7900)
    source = DrmSource()
    (device,), (reading,) = source.devices(), source.read(1.0)
    assert (device.kind, device.name) == ("amd", "Radeon RX 7900 XTX")
    assert device.id == "amd-a1b2c3d4e5f60718" and device.note == NOTE
    assert reading.values == {
        "util": 37.0, "mem_util": 12.0, "mem_total": 24 * 2.0**30, "mem_used": 6 * 2.0**30,
        "mem_free": 18 * 2.0**30, "temp": 61.0, "temp_limit": 100.0, "temp_shutdown": 105.0,
        "temp_mem": 68.0, "power": 123.0, "power_limit": 339.0, "power_limit_min": 0.0,
        "power_limit_max": 390.0, "fan_rpm": 1200.0, "clock_sm": 2304.0, "clock_mem": 1249.0,
    }  # fmt: skip
    assert set(reading.values) | set(reading.absent) <= set(FIELDS)


def test_an_intel_card_computes_utilisation_and_power(tree):
    folder = tree("0000:04:00.0", "xe", B580)
    source = DrmSource()
    (first,) = source.read(100.0)
    assert isinstance(first.get("util"), NA) and isinstance(first.get("power"), NA)
    (folder / "tile0/gt0/gtidle/idle_residency_ms").write_text("10500\n")
    (folder / "hwmon/hwmon3/energy1_input").write_text("5300000000\n")
    (reading,) = source.read(102.0)
    assert reading.values["util"] == 75.0 and reading.methods["util"] == METHOD
    assert reading.values["power"] == 150.0 and reading.values["power_limit"] == 190.0
    assert reading.values["temp"] == 48.0 and reading.values["temp_mem"] == 52.0
    used = reading.get("mem_used")
    assert isinstance(used, NA) and "not reported" in str(used.reason)


def test_an_older_intel_card_is_read_at_the_card(tree):
    folder = tree("0000:05:00.0", "i915", A770)
    source = DrmSource()
    source.read(100.0)
    (folder / "drm/card1/gt/gt0/rc6_residency_ms").write_text("1500\n")
    (reading,) = source.read(101.0)
    assert reading.values["util"] == 0.0 and reading.values["clock_sm"] == 2400.0


def test_a_card_that_sleeps_is_not_read(tree):
    folder = tree("0000:03:00.0", "amdgpu", RX7900 | {"power/runtime_status": "suspended"})
    source = DrmSource()
    (folder / "gpu_busy_percent").unlink()
    (folder / "gpu_busy_percent").mkdir()  # reading it would fail
    (reading,) = source.read(5.0)
    assert (
        reading.values == {}
        and reading.asleep == 5.0
        and "sleeps" in str(explain(reading.otherwise))
    )
    assert source.read(9.0)[0].asleep == 5.0
    (folder / "power/runtime_status").write_text("active\n")
    (reading,) = source.read(10.0)
    assert reading.asleep is None and reading.values["temp"] == 61.0
    assert "Is a directory" in str(explain(reading.absent["util"]))


def test_garbage_in_a_file_makes_one_field_absent(tree):
    tree("0000:03:00.0", "amdgpu", RX7900 | {"gpu_busy_percent": "much"})
    (reading,) = DrmSource().read(1.0)
    assert "util" in reading.absent and reading.values["temp"] == 61.0


def test_what_is_no_card_of_its_own_is_left_out(tree):
    tree("0000:00:02.0", "i915", A770)  # the processor's graphics
    tree("0000:03:00.0", "vfio-pci", RX7900)  # given to a virtual machine
    tree("0000:04:00.0", "snd_hda_intel", {**B580, "class": "0x040300"})
    with pytest.raises(NoGpu):
        DrmSource()


def test_a_card_that_is_unplugged_changes_the_devices(tree):
    folder = tree("0000:03:00.0", "amdgpu", RX7900)
    source = DrmSource()
    (folder / "driver").unlink()
    with pytest.raises(DevicesChanged):
        source.read(1.0)


def test_they_are_the_devices_where_there_is_no_nvidia_gpu(tree, card):
    import pynvml

    card.answers["nvmlInit"] = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert str(open_source("auto")[1]).startswith("cpu (")
    tree("0000:03:00.0", "amdgpu", RX7900)
    source, description = open_source("auto")
    assert description == "sysfs" and source.devices()[0].kind == "amd"
