"""Answer which backend would compute attention on a GPU, by what was measured of such cards."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudeck.assistant.facts.phrases import plain
from gpudeck.assistant.query.attention_on_card import Shape, expect, is_installed
from gpudeck.assistant.query.devices import chosen
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Note, Row, Rows
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.devices import Device, card_name
from gpudeck.scheduler.protocol.snapshot import Snapshot, label

_DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16",
           "fp32": "float32", "float32": "float32", "fp64": "float64"}  # fmt: skip
_SIZE = r"\s*(?:=|:|of|von|de)?\s*"


def _number(said: str) -> int:
    """Return the number in what was said; `4k` are 4096."""
    return int("".join(filter(str.isdecimal, said))) * (1024 if said.endswith("k") else 1)


_SAID: dict[str, tuple[str, Callable[[str], int | str | bool]]] = {
    "dtype": (rf"\b(?:{'|'.join(_DTYPES)})\b", _DTYPES.__getitem__),
    "head_dim": (rf"\b(?:d|hdim|head[ _-]?(?:dim|size)){_SIZE}\d{{2,3}}\b", _number),
    "causal": (r"\b(?:(?:non|not|nicht|no)[ -])?(?:causal|kausal)e?\b",
               lambda said: said.startswith(("causal", "kausal"))),
    "seq": (rf"\b(?:seq(?:len|_len|uence)?|tokens|context|[ns]){_SIZE}\d{{2,7}}\b"
            r"|\b\d{2,7}\s?(?:tokens?|jetons|keys)\b|\b\d{1,4}\s?k\b", _number),
    "heads": (r"\b\d{1,3}\s?(?:heads|köpfen?|têtes|cabezas)\b", _number),
    "kv_heads": (r"\b\d{1,3}\s?kv\b", _number),
    "batch": (rf"\bbatch(?: ?size)?{_SIZE}\d{{1,4}}\b", _number),
}  # fmt: skip
"""How each part of a shape is written: `causal d=128 bf16 4k`."""
_PASSES = "forward", "backward"
_WITH_BF16 = (8, 0)
"""The first compute capability with bfloat16."""
_SHOWN = 3
"""Backends that are named where the order alone decides."""


def attention(query: Query, snapshot: Snapshot) -> Rows:
    """Return a row for each backend that may run, the one that would run first. Raises NotFound."""
    states, notes = chosen(query, snapshot)
    device = states[0].device
    card = card_name(device.name)
    alike = tuple(label(s.device) for s in states if card_name(s.device.name) == card)
    shape, said = shape_of(query.text)
    capability = _capability(device)
    if "dtype" not in said and capability is not None and (0, 0) < capability < _WITH_BF16:
        shape = shape._replace(dtype="float16")
    forward, backward = (expect(card, capability, shape, each) for each in _PASSES)
    passes = (query.measure,) if query.measure else _PASSES
    columns = tuple(Column(name, "TFLOP/s") for name in passes)
    found = forward if passes[0] == "forward" else backward
    rated = [name for name in found.backends if name in found.rates]
    why = phrase("not measured on such a card")
    rows = tuple(
        Row(f"name {name}", name, tuple(
            (forward if each == "forward" else backward).rates.get(name) for each in passes
        ), (why, why))
        for name in rated or found.backends[:_SHOWN]
    )  # fmt: skip
    lacking = tuple(name for name in found.rates if not is_installed(name))
    notes = (
        *notes,
        Note("card", (plain(card), forward.backends[0], backward.backends[0], *alike)),
        Note("basis", (found.basis, ", ".join(found.gpus))),
        Note("shape", tuple(shape)),
        Note("said", said),
        *([Note("not installed", lacking)] if lacking else []),
    )
    source = phrase("measurements of attention")
    return Rows("attention", columns, rows, source, snapshot.time, notes=notes)


def shape_of(text: str) -> tuple[Shape, tuple[str, ...]]:
    """Return the shape that a text tells, such as `causal d=128 bf16 4k`, and which parts it tells;
    the others are assumed."""
    told: dict[str, int | str | bool] = {}
    for name, (pattern, read) in _SAID.items():
        if found := re.search(pattern, text.casefold()):
            told[name] = read(found[0])
    heads = told.get("heads", Shape().heads)
    shape = Shape()._replace(**({"kv_heads": heads} if "heads" in told else {}) | told)  # type: ignore[arg-type]
    sizes = shape.head_dim, shape.seq, shape.heads, shape.kv_heads, shape.batch
    if min(sizes) < 1 or shape.heads % shape.kv_heads:
        return Shape(), ()
    return shape, tuple(told)


def _capability(device: Device) -> tuple[int, int] | None:
    """Return the compute capability of a device; None for a CPU."""
    major, _, minor = str(device.facts.get("compute capability", "")).partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return None if device.kind == "cpu" else (0, 0)
    return int(major), int(minor)
