"""Translate texts that another package words in English from values, by their patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gpudeck.app.language.texts import language, tr, tr_decimal, tr_sentence, tr_whole, translating

_TEXTS = frozenset({"why", "what", "rest"})
_NUMBERS = frozenset({"figures", "mean", "low", "high", "size", "forward", "training"})
_DEPTH, _MOST_KEPT = 4, 1024


class Patterns:
    """Recognise texts by patterns, which the catalogues translate.

    The parts of a pattern are names in braces. Those called `why`, `what` and `rest` are texts of
    the same patterns, or sentences of the scheduler; numbers are written as in the language, and
    the other parts stay as they are.
    """

    def __init__(self, patterns: Sequence[str], shapes: Mapping[str, str] | None = None) -> None:
        """Use these patterns, the more specific first.

        Args:
            shapes: The regular expressions of parts that are not just any text.
        """
        self._patterns = tuple(patterns)
        self._shapes = dict(shapes or {})
        self._expressions: tuple[re.Pattern[str], ...] = ()
        self._cached = lru_cache(maxsize=_MOST_KEPT)(lambda text, _: self._translated(text, _DEPTH))
        """The texts that were translated last, by text and language."""

    def translated(self, text: str) -> str:
        """Return a text in the window's language; it stays in English if no pattern fits it."""
        return self._cached(text, language()) if translating() else text

    def _translated(self, text: str, depth: int) -> str:
        if not self._expressions:
            self._expressions = tuple(map(self._expression, self._patterns))
        for pattern, expression in zip(self._patterns, self._expressions, strict=True):
            if depth and (found := expression.fullmatch(text)) is not None:
                parts = found.groupdict()
                return tr(pattern, **{name: self._part(name, parts[name], depth) for name in parts})
        return tr_sentence(text)

    def _part(self, name: str, value: str, depth: int) -> str:
        if name in _TEXTS:
            return self._translated(value, depth - 1)
        if name == "tokens":
            return tr_whole(int(value.replace(",", "")))
        return tr_decimal(value) if name in _NUMBERS else value

    def _expression(self, pattern: str) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", pattern)
        whole = "".join(
            f"(?P<{part}>{self._shapes.get(part, '.+?')})" if at % 2 else re.escape(part)
            for at, part in enumerate(parts)
        )
        return re.compile(whole, re.DOTALL)
