"""What would be done, before it is: planned from the state of things, looked at again when it was approved, then carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from assistant.intents.tool_call import ToolCall
from scheduler.client import Client

Environment = dict[str, str]
"""Of who approves: a job that is submitted has it. No plan holds it, as it may hold secrets."""


class PlannedAction(NamedTuple):
    title: str
    """Cancel job 7 (train)"""
    effect: str
    """What would come of it, in sentences that code computed. Plain text, foreign names in it made plain."""
    basis: object
    """What it rests on: where that is another when it is approved, the effect would be another, and it is asked again."""
    act: Callable[[Client, Environment], str]
    """Does it, and says in a line what was done. Raises UserError."""
    details: tuple[tuple[str, str], ...] = ()
    """The command that does the same, and whatever else is worth knowing: caption and value."""
    call: ToolCall | None = None
    """The call with what it left open settled: the job it is about by its number; None where it left nothing open."""
    jobs: tuple[int, ...] = ()
    """Numbers of the jobs that it is about."""
    sealed: bool = False
    """What it acts on is checked piece by piece as it is done: it is not planned again when it is approved."""
