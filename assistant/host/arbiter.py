"""Have a language model read a request that the encoder cannot read.

The model is the assistant's own, if it is large enough and its device is free at once, or else a
model that the user serves. It writes a query or an order as JSON, bound by a grammar.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from gpudeck.assistant.engine.prompts import prompt
from gpudeck.assistant.host.context import RequestContext
from gpudeck.assistant.host_protocol import Chunk, Event
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.library.describe import describe, name_of
from gpudeck.assistant.query.request import Request
from gpudeck.assistant.query.table import ROWS, VERBS
from gpudeck.assistant.query.written import read_request, request_schema
from gpudeck.assistant.serve.client import ServedChat, served_models
from gpudeck.assistant.serve.control_messages import Served
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings

PATIENCE_S = 20.0
"""A model that takes longer is given up."""
_TOKENS = 400
"""The most tokens of a query or an order."""
_TASK = (
    "Write what a request to a program for GPUs and a queue of jobs asks for, as one line of "
    f"JSON: a question with a subject ({', '.join(ROWS)}) or an order with a verb "
    f"({', '.join(VERBS)}). Write only what the request says. If it is neither, write "
    '{"unknown":true}.'
)
_EXAMPLES = (
    ("how hot is gpu 3", '{"subject":"devices","measure":"temp","devices":[3]}'),
    ("warum geht 12 nicht los", '{"subject":"jobs","measure":"reason","jobs":[12]}'),
    ("qui a le plus consommé hier", '{"subject":"jobs","measure":"energy","aggregate":"max",'
                                    '"last_hours":24}'),
    ("para el 7, por favor", '{"verb":"cancel","jobs":[7]}'),
    ("run python eval.py on two gpus, 4h at most",
     '{"verb":"submit","command":"python eval.py","options":{"gpus":"2","timeout":"4h"}}'),
    ("sing me a song", '{"unknown":true}'),
)  # fmt: skip


class Arbitration(NamedTuple):
    """Hold what a language model made of a request."""

    model: str
    request: Request | None
    problem: Message = ""
    """Why there is no request."""


def ask_model(text: str, before: Request | None, context: RequestContext,
              settings: Settings) -> Arbitration | None:  # fmt: skip
    """Return what a language model reads in a request; None if there is no such model.

    Args:
        text: The request as it was typed. The model sees nothing else of the machine.
        before: The last request of the conversation.
        context: The context of the request.
        settings: The settings of the daemon.

    Raises Cancelled.
    """
    found = _asker(context, settings)
    if found is None:
        return None
    name, write = found
    context.channel.emit_waiting(phrase("asking {model} what you mean", model=name))
    try:
        request = read_request(write(_question(text, before)), time.time())
    except Cancelled:
        raise
    except TimeoutError:
        slow = phrase("it did not answer within {n} s", n=round(PATIENCE_S))
        return Arbitration(name, None, slow)
    except UserError as e:
        return Arbitration(name, None, e.message)
    if request is None:
        return Arbitration(name, None, phrase("it does not know it, either"))
    return Arbitration(name, request)


def _asker(context: RequestContext, settings: Settings) -> tuple[str, Callable[[str], str]] | None:
    """Return the name of the model to ask, and what asks it."""
    if settings.model and describe(settings.model).able:
        return name_of(settings.model), partial(_by_own, context, settings)
    ready = next((one for one in served_models() if one.phase == "ready"), None)
    if ready is None:
        return None
    return ready.name, partial(_by_served, context, ready)


def _by_own(context: RequestContext, settings: Settings, asked: str) -> str:
    """Return what the assistant's model writes.

    Raises TimeoutError, Cancelled, and UserError if its GPU is not idle or it fails.
    """
    engine = context.residency.idle_engine(settings, context.channel)
    from gpudeck.accel.serving import request as r  # imports no torch, but belongs to the engine

    tokens = tuple(engine.encode(prompt(_TASK, asked)))
    grammar = r.Grammar("json_schema", _schema())
    wanted = r.Request(tokens, _TOKENS, r.Sampling(temperature=0), grammar=grammar)
    until = time.monotonic() + PATIENCE_S

    def must_stop() -> bool:
        _check(context, until)
        return context.must_stop(engine)

    text = ""
    for event in engine.answer(wanted, must_stop):
        if not isinstance(event, r.Ended):
            text += event.text
        elif event.reason == "error":
            raise UserError(event.message)
    return text


def _by_served(context: RequestContext, served: Served, asked: str) -> str:
    """Return what a served model writes. Raises TimeoutError, and as `ServedChat.ask` does."""
    pieces, until = list[str](), time.monotonic() + PATIENCE_S

    def take(event: Event) -> None:
        _check(context, until)
        if isinstance(event, Chunk):
            pieces.append(event.text)

    ServedChat().ask(served, (f"{_TASK}\n\n{asked}",), take, _schema(), _TOKENS)
    return "".join(pieces)


def _check(context: RequestContext, until: float) -> None:
    """Raise Cancelled if the person has cancelled, and TimeoutError at the end of the time."""
    context.channel.raise_if_cancelled()
    if time.monotonic() > until:
        raise TimeoutError


@cache
def _schema() -> str:
    return json.dumps(request_schema())


def _question(text: str, before: Request | None) -> str:
    """Return the examples, the request before and the request."""
    lines = [f"Request: {said}\n{meant}" for said, meant in _EXAMPLES]
    if before is not None:
        lines.append(f"The last request meant: {before.line}")
    return "\n".join([*lines, f"Request: {' '.join(text.split())}"])
