"""Keep the kernels that were found, judged faster and installed, and use them by name.

A kernel counts for its task, sizes and dtype on the GPU on which it was judged. What uses it names
it; `remove` makes everything as before.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.state_files import state_folder
from gpudeck.accel.search.verdict import Source, Verdict, encode


class Kernel(msgspec.Struct, frozen=True):
    """Describe an installed kernel."""

    name: str
    task: str
    sizes: dict[str, int]
    dtype: str
    device: str
    source: Source
    speedup: float
    """The lower bound, beside `baseline`, with the copies of inputs and results."""
    baseline: str
    digest: str
    """That of the verdict, which lies beside as a file."""

    def fits(self, task: str, sizes: dict[str, int], dtype: str, device: str) -> bool:
        """Return whether it was judged for this."""
        return (self.task, self.sizes, self.dtype, self.device) == (task, sizes, dtype, device)


def installed_file() -> Path:
    """Return the path of the list."""
    return state_folder() / "search" / "installed.json"


def verdict_file(digest: str) -> Path:
    """Return the path of a verdict that led to an installation."""
    return state_folder() / "search" / f"verdict-{digest[:16]}.json"


def kernel_file(digest: str) -> Path:
    """Return the path of the source of an installed kernel that was judged as a file."""
    return state_folder() / "search" / f"kernel-{digest[:16]}.py"


def installed() -> list[Kernel]:
    """Return all kernels that are installed.

    Raises:
        ValueError: if the file is damaged.
    """
    return _decode(state_files.read(installed_file()))


def find(task: str, sizes: dict[str, int], dtype: str, device: str) -> Kernel | None:
    """Return the kernel that is installed for this, None if there is none."""
    return next((k for k in installed() if k.fits(task, sizes, dtype, device)), None)


def install(verdict: Verdict) -> Kernel:
    """Install the kernel of a verdict; it replaces another one for the same.

    Raises:
        ValueError: if the verdict is not that the kernel is right and faster.
    """
    if not verdict.is_faster or verdict.race is None:
        raise ValueError(
            f"only a kernel that is judged faster is installed; this one: {verdict.text}"
        )
    candidate = verdict.candidate
    if verdict.source:  # a copy of what was judged, as the file may change or go
        copy = kernel_file(verdict.digest)
        state_files.replace(copy, verdict.source.encode())
        candidate = msgspec.structs.replace(candidate, place=str(copy))
    sizes = "x".join(str(n) for n in verdict.sizes.values())
    kernel = Kernel(
        f"{verdict.task}-{verdict.dtype}-{sizes}-{verdict.digest[:6]}", verdict.task,
        verdict.sizes, verdict.dtype, verdict.device, candidate,
        verdict.race.speedup.low, verdict.race.baseline, verdict.digest,
    )  # fmt: skip

    def added(contents: bytes) -> bytes:
        others = [
            k for k in _decode(contents)
            if not k.fits(kernel.task, kernel.sizes, kernel.dtype, kernel.device)
        ]  # fmt: skip
        return msgspec.json.encode([*others, kernel])

    state_files.replace(verdict_file(verdict.digest), encode(verdict))
    state_files.change(installed_file(), added)
    return kernel


def remove(name: str) -> Kernel:
    """Remove a kernel.

    Raises:
        KeyError: if none has this name.
    """
    removed: list[Kernel] = []

    def without(contents: bytes) -> bytes:
        held = _decode(contents)
        removed.extend(k for k in held if k.name == name)
        return msgspec.json.encode([k for k in held if k.name != name])

    left = _decode(state_files.change(installed_file(), without))
    if not removed:
        raise KeyError(name)
    if any(k.digest == removed[0].digest for k in left):
        return removed[0]  # the same code, installed for other sizes, needs the files
    for file in (verdict_file(removed[0].digest), kernel_file(removed[0].digest)):
        file.unlink(missing_ok=True)
    return removed[0]


def _decode(contents: bytes) -> list[Kernel]:
    return msgspec.json.decode(contents, type=list[Kernel]) if contents else []
