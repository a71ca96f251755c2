"""Keep proposals until a person decides. The assistant acts in `ProposalStore.approve` only."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Order, Request, Role
from gpudeck.assistant.tools.access import AccessToken
from gpudeck.assistant.tools.access_files import token_of
from gpudeck.assistant.tools.carrying_out import carry_out, is_allowed
from gpudeck.assistant.tools.permissions import check_permitted, forget_hint, refuse
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.assistant.tools.registry import plan_action
from gpudeck.assistant.tools.tool import Environment, PlannedAction, ToolContext
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

LASTS_S = 300.0
"""A proposal expires after this time, because the state it was planned from is outdated by then."""
OF_PROGRAMS_LASTS_S = 3600.0
"""The same for the proposal of a program, which nobody waits for."""
MOST_PENDING = 100
"""Proposals that are kept for the person, and as many for programs, which cannot push them out."""
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
        if by and (same := self._same(meant, action, by)) is not None:
            return same
        return self._keep(context, meant, action, certain, by=by)

    def _same(self, meant: Request, action: PlannedAction, by: str) -> Proposal | None:
        """Return the proposal by which a program asks for the same already."""
        with self._lock:
            kept = tuple(self._pending.values())
        wanted, now = (by, meant, action.basis), self._clock()
        return next(
            (
                one.proposal
                for one in kept
                if (one.proposal.by, one.request, one.action.basis) == wanted
                and one.proposal.expires > now
            ),
            None,
        )

    def approve(
        self,
        daemon: Client,
        number: str,
        decision: Decision,
        env: Environment,
        secret: str = "",
    ) -> DecisionResult:
        """Carry out a proposal once, drop it, or refuse its tool for good.

        If things have changed so that the effect would differ, nothing is done, and the action is
        proposed again. A permission for the session is kept by the client.

        Args:
            daemon: A client of the daemon.
            number: The id of the proposal.
            decision: Of the person.
            env: Of a job that is submitted.
            secret: That of an access token, in place of a person. A proposal that it does not
                allow is returned, and waits on.

        Raises:
            UserError: The proposal has expired, or cannot be carried out any more; or the access
                token cannot be used.
        """
        token = token_of(secret) if secret else None
        with self._lock:
            pending = self._pending.pop(number, None)
        if pending is None or pending.proposal.expires <= self._clock():
            raise UserError(
                phrase(
                    "this proposal has expired or has already been decided, and nothing is "
                    "done. Ask again"
                )
            )
        result = self._decide(daemon, pending, decision, env, token)
        with self._lock:
            if result.proposal is pending.proposal:
                self._pending[number] = pending
                return result
            self._outcomes[number] = result.text
            self._outcomes = dict(list(self._outcomes.items())[-MOST_PENDING:])
        return result

    def _decide(
        self,
        daemon: Client,
        pending: _Pending,
        decision: Decision,
        env: Environment,
        token: AccessToken | None,
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
        if token is not None and not is_allowed(token, request, pending.action):
            text = words.text("This waits for a person: the access token does not allow it.")
            return DecisionResult(request.role, text, pending.proposal)
        if isinstance(request, Order) and not action.sealed:
            action = plan_action(context, request)
        if action.basis != pending.action.basis:
            changed = words.text(_CHANGED)
            by = pending.proposal.by
            again = self._keep(context, request, action, certain=False, note=changed, by=by)
            return DecisionResult(request.role, changed, again)
        done, made = carry_out(daemon, pending.proposal, request, action, env, token)
        state = State(made, about="job", language=words.language) if made else None
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
            runs=action.runs,
            buttons=action.buttons,
            language=context.words.language,
        )
        with self._lock:
            valid = {
                number: kept
                for number, kept in self._pending.items()
                if kept.proposal.expires > now
            }
            valid[proposal.id] = _Pending(proposal, request, context, action)
            alike = [n for n, kept in valid.items() if bool(kept.proposal.by) == bool(by)]
            dropped = frozenset(alike[:-MOST_PENDING])
            self._pending = {n: kept for n, kept in valid.items() if n not in dropped}
        return proposal
