"""Answer which versions of the software run here. Nothing is imported to find them."""

from __future__ import annotations

from importlib import metadata

from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Row, Rows, Value
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.version import VERSION

_BESIDE = {"cuda": ("cuda", "driver", "torch")}
"""The driver supports one version of CUDA, and torch brings another."""
_FACTS = {"driver": "driver", "cuda": "CUDA"}
"""What devices report of themselves."""


def versions(query: Query, snapshot: Snapshot) -> Rows:
    """Return a row for each version: those that a program's depends on, or all."""
    every = tuple(SUBJECTS["versions"].measures)
    names = _BESIDE.get(query.measure, (query.measure,)) if query.measure else every
    found = {name: _version(name, snapshot) for name in names}
    rows = tuple(
        Row(f"version {name}", SUBJECTS["versions"].measures[name].title, (value,), (why,))
        for name, (value, why) in found.items()
    )
    source = phrase("the devices and the installed packages")
    return Rows("versions", (Column("version"),), rows, source, snapshot.time)


def _version(name: str, snapshot: Snapshot) -> tuple[Value, Message]:
    """Return the version of a program, or why none is known."""
    if name == "gpudeck":
        return VERSION, ""
    if fact := _FACTS.get(name):
        said = (state.device.facts.get(fact) for state in snapshot.devices)
        known = dict.fromkeys(str(one) for one in said if one)
        return (", ".join(known), "") if known else (None, "not reported by this device")
    try:
        return metadata.version(name), ""
    except metadata.PackageNotFoundError:
        return None, phrase("not installed beside GPU Deck")
