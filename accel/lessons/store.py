"""Keep what was measured of an operation, by GPU, driver and versions.

There is one file for all processes of a user; see `gpudeck.accel.runtime.state_files`. What was
measured with other versions stays in it for the programs that use these, and is not used otherwise.
Its key is the spot of a problem: sizes are rounded to steps, and problems whose sizes lie in the
same steps are computed fastest by the same backend, so that one measurement serves all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from gpudeck.accel.lessons.records import Direction, Measured, decode_learned, encode_learned
from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.capability import cpu_name, versions

Mode = Literal["off", "once", "idle"]

_mode: Mode = "once"
_CHOICES: list[Callable[[], None]] = []
OCTAVE = 4
"""The number of steps in which a size doubles: sizes of one step differ by a fifth at most."""
MOST = 4096
"""The most measurements that are kept; the oldest are dropped first."""
_SOFTWARE = ("torch", "cudnn", "triton", "driver")
_PACKAGES = ("gpudeck", "flash-attn-4", "vllm")


def learning(new: Mode | None = None) -> Mode:
    """Set whether `auto` measures shapes that come back, in this process; return the mode.

    It holds for attention and for products.

    Args:
        new: `once` (at first): a shape without a measurement is measured at its second call, and
            the backward pass of attention in the second backward pass. `idle`: shapes are only
            counted, and GPU Deck measures them while the GPU is idle. `off`: neither, and what was
            learned is not used. None leaves the mode as it is.

    A measurement takes at most 30 ms beside the first call of each backend, which may compile its
    kernels, or one call of each where calls are longer. Nothing is measured in a CUDA graph, by
    compiled programs, or where results must be deterministic. Results are kept on disk for later
    programs.

    Raises:
        ValueError: if there is no such mode.
    """
    global _mode  # noqa: PLW0603 - one setting of the process
    if new is not None:
        if new not in get_args(Mode):
            raise ValueError(f"learning is one of {', '.join(get_args(Mode))}; got {new!r}")
        _mode = new
        forget_choices()
    return _mode


def on_change(forget: Callable[[], None]) -> None:
    """Have choices forgotten that were made before the mode changed, or before a measurement."""
    _CHOICES.append(forget)


def forget_choices() -> None:
    """Forget what was chosen before."""
    for forget in _CHOICES:
        forget()


def step(n: int) -> int:
    """Return the step in which a size lies."""
    return round(OCTAVE * math.log2(max(1, n)))


class Gpu(NamedTuple):
    """Identify a device."""

    name: str
    uuid: str


class Store:
    """Read and write the measurements of one operation; what was read is kept until `forget`."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self._known: dict[tuple[str, ...], Measured] | None = None
        self._can_keep: bool | None = None

    @property
    def file(self) -> Path:
        """Return the path of the file."""
        return state_files.learned_file(self.operation)

    def record(self, measured: Measured) -> None:
        """Keep a measurement, on disk and for this process; a damaged file is replaced, and one
        that cannot be written causes a warning: this process goes by the measurement all the
        same."""

        def merged(contents: bytes) -> bytes:
            try:
                held = {m.identity: m for m in decode_learned(contents)}
            except ValueError:
                held = {}
            held.pop(measured.identity, None)
            held[measured.identity] = measured
            return encode_learned(list(held.values())[-MOST:])

        try:
            held = decode_learned(state_files.change(self.file, merged))
        except OSError as e:
            held = [measured]
            warnings.warn(f"{self.operation} does not keep what it learned: {e}", stacklevel=2)
        self._all().update({m.identity: m for m in held})
        forget_choices()

    def find(self, device: torch.device, direction: Direction, spot: str) -> Measured | None:
        """Return what was measured at a spot with the present versions, on this GPU or on another
        one of the same name; None while learning is off."""
        if learning() == "off" or not self._all():
            return None
        own, here = gpu(device), software()
        exact = self._all().get((own.uuid, here, direction, spot))
        if exact is not None:
            return exact
        alike = [
            m
            for m in self._all().values()
            if (m.gpu, m.software, m.direction, m.spot) == (own.name, here, direction, spot)
        ]
        return max(alike, key=lambda m: m.at, default=None)

    def can_keep(self) -> bool:
        """Return whether results can be kept on disk; if not, one line says so."""
        if self._can_keep is None:
            try:
                state_files.check_writable(self.file)
                self._can_keep = True
            except OSError as e:
                self._can_keep = False
                warnings.warn(
                    f"{self.operation} does not learn, because it cannot keep it: {e}", stacklevel=2
                )
        return self._can_keep

    def forget(self) -> None:
        """Read the file again, and find out whether it can be written, when that is needed next."""
        self._known = self._can_keep = None

    def _all(self) -> dict[tuple[str, ...], Measured]:
        """Return all measurements on disk; a damaged file causes one warning."""
        if self._known is None:
            self._known = {}
            try:
                if contents := state_files.read(self.file):
                    self._known = {m.identity: m for m in decode_learned(contents)}
            except (OSError, ValueError) as e:
                warnings.warn(
                    f"{self.operation} does not use what it learned: {self.file}: {e}. The next"
                    " measurement replaces the file",
                    stacklevel=2,
                )
        return self._known


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
