"""Read what nvidia-smi reports of the first GPU, in our fields and units.

The sources are `-q -x`, `dmon`, and `dmon --gpm-metrics`.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from typing import NamedTuple

from gpudeck.scheduler.devices.nvidia.gpm import METRICS

MIB, KB, MB = 2.0**20, 1e3, 1e6


class Place(NamedTuple):
    """Describe where a field is in the XML, and the factor to our unit."""

    path: str
    scale: float = 1.0


PLACES: dict[str, Place] = {
    "util": Place("utilization/gpu_util"),
    "mem_util": Place("utilization/memory_util"),
    "encoder": Place("utilization/encoder_util"),
    "decoder": Place("utilization/decoder_util"),
    "jpeg": Place("utilization/jpeg_util"),
    "ofa": Place("utilization/ofa_util"),
    "mem_total": Place("fb_memory_usage/total", MIB),
    "mem_reserved": Place("fb_memory_usage/reserved", MIB),
    "mem_used": Place("fb_memory_usage/used", MIB),
    "mem_free": Place("fb_memory_usage/free", MIB),
    "bar1_total": Place("bar1_memory_usage/total", MIB),
    "bar1_used": Place("bar1_memory_usage/used", MIB),
    "temp": Place("temperature/gpu_temp"),
    "temp_margin": Place("temperature/gpu_temp_tlimit"),
    "temp_shutdown": Place("temperature/gpu_temp_max_threshold"),
    "temp_limit": Place("temperature/gpu_temp_slow_threshold"),
    "temp_max": Place("temperature/gpu_temp_max_gpu_threshold"),
    "temp_mem": Place("temperature/memory_temp"),
    "temp_mem_max": Place("temperature/gpu_temp_max_mem_threshold"),
    "power": Place("gpu_power_readings/instant_power_draw"),
    "power_avg": Place("gpu_power_readings/average_power_draw"),
    "power_limit": Place("gpu_power_readings/current_power_limit"),
    "power_limit_default": Place("gpu_power_readings/default_power_limit"),
    "power_limit_min": Place("gpu_power_readings/min_power_limit"),
    "power_limit_max": Place("gpu_power_readings/max_power_limit"),
    "clock_sm": Place("clocks/sm_clock"),
    "clock_mem": Place("clocks/mem_clock"),
    "clock_video": Place("clocks/video_clock"),
    "clock_sm_max": Place("max_clocks/sm_clock"),
    "clock_mem_max": Place("max_clocks/mem_clock"),
    "clock_video_max": Place("max_clocks/video_clock"),
    "pstate": Place("performance_state"),
    "fan": Place("fan_speed"),
    "pcie_gen": Place("pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "pcie_gen_max": Place("pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "pcie_width": Place("pci/pci_gpu_link_info/link_widths/current_link_width"),
    "pcie_width_max": Place("pci/pci_gpu_link_info/link_widths/max_link_width"),
    "pcie_replays": Place("pci/replay_counter"),
    "pcie_rx": Place("pci/rx_util", KB),
    "pcie_tx": Place("pci/tx_util", KB),
    "throttle_power": Place("clocks_event_reasons/clocks_event_reason_sw_power_cap"),
    "ecc": Place("ecc_mode/current_ecc"),
    "ecc_corrected": Place("ecc_errors/volatile/dram_correctable"),
    "ecc_uncorrected": Place("ecc_errors/volatile/dram_uncorrectable"),
    "ecc_corrected_total": Place("ecc_errors/aggregate/dram_correctable"),
    "ecc_uncorrected_total": Place("ecc_errors/aggregate/dram_uncorrectable"),
    "rows_corrected": Place("remapped_rows/remapped_row_corr"),
    "rows_uncorrected": Place("remapped_rows/remapped_row_unc"),
    "rows_pending": Place("remapped_rows/remapped_row_pending"),
    "rows_failure": Place("remapped_rows/remapped_row_failure"),
    "pages_corrected": Place("retired_pages/multiple_single_bit_retirement/retired_count"),
    "pages_uncorrected": Place("retired_pages/double_bit_retirement/retired_count"),
    "pages_pending": Place("retired_pages/pending_retirement"),
    "mig": Place("mig_mode/current_mig"),
}
_DMON = {
    "pwr": ("power", 1.0),
    "gtemp": ("temp", 1.0),
    "mtemp": ("temp_mem", 1.0),
    "sm": ("util", 1.0),
    "mem": ("mem_util", 1.0),
    "enc": ("encoder", 1.0),
    "dec": ("decoder", 1.0),
    "jpg": ("jpeg", 1.0),
    "ofa": ("ofa", 1.0),
    "mclk": ("clock_mem", 1.0),
    "pclk": ("clock_sm", 1.0),
    "fb": ("mem_used", MIB),
    "bar1": ("bar1_used", MIB),
    "rxpci": ("pcie_rx", MB),
    "txpci": ("pcie_tx", MB),
}
_WORDS = {"Enabled": 1.0, "Disabled": 0.0, "Active": 1.0, "Not Active": 0.0, "Yes": 1.0, "No": 0.0}
_IN_MB = frozenset({"pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx"})


def query() -> tuple[dict[str, float | None], set[str]]:
    """Return our fields as `-q -x` reports them (None for N/A), and those that it does not have."""
    return parse_query(_run("-q", "-x", "-i", "0"))


def parse_query(text: str) -> tuple[dict[str, float | None], set[str]]:
    gpu = ET.fromstring(text).find("gpu")
    assert gpu is not None
    found, missing = {}, set()
    for field, place in PLACES.items():
        at = gpu.find(place.path)
        if at is None:
            missing.add(field)
        else:
            number = parse_number(at.text or "")
            found[field] = None if number is None else number * place.scale
    return found, missing


def parse_number(text: str) -> float | None:
    """Read "81559 MiB", "16x", "P0" or "Enabled" as a number, and N/A as None."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    digits = text.split(" ")[0].removeprefix("P").removesuffix("x")
    try:
        return float(digits)
    except ValueError:
        return None


