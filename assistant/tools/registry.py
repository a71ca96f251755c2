"""What looks, by its name: the tools of the role answer."""

from __future__ import annotations

from collections.abc import Callable

from assistant.intents import doubts
from assistant.intents.router import LONGEST_REQUEST
from assistant.intents.tool_call import ToolCall
from assistant.retrieval import search
from assistant.tools import compare, devices, energy, jobs, quotes
from assistant.tools.tool import ToolResult, text_result
from scheduler.client import Client

Looker = Callable[[Client, ToolCall, str], ToolResult]

_CAN = (
    "I can tell how the devices are and were, how jobs stand, why they wait, what they printed, what used how much energy, and compare two "
    "jobs or two GPUs. I can write reports, look for what can be cleaned up, and propose to submit, cancel, move, hold or retry jobs: "
    "nothing is done before you allow it."
)
_LOST = "I did not find out what this asks about, or it is nothing that I can do."
_TRY = 'For example: "what failed today?", "why is my job waiting?", "compare job 3 with job 2", "cancel job 7", "run gemm".'


def look(daemon: Client, call: ToolCall, question: str) -> ToolResult:
    """The facts, and how to tell them; `question` as it was asked, to be looked up.

    Raises NotFound, and UserError where something was not said.
    """
    return LOOKERS[call.tool](daemon, call, question)


def _help(daemon: Client, call: ToolCall) -> ToolResult:
    return text_result(_CAN, _TRY)


def _other(daemon: Client, call: ToolCall, question: str) -> ToolResult:
    if len(question) > LONGEST_REQUEST:
        return text_result(
            f"That is longer than what I read as a request: {LONGEST_REQUEST} characters.",
            _CAN,
            _TRY,
        )
    if doubts.forbids(question):
        return text_result(
            f"Nothing was changed, and nothing will be before you allow it. If you asked for something: {_LOST}",
            _TRY,
        )
    return text_result(_LOST, _CAN, _TRY)


def _docs(daemon: Client, call: ToolCall, question: str) -> ToolResult:
    found = quotes.quotation(search(question), "docs")
    return (
        found if found.facts else text_result("Nothing about that was found in the manual.", _TRY)
    )


def _of(look: Callable[[Client, ToolCall], ToolResult]) -> Looker:
    return lambda daemon, call, _: look(daemon, call)


LOOKERS: dict[str, Looker] = {
    "device": _of(devices.device),
    "history": _of(devices.history),
    "alerts": _of(devices.alerts),
    "job": _of(jobs.one),
    "jobs": _of(jobs.several),
    "waiting": _of(jobs.waiting),
    "queue": _of(jobs.queue),
    "log": quotes.log,
    "energy": _of(energy.energy),
    "compare": _of(compare.compare),
    "docs": _docs,
    "help": _of(_help),
    "other": _other,
}
