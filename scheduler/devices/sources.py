"""Open the source of readings that a setting names."""

from __future__ import annotations

import time
from pathlib import Path

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.devices import sleep
from gpudeck.scheduler.devices.cpu import CpuSource
from gpudeck.scheduler.devices.drm.source import DrmSource
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import NoGpu, Source
from gpudeck.scheduler.protocol.errors import UserError


def open_source(spec: str) -> tuple[Source, Message]:
    """Open a source and describe it.

    Args:
        spec: auto, nvml, cpu, replay:FILE or replay:FILE*COPIES. `auto` is the NVIDIA GPUs, else
            those of AMD and Intel, else the CPU. NVIDIA GPUs that cannot be read are an error, not
            a reason to use the CPU.

    Raises:
        UserError: The source cannot be opened.
    """
    if spec == "cpu":
        chosen = phrase("chosen in the settings")
        return CpuSource(chosen), phrase("cpu ({sub})", sub=chosen)
    if spec.startswith("replay:"):
        file, copies = _replay(spec.removeprefix("replay:"))
        return ReplaySource(file, copies), phrase("replay of {file}", file=file.name)
    if spec not in ("auto", "nvml"):
        raise UserError(
            phrase(
                "there is no source of readings called {spec}. Use auto, nvml, cpu or replay:FILE.",
                spec=repr(spec),
            )
        )
    try:
        from gpudeck.scheduler.devices.nvidia.source import NvmlSource

        return sleep.aware(NvmlSource, time.time()), "nvml"
    except NoGpu as e:
        if spec == "nvml":
            raise
        try:
            return DrmSource(), "sysfs"
        except NoGpu:
            return CpuSource(e.message), phrase("cpu ({sub})", sub=e.message)


def _replay(text: str) -> tuple[Path, int]:
    name, star, copies = text.rpartition("*")
    if star and copies.isdigit() and 1 <= int(copies) <= 128:
        text = name
    else:
        copies = "1"
    file = Path(text).expanduser()
    shipped = paths.assets() / text
    if not file.is_file() and "/" not in text and shipped.is_file():
        file = shipped
    return file, int(copies)
