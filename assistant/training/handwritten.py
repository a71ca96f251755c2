"""Read requests that people typed, with the routes they need.

A model is judged by them, and never learns from them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from assistant.intents.masks import masked
from assistant.intents.normalize import plain

_FILE = Path(__file__).with_suffix(".jsonl")


class HandwrittenRequest(msgspec.Struct, frozen=True):
    """Hold a request as a person typed it, and the route it needs."""

    request: str
    route: str
    language: str = "en"


def handwritten() -> list[HandwrittenRequest]:
    """Return all requests."""
    return [
        msgspec.json.decode(line, type=HandwrittenRequest)
        for line in _FILE.read_bytes().splitlines()
    ]


def is_handwritten(request: str) -> bool:
    """Return True if a masked request is one of them, as a model reads it."""
    return plain(request) in _known()


@cache
def _known() -> frozenset[str]:
    return frozenset(plain(masked(asked.request)[0]) for asked in handwritten())
