"""How fast a model writes, told while it does. Free of torch and Qt."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 0.5
"""How often it is told."""
_FEWEST = 8
"""Tokens from which on there is a rate."""


class Pace:
    """`say` is called with a line, at most twice a second."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name, self._say = name, say
        self._began, self._told = 0.0, 0.0

    def count(self, tokens: int) -> None:
        """So many have been written so far."""
        now = time.monotonic()
        if not self._began:
            self._began = self._told = now
            self._first = tokens
        elif now - self._told >= EVERY_S and tokens - self._first >= _FEWEST:
            self._told = now
            rate = (tokens - self._first) / (now - self._began)
            self._say(f"the model {self._name} writes: {tokens} tokens, {rate:.3g} tok/s")
