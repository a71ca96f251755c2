"""Name requests as the encoder does: what kind they are."""

from __future__ import annotations

from gpudeck.assistant.query.request import Order, Request

_HEADS = {
    "devices": "ask gpus", "logs": "ask log_search", "debris": "ask disk", "manual": "manual",
    "report": "order report", "help": "talk abilities", "attention": "ask backend",
    "versions": "ask gpus", "limits": "ask users", "events": "ask actions",
}  # fmt: skip
_VERBS = {"hold": "pause", "release": "resume", "priority": "edit"}


def head_of(request: Request) -> str:
    """Return the head of a request, as the encoder names it."""
    if isinstance(request, Order):
        return f"order {_VERBS.get(request.verb, request.verb)}"
    return _HEADS.get(request.subject, f"ask {request.subject}")
