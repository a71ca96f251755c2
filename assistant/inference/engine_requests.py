"""What is asked of a language model, as requests to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudeck.assistant.completion import Token, Wanted

if TYPE_CHECKING:
    from gpudeck.accel.serving.engine import Engine
    from gpudeck.accel.serving.request import Piece, Request


def engine_request(engine: Engine, wanted: Wanted) -> Request:
    """Return a request to the engine. Raises RequestRefused."""
    from gpudeck.accel.serving.errors import RequestRefused
    from gpudeck.accel.serving.request import Grammar, Request

    text = wanted.prompt
    if wanted.messages is not None:
        if engine.template is None:
            raise RequestRefused(
                "this model has no chat template. Use /v1/completions to continue a text"
            )
        text = engine.template.render(wanted.messages, wanted.tools)
    prompt = engine.tokenizer.encode(text, engine.context - 1, special=wanted.messages is None)
    room = engine.context - len(prompt)
    grammar = Grammar(wanted.grammar, wanted.grammar_text) if wanted.grammar else None
    return Request(
        tuple(prompt), min(wanted.limit or room, room),
        wanted.sampling, wanted.stops + (engine.chat_stops if wanted.messages else ()), grammar,
        int(wanted.program), wanted.client, wanted.ignore_end,
    )  # fmt: skip


def tokens_of(engine: Engine, wanted: Wanted, piece: Piece) -> tuple[Token, ...]:
    """Return the tokens of a piece, if their probabilities were asked for."""
    if wanted.sampling.logprobs < 0:
        return ()

    def name(token: int) -> str:
        return engine.tokenizer.decode([token]) or engine.tokenizer.bytes_of(token)

    return tuple(
        Token(name(c.token), c.logprob, tuple((name(t), logprob) for t, logprob in c.likely))
        for c in piece.choices
    )
