"""A completion: what the model makes of a prompt, for the endpoint that other programs use. Unlike an answer, nothing checks it."""

from __future__ import annotations

import time
from typing import Literal

from assistant.host.context import RequestContext
from assistant.host.model_residency import ModelResidency
from assistant.idle import Cancelled
from assistant.messages import (
    MAX_PROMPT_TOKENS,
    Completion,
    CompletionRequest,
    PromptTooLong,
    slow_note,
)
from scheduler.client import Client
from scheduler.protocol.errors import UserError


def complete(
    resident: ModelResidency, request: CompletionRequest, turn: RequestContext
) -> Completion:
    """Tell the text piece by piece, and then how it ended.

    Raises Cancelled, PromptTooLong, and UserError where there is no model that could.
    """
    began = time.monotonic()
    with Client(start=False) as daemon:
        settings = daemon.snapshot().settings
    if not settings.model:
        raise UserError(
            "the template is to write (setting model_folder), and it answers nothing else. Choose a model: gpudeck models"
        )
    engine = resident.engine(settings, turn)
    from accel.rwkv.sampling import Sampler
    from assistant.engine.generate import Generation, begun

    def stopped() -> bool:
        return turn.stop.is_set() or (engine.device == "cuda" and resident.evicted.is_set())

    tokens = engine.encode(request.prompt)
    if request.program and len(tokens) > MAX_PROMPT_TOKENS:
        raise PromptTooLong(
            f"the prompt has {len(tokens)} tokens, and at most {MAX_PROMPT_TOKENS} are read for a program: leave some of it out"
        )
    turn.waiting(f"the model {engine.name} reads the prompt")
    after = begun(engine.model, tokens, turn.checkpoint, stopped)
    turn.waiting(f"the model {engine.name} writes{slow_note(engine.by)}")
    run = Generation(
        engine.model,
        engine.tokenizer,
        Sampler(request.temperature, request.top_p, request.seed),
        *after,
        limit=request.limit,
        cancelled=stopped,
        stops=request.stop,
        checkpoint=turn.checkpoint,
    )
    for piece in run:
        turn.wrote(piece)
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
