"""Which source of readings a setting names."""

from __future__ import annotations

from pathlib import Path

from scheduler.devices.cpu import CpuSource
from scheduler.devices.replay import ReplaySource
from scheduler.protocol import paths
from scheduler.protocol.devices import NoGpu, Source
from scheduler.protocol.errors import UserError


def open_source(spec: str) -> tuple[Source, str]:
    """The source and what it is, in words. `spec`: auto, nvml, cpu, replay:FILE or replay:FILE*COPIES.

    Raises UserError where it cannot be had. `auto` is the GPUs, or the CPU on a machine that has none: GPUs that are there and
    cannot be read are trouble to be told, not a reason to run on the CPU.
    """
    if spec == "cpu":
        return CpuSource("chosen in the settings"), "cpu (chosen in the settings)"
    if spec.startswith("replay:"):
        file, copies = _replay(spec.removeprefix("replay:"))
        return ReplaySource(file, copies), f"replay of {file.name}"
    if spec not in ("auto", "nvml"):
        raise UserError(
            f"no source of readings is called {spec!r}. There are: auto, nvml, cpu, replay:FILE."
        )
    try:
        from scheduler.devices.nvidia.source import NvmlSource

        return NvmlSource(), "nvml"
    except NoGpu as e:
        if spec == "nvml":
            raise
        return CpuSource(str(e)), f"cpu ({e})"


def _replay(text: str) -> tuple[Path, int]:
    name, star, copies = text.rpartition("*")
    if star and copies.isdigit() and 1 <= int(copies) <= 128:
        text = name
    else:
        copies = "1"
    file = Path(text).expanduser()
    shipped = paths.assets() / text
    return (shipped if not file.is_file() and "/" not in text and shipped.is_file() else file), int(
        copies
    )
