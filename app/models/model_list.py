"""Describe models for the page and the command line."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpudeck.app.format.values import duration, memory, significant
from gpudeck.app.language.texts import tr, tr_noop, tr_whole
from gpudeck.assistant.host_protocol import ModelSpeed, TokenRate
from gpudeck.assistant.library.describe import Model
from gpudeck.assistant.library.recommended import free_gpus
from gpudeck.scheduler.protocol.snapshot import Snapshot

if TYPE_CHECKING:
    from gpudeck.assistant.library.hub import FetchProgress

_LOADED_BEFORE_S = 0.05
"""A shorter time to load means that the model was loaded before."""


def parameters(model: Model) -> str:
    """Return the number of parameters, such as "14.2 M"; "–" if it is unknown."""
    return count_text(model.parameters) if model.parameters else "–"


def count_text(count: int) -> str:
    """Return a number of parameters, such as "14.2 M"."""
    if count >= 1e9:
        return tr("{size} B", size=significant(count / 1e9))
    return tr("{size} M", size=significant(count / 1e6))


def is_used(model: Model, used: str) -> bool:
    """Return whether `used`, a path of the settings, is this model."""
    return bool(used) and model.path == str(Path(used).expanduser().absolute())


def state(model: Model, used: str) -> str:
    """Return whether the model is in use, or why it cannot be used."""
    return str(model.problem) or ("in use" if is_used(model, used) else "")


def needs(model: Model, snapshot: Snapshot | None) -> str:
    """Return the memory that the assistant's model needs, and how much a GPU has free."""
    if not model.needs or model.family:
        return ""
    cpu, gpu = memory(model.needs["cpu"]), memory(model.needs["cuda"])
    free = [size for size, _ in free_gpus(snapshot.devices if snapshot else ())]
    if not free:
        return tr("Needs {cpu} on the CPU, {gpu} on a GPU", cpu=cpu, gpu=gpu)
    most = memory(max(free))
    if max(free) > model.needs["cuda"]:
        return tr(
            "Needs {cpu} on the CPU, {gpu} on a GPU ({free} is free there now)",
            cpu=cpu,
            gpu=gpu,
            free=most,
        )
    return tr(
        "Needs {cpu} on the CPU, {gpu} on a GPU ({free} is free there now: too little)",
        cpu=cpu,
        gpu=gpu,
        free=most,
    )


def facts(model: Model) -> list[tuple[str, str]]:
    """Return the size and the format of a model as captions and values; none if it is unknown."""
    if not model.layers:
        return []
    context = (
        tr("{tokens} tokens", tokens=tr_whole(model.footprint.context))
        if model.footprint
        else tr("any length")
    )
    return [
        (tr("Parameters"), parameters(model)),
        (tr("Precision"), model.dtype),
        (tr("Context"), context),
        (tr("Size on disk"), memory(model.bytes)),
        (tr("Family"), model.family or "RWKV-7"),
        (tr("Layers"), f"{model.layers} × {model.channels}"),
        (tr("Vocabulary"), tr_whole(model.vocabulary)),
        *([(tr("Chat"), tr("no template"))] if model.footprint and not model.chats else []),
    ]


def matches(model: Model, text: str) -> bool:
    """Return whether each word of `text` is in the name, the path or the facts of a model."""
    about = " ".join((model.name, model.path, *(value for _, value in facts(model)))).lower()
    return all(word in about for word in text.lower().split())


ORDERS: dict[str, Callable[[Model], tuple[float, str]]] = {
    tr_noop("Sort by name"): lambda model: (0.0, model.name.lower()),
    tr_noop("Largest first"): lambda model: (-float(model.bytes), model.name.lower()),
    tr_noop("Smallest first"): lambda model: (float(model.bytes), model.name.lower()),
}
"""The orders in which models can be listed, by their English names."""


def speed_text(speed: ModelSpeed) -> str:
    """Return the result of a benchmark in a line."""
    rates = _rates(speed.decode, speed.prefill)
    if speed.loaded < _LOADED_BEFORE_S:
        return tr("on {device}: {rates}; it was loaded already", device=speed.device, rates=rates)
    return tr(
        "on {device}: {rates}; loaded in {time}",
        device=speed.device,
        rates=rates,
        time=duration(speed.loaded),
    )


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
        tr(
            "{what} {rate} tok/s (from {low} to {high})",
            what=what,
            rate=significant(rate.median),
            low=significant(rate.low),
            high=significant(rate.high),
        )
        for what, rate in ((tr("generation"), decode), (tr("prompt processing"), prefill))
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
            return tr("Checking {file}", file=now.file)
        rate = (now.done - self._first) / max(time.monotonic() - self._began, 0.1)
        done, total = memory(now.done), memory(now.total)
        if rate <= 0:
            return tr(
                "Downloading {file}: {done} of {total}", file=now.file, done=done, total=total
            )
        return tr(
            "Downloading {file}: {done} of {total}, about {time} left",
            file=now.file,
            done=done,
            total=total,
            time=duration((now.total - now.done) / rate),
        )
