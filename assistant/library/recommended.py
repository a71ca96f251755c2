"""Recommend the released RWKV-7 that fits this machine, with the speed that its memory allows.

Names, sizes, licences and languages are those of the models' pages on Hugging Face. Larger models
are released, too, but their sizes could not be confirmed, so they are not recommended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from gpudeck.accel.runtime.peaks import peak_bandwidth
from gpudeck.accel.serving.memory import WORK_BYTES
from gpudeck.assistant.library.describe import BYTES
from gpudeck.language.numbers import amount
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.snapshot import DeviceState

_VOCABULARY = 65536
"""Tokens of the World vocabulary, which all these models have."""
_LANGUAGES = (
    phrase("English"), phrase("Chinese"), phrase("Japanese"), phrase("Korean"),
    phrase("French"), phrase("Arabic"), phrase("Spanish"), phrase("Portuguese"),
)  # fmt: skip


class Released(msgspec.Struct, frozen=True):
    """Describe a released RWKV-7."""

    name: str
    """OWNER/NAME on Hugging Face."""
    parameters: int
    channels: int
    bytes: int
    """What is downloaded, as the model's page rounds it."""
    license: str = "Apache-2.0"
    languages: tuple[Message, ...] = _LANGUAGES
    """The names of the languages that the model's page lists."""

    @property
    def most_bytes(self) -> int:
        """Return the most bytes that may be downloaded where `bytes` were offered."""
        return self.bytes * 21 // 20

    def needs(self, device: Literal["cpu", "cuda"]) -> int:
        """Return the bytes that the model takes in the memory of a device."""
        return self.parameters * BYTES[device] + WORK_BYTES[device]

    def read(self, device: Literal["cpu", "cuda"]) -> int:
        """Return the bytes of weights that a token reads: all but the embedding's other rows."""
        return (self.parameters - _VOCABULARY * self.channels) * BYTES[device]


RELEASED = (
    Released("fla-hub/rwkv7-2.9B-world", 2_947_735_040, 2560, 11_460_000_000),
    Released("fla-hub/rwkv7-1.5B-world", 1_527_404_544, 2048, 6_110_000_000),
    Released("fla-hub/rwkv7-0.4B-g1", 450_767_872, 1024, 903_000_000),
)
"""From the largest to the smallest."""


class Recommendation(NamedTuple):
    """Name the model that fits, and where it would run."""

    model: Released
    gpu: Device | None
    """None: the CPU."""
    speed: float = 0.0
    """The most tokens a second that the bandwidth of the GPU's memory allows; 0: not known."""

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Return the value of the setting `model_device`."""
        return "cpu" if self.gpu is None else "cuda"


def recommend(devices: Iterable[DeviceState], host_free: int) -> Recommendation | Message:
    """Return the largest model that fits the GPU with the most free memory.

    Where none fits a GPU, it is the smallest one, on the CPU: larger ones read more for each token.
    Return the reason where that does not fit, either.

    Args:
        devices: What the daemon reads.
        host_free: Bytes of the host's memory that are free.
    """
    free, gpu = max(free_gpus(devices), key=lambda one: one[0], default=(0, None))
    for model in RELEASED:
        if gpu is not None and model.needs("cuda") <= free:
            speed = (peak_bandwidth(gpu.name) or 0.0) / model.read("cuda")
            return Recommendation(model, gpu, speed)
    smallest = RELEASED[-1]
    if smallest.needs("cpu") <= host_free:
        return Recommendation(smallest, None)
    return phrase(
        "No RWKV-7 fits this machine: {model} needs {need} of memory, and {free} are free.",
        model=smallest.name,
        need=amount(smallest.needs("cpu")),
        free=amount(host_free),
    )


def free_gpus(devices: Iterable[DeviceState]) -> list[tuple[int, Device]]:
    """Return the free bytes of each GPU or MIG instance of this machine that programs can use."""
    found = []
    for state in devices:
        device = state.device
        if device.kind != "nvidia" or device.host or device.mig or state.reading is None:
            continue
        total, used = (state.reading.values.get(name) for name in ("mem_total", "mem_used"))
        if total is not None and used is not None:
            found.append((int(total - used), device))
    return found
