"""Handle questions, reports and decisions: recognize the tool, run it, and word its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from assistant.facts import Fact, phrases
from assistant.host.answer_writer import AnswerWriter
from assistant.host.context import RequestContext
from assistant.idle import Cancelled, wait_until_idle
from assistant.intents.choices import clarifying_question, distinct_choices
from assistant.intents.router import Routed, route
from assistant.intents.tool_call import ToolCall, checked_call
from assistant.messages import Answer, Approve, Ask, Report
from assistant.reports.contents import compose
from assistant.reports.material import Material, of_job, of_span
from assistant.tools.devices import RECENT_S
from assistant.tools.jobs import facts_of
from assistant.tools.permissions import check_permitted
from assistant.tools.proposal import Proposal
from assistant.tools.registry import run_tool
from assistant.tools.tool import PlannedAction, ToolContext, ToolResult
from assistant.writing.template import render
from assistant.writing.template.sentences import sentence
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError

_NAMED_JOBS = 200
"""The newest jobs, whose names a request may mention."""
_DESCRIBED_JOBS = 5
"""Jobs of a proposal whose facts come with it."""
_CANNOT = (
    "I cannot do that. I can propose to submit, cancel, move, hold, release and retry jobs, to "
    "pause and resume the queue, and to end a process that uses a GPU. To change settings, use "
    "the Settings page."
)


class AnswerContext(NamedTuple):
    """Hold what one answer is made from: the source of facts, the writer, and the request's own."""

    daemon: Client
    writer: AnswerWriter
    request: RequestContext


def handle_ask(request: Ask, context: RequestContext) -> Answer:
    """Answer a question, or propose what it asks for.

    Raises Cancelled, NotFound for a job that does not exist, DaemonGone, and UserError.
    """
    return _in_context(request, context, lambda answering: _answer_request(request, answering))


def handle_report(request: Report, context: RequestContext) -> Answer:
    """Write the report that a button or a command asks for. Raises as `handle_ask` does."""

    def write(answering: AnswerContext) -> Answer:
        daemon, since = answering.daemon, request.since
        if request.job is not None:
            return _write_report(of_job(daemon, request.job), answering)
        since = time.time() - RECENT_S if since is None else since
        material = of_span(daemon, since, "daily" if request.daily else "span")
        return _write_report(material, answering)

    return _in_context(request, context, write)


def handle_decision(request: Approve, context: RequestContext) -> Answer:
    """Carry out a proposal that a person allowed, or refuse it for good.

    Raises UserError if the proposal has expired, or cannot be carried out any more.
    """
    with Client(start=False) as daemon:
        result = context.proposals.approve(daemon, request.proposal, request.how, request.env)
    text = phrases.escaped(result.text, 1000)
    if result.proposal is not None:
        text = f"{text}\n\n{_proposal_text(result.proposal)}"
    return Answer(text, "template", result.role, proposal=result.proposal)


def _in_context(
    request: Ask | Report, context: RequestContext, work: Callable[[AnswerContext], Answer]
) -> Answer:
    """Wait for idle devices if asked to, run the work, and sign its answer."""
    began = time.monotonic()
    if request.when == "idle":
        _wait_until_idle(request, context)
    with Client(start=False) as daemon:
        writer = AnswerWriter(context, daemon.snapshot().settings)
        answer = work(AnswerContext(daemon, writer, context))
    return writer.sign(answer, time.monotonic() - began)


def _wait_until_idle(request: Ask | Report, context: RequestContext) -> None:
    channel = context.channel
    with Client(start=False) as daemon:
        if isinstance(request, Report) and request.job is not None:
            daemon.job(request.job)  # a job that does not exist is an error now, not after the wait
        wait_until_idle(
            daemon.subscribe(),
            channel.stop.is_set,
            lambda reason: channel.emit_waiting(f"waiting for idle devices ({reason})", cpu=True),
            channel.use_cpu.is_set,
        )


