"""Handle requests to the model alone: completions, which nothing checks, and speed benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from assistant.host.context import RequestContext, current_settings
from assistant.host.package_speed import package_speed
from assistant.idle import Cancelled
from assistant.messages import (
    MAX_PROMPT_TOKENS,
    Benchmark,
    Completion,
    CompletionRequest,
    ModelSpeed,
    PromptTooLong,
    TokenRate,
    slow_note,
)
from scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

ROUNDS = 5
_DECODED, _PROMPT = 32, 256
"""Tokens of a round."""
_POLL_S = 0.2
_MAX_S = 20.0
"""The time for the rounds of each measurement. A slow model gets fewer rounds, at least one."""


def handle_completion(request: CompletionRequest, context: RequestContext) -> Completion:
    """Send the text that the model continues a prompt with, and return how it ended.

    Raises Cancelled, PromptTooLong, and UserError if no model is configured or it cannot be loaded.
    """
    began = time.monotonic()
    channel, settings = context.channel, current_settings()
    if not settings.model:
        raise UserError(
            "only the template is in use (setting model_folder), and it cannot continue a text. "
            "Choose a model: gpudeck models"
        )
    engine = context.residency.engine(settings, channel)
    from accel.rwkv.sampling import Sampler
    from assistant.engine.generate import Generation, prefill_or_restore

    def must_stop() -> bool:
        return context.must_stop(engine)

    tokens = engine.encode(request.prompt)
    if request.program and len(tokens) > MAX_PROMPT_TOKENS:
        raise PromptTooLong(
            f"the prompt has {len(tokens)} tokens; a program's prompt may have at most "
            f"{MAX_PROMPT_TOKENS}. Shorten it"
        )
    channel.emit_waiting(f"the model {engine.name} is reading the prompt")
    start = prefill_or_restore(engine.model, tokens, channel.checkpoint, must_stop)
    channel.emit_waiting(f"the model {engine.name} is writing{slow_note(engine.by)}")
    run = Generation(
        engine.model,
        engine.tokenizer,
        Sampler(request.temperature, request.top_p, request.seed),
        *start,
        limit=request.limit,
        cancelled=must_stop,
        stops=request.stop,
        checkpoint=channel.checkpoint,
    )
    for piece in run:
        channel.emit_text(piece)
    if run.reason == "cancelled":
        raise Cancelled
    reason: Literal["stop", "length"] = "length" if run.reason == "length" else "stop"
    return Completion(
        engine.name,
        engine.device,
        engine.by,
        reason,
        len(tokens),
        len(run.tokens),
        time.monotonic() - began,
    )


def handle_benchmark(request: Benchmark, context: RequestContext) -> ModelSpeed:
    """Load a model and time it. Raises Cancelled, and UserError if it cannot be loaded."""
    channel = context.channel
    settings = msgspec.structs.replace(
        current_settings(), model_folder=request.model, model_device=request.on
    )
    began = time.monotonic()
    engine = context.residency.engine(settings, channel)
    loaded = time.monotonic() - began

    def check() -> None:
        if context.must_stop(engine):
            raise Cancelled

    while not engine.settle():  # else this would time torch
        check()
        channel.emit_waiting("compiling the engine for this machine")
        time.sleep(_POLL_S)
    decode = _rate(
        lambda: _decode_seconds(engine, check),
        _DECODED,
        lambda n: channel.emit_waiting(f"timing decoding, round {n} of {ROUNDS}"),
    )
    prefill = _rate(
        lambda: _prefill_seconds(engine, check),
        _PROMPT,
        lambda n: channel.emit_waiting(f"timing prefill, round {n} of {ROUNDS}"),
    )
    beside = None
    if request.engine == "rwkv":
        channel.emit_waiting("timing the rwkv package")
        beside = package_speed(settings.model, request.on, check)
    parameters = engine.model.parameters
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


def _decode_seconds(engine: Engine, check: Callable[[], None]) -> float:
    """Return how long a round of greedy tokens takes, one after the other."""
    logits, state = engine.model.forward([0])
    began = time.perf_counter()
    for _ in range(_DECODED):
        check()
        logits, state = engine.model.forward([int(logits.argmax())], state)
    return time.perf_counter() - began


def _prefill_seconds(engine: Engine, check: Callable[[], None]) -> float:
    """Return how long a prompt takes."""
    tokens = [1 + (i * 37) % (engine.model.vocabulary - 1) for i in range(_PROMPT)]
    began = time.perf_counter()
    logits, _ = engine.model.forward(tokens, None, check)
    float(logits[0])  # waits until a GPU has computed it
    return time.perf_counter() - began
