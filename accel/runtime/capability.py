"""Find the device that this machine computes on, and the versions of its software."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
import torch

_DRIVER = Path("/proc/driver/nvidia/version")
_NO_GPU = ("", "-1")


@dataclass(frozen=True)
class ComputeDevice:
    """Describe a device that can hold tensors."""

    torch_device: torch.device
    name: str
    units: int
    """The multiprocessors of a GPU, or the logical cores of a CPU."""
    threads: int
    """The number of threads that torch uses on a CPU; 0 on a GPU."""
    capability: tuple[int, int] | None
    """CUDA compute capability; None on a CPU."""

    @property
    def kind(self) -> str:
        """Return `cuda` or `cpu`."""
        return self.torch_device.type

    def __str__(self) -> str:
        if self.kind == "cuda":
            return self.name
        return f"CPU: {self.name}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    def free_memory(self) -> int:
        """Return the bytes that can be allocated now."""
        if self.kind == "cuda":
            return torch.cuda.mem_get_info(self.torch_device)[0]
        return psutil.virtual_memory().available


def find_device() -> ComputeDevice:
    """Return the first GPU that CUDA_VISIBLE_DEVICES permits, or else the CPU.

    Raises:
        RuntimeError: if that variable names a GPU that cannot be used, as the CPU would replace it
            silently.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(device)
        return ComputeDevice(
            device,
            properties.name,
            properties.multi_processor_count,
            0,
            (properties.major, properties.minor),
        )
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if wanted not in _NO_GPU:
        why = (
            "this build of torch is for the CPU"
            if torch.version.cuda is None
            else "no such GPU, or its driver does not answer"
        )
        raise RuntimeError(
            f"CUDA_VISIBLE_DEVICES names GPU {wanted}, and torch cannot use it: {why}."
            " Set it to an empty text to compute on the CPU."
        )
    return ComputeDevice(
        torch.device("cpu"), cpu_name(), os.cpu_count() or 1, torch.get_num_threads(), None
    )


def versions() -> dict[str, str]:
    """Return the versions of installed software that a measurement depends on."""
    cudnn: int | None = torch.backends.cudnn.version() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
    found = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
        "triton": _find_version("triton"),
        "driver": _driver(),
    }
    return {name: version for name, version in found.items() if version}


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    """Return the version that the NVIDIA kernel module reports."""
    try:
        text = _DRIVER.read_text()
    except OSError:
        return None
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found and found[1]


def cpu_name() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine() or "unknown processor"
