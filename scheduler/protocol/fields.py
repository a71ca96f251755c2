"""The table of all fields of readings: label, unit, meaning and pace.

Charts, tables, the store and the assistant use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Pace = Literal["fast", "slow", "rare", "static"]
"""How often a field is read: always, every few seconds, twice a minute, or about once."""


class Field(NamedTuple):
    """Describe one field."""

    label: str
    unit: str
    meaning: str
    pace: Pace = "fast"


_WORK = {
    "util": Field(
        "Utilisation",
        "%",
        "share of time in which at least one kernel ran (GPU), or the cores were busy (CPU)",
    ),
    "mem_util": Field(
        "Memory controller", "%", "share of time in which device memory was read or written"
    ),
    "tflops": Field("TFLOP/s", "TFLOP/s", "floating-point operations a second"),
    "tflops_gpm": Field(
        "TFLOP/s (counters)",
        "TFLOP/s",
        "floating-point operations a second by the hardware counters",
    ),
    "tflops_error": Field(
        "TFLOP/s uncertainty",
        "%",
        "how far TFLOP/s may be off, either way; absent while jobs count their operations",
    ),
    "tflops_gpm_error": Field(
        "TFLOP/s uncertainty (counters)",
        "%",
        "how far the TFLOP/s of the hardware counters may be off, either way",
    ),
    "bandwidth": Field("Memory bandwidth", "B/s", "device memory traffic"),
    "graphics": Field(
        "Compute and graphics",
        "%",
        "share of time in which the compute or graphics engine was active",
        "slow",
    ),
    "sm_active": Field("SM active", "%", "share of multiprocessors with work, averaged"),
    "sm_occupancy": Field("SM occupancy", "%", "share of warp slots in use"),
    "tensor": Field(
        "Tensor cores", "%", "share of cycles in which a tensor pipe was busy, all types"
    ),
    "tensor_hmma": Field(
        "Tensor FP16/BF16/TF32",
        "%",
        "share of cycles in which the half-precision tensor pipe was busy",
    ),
    "tensor_imma": Field(
        "Tensor INT8/FP8", "%", "share of cycles in which the 8-bit tensor pipe was busy"
    ),
    "tensor_dfma": Field(
        "Tensor FP64", "%", "share of cycles in which the double-precision tensor pipe was busy"
    ),
    "fp16": Field("FP16 pipe", "%", "share of cycles in which the FP16 pipe was busy"),
    "fp32": Field("FP32 pipe", "%", "share of cycles in which the FP32 pipe was busy"),
    "fp64": Field("FP64 pipe", "%", "share of cycles in which the FP64 pipe was busy"),
    "integer": Field("Integer pipe", "%", "share of cycles in which the integer pipe was busy"),
    "dram": Field("DRAM bandwidth", "%", "share of the peak memory bandwidth in use"),
    "encoder": Field("Encoder", "%", "video encoder utilisation"),
    "decoder": Field("Decoder", "%", "video decoder utilisation"),
    "jpeg": Field("JPEG", "%", "JPEG engine utilisation", "slow"),
    "ofa": Field("Optical flow", "%", "optical flow engine utilisation", "slow"),
}
_MEMORY = {
    "mem_used": Field("Memory used", "B", "memory in use, the driver's own reserve left out"),
    "mem_total": Field("Memory", "B", "size of the memory", "static"),
    "mem_reserved": Field("Memory reserved", "B", "memory that the driver reserves for itself"),
    "mem_free": Field("Memory free", "B", "memory that is free"),
    "bar1_used": Field("BAR1 used", "B", "mapped window for access over PCIe", "slow"),
    "bar1_total": Field("BAR1", "B", "size of the window for access over PCIe", "slow"),
}
_CLOCKS = {
    "clock_sm": Field(
        "SM clock", "MHz", "clock of the multiprocessors, averaged over the interval"
    ),
    "clock_mem": Field("Memory clock", "MHz", "clock of the device memory"),
    "clock_video": Field("Video clock", "MHz", "clock of the video engines"),
    "clock_sm_max": Field(
        "SM clock (max)", "MHz", "highest clock of the multiprocessors", "static"
    ),
    "clock_mem_max": Field(
        "Memory clock (max)", "MHz", "highest clock of the device memory", "static"
    ),
    "clock_video_max": Field(
        "Video clock (max)", "MHz", "highest clock of the video engines", "static"
    ),
    "pstate": Field("Performance state", "", "0 is fastest"),
    "throttle": Field("Throttle reasons", "", "bit mask of the reasons for throttling"),
    "throttle_power": Field(
        "Throttled by power", "", "1 while the power limit throttles the clocks"
    ),
    "throttle_heat": Field("Throttled by heat", "", "1 while heat throttles the clocks"),
    "throttled": Field(
        "Throttled for",
        "s",
        "time for which power, heat or the hardware has throttled the clocks without a break",
    ),
}
_POWER = {
    "power": Field("Power", "W", "power drawn now"),
    "power_avg": Field("Power (average)", "W", "power drawn, averaged by the card over a second"),
    "power_limit": Field("Power limit", "W", "limit in force", "slow"),
    "power_limit_default": Field(
        "Power limit (default)", "W", "limit that the card is shipped with", "static"
    ),
    "power_limit_min": Field("Power limit (lowest)", "W", "lowest limit that can be set", "static"),
    "power_limit_max": Field(
        "Power limit (highest)", "W", "highest limit that can be set", "static"
    ),
    "energy": Field("Energy", "J", "energy used since the driver was loaded", "rare"),
}
_HEAT = {
    "temp": Field("Temperature", "°C", "core temperature"),
    "temp_mem": Field("Memory temperature", "°C", "temperature of the device memory"),
    "temp_margin": Field(
        "Temperature margin",
        "°C",
        "how much hotter the core may get before the card slows down",
        "slow",
    ),
    "temp_limit": Field(
        "Slow-down temperature", "°C", "the card slows down from here on", "static"
    ),
    "temp_shutdown": Field(
        "Shut-down temperature", "°C", "the card switches itself off from here on", "static"
    ),
    "temp_max": Field(
        "Highest core temperature",
        "°C",
        "the card may lower its clocks to keep the core below this",
        "static",
    ),
    "temp_mem_max": Field(
        "Highest memory temperature",
        "°C",
        "the card may lower its clocks to keep its memory below this",
        "static",
    ),
    "fan": Field("Fan", "%", "intended fan speed, of the fastest fan", "slow"),
    "fan_rpm": Field("Fan speed", "rpm", "revolutions per minute", "slow"),
}
_LINKS = {
    "pcie_gen": Field("PCIe generation", "", "generation of the link now", "slow"),
    "pcie_gen_max": Field(
        "PCIe generation (max)", "", "highest generation that this card and slot support", "static"
    ),
    "pcie_width": Field("PCIe width", "lanes", "lanes of the link now", "slow"),
    "pcie_width_max": Field(
        "PCIe width (max)", "lanes", "most lanes that this card and slot support", "static"
    ),
    "pcie_rx": Field("PCIe in", "B/s", "bytes received over PCIe"),
    "pcie_tx": Field("PCIe out", "B/s", "bytes sent over PCIe"),
    "pcie_replays": Field("PCIe replays", "", "packets that had to be sent again", "rare"),
    "nvlink_rx": Field("NVLink in", "B/s", "bytes received over NVLink"),
    "nvlink_tx": Field("NVLink out", "B/s", "bytes sent over NVLink"),
    "nvlink_links": Field("NVLink links", "", "NVLink links that are up", "slow"),
    "nvlink_errors": Field(
        "NVLink errors", "", "NVLink replays, recoveries and checksum errors of all links", "slow"
    ),
}
_HEALTH = {
    "ecc": Field("ECC", "", "1 while errors of the device memory are corrected", "rare"),
    "ecc_corrected": Field(
        "ECC corrected", "", "corrected memory errors since the driver was loaded", "slow"
    ),
    "ecc_uncorrected": Field(
        "ECC uncorrected",
        "",
        "uncorrected memory errors since the driver was loaded",
        "slow",
    ),
    "ecc_corrected_total": Field(
        "ECC corrected, ever", "", "corrected memory errors in the card's life", "slow"
    ),
    "ecc_uncorrected_total": Field(
        "ECC uncorrected, ever",
        "",
        "uncorrected memory errors in the card's life",
        "slow",
    ),
    "rows_corrected": Field(
        "Rows remapped, corrected",
        "",
        "memory rows replaced after corrected errors",
        "slow",
    ),
    "rows_uncorrected": Field(
        "Rows remapped, uncorrected",
        "",
        "memory rows replaced after uncorrected errors",
        "slow",
    ),
    "rows_pending": Field(
        "Row remapping pending",
        "",
        "1 while a memory row will be replaced at the next reset of the card",
        "slow",
    ),
    "rows_failure": Field(
        "Row remapping failed",
        "",
        "1 once a memory row could not be replaced: the card should be exchanged",
        "slow",
    ),
    "recovery_action": Field(
        "Recovery action",
        "",
        "what the driver asks for after a fault, as NVML's number: 0 nothing, 1 a reset, 2 a "
        "restart of the machine, 3 or 4 to drain the GPU",
        "slow",
    ),
    "pages_corrected": Field(
        "Pages retired, corrected",
        "",
        "memory pages retired after corrected errors",
        "rare",
    ),
    "pages_uncorrected": Field(
        "Pages retired, uncorrected",
        "",
        "memory pages retired after an uncorrected error",
        "rare",
    ),
    "pages_pending": Field(
        "Page retirement pending",
        "",
        "1 while a memory page will be retired at the next reset of the card",
        "rare",
    ),
    "xid": Field(
        "Last Xid",
        "",
        "number of the last error that the driver reported since the daemon started; 0: none",
    ),
    "xid_count": Field(
        "Xid errors", "", "errors that the driver reported since the daemon started"
    ),
    "mig": Field("MIG", "", "1 while the card is divided into MIG instances", "rare"),
}
_MACHINE = {
    "cores": Field("Cores", "", "logical processors: the hardware threads of all cores", "static"),
    "clock_cpu": Field("CPU clock", "MHz", "clock of the cores, averaged"),
    "load": Field("Load", "", "processes that run or wait, averaged over a minute"),
    "swap_used": Field("Swap used", "B", "swap in use"),
    "swap_total": Field("Swap", "B", "size of the swap space", "slow"),
    "disk_read": Field("Disk reads", "B/s", "bytes read from disks"),
    "disk_write": Field("Disk writes", "B/s", "bytes written to disks"),
    "net_rx": Field(
        "Network in", "B/s", "bytes received over the network, without loopback traffic"
    ),
    "net_tx": Field("Network out", "B/s", "bytes sent over the network, without loopback traffic"),
}

FIELDS: dict[str, Field] = _WORK | _MEMORY | _CLOCKS | _POWER | _HEAT | _LINKS | _HEALTH | _MACHINE

HEADLINE = ("util", "mem_used", "tflops", "temp", "power")
"""The most important fields, shown in the charts of the dashboard and the tiles."""
UNCERTAINTY = {"tflops": "tflops_error", "tflops_gpm": "tflops_gpm_error"}
"""The field that says how far another one may be off, in percent, either way."""


def with_uncertainty(fields: Iterable[str]) -> tuple[str, ...]:
    """Return the fields, and after them those that say how far they may be off."""
    asked = tuple(fields)
    return tuple(dict.fromkeys((*asked, *(UNCERTAINTY[f] for f in asked if f in UNCERTAINTY))))
