"""Constrain answers to a JSON schema, a regular expression or a grammar, by llguidance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.serving.errors import RequestRefused
from gpudeck.accel.serving.request import Grammar
from gpudeck.accel.serving.world import Vocabulary

_MOST_TEXT = 2**17


class Grammars:
    """Compile grammars for one tokenizer, which is prepared at the first use."""

    def __init__(self, tokenizer: Vocabulary, vocabulary: int, ends: tuple[int, ...]) -> None:
        self._tokenizer, self._vocabulary, self._ends = tokenizer, vocabulary, list(ends)
        self._prepared: Any = None

    def matcher(self, grammar: Grammar) -> Matcher:
        """Return what follows an answer. Raises RequestRefused for a grammar that is none."""
        if len(grammar.text) > _MOST_TEXT:
            raise RequestRefused(f"the {grammar.kind} has more than {_MOST_TEXT} characters")
        if not self._ends:
            raise RequestRefused("the model names no token that ends a text (eos_token_id)")
        from llguidance import LLMatcher, LLTokenizer  # only for who asks for a grammar

        try:
            source = _source(LLMatcher, grammar)
            if self._prepared is None:
                vocabulary = self._tokenizer.grammar_source(self._ends, self._vocabulary)
                self._prepared = LLTokenizer(
                    vocabulary, n_vocab=self._vocabulary, eos_token=self._ends
                )
            made = LLMatcher(self._prepared, source)
        except (ValueError, TypeError, RuntimeError) as e:
            raise RequestRefused(f"the {grammar.kind} cannot be used: {_line(e)}") from e
        if made.is_error():
            raise RequestRefused(f"the {grammar.kind} cannot be used: {_line(made.get_error())}")
        return Matcher(made, self._vocabulary)


class Matcher:
    """Follow one answer."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def allowed(self) -> Tensor:
        """Return the tokens [V] that may come next, as bool."""
        bits = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        spread = (bits.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8)) & 1
        return spread.flatten()[: self._vocabulary].bool()

    def add(self, token: int) -> None:
        """Go on after a token that was allowed."""
        self._matcher.consume_token(token)

    @property
    def finished(self) -> bool:
        """Return True if nothing can follow."""
        return bool(self._matcher.is_stopped())


def _source(make: Any, grammar: Grammar) -> str:
    """Return a grammar as llguidance writes it; JSON has no more white space than it needs."""
    match grammar.kind:
        case "json_schema":
            tight: Any = {"whitespace_flexible": False}
            return str(make.grammar_from_json_schema(grammar.text, overrides=tight))
        case "regex":
            return str(make.grammar_from_regex(grammar.text))
        case "lark":
            return str(make.grammar_from_lark(grammar.text))


def _line(reason: object) -> str:
    return " ".join(str(reason).split())[:200]
