"""Say whether a model of the hub would fit this machine before it is downloaded. Free of Qt."""

from __future__ import annotations

from typing import NamedTuple

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr
from gpudeck.app.models.fit import free_gpus
from gpudeck.assistant.library.hub_search import HubModel
from gpudeck.scheduler.protocol.snapshot import Snapshot

_SPARE = 1.15
"""What a model needs beside its weights, as a factor: its cache, and room to compute in."""
_SMALLER = (("", 1.0), ("int8", 0.5), ("int4", 0.3))
"""Formats of weights, and the share of 16-bit weights that they take, with their scales."""


class HubFit(NamedTuple):
    """Say how a model would fit."""

    fits: bool
    text: str


def hub_fit(model: HubModel, snapshot: Snapshot | None, host_free: int) -> HubFit:
    """Return how a model fits the GPU with the most free memory, or else the host's memory.

    Args:
        snapshot: Of the devices.
        host_free: Bytes; 0 while they are unknown.
    """
    gpus = free_gpus(snapshot)
    free, place = max(gpus, default=(host_free, tr("the CPU")))
    if not free:
        return HubFit(True, "")
    for weights, share in _SMALLER:
        if model.bytes * share * _SPARE <= free:
            text = tr("fits {place}", place=place)
            if weights:
                text = tr("fits {place} with {weights} weights", place=place, weights=weights)
            return HubFit(True, text)
    need = memory(int(model.bytes * _SMALLER[-1][1] * _SPARE))
    return HubFit(
        False, tr("too large: needs {need}, {free} are free", need=need, free=memory(free))
    )
