"""What tools get and return: a context; facts, the material of a report, or a planned action."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.steps import Step
from gpudeck.assistant.tools.buttons import Buttons
from gpudeck.assistant.tools.proposal import Preview
from gpudeck.language.words import Words
from gpudeck.language.words import words as in_language
from gpudeck.scheduler.client import Client

Environment = dict[str, str]
"""Variables of the person who approves an action; a job that is submitted gets them. They may hold
secrets, so no planned action keeps them."""

Sections = Callable[[FactIndex], list[str]]
"""Renders a tool's facts part by part."""


class ToolContext(NamedTuple):
    """Hold what a tool may use besides its query or order."""

    daemon: Client
    folder: str = "/"
    """The working folder of a job that is submitted."""
    progress: Callable[[str], None] = lambda text: None
    cancelled: Callable[[], bool] = lambda: False
    words: Words = in_language("en")
    """The language of the answer."""
    before: str = ""
    """What was asked before, with its meaning (`labels.described`)."""


class PlannedAction(NamedTuple):
    """Describe an action before it is carried out."""

    title: str
    """For example `Cancel job 7 (train)`: every target by number and name."""
    effect: str
    """The consequences, in plain sentences computed by code."""
    basis: object
    """The state that the effect depends on. If it differs when the action is approved, the action
    is proposed again instead."""
    carry_out: Callable[[Client, Environment], str]
    """Do it and return a sentence that says what was done. Raises UserError."""
    details: tuple[tuple[str, str], ...] = ()
    """Captions and values, such as the command that does the same."""
    order: Order | None = None
    """The order with its targets resolved to numbers; None if nothing had to be resolved."""
    jobs: tuple[int, ...] = ()
    """Numbers of the jobs that it names."""
    others: tuple[int, ...] = ()
    """Numbers of jobs that it affects besides: those that are cancelled with them."""
    sealed: bool = False
    """It checks each item while it runs, so it is not planned again when it is approved."""
    buttons: Buttons = Buttons()
    """The captions of the two decisions on it."""
    runs: tuple[Preview, ...] = ()
    """The jobs that it submits."""
    submission: str = ""
    """The token of the submission by which it makes new jobs; empty: it makes none."""


class ToolResult(NamedTuple):
    """Hold the facts that a tool gathered, and how the template presents them."""

    facts: tuple[Fact, ...]
    render: Sections
    """Return the template's text, part by part; every number in it is from the facts."""
    action: PlannedAction | None = None
    """An action that follows from the facts, to be proposed with them."""
    steps: tuple[Step, ...] = ()
    """What shows more of it."""
    folder: str = ""
    """Code of the person's that the window can show and change."""


Planner = Callable[[ToolContext, Order], PlannedAction]
"""Plan an order. Raises NotFound and UserError, in one line, if it cannot be carried out."""


def text_result(*parts: str, steps: tuple[Step, ...] = ()) -> ToolResult:
    """Return a result that is text without a fact."""
    return ToolResult((), lambda _: list(parts), steps=steps)
