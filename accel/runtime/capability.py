"""What this machine computes on, and with which versions."""

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
class Device:
    """A device that tensors can be on."""

    torch_device: torch.device
    name: str
    units: int
    """Multiprocessors of a GPU; logical cores of a CPU."""
    threads: int
    """Threads torch computes with on a CPU; 0 on a GPU."""
    capability: tuple[int, int] | None
    """CUDA compute capability; None on a CPU."""

    @property
    def kind(self) -> str:
        """`cuda` or `cpu`."""
        return self.torch_device.type

    def __str__(self) -> str:
        if self.kind == "cuda":
            return self.name
        return f"CPU: {self.name}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    def free_memory(self) -> int:
        """Bytes that can be allocated now."""
        if self.kind == "cuda":
            return torch.cuda.mem_get_info(self.torch_device)[0]
        return psutil.virtual_memory().available


def current() -> Device:
    """The first GPU that CUDA_VISIBLE_DEVICES leaves, else the CPU.

    Raises RuntimeError where that variable names a GPU and none can be used: the CPU would be a silent stand-in.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(device)
        return Device(
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
            f"CUDA_VISIBLE_DEVICES asks for GPU {wanted}, and torch cannot use it: {why}. Set it to nothing to compute on the CPU."
        )
    return Device(
        torch.device("cpu"), _cpu_name(), os.cpu_count() or 1, torch.get_num_threads(), None
    )


def versions() -> dict[str, str]:
    """Versions of what a measurement depends on; what is not there is left out."""
    cudnn: int | None = torch.backends.cudnn.version() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
    found = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": None if cudnn is None else f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
        "triton": _installed("triton"),
        "driver": _driver(),
    }
    return {name: version for name, version in found.items() if version}


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    """The NVIDIA kernel module's version, as it reports it itself."""
    try:
        said = _DRIVER.read_text()
    except OSError:
        return None
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", said)
    return found and found[1]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine() or "unknown processor"
