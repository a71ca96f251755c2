"""What acts, by its name: the planner of each call that changes something."""

from __future__ import annotations

from collections.abc import Callable

from assistant.intents.tool_call import ToolCall
from assistant.tools import cancel, clean_up, queue, submit
from assistant.tools.plan import PlannedAction
from scheduler.client import Client

Planner = Callable[[Client, ToolCall, str], PlannedAction]


def plan(daemon: Client, call: ToolCall, folder: str) -> PlannedAction:
    """What would be done; a new job runs in `folder`. Raises UserError, in one line, where it cannot be done as things are."""
    return PLANNERS[call.role, call.tool](daemon, call, folder)


def _of(order: Callable[[Client, ToolCall], PlannedAction]) -> Planner:
    return lambda daemon, call, _: order(daemon, call)


PLANNERS: dict[tuple[str, str], Planner] = {
    ("operate", "cancel"): _of(cancel.cancel),
    ("operate", "move"): _of(queue.move),
    ("operate", "pause"): _of(queue.pause),
    ("operate", "resume"): _of(queue.resume),
    ("operate", "kill"): _of(cancel.kill),
    ("operate", "submit"): submit.submit,
    ("operate", "retry"): submit.retry,
    ("housekeep", "undo"): clean_up.put_back,
}
