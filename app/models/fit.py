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
        room = self.room
        return (
            f"{self.place}: weights {memory(room.weights)} and a cache for {room.tokens:,} tokens "
            f"{memory(room.cache)}, of {memory(self.free)} that are free"
        )


def fits(
    footprint: Footprint, options: Options, snapshot: Snapshot | None, host_free: int
) -> list[Fit]:
    """Return how a model fits the GPU with the most free memory, and the host's memory.

    Args:
        footprint: Of the model.
        options: The formats and the size of the cache.
        snapshot: Of the devices.
        host_free: Bytes; 0 while they are unknown.
    """
    gpus = _gpus(snapshot)
    found = []
    if gpus:
        free, place = max(gpus, key=lambda gpu: gpu[0])
        if len(gpus) > 1:
            place = f"{place} (the most free of {len(gpus)})"
        found.append(_fit(footprint, options, "cuda", place, free))
    if host_free:
        found.append(_fit(footprint, options, "cpu", "CPU", host_free))
    return found


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
