"""Describe models for the page and the command line."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.format.values import duration, memory, significant
from assistant.library.describe import Model
from assistant.messages import ModelSpeed, TokenRate
from scheduler.protocol.snapshot import Snapshot

if TYPE_CHECKING:
    from assistant.library.hub import FetchProgress

_LOADED_BEFORE_S = 0.05
"""A shorter time to load means that the model was loaded before."""
SMALL_MODEL_HELP = (
    "It answers questions about GPUs, jobs, waiting, energy, reports and housekeeping, and "
    "proposes actions on jobs."
)
"""The tasks of a small model."""


def parameters(model: Model) -> str:
    """Return the number of parameters, such as "14.2 M"; "–" if it is unknown."""
    count = model.parameters
    if not count:
        return "–"
    return f"{significant(count / 1e9)} B" if count >= 1e9 else f"{significant(count / 1e6)} M"


def is_used(model: Model, used: str) -> bool:
    """Return whether `used`, a path of the settings, is this model."""
    return bool(used) and model.path == str(Path(used).expanduser().absolute())


def state(model: Model, used: str) -> str:
    """Return whether the model is in use, or why it cannot be used."""
    return model.problem or ("in use" if is_used(model, used) else "")


def needs(model: Model, snapshot: Snapshot | None) -> str:
    """Return the memory that the assistant's model needs, and how much a GPU has free."""
    if not model.needs or model.family:
        return ""
    text = f"Needs {memory(model.needs['cpu'])} on the CPU, {memory(model.needs['cuda'])} on a GPU"
    free = [
        total - used
        for state in (snapshot.devices if snapshot else ())
        if state.device.kind == "nvidia" and not state.device.host and state.reading
        for total, used in [
            (state.reading.values.get("mem_total"), state.reading.values.get("mem_used"))
        ]
        if total is not None and used is not None
    ]
    if not free:
        return text
    enough = "" if max(free) > model.needs["cuda"] else ": too little"
    return f"{text} ({memory(max(free))} is free there now{enough})"


def facts(model: Model) -> list[tuple[str, str]]:
    """Return the size and the format of a model as captions and values; none if it is unknown."""
    if not model.layers:
        return []
    context = f"{model.footprint.context:,} tokens" if model.footprint else "any length"
    return [
        ("Parameters", parameters(model)),
        ("Precision", model.dtype),
        ("Context", context),
        ("Size on disk", memory(model.bytes)),
        ("Family", model.family or "RWKV-7"),
        ("Layers", f"{model.layers} × {model.channels}"),
        ("Vocabulary", f"{model.vocabulary:,}"),
        *([("Names of", model.dialect)] if model.dialect else []),
        *([("Chat", "no template")] if model.footprint and not model.chats else []),
    ]


def matches(model: Model, text: str) -> bool:
    """Return whether each word of `text` is in the name, the path or the facts of a model."""
    about = " ".join((model.name, model.path, *(value for _, value in facts(model)))).lower()
    return all(word in about for word in text.lower().split())


ORDERS: dict[str, Callable[[Model], tuple[float, str]]] = {
    "Name": lambda model: (0.0, model.name.lower()),
    "Largest first": lambda model: (-float(model.bytes), model.name.lower()),
    "Smallest first": lambda model: (float(model.bytes), model.name.lower()),
}
"""The orders in which models can be listed."""


def speed_text(speed: ModelSpeed) -> str:
    """Return the result of a benchmark in a line."""
    loaded = (
        f"loaded in {duration(speed.loaded)}"
        if speed.loaded >= _LOADED_BEFORE_S
        else "it was loaded already"
    )
    return f"on {speed.device}: {_rates(speed.decode, speed.prefill)}; {loaded}"


def package_text(speed: ModelSpeed) -> list[str]:
    """Return the line about the package that ran beside our engine; none if none did."""
    if (other := speed.beside) is None:
        return []
    times = " and ".join(
        f"{significant(ours.median / theirs.median)} times as fast as the package {what}"
        for what, ours, theirs in (
            ("at decoding", speed.decode, other.decode),
            ("at reading prompts", speed.prefill, other.prefill),
        )
    )
    line = f"{other.name} ({other.strategy}): {_rates(other.decode, other.prefill)}"
    return [line, f"our engine is {times}"]


def _rates(decode: TokenRate, prefill: TokenRate) -> str:
    return ", ".join(
        f"{what} {significant(rate.median)} tok/s "
        f"(from {significant(rate.low)} to {significant(rate.high)})"
        for what, rate in (("generation", decode), ("prompt processing", prefill))
    )


class Download:
    """Measure how far a download is, and how long it will still take."""

    def __init__(self, first: FetchProgress) -> None:
        self._began, self._first, self._now = time.monotonic(), first.done, first

    def update(self, progress: FetchProgress) -> None:
        """Take the newest progress."""
        self._now = progress

    @property
    def share(self) -> float:
        """Return the share that was downloaded, 0 to 1."""
        return self._now.done / max(self._now.total, 1)

    @property
    def text(self) -> str:
        """Return the file, the bytes and the time left."""
        now = self._now
        if now.checking:
            return f"Checking {now.file}"
        rate = (now.done - self._first) / max(time.monotonic() - self._began, 0.1)
        left = f", about {duration((now.total - now.done) / rate)} left" if rate > 0 else ""
        return f"Downloading {now.file}: {memory(now.done)} of {memory(now.total)}{left}"
