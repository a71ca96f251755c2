"""What is asked of a language model, and the tokens of its answer.

Both the assistant's process and that of a served model speak of it. Free of torch and Qt.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gpudeck.accel.serving.request import Sampling


class Wanted(msgspec.Struct, frozen=True):
    """Describe the continuation of a chat or of a text."""

    sampling: Sampling = Sampling(temperature=0.0)
    limit: int = 0
    """The most tokens; 0: as many as fit."""
    messages: list[dict[str, Any]] | None = None
    """The chat; None: `prompt` is continued."""
    tools: list[dict[str, Any]] = []
    prompt: str = ""
    stops: tuple[str, ...] = ()
    grammar: Literal["", "json_schema", "regex", "lark"] = ""
    grammar_text: str = ""
    client: str = ""
    ignore_end: bool = False
    program: bool = False
    """A program asks. Requests of people go first, and those of programs pause meanwhile."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """Hold a token with the logarithm of its probability."""

    text: str
    logprob: float
    likely: tuple[tuple[str, float], ...] = ()


class Call(msgspec.Struct, frozen=True):
    """Hold a call of a function that the model asks for."""

    name: str
    arguments: str
    """JSON."""
    id: str
