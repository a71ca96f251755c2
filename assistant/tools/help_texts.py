"""Tools that answer without a fact: what the assistant can do, and requests that no tool serves."""

from __future__ import annotations

from assistant.intents import doubts
from assistant.intents.router import LONGEST_REQUEST
from assistant.intents.tool_call import ToolCall
from assistant.tools.tool import ToolContext, ToolResult, Tools, text_result

EXAMPLES = (
    'For example: "what failed today?", "why is my job waiting?", "compare job 3 with job 2", '
    '"cancel job 7", "run gemm".'
)
_ABILITIES = (
    "I can tell you how the devices are and were, how jobs are doing, why they wait, what they "
    "printed and how much energy was used, and compare two jobs or two GPUs. I can write reports, "
    "find what can be cleaned up, and propose to submit, cancel, move, hold or retry jobs. "
    "Nothing is done before you allow it."
)
_NOT_UNDERSTOOD = "I did not understand the question, or it asks for something that I cannot do."


def show_help(context: ToolContext, call: ToolCall) -> ToolResult:
    """Say what the assistant can do."""
    return text_result(_ABILITIES, EXAMPLES)


def decline(context: ToolContext, call: ToolCall) -> ToolResult:
    """Say why a request that no tool serves is not answered."""
    if len(context.question) > LONGEST_REQUEST:
        too_long = f"Your request is too long: I read at most {LONGEST_REQUEST} characters."
        return text_result(too_long, _ABILITIES, EXAMPLES)
    if doubts.forbids(context.question):
        unchanged = "Nothing was changed, and nothing is done before you allow it."
        return text_result(f"{unchanged} {_NOT_UNDERSTOOD}", EXAMPLES)
    return text_result(_NOT_UNDERSTOOD, _ABILITIES, EXAMPLES)


TOOLS: Tools = {("answer", "help"): show_help, ("answer", "other"): decline}
