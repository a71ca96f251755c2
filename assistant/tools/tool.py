"""The shape of a tool: a context and a call in; facts, report material or a planned action out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from assistant.facts import Fact
from assistant.intents.tool_call import ToolCall
from assistant.reports.material import Material
from assistant.writing.writer import Sections
from scheduler.client import Client

Environment = dict[str, str]
"""Variables of the person who approves an action; a job that is submitted gets them. They may hold
secrets, so no planned action keeps them."""


class ToolContext(NamedTuple):
    """Hold what a tool may use besides the arguments of its call."""

    daemon: Client
    question: str = ""
    """The request as the person typed it, for tools that search for its words."""
    folder: str = "/"
    """The working folder of a job that is submitted."""
    progress: Callable[[str], None] = lambda text: None
    cancelled: Callable[[], bool] = lambda: False


class PlannedAction(NamedTuple):
    """Describe an action before it is carried out."""

    title: str
    """For example `Cancel job 7 (train)`."""
    effect: str
    """The consequences, in plain sentences computed by code."""
    basis: object
    """The state that the effect depends on. If it differs when the action is approved, the action
    is proposed again instead."""
    carry_out: Callable[[Client, Environment], str]
    """Do it and return a sentence that says what was done. Raises UserError."""
    details: tuple[tuple[str, str], ...] = ()
    """Captions and values, such as the command that does the same."""
    call: ToolCall | None = None
    """The call with the job resolved to its number; None if nothing had to be resolved."""
    jobs: tuple[int, ...] = ()
    """Numbers of the jobs that it affects."""
    sealed: bool = False
    """It checks each item while it runs, so it is not planned again when it is approved."""


class ToolResult(NamedTuple):
    """Hold the facts that a tool gathered, and how the template presents them."""

    facts: tuple[Fact, ...]
    render: Sections
    """Return the template's text, part by part; every number in it is from the facts."""
    required: tuple[str, ...] = ()
    """Names of facts that a model's text must mention. If there are none, the template answers."""
    verbatim: bool = False
    """The result quotes foreign text, such as a log, so no model is asked to write it."""
    action: PlannedAction | None = None
    """An action that follows from the facts, to be proposed with them."""


Tool = Callable[[ToolContext, ToolCall], ToolResult | PlannedAction | Material]
"""Run one tool. Raises NotFound and UserError, in one line, if it cannot answer or act."""

Tools = dict[tuple[str, str], Tool]
"""The tools of a family by role and name, as `assistant.intents.table` declares them."""


def names_with_values(facts: Iterable[Fact], *names: str) -> tuple[str, ...]:
    """Return those of the names whose facts exist and have a value."""
    known = {fact.name for fact in facts if fact.value is not None}
    return tuple(name for name in names if name in known)


def text_result(*parts: str) -> ToolResult:
    """Return a result that is text without a fact."""
    return ToolResult((), lambda _: list(parts))