def dmon(seconds: int) -> dict[str, list[float]]:
    """Return our fields as `dmon` reports them, with a value for each second."""
    return parse_dmon(_run("dmon", "-s", "pucmt", "-i", "0", "-d", "1", "-c", str(seconds)), _DMON)


def gpm(seconds: int) -> dict[str, list[float]]:
    """Return our fields as `dmon --gpm-metrics` reports them.

    They are its last columns, in the order of the metrics' numbers.
    """
    ordered = sorted(METRICS, key=METRICS.__getitem__)
    out = _run(
        "dmon",
        "-s",
        "p",
        "-i",
        "0",
        "-d",
        "1",
        "-c",
        str(seconds),
        "--gpm-metrics",
        ",".join(str(METRICS[field]) for field in ordered),
    )
    names = heading(out)[-len(ordered) :]
    return parse_dmon(
        out,
        {
            name: (field, MB if field in _IN_MB else 1.0)
            for name, field in zip(names, ordered, strict=True)
        },
    )


def heading(text: str) -> list[str]:
    """Return the names of dmon's columns."""
    return next(line for line in text.splitlines() if line.startswith("#")).lstrip("# ").split()


def parse_dmon(text: str, names: dict[str, tuple[str, float]]) -> dict[str, list[float]]:
    columns = heading(text)
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        cells = line.split()
        if line.startswith("#") or len(cells) != len(columns):
            continue
        for column, cell in zip(columns, cells, strict=True):
            if column in names and (number := parse_number(cell)) is not None:
                field, scale = names[column]
                found.setdefault(field, []).append(number * scale)
    return found


def _run(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=True
        ).stdout
    except FileNotFoundError as e:
        raise SystemExit("nvidia-smi is not installed. It comes with the driver") from e
    except subprocess.CalledProcessError as e:
        raise SystemExit(
            f"nvidia-smi {' '.join(arguments)} failed: "
            + (e.stdout or e.stderr).strip().splitlines()[-1]
        ) from e
