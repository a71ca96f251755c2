"""Requests as people typed them, with the routes they need: what a model is judged by, and never learns from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from assistant.intents.masks import masked
from assistant.intents.normalize import plain

_FILE = Path(__file__).with_suffix(".jsonl")


class Asked(msgspec.Struct, frozen=True):
    """A request as a person typed it, and the route it needs."""

    request: str
    route: str
    language: str = "en"
    late: bool = False
    """Written after the grammar was last changed, and before any model of it was tried."""


def handwritten() -> list[Asked]:
    """All of them."""
    return [msgspec.json.decode(line, type=Asked) for line in _FILE.read_bytes().splitlines()]


def is_handwritten(request: str) -> bool:
    """Whether a masked request is one of them as a model reads it."""
    return plain(request) in _known()


@cache
def _known() -> frozenset[str]:
    return frozenset(plain(masked(asked.request)[0]) for asked in handwritten())
