"""Name requests as the encoder does: what kind they are, and what was asked before."""

from __future__ import annotations

from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Order, Query, Request
from gpudeck.assistant.reader.labels import described

_HEADS = {
    "devices": "ask gpus", "logs": "ask log_search", "debris": "ask disk", "manual": "manual",
    "report": "order report", "help": "talk abilities",
}  # fmt: skip
_VERBS = {"hold": "pause", "release": "resume", "priority": "edit"}
_MEASURES = {
    ("devices", "temp"): "temperature", ("devices", "mem_used"): "memory_used",
    ("devices", "mem_free"): "memory_free", ("devices", "mem_total"): "memory_total",
    ("devices", "clock_sm"): "clock", ("devices", "throttle"): "slowed",
    ("devices", "tflops"): "rate", ("devices", "name"): "model",
    ("jobs", "reason"): "why_waiting", ("jobs", "failure"): "why_failed",
    ("jobs", "estimate"): "time_left", ("jobs", "log"): "output", ("jobs", "stall"): "stuck",
    ("jobs", "devices"): "gpus", ("jobs", "tflops"): "rate",
}  # fmt: skip


def head_of(request: Request) -> str:
    """Return the head of a request, as the encoder names it."""
    if isinstance(request, Order):
        return f"order {_VERBS.get(request.verb, request.verb)}"
    return _HEADS.get(request.subject, f"ask {request.subject}")


def before(state: State) -> str:
    """Return the last request in the encoder's words."""
    last = state.order or state.last
    if last is None:
        return ""
    kind, _, name = head_of(last).partition(" ")
    meaning: dict[str, object] = {kind: name}
    if isinstance(last, Query) and last.measure and " " not in last.measure:
        meaning["measure"] = [_MEASURES.get((last.subject, last.measure), last.measure)]
    meaning |= {"jobs": 1} if state.jobs else {}
    meaning |= {"gpus": 1} if state.devices else {}
    return described(meaning)
