"""Every field a reading can have: its label, unit and meaning. One table for charts, tables, the store and the assistant."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    label: str
    unit: str
    meaning: str


FIELDS: dict[str, Field] = {
    "util": Field("Utilisation", "%", "share of time in which at least one kernel ran (GPU), or the cores were busy (CPU)"),
    "mem_util": Field("Memory controller", "%", "share of time in which device memory was read or written"),
    "mem_used": Field("Memory used", "B", "memory in use, the driver's own reserve left out"),
    "mem_total": Field("Memory", "B", "memory there is"),
    "mem_reserved": Field("Memory reserved", "B", "memory the driver keeps for itself"),
    "mem_free": Field("Memory free", "B", "memory nobody uses"),
    "bar1_used": Field("BAR1 used", "B", "mapped window for access over PCIe"),
    "tflops": Field("TFLOP/s", "TFLOP/s", "floating-point operations a second"),
    "tflops_gpm": Field("TFLOP/s (counters)", "TFLOP/s", "floating-point operations a second by the hardware counters"),
    "bandwidth": Field("Memory bandwidth", "B/s", "device memory traffic"),
    "temp": Field("Temperature", "°C", "core temperature"),
    "temp_mem": Field("Memory temperature", "°C", "temperature of the device memory"),
    "temp_limit": Field("Slow-down temperature", "°C", "the card slows down from here on"),
    "power": Field("Power", "W", "power drawn now"),
    "power_avg": Field("Power (average)", "W", "power drawn, averaged by the card over a second"),
    "power_limit": Field("Power limit", "W", "limit in force"),
    "energy": Field("Energy", "J", "energy used since the driver was loaded"),
    "clock_sm": Field("SM clock", "MHz", "clock of the multiprocessors, averaged over the interval"),
    "clock_mem": Field("Memory clock", "MHz", "clock of the device memory"),
    "clock_video": Field("Video clock", "MHz", "clock of the video engines"),
    "clock_sm_max": Field("SM clock (max)", "MHz", "highest clock of the multiprocessors"),
    "fan": Field("Fan", "%", "intended fan speed"),
    "throttle": Field("Throttle reasons", "", "bit mask of why the clocks are held down"),
    "pstate": Field("Performance state", "", "0 is fastest"),
    "pcie_gen": Field("PCIe generation", "", "generation of the link now"),
    "pcie_width": Field("PCIe width", "lanes", "lanes of the link now"),
    "pcie_rx": Field("PCIe in", "B/s", "bytes received over PCIe"),
    "pcie_tx": Field("PCIe out", "B/s", "bytes sent over PCIe"),
    "pcie_replays": Field("PCIe replays", "", "packets that had to be sent again"),
    "nvlink_rx": Field("NVLink in", "B/s", "bytes received over NVLink"),
    "nvlink_tx": Field("NVLink out", "B/s", "bytes sent over NVLink"),
    "ecc_corrected": Field("ECC corrected", "", "memory errors put right since the driver was loaded"),
    "ecc_uncorrected": Field("ECC uncorrected", "", "memory errors that could not be put right"),
    "encoder": Field("Encoder", "%", "video encoder utilisation"),
    "decoder": Field("Decoder", "%", "video decoder utilisation"),
    "jpeg": Field("JPEG", "%", "JPEG engine utilisation"),
    "ofa": Field("Optical flow", "%", "optical flow engine utilisation"),
    "sm_active": Field("SM active", "%", "share of multiprocessors with work, averaged"),
    "sm_occupancy": Field("SM occupancy", "%", "share of warp slots in use"),
    "tensor": Field("Tensor cores", "%", "share of cycles in which a tensor pipe was busy, all types"),
    "tensor_hmma": Field("Tensor FP16/BF16/TF32", "%", "share of cycles in which the half-precision tensor pipe was busy"),
    "tensor_imma": Field("Tensor INT8/FP8", "%", "share of cycles in which the 8-bit tensor pipe was busy"),
    "tensor_dfma": Field("Tensor FP64", "%", "share of cycles in which the double-precision tensor pipe was busy"),
    "fp16": Field("FP16 pipe", "%", "share of cycles in which the FP16 pipe was busy"),
    "fp32": Field("FP32 pipe", "%", "share of cycles in which the FP32 pipe was busy"),
    "fp64": Field("FP64 pipe", "%", "share of cycles in which the FP64 pipe was busy"),
    "dram": Field("DRAM bandwidth", "%", "share of the peak memory bandwidth in use"),
    "cores": Field("Cores", "", "logical processors: the hardware threads of all cores"),
    "clock_cpu": Field("CPU clock", "MHz", "clock of the cores, averaged"),
    "load": Field("Load", "", "processes that run or wait, averaged over a minute"),
    "swap_used": Field("Swap used", "B", "swap in use"),
}

HEADLINE = ("util", "mem_used", "tflops", "temp", "power")
"""What every device is first judged by: the charts of the dashboard, the tiles on top."""
