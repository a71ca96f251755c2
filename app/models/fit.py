"""Say whether a served model fits, on which device, and how many tokens its cache then holds."""

from __future__ import annotations

from typing import NamedTuple

from accel.serving.errors import ModelRefused
from accel.serving.memory import Footprint, Room
from app.format.values import memory
from assistant.inference.messages import Options
from scheduler.protocol.snapshot import Snapshot

WEIGHTS = {
    "as stored": "auto",
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4",
}
"""The formats of weights by their names on the page."""
CACHE = {"as computed": "auto", "fp8": "fp8", "int8": "int8"}
TOKENS = {"as many as fit": 0, "4,096": 4096, "16,384": 16384, "65,536": 65536, "262,144": 262144}
PLACES = ("a GPU while nobody needs it", "a GPU, as a job", "the CPU")
"""Where a model may be served; see `gpudeck serve --as`."""
LEASE, JOB, CPU = PLACES


class Fit(NamedTuple):
    """Say how a model would fill the free memory of a device."""

    place: str
    free: int
    """Bytes."""
    room: Room | None
    """What it needs; None: it does not fit."""
    problem: str = ""

    @property
    def text(self) -> str:
        """Return the fit in a line."""
        if self.room is None:
            return f"{self.place}: {self.problem}"
        return (
            f"{self.place}: {memory(self.free)} are free, and the cache can hold "
            f"{self.room.tokens:,} tokens"
        )

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Return the names and the bytes of what fills the memory, and of what stays free."""
        if self.room is None:
            return ()
        room = self.room
        used = (("weights", room.weights), ("to compute with", room.work), ("cache", room.cache))
        return (*used, ("stays free", max(self.free - sum(size for _, size in used), 0)))


def fit(
    footprint: Footprint, options: Options, place: str, snapshot: Snapshot | None, host_free: int
) -> Fit | None:
    """Return how a model fits where it is to be served; None while that is not known.

    On GPUs that is the one with the most free memory.

    Args:
        footprint: Of the model.
        options: The formats and the size of the cache.
        place: One of PLACES.
        snapshot: Of the devices.
        host_free: Bytes; 0 while they are unknown.
    """
    devices = snapshot.devices if snapshot else ()
    if place != CPU and any(state.device.kind == "nvidia" for state in devices):
        return _fit_gpu(footprint, options, _gpus(snapshot))
    recorded = any(state.device.kind == "replay" for state in devices)
    why = "the GPUs shown are recordings" if recorded else "this machine has no GPU"
    if place == JOB:
        return Fit("GPU", 0, None, f"{why}, so the job would wait")
    where = "CPU" if place == CPU else f"CPU, as {why}"
    return _fit(footprint, options, "cpu", where, host_free) if host_free else None


def _fit_gpu(footprint: Footprint, options: Options, gpus: list[tuple[int, str]]) -> Fit | None:
    if not gpus:
        return None
    free, where = max(gpus, key=lambda gpu: gpu[0])
    if len(gpus) > 1:
        where = f"{where} (the most free of {len(gpus)})"
    return _fit(footprint, options, "cuda", where, free)


def _gpus(snapshot: Snapshot | None) -> list[tuple[int, str]]:
    """Return the free bytes and the name of each GPU of this machine."""
    found = []
    for state in snapshot.devices if snapshot else ():
        if state.device.kind != "nvidia" or state.device.host or state.reading is None:
            continue
        total, used = (state.reading.values.get(name) for name in ("mem_total", "mem_used"))
        if total is not None and used is not None:
            place = f"GPU {state.device.index} · {state.device.name}"
            found.append((int(total - used), place))
    return found


def _fit(footprint: Footprint, options: Options, device: str, place: str, free: int) -> Fit:
    if device == "cpu" and options.weights == "fp8":
        return Fit(place, free, None, "FP8 weights need a GPU")
    try:
        room = footprint.plan(device, free, options.weights, options.cache, options.cache_tokens)
    except ModelRefused as e:
        return Fit(place, free, None, str(e))
    return Fit(place, free, room)