def _answer_request(request: Ask, context: AnswerContext) -> Answer:
    context.request.channel.emit_waiting("finding out what you ask for")
    routed = _recognize(request, context)
    if routed.choices:
        offered = distinct_choices(routed.choices)
        text = clarifying_question(offered)
        return Answer(text, "template", "answer", routed=routed.by, choices=offered)
    if routed.call is None:
        return Answer(_CANNOT, "template", "operate", routed=routed.by)
    answer = _run(request, routed.call, routed.certain, context)
    return msgspec.structs.replace(answer, call=routed.call, routed=routed.by)


def _recognize(request: Ask, context: AnswerContext) -> Routed:
    """Return the call that the person chose, or the one that the request asks for."""
    if request.meant is not None:
        return Routed(checked_call(request.meant), "your choice", certain=False)
    names = [job.spec.name for job in context.daemon.jobs(_NAMED_JOBS)]
    return route(request.text, names, context.writer.available_model())


def _run(request: Ask, call: ToolCall, certain: bool, context: AnswerContext) -> Answer:
    """Run a tool, and answer in the way that fits its outcome."""
    channel = context.request.channel
    tool_context = ToolContext(
        context.daemon,
        request.text,
        request.folder or str(Path.home()),
        lambda path: channel.emit_waiting(f"searching {path}"),
        channel.stop.is_set,
    )
    try:
        if call.acts:
            check_permitted(context.daemon, call.name)
        outcome = run_tool(tool_context, call)
        channel.raise_if_cancelled()
        match outcome:
            case Material():
                return _write_report(outcome, context)
            case ToolResult():
                return _show_result(outcome, call, certain, tool_context, context)
            case PlannedAction():
                proposal = context.request.proposals.add(tool_context, call, outcome, certain)
                facts, text = _facts(context.daemon, *outcome.jobs), _proposal_text(proposal)
                return Answer(text, "template", call.role, facts, proposal=proposal)
    except UserError as e:
        if call.role == "report" or isinstance(e, Cancelled):
            raise
        job = call.job()
        facts = _facts(context.daemon, job) if call.acts and isinstance(job, int) else ()
        return Answer(_error_text(e), "template", call.role, facts)


def _show_result(
    result: ToolResult,
    call: ToolCall,
    certain: bool,
    tool_context: ToolContext,
    context: AnswerContext,
) -> Answer:
    """Word the facts of a tool, with the action that follows from them if there is one."""
    if result.required and not result.verbatim:
        written, facts = context.writer.write(result.facts, tool_context.question, result)
        return Answer(written.text, written.writer, call.role, facts)
    text = render(result.facts, result.render)
    answer = Answer(text, "template", call.role, result.facts)
    if result.action is None:
        return answer
    try:
        proposal = context.request.proposals.add(tool_context, call, result.action, certain)
    except UserError as e:
        return msgspec.structs.replace(answer, text=f"{text}\n\n{_error_text(e)}")
    text = f"{text}\n\n{_proposal_text(proposal)}"
    return msgspec.structs.replace(answer, text=text, proposal=proposal)


def _write_report(material: Material, context: AnswerContext) -> Answer:
    written, facts = context.writer.write(material.facts)
    report = compose(replace(material, facts=facts), written)
    return Answer(written.text, written.writer, "report", facts, report=report)


def _facts(daemon: Client, *jobs: int) -> tuple[Fact, ...]:
    """Return the facts of the first of these jobs, without those that do not exist."""
    found: list[Fact] = []
    for job in jobs[:_DESCRIBED_JOBS]:
        with suppress(NotFound):
            found += facts_of(daemon, daemon.job(job))
    return tuple(found)


def _error_text(error: UserError) -> str:
    return sentence(phrases.escaped(str(error), 1000))


def _proposal_text(proposal: Proposal) -> str:
    title, effect = phrases.escaped(proposal.title, 300), phrases.escaped(proposal.effect, 2000)
    return f"**{title}?** {effect} Nothing is done before you allow it."
