"""What acts, by its name: the planner of each call that changes something."""

from __future__ import annotations

from collections.abc import Callable

from assistant.intents.call import Call
from assistant.tools import cancel, housekeep, orders, submit
from assistant.tools.plan import Plan
from scheduler.client import Client

Planner = Callable[[Client, Call, str], Plan]


def plan(daemon: Client, call: Call, folder: str) -> Plan:
    """What would be done; a new job runs in `folder`. Raises UserError, in one line, where it cannot be done as things are."""
    return PLANNERS[call.role, call.tool](daemon, call, folder)


def _of(order: Callable[[Client, Call], Plan]) -> Planner:
    return lambda daemon, call, _: order(daemon, call)


PLANNERS: dict[tuple[str, str], Planner] = {
    ("operate", "cancel"): _of(cancel.cancel),
    ("operate", "move"): _of(orders.move),
    ("operate", "pause"): _of(orders.pause),
    ("operate", "resume"): _of(orders.resume),
    ("operate", "kill"): _of(cancel.kill),
    ("operate", "submit"): submit.submit,
    ("operate", "retry"): submit.retry,
    ("housekeep", "undo"): housekeep.put_back,
}
