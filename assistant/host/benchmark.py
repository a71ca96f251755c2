"""How fast a model is on this machine: tokens a second of decoding and of reading a prompt, measured where answers are written."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from assistant.host.context import RequestContext
from assistant.host.model_residency import ModelResidency
from assistant.idle import Cancelled
from assistant.messages import Benchmark, ModelSpeed, TokenRate
from scheduler.client import Client

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

ROUNDS = 5
DECODED, PROMPT = 32, 256
"""Tokens of a round."""
_LOOK_S = 0.2
_LONGEST_S = 20.0
"""For each of the two; a slow model has fewer rounds then, at least one."""


def benchmark(resident: ModelResidency, request: Benchmark, turn: RequestContext) -> ModelSpeed:
    """Load the model, and time it. Raises Cancelled, and UserError where it cannot be had."""
    with Client(start=False) as daemon:
        settings = daemon.snapshot().settings
    settings = msgspec.structs.replace(
        settings, model_folder=request.model, model_device=request.on
    )
    began = time.monotonic()
    engine = resident.engine(settings, turn)
    loaded = time.monotonic() - began

    def look() -> None:
        if turn.stop.is_set() or (engine.device == "cuda" and resident.evicted.is_set()):
            raise Cancelled

    while not engine.settle():  # or it would be torch's speed
        look()
        turn.waiting("waits until the engine is compiled for this machine")
        time.sleep(_LOOK_S)
    decode = _rate(
        lambda: _decode(engine, look),
        DECODED,
        lambda n: turn.waiting(f"decodes, round {n} of {ROUNDS}"),
    )
    prefill = _rate(
        lambda: _prefill(engine, look),
        PROMPT,
        lambda n: turn.waiting(f"reads a prompt, round {n} of {ROUNDS}"),
    )
    return ModelSpeed(engine.name, engine.device, engine.model.parameters, loaded, decode, prefill)


def _rate(run: Callable[[], float], tokens: int, tell: Callable[[int], None]) -> TokenRate:
    """Tokens a second over the rounds, after one that is not counted: caches are filled in it."""
    tell(1)
    run()
    rates: list[float] = []
    end = time.monotonic() + _LONGEST_S
    while len(rates) < ROUNDS and (not rates or time.monotonic() < end):
        tell(len(rates) + 1)
        rates.append(tokens / run())
    return TokenRate(statistics.median(rates), min(rates), max(rates), len(rates))


def _decode(engine: Engine, look: Callable[[], None]) -> float:
    """Seconds that so many greedy tokens take, one after the other."""
    logits, state = engine.model.forward([0])
    began = time.perf_counter()
    for _ in range(DECODED):
        look()
        logits, state = engine.model.forward([int(logits.argmax())], state)
    return time.perf_counter() - began


def _prefill(engine: Engine, look: Callable[[], None]) -> float:
    """Seconds that a prompt takes."""
    tokens = [1 + (i * 37) % (engine.model.vocabulary - 1) for i in range(PROMPT)]
    began = time.perf_counter()
    logits, _ = engine.model.forward(tokens, None, look)
    float(logits[0])  # a GPU has computed it only then
    return time.perf_counter() - began
