"""Keep proposals until a person decides. The assistant acts in `ProposalStore.approve` only."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Order, Request, Role
from gpudeck.assistant.tools.permissions import check_permitted, forget_hint, refuse
from gpudeck.assistant.tools.proposal import Decision, Proposal, submits_jobs
from gpudeck.assistant.tools.registry import plan_action
from gpudeck.assistant.tools.tool import Environment, PlannedAction, ToolContext
from gpudeck.language.languages import Language
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

LASTS_S = 300.0
"""A proposal expires after this time, because the state it was planned from is outdated by then."""
OF_PROGRAMS_LASTS_S = 3600.0
"""The same for the proposal of a program, which nobody waits for."""
_MAX_PENDING = 100
_CHANGED = "Nothing was done, because things have changed since this was proposed."


class DecisionResult(NamedTuple):
    """Say what became of a proposal: it was carried out, refused, or proposed again."""

    role: Role
    text: str
    """A line of plain text."""
    proposal: Proposal | None = None
    state: State | None = None
    """What the conversation is about now, if a job was submitted: that job."""


class _Pending(NamedTuple):
    proposal: Proposal
    request: Request
    context: ToolContext
    action: PlannedAction


class ProposalStore:
    """Hold the proposals that wait for a decision. Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._outcomes: dict[str, str] = {}
        """What became of proposals that were decided, by their ids."""

    @property
    def of_programs(self) -> tuple[Proposal, ...]:
        """Return the proposals of programs that wait for a decision, oldest first."""
        with self._lock:
            kept = [pending.proposal for pending in self._pending.values()]
        now = self._clock()
        return tuple(one for one in kept if one.by and one.expires > now)

    def outcome(self, number: str) -> str:
        """Return what became of a proposal; empty while it waits, or if it has expired."""
        with self._lock:
            return self._outcomes.get(number, "")

    def add(
        self,
        context: ToolContext,
        request: Request,
        action: PlannedAction,
        certain: bool,
        by: str = "",
    ) -> Proposal:
        """Keep a planned action until it is approved.

        Args:
            context: Its folder is where a job that is submitted runs.
            request: The order that the action was planned for, or the query that it follows from.
            action: The action to carry out.
            certain: The request was, word by word, an exact form of the order.
            by: The program that proposes it; empty: the person asked for it.

        Raises:
            UserError: A person refused the tool for good.
        """
        meant = action.order or request  # to pause a job that runs is to suspend it
        check_permitted(context.daemon, meant.name)
        return self._keep(context, meant, action, certain, by=by)

    def approve(
        self, daemon: Client, number: str, decision: Decision, env: Environment
    ) -> DecisionResult:
        """Carry out a proposal once, drop it, or refuse its tool for good.

        If things have changed so that the effect would differ, nothing is done, and the action is
        proposed again. A permission for the session is kept by the client.

        Raises:
            UserError: The proposal has expired, or cannot be carried out any more.
        """
        with self._lock:
            pending = self._pending.pop(number, None)
        if pending is None or pending.proposal.expires <= self._clock():
            raise UserError(
                phrase(
                    "this proposal has expired or has already been decided, and nothing is "
                    "done. Ask again"
                )
            )
        result = self._decide(daemon, pending, decision, env)
        with self._lock:
            self._outcomes[number] = result.text
            self._outcomes = dict(list(self._outcomes.items())[-_MAX_PENDING:])
        return result

    def _decide(
        self, daemon: Client, pending: _Pending, decision: Decision, env: Environment
    ) -> DecisionResult:
        _, request, context, action = pending
        words, tool = context.words, pending.proposal.tool
        if decision == "no":
            text = words.text("A person refused it. Nothing was done.")
            return DecisionResult(request.role, text)
        if decision == "never":
            refuse(daemon, tool)
            text = words.text("I will not propose this again ({tool}).", tool=tool)
            return DecisionResult(request.role, f"{text} {forget_hint(tool)}")
        context = context._replace(daemon=daemon)
        if isinstance(request, Order) and not action.sealed:
            action = plan_action(context, request)
        if action.basis != pending.action.basis:
            changed = words.text(_CHANGED)
            by = pending.proposal.by
            again = self._keep(context, request, action, certain=False, note=changed, by=by)
            return DecisionResult(request.role, changed, again)
        done = action.carry_out(daemon, env)
        state = _of_newest(daemon, words.language) if submits_jobs(tool) else None
        return DecisionResult(request.role, done, state=state)

    def _keep(
        self,
        context: ToolContext,
        request: Request,
        action: PlannedAction,
        certain: bool,
        note: str = "",
        by: str = "",
    ) -> Proposal:
        now = self._clock()
        proposal = Proposal(
            uuid.uuid4().hex,
            request.name,
            action.title,
            action.effect,
            action.details,
            now + (OF_PROGRAMS_LASTS_S if by else LASTS_S),
            certain,
            action.sealed,
            note,
            by,
            buttons=action.buttons,
        )
        with self._lock:
            valid = {
                number: kept
                for number, kept in self._pending.items()
                if kept.proposal.expires > now
            }
            valid[proposal.id] = _Pending(proposal, request, context, action)
            self._pending = dict(list(valid.items())[-_MAX_PENDING:])
        return proposal


def _of_newest(daemon: Client, language: Language) -> State:
    """Return that the conversation is about the newest job."""
    return State(tuple(job.id for job in daemon.jobs(1)), about="job", language=language)
