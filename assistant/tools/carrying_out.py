"""Carry out what was approved, and record which program ordered it, and who allowed it."""

from __future__ import annotations

import time

import msgspec

from gpudeck.assistant.query.request import Order, Request
from gpudeck.assistant.tools.access import AccessToken, Act
from gpudeck.assistant.tools.access_files import own_jobs, record
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.assistant.tools.tool import Environment, PlannedAction
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError


def is_allowed(token: AccessToken, request: Request, action: PlannedAction) -> bool:
    """Return whether a token allows an action; what follows from a question needs a person."""
    affected = (*action.jobs, *action.others)
    return isinstance(request, Order) and token.allows(request, affected, own_jobs(token))


def carry_out(
    daemon: Client,
    proposal: Proposal,
    request: Request,
    action: PlannedAction,
    env: Environment,
    token: AccessToken | None,
) -> tuple[str, tuple[int, ...]]:
    """Do it, and return what was done, and the new jobs.

    What a program ordered is in the timelines of its jobs, and what a token allowed in its record.

    Raises:
        UserError: It cannot be carried out any more, or not be recorded.
    """
    name, order = token.name if token is not None else "", (action.order or request).line
    act = Act(proposal.id, time.time(), token.digest, proposal.by, order) if token else None
    if act is not None:  # what cannot be recorded is not done
        record(act)
    outcome: str = ""
    made: tuple[int, ...] = ()
    try:
        _name_program(daemon, proposal, action.jobs, name)
        outcome = action.carry_out(daemon, env)
        if action.submission:
            made = tuple(job.id for job in daemon.submission(action.submission))
            _name_program(daemon, proposal, made, name)
    except UserError as e:
        outcome = str(e)
        raise
    finally:
        if act is not None:
            record(msgspec.structs.replace(act, outcome=outcome, made=made))
    return outcome, made


def _name_program(daemon: Client, proposal: Proposal, jobs: tuple[int, ...], token: str) -> None:
    """Add the program that proposes it, if one does, to the timelines of jobs."""
    if proposal.by and jobs:
        daemon.record_order(jobs, proposal.tool.partition(" ")[2], proposal.by, token)
