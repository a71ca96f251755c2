"""Handle requests to the model alone: completions, which nothing checks, and speed benchmarks."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import msgspec

from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.host.channel import RequestChannel
from gpudeck.assistant.host.context import RequestContext, current_settings
from gpudeck.assistant.host.package_speed import package_speed
from gpudeck.assistant.host_protocol import (
    Benchmark,
    Completion,
    CompletionRequest,
    ModelSpeed,
    PromptTooLong,
    TokenRate,
    WantedRefused,
)
from gpudeck.assistant.inference.engine_requests import engine_request, tokens_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from gpudeck.accel.serving.request import Request
    from gpudeck.assistant.engine.engine import Engine

Check = Callable[[], bool]
"""Returns True once the work must stop."""
_MOST_TOKENS = 8192
"""Tokens of an answer whose request names no limit."""
ROUNDS = 5
_DECODED, _PROMPT = 32, 256
"""Tokens of a round."""
_MAX_S = 20.0
"""The time for the rounds of each measurement. A slow model gets fewer rounds, at least one."""


def handle_completion(request: CompletionRequest, context: RequestContext) -> Completion:
    """Send the text that the model writes, and return how it ended.

    Raises Cancelled, PromptTooLong, WantedRefused, and UserError if no model is configured, it
    cannot be loaded, or it fails.
    """
    began = time.monotonic()
    channel, settings, wanted = context.channel, current_settings(), request.wanted
    if not settings.model:
        raise UserError(
            phrase(
                "only the template is in use (setting model_folder), and it cannot "
                "continue a text. Choose a model: gpudeck models"
            )
        )
    engine = context.residency.engine(settings, channel)
    from gpudeck.accel.serving.request import Ended

    channel.emit_waiting(phrase("the model {name} is reading the prompt", name=engine.name))
    asked = _engine_request(engine, wanted, channel)
    ended, writing = Ended("error"), False
    for event in engine.answer(asked, lambda: context.must_stop(engine)):
        if isinstance(event, Ended):
            ended = event
            continue
        if not writing:
            channel.emit_waiting(phrase("the model {name} is writing", name=engine.name))
            writing = True
        if event.choices:
            channel.checkpoint.add([choice.token for choice in event.choices])
        channel.emit_text(event.text, tokens_of(engine.serving, wanted, event))
    if ended.reason == "error":
        raise UserError(ended.message)
    reason: Literal["stop", "length"] = "length" if ended.reason == "length" else "stop"
    return Completion(
        engine.name, engine.device, reason, ended.prompt_tokens - asked.begun,
        ended.tokens, time.monotonic() - began, min(ended.cached_tokens, asked.written[0]),
    )  # fmt: skip


def _engine_request(engine: Engine, wanted: Wanted, channel: RequestChannel) -> Request:
    """Return the request to the engine, with what an earlier process has written of its answer.

    Raises PromptTooLong and WantedRefused.
    """
    from gpudeck.accel.serving.errors import RequestRefused, TooLong

    try:
        asked = engine_request(engine.serving, wanted)
    except TooLong as e:
        raise PromptTooLong(str(e)) from e
    except RequestRefused as e:
        raise WantedRefused(str(e)) from e
    prompt, written = asked.prompt, list[int]()
    channel.checkpoint.begin(prompt, engine.network.identity)
    while piece := channel.checkpoint.next_piece():
        written += piece
    return replace(
        asked, prompt=(*prompt, *written), written=(len(prompt), len(prompt) + len(written)),
        limit=min(asked.limit, wanted.limit or _MOST_TOKENS),
    )  # fmt: skip


def handle_benchmark(request: Benchmark, context: RequestContext) -> ModelSpeed:
    """Load a model and time it. Raises Cancelled, and UserError if it cannot be loaded."""
    channel = context.channel
    settings = msgspec.structs.replace(
        current_settings(), model_folder=request.model, model_device=request.on
    )
    began = time.monotonic()
    engine = context.residency.engine(settings, channel)
    loaded = time.monotonic() - began

    def must_stop() -> bool:
        return context.must_stop(engine)

    decode = _rate(
        lambda: _decode_seconds(engine, must_stop),
        _DECODED,
        lambda n: channel.emit_waiting(
            phrase("timing decoding, round {n} of {limit}", n=n, limit=ROUNDS)
        ),
    )
    begins = itertools.count()
    prefill = _rate(
        lambda: _prefill_seconds(engine, next(begins), must_stop),
        _PROMPT,
        lambda n: channel.emit_waiting(
            phrase("timing prefill, round {n} of {limit}", n=n, limit=ROUNDS)
        ),
    )
    beside = None
    if request.engine == "rwkv":
        channel.emit_waiting(phrase("timing the package {name}", name="rwkv"))
        beside = package_speed(settings.model, request.on, channel.raise_if_cancelled)
    parameters = engine.network.parameters
    return ModelSpeed(engine.name, engine.device, parameters, loaded, decode, prefill, beside)


def _rate(run: Callable[[], float], tokens: int, progress: Callable[[int], None]) -> TokenRate:
    """Return tokens per second over the rounds, after a first run that fills caches."""
    progress(1)
    run()
    rates: list[float] = []
    end = time.monotonic() + _MAX_S
    while len(rates) < ROUNDS and (not rates or time.monotonic() < end):
        progress(len(rates) + 1)
        rates.append(tokens / run())
    return TokenRate(statistics.median(rates), min(rates), max(rates), len(rates))


def _seconds(engine: Engine, prompt: Sequence[int], tokens: int, check: Check) -> float:
    """Return how long an answer of so many greedy tokens takes."""
    from gpudeck.accel.serving.request import Request, Sampling

    request = Request(tuple(prompt), tokens, Sampling(temperature=0), ignore_end=True)
    began = time.perf_counter()
    for _ in engine.answer(request, check):
        pass
    return time.perf_counter() - began


def _decode_seconds(engine: Engine, check: Check) -> float:
    """Return how long a round of tokens takes, one after the other."""
    whole = _seconds(engine, [0], _DECODED + 1, check)
    return max(whole - _seconds(engine, [0], 1, check), 1e-9)


def _prefill_seconds(engine: Engine, first: int, check: Check) -> float:
    """Return how long a prompt takes that begins like no other."""
    tokens = [1 + (first + i * 37) % (engine.network.vocabulary - 1) for i in range(_PROMPT)]
    return _seconds(engine, tokens, 1, check)
