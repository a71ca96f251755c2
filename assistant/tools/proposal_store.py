"""What waits for a person's word. Nothing that the assistant does happens but in `ProposalStore.approve`."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

from assistant.intents.roles import Role
from assistant.intents.tool_call import ToolCall
from assistant.tools.actions import plan
from assistant.tools.permissions import check, refuse, taken_back
from assistant.tools.plan import Environment, PlannedAction
from assistant.tools.proposal import Decision, Proposal
from scheduler.client import Client
from scheduler.protocol.errors import UserError

LASTS_S = 300.0
"""After so long a proposal is void: the world has moved on, and so has the person."""
_KEPT = 100
_CHANGED = "Things have changed since this was proposed, so it was not done."


class Outcome(NamedTuple):
    """What became of a proposal: done, or proposed anew as things have changed."""

    role: Role
    text: str
    """A line, plain."""
    proposal: Proposal | None = None


class Proposed(NamedTuple):
    proposal: Proposal
    jobs: tuple[int, ...]
    """Numbers of the jobs that it is about."""


class _Pending(NamedTuple):
    proposal: Proposal
    call: ToolCall
    folder: str
    plan: PlannedAction


class ProposalStore:
    """May be used from several threads."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}

    def propose(self, daemon: Client, call: ToolCall, folder: str, certain: bool) -> Proposed:
        """PlannedAction the call, and keep it until it is approved. A job that is submitted runs in `folder`.

        Raises UserError where it cannot be done as things are, or was refused for good.
        """
        check(daemon, call.role, call.tool)
        made = plan(daemon, call, folder)
        return Proposed(self._keep(call, folder, made, certain), made.jobs)

    def offer(self, daemon: Client, call: ToolCall, made: PlannedAction, certain: bool) -> Proposal:
        """Keep what was planned already. Raises UserError where it was refused for good."""
        check(daemon, call.role, call.tool)
        return self._keep(call, "", made, certain)

    def approve(self, daemon: Client, number: str, how: Decision, env: Environment) -> Outcome:
        """Do what was proposed, once; with `never` it is not done, now and later. What `session` allows is kept by who asks.

        Where things have changed so that the effect would be another, nothing is done, and it is proposed anew. Raises UserError where
        the proposal is gone, or cannot be carried out any more.
        """
        with self._lock:
            pending = self._pending.pop(number, None)
        if pending is None or pending.proposal.expires <= self._clock():
            raise UserError(
                "this proposal has expired or was decided already, and nothing is done. Ask again"
            )
        role = pending.call.role
        if how == "never":
            tool = pending.proposal.tool
            refuse(daemon, tool)
            return Outcome(role, f"I will not propose this again ({tool}). {taken_back(tool)}")
        made = pending.plan if pending.plan.sealed else plan(daemon, pending.call, pending.folder)
        if made.basis != pending.plan.basis:
            return Outcome(
                role,
                _CHANGED,
                self._keep(pending.call, pending.folder, made, certain=False, note=_CHANGED),
            )
        return Outcome(role, made.act(daemon, env))

    def _keep(
        self, call: ToolCall, folder: str, made: PlannedAction, certain: bool, note: str = ""
    ) -> Proposal:
        now = self._clock()
        tool = f"{call.role} {call.tool}"
        proposal = Proposal(
            uuid.uuid4().hex,
            tool,
            made.title,
            made.effect,
            made.details,
            now + LASTS_S,
            certain,
            made.sealed,
            note,
        )
        with self._lock:
            self._pending = {
                number: kept
                for number, kept in self._pending.items()
                if kept.proposal.expires > now
            }
            self._pending[proposal.id] = _Pending(proposal, made.call or call, folder, made)
            for oldest in list(self._pending)[:-_KEPT]:
                del self._pending[oldest]
        return proposal
