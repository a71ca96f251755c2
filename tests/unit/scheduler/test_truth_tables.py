"""The tables that put the monitor beside nvidia-smi: what it prints is read as it is meant, and a
difference is called one."""

from __future__ import annotations

import pynvml
import pytest

from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.fields import FIELDS
from tests.benchmarks import gpu_probe, nvidia_smi
from tests.benchmarks.nvml_truth import compare
from tests.unit.scheduler.recorded_nvml import RecordedNvml, error

XML = """<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log><gpu id="00000000:01:00.0">
<fan_speed>N/A</fan_speed><performance_state>P2</performance_state><ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
<fb_memory_usage><total>81559 MiB</total><used>6382 MiB</used></fb_memory_usage>
<pci><pci_gpu_link_info><link_widths><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info>
<rx_util>2000 KB/s</rx_util></pci></gpu></nvidia_smi_log>"""  # noqa: E501
DMON = """# gpu    pwr  gtemp     sm   mclk  rxpci
# Idx      W      C      %    MHz   MB/s
    0    146     54      -   2619     12
    0    150     55    100   2619     14
"""


def test_what_nvidia_smi_prints_is_read_in_our_units() -> None:
    found, missing = nvidia_smi.parse_query(XML)
    expected = {
        "fan": None,
        "pstate": 2.0,
        "ecc": 1.0,
        "mem_total": 81559 * 2**20,
        "mem_used": 6382 * 2**20,
        "pcie_width": 16.0,
    }
    assert {field: found[field] for field in expected} == expected
    assert found["pcie_rx"] == 2e6
    assert "temp" in missing
    assert set(nvidia_smi.PLACES) <= set(FIELDS)
    assert nvidia_smi.parse_dmon(
        DMON, {"pwr": ("power", 1.0), "sm": ("util", 1.0), "rxpci": ("pcie_rx", 1e6)}
    ) == {
        "power": [146.0, 150.0],
        "util": [100.0],
        "pcie_rx": [12e6, 14e6],
    }


@pytest.mark.parametrize(
    ("field", "theirs", "verdict"),
    [
        ("power", [100.0], "same"),
        ("power", [104.0], "within rounding and noise"),
        ("power", [120.0], "DIFFERS"),
        ("power_limit_max", [701.5], "DIFFERS"),
        ("power", [], "only ours"),
        ("fan", [40.0], "only theirs"),
        ("fan", [], "both N/A"),
    ],
)
def test_what_lies_outside_rounding_and_noise_differs(
    field: str, theirs: list[float], verdict: str
) -> None:
    ours = [
        Reading("g", t, {"power": p, "power_limit_max": 700.0}, {"fan": "none"})
        for t, p in ((0.0, 98.0), (0.5, 102.0))
    ]
    row = compare("at rest", "dmon", field, theirs, ours)
    assert row["verdict"] == verdict
    assert (row["reason"] == "none") == (field == "fan")


def test_without_a_gpu_it_says_so_in_one_line(card: RecordedNvml) -> None:
    gpu_probe.need_gpu()
    card.answers["nvmlInit"] = error(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(
        SystemExit, match=r"^this measures an NVIDIA GPU, and none can be reached here: [^\n]*$"
    ):
        gpu_probe.need_gpu()
