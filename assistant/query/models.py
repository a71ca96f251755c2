"""Answer which models there are, which are served, and which fit."""

from __future__ import annotations

import math
from pathlib import Path

from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.memory import footprint
from gpudeck.assistant.library.model_list import listed_models
from gpudeck.assistant.library.running import running_models
from gpudeck.assistant.query.capacity import free_memory
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Note, Row, Rows, Value, number
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.snapshot import Snapshot

_BYTES_A_PARAMETER = {"16 bit": 2.0, "8 bit": 1.0, "4 bit": 0.5}
_FOR_WEIGHTS = 0.8
"""The share of the memory for weights; the rest is for the cache and the framework."""
_TRAINED = 16.0
"""Bytes a parameter for weights, gradients and the state of AdamW in mixed precision."""
_MOST_MODELS = 12
"""The most models whose fit is told."""


def models(query: Query, snapshot: Snapshot) -> Rows:
    """Return the models that the assistant can use, the one in use first; or those served."""
    if query.measure == "served":
        return _served(snapshot)
    if query.measure == "largest":
        return _needed(snapshot, query.amount) if query.amount else _largest(snapshot)
    rows = tuple(
        Row(f"model {model.name}", model.name, (model.parameters, model.problem or "usable"))
        for model in listed_models(snapshot.settings.model)
    )
    columns = (Column("parameters"), Column("state"))
    notes = (Note("model", (rows[0].label if snapshot.settings.model and rows else "",)),)
    source = phrase("models on this machine")
    return Rows("models", columns, rows, source, snapshot.time, notes=notes)


def _served(snapshot: Snapshot) -> Rows:
    rows = tuple(
        Row(f"model {model.name}", model.name, (model.port,)) for model in running_models()
    )
    notes = () if rows else (Note("none", ("models",)),)
    served = phrase("served models")
    return Rows("models", (Column("served"),), rows, served, snapshot.time, notes=notes)


def _needed(snapshot: Snapshot, parameters: float) -> Rows:
    """Return how many of the GPU with the most memory a model of so many parameters needs."""
    totals = [state.reading.values.get("mem_total", 0.0) for state in snapshot.devices
              if state.reading is not None]  # fmt: skip
    best = max(totals, default=0.0) * _FOR_WEIGHTS
    rows = tuple(
        Row(f"model {name}", name,
            (math.ceil(parameters * size / best) if best else None, parameters * size),
            ("no GPU", ""))
        for name, size in (_BYTES_A_PARAMETER | {"AdamW": _TRAINED}).items()
    )  # fmt: skip
    notes = (Note("needed", (parameters, len(totals))),)
    columns = (Column("needed", "GPUs"), Column("memory", "B"))
    return Rows("models", columns, rows, phrase("GPU memory"), snapshot.time, notes=notes)


def _largest(snapshot: Snapshot) -> Rows:
    """Return how many parameters fit into the GPU with the most free memory, by precision."""
    free = free_memory(snapshot)
    best = free[1] if free else None
    rows = tuple(
        Row(
            f"model {name}",
            name,
            (round(best * _FOR_WEIGHTS / size) if isinstance(best, int | float) else None,),
            ("no GPU",),
        )
        for name, size in _BYTES_A_PARAMETER.items()
    )
    notes = (*_fits(snapshot, free), Note("free", free)) if free else ()
    if snapshot.is_recorded:
        notes = (*notes, Note("replay", (snapshot.recording,)))
    columns = (Column("largest", "parameters"),)
    return Rows("models", columns, rows, phrase("free memory"), snapshot.time, notes=notes)


def _fits(snapshot: Snapshot, free: tuple[Value, ...]) -> tuple[Note, ...]:
    """Return a note for each model on the list: how it fits the GPU with the most free memory.

    That is what `gpudeck serve` would plan.
    """
    where, room = free[:2]
    found: list[Note] = []
    for model in listed_models(snapshot.settings.model)[:_MOST_MODELS]:
        try:
            needed = footprint(Path(model.path))
        except (ModelRefused, OSError):  # it is of a kind that is not served
            continue
        try:
            plan = needed.plan("cuda", round(number(room)))
        except ModelRefused:
            found.append(Note("fit", (model.name, where, needed.weight_bytes("cuda"), 0)))
        else:
            found.append(Note("fit", (model.name, where, plan.weights, plan.tokens)))
    return tuple(found)
