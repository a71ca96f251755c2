"""Keep what was measured at calls of `attention`, by GPU, driver and versions.

The file is one for all processes of a user; see `accel.runtime.shared_file`. What was measured with
other versions stays in it for the programs that use these, and is not used otherwise.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib import metadata
from typing import Literal, NamedTuple

import torch

from accel.attention.problem import Problem
from accel.attention.records import (
    Direction,
    Measured,
    decode_learned,
    encode_learned,
    learned_file,
)
from accel.attention.spot import spot
from accel.runtime import shared_file
from accel.runtime.capability import cpu_name, versions

Mode = Literal["off", "once", "idle"]
MOST = 4096
"""The most measurements that are kept; the oldest are dropped first."""
_SOFTWARE = ("torch", "cudnn", "triton", "driver")
_PACKAGES = ("gpudeck", "flash-attn-4", "vllm")


class Gpu(NamedTuple):
    """Identify a device."""

    name: str
    uuid: str


_mode: Mode = "once"


def mode() -> Mode:
    """Return what `accel.learning` was told last in this process."""
    return _mode


def set_mode(new: Mode) -> None:
    """Change the mode; choices that were made remain until they are made again."""
    global _mode  # noqa: PLW0603 - one setting of the process
    _mode = new


def record(measured: Measured) -> None:
    """Keep a measurement, on disk and for this process; a damaged file is replaced.

    Raises:
        OSError: if the file cannot be written. This process goes by the measurement all the same.
    """

    def merged(contents: bytes) -> bytes:
        try:
            held = {m.identity: m for m in decode_learned(contents)}
        except ValueError:
            held = {}
        held.pop(measured.identity, None)
        held[measured.identity] = measured
        return encode_learned(list(held.values())[-MOST:])

    try:
        held = decode_learned(shared_file.change(learned_file(), merged))
    except OSError:
        _known()[measured.identity] = measured
        raise
    _known().update({m.identity: m for m in held})


def found(p: Problem, direction: Direction) -> Measured | None:
    """Return what was measured at the problem's spot with the present versions, on its own GPU or
    on another one of the same name; None while learning is off, and for deterministic gradients,
    which must not depend on what was measured when."""
    if _mode == "off" or p.deterministic:
        return None
    own, here, at = gpu(p.device), software(), spot(p)
    exact = _known().get((own.uuid, here, direction, at))
    if exact is not None:
        return exact
    alike = [
        m
        for m in _known().values()
        if (m.gpu, m.software, m.direction, m.spot) == (own.name, here, direction, at)
    ]
    return max(alike, key=lambda m: m.at, default=None)


def check_writable() -> None:
    """Raise OSError if measurements cannot be kept."""
    shared_file.check_writable(learned_file())


def forget() -> None:
    """Read the file again when it is needed next."""
    _known.cache_clear()


@lru_cache(maxsize=1)
def _known() -> dict[tuple[str, ...], Measured]:
    """Return all measurements on disk; a damaged file causes one warning."""
    try:
        return {m.identity: m for m in decode_learned(shared_file.read(learned_file()))}
    except (OSError, ValueError) as e:
        warnings.warn(
            f"attention does not use what it learned: {learned_file()}: {e}. The next measurement"
            " replaces the file",
            stacklevel=2,
        )
        return {}


@lru_cache(maxsize=16)
def gpu(device: torch.device) -> Gpu:
    """Return the name and the UUID of a GPU; those of a CPU are its name."""
    if device.type != "cuda":
        return Gpu(cpu_name(), cpu_name())
    if not torch.cuda.is_available():  # a problem that is only described
        return Gpu("", "")
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.name, str(properties.uuid))


@lru_cache(maxsize=1)
def software() -> str:
    """Return the versions that a measurement depends on."""
    told = [f"{name} {version}" for name, version in versions().items() if name in _SOFTWARE]
    for package in _PACKAGES:
        try:
            told.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(told)
