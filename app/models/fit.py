"""Say whether a served model fits, on which device, and how many tokens its cache then holds."""

from __future__ import annotations

from typing import NamedTuple

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.memory import Footprint, Room
from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_noop, tr_text, tr_whole
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.library import recommended
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.snapshot import Snapshot

WEIGHTS = {
    tr_noop("as stored"): "auto",
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "int4",
}
"""The formats of weights by their names on the page, which are English and shown translated."""
CACHE = {tr_noop("as computed"): "auto", "fp8": "fp8", "int8": "int8"}
TOKENS = (0, 4096, 16384, 65536, 262144)
"""The sizes of the cache; 0: as many tokens as fit."""
PLACES = (tr_noop("a GPU while nobody needs it"), tr_noop("a GPU, as a job"), tr_noop("the CPU"))
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
        return tr(
            "{place}: {size} are free, and the cache can hold {tokens} tokens",
            place=self.place,
            size=memory(self.free),
            tokens=tr_whole(self.room.tokens),
        )

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Return the names and the bytes of what fills the memory, and of what stays free."""
        if self.room is None:
            return ()
        room = self.room
        used = (
            (tr("weights"), room.weights),
            (tr("working memory"), room.work),
            (tr("cache"), room.cache),
        )
        return (*used, (tr("stays free"), max(self.free - sum(size for _, size in used), 0)))


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
        return _fit_gpu(footprint, options, free_gpus(snapshot))
    recorded = any(state.device.kind == "replay" for state in devices)
    if place == JOB:
        waits = (
            tr("the GPUs shown are recordings, so the job would wait")
            if recorded
            else tr("this machine has no GPU, so the job would wait")
        )
        return Fit("GPU", 0, None, waits)
    if place == CPU:
        where = "CPU"
    elif recorded:
        where = tr("CPU, as a recording is shown")
    else:
        where = tr("CPU, as this machine has no GPU")
    return _fit(footprint, options, "cpu", where, host_free) if host_free else None


def _fit_gpu(footprint: Footprint, options: Options, gpus: list[tuple[int, str]]) -> Fit | None:
    if not gpus:
        return None
    free, where = max(gpus, key=lambda gpu: gpu[0])
    if len(gpus) > 1:
        where = tr("{gpu} (the most free of {number})", gpu=where, number=len(gpus))
    return _fit(footprint, options, "cuda", where, free)


def free_gpus(snapshot: Snapshot | None) -> list[tuple[int, str]]:
    """Return the free bytes and the name of each GPU of this machine."""
    gpus = recommended.free_gpus(snapshot.devices if snapshot else ())
    return [(free, gpu_place(device)) for free, device in gpus]


def gpu_place(device: Device) -> str:
    """Return how a GPU is called where a model runs on it."""
    return f"GPU {device.number} · {device.name}"


def _fit(footprint: Footprint, options: Options, device: str, place: str, free: int) -> Fit:
    if device == "cpu" and options.weights == "fp8":
        return Fit(place, free, None, tr("FP8 weights need a GPU"))
    try:
        room = footprint.plan(device, free, options.weights, options.cache, options.cache_tokens)
    except ModelRefused as e:
        return Fit(place, free, None, tr_text(e.message))
    return Fit(place, free, room)
