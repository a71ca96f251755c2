"""All tools by role and name."""

from __future__ import annotations

from assistant.intents.tool_call import ToolCall
from assistant.reports.material import Material
from assistant.tools import (
    cancel,
    clean_up,
    compare,
    devices,
    energy,
    help_texts,
    jobs,
    queue_control,
    quotes,
    reports,
    submit,
)
from assistant.tools.tool import PlannedAction, ToolContext, ToolResult, Tools

TOOLS: Tools = {
    **devices.TOOLS,
    **jobs.TOOLS,
    **quotes.TOOLS,
    **energy.TOOLS,
    **compare.TOOLS,
    **help_texts.TOOLS,
    **reports.TOOLS,
    **clean_up.TOOLS,
    **cancel.TOOLS,
    **queue_control.TOOLS,
    **submit.TOOLS,
}


def run_tool(context: ToolContext, call: ToolCall) -> ToolResult | PlannedAction | Material:
    """Run the tool that a call names. Raises NotFound and UserError, in one line."""
    return TOOLS[call.role, call.tool](context, call)


def plan_action(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan the action that a call asks for. Raises NotFound and UserError, in one line."""
    outcome = run_tool(context, call)
    assert isinstance(outcome, PlannedAction), f"{call.line} does not act"
    return outcome
