"""Say what a new job would run, where and when it would start, and what waits before it."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.tools import job_options
from gpudeck.assistant.tools.proposal import Preview
from gpudeck.assistant.tools.targets import device_labels, queued_jobs, title
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.rendering import render, render_moment
from gpudeck.language.text import moment
from gpudeck.scheduler.protocol.job_options import JobOptions
from gpudeck.scheduler.protocol.jobs import Forecast, Spec
from gpudeck.scheduler.protocol.wait_texts import explain

_NAMED = 10
"""Jobs before it that are named."""


def preview(
    context: ToolContext, spec: Spec, options: JobOptions, found: Forecast, count: int = 1
) -> Preview:
    """Return what a job would run as values for a program.

    Args:
        context: Of the order.
        spec: The job.
        options: What the order says about it.
        found: The daemon's forecast.
        count: How many jobs like it are submitted.
    """
    labels = device_labels(context.daemon)
    waiting = [job for job in queued_jobs(context.daemon) if job.spec.priority >= spec.priority]
    return Preview(
        tuple(phrases.clean(word) for word in spec.argv),
        phrases.clean(spec.cwd),
        context.words.text(
            "The variables of who approves it; with an access token, those of gpudeck mcp."
            if not spec.where
            else "Those of the cluster."
        ),
        spec.gpus,
        dict(job_options.captions(context, spec, options)),
        count,
        found.at,
        tuple(labels.get(device, device) for device in found.devices),
        _why(context, found),
        tuple(title(job) for job in waiting[:_NAMED]) if found.wait is not None else (),
    )


def forecast(context: ToolContext, spec: Spec, found: Forecast) -> str:
    """Say where and when a job would start."""
    words, snapshot = context.words, context.daemon.snapshot()
    labels, no_gpu = device_labels(context.daemon), ""
    if not spec.gpus and any(state.device.kind == "nvidia" for state in snapshot.devices):
        no_gpu = words.text("It gets no GPU; to give it one, add: on 1 gpu.") + " "
    where = _where(context, [labels.get(device, device) for device in found.devices])
    if found.wait is None:
        return no_gpu + words.text("It will start at once{where}.", where=where)
    reason = _why(context, found)
    if found.at is None:
        return no_gpu + words.text("It will wait; start time unknown: {reason}.", reason=reason)
    return no_gpu + words.text(
        "It will start about {time}{where}: {reason}.",
        time=render_moment(moment(found.at, snapshot.time), words.language),
        where=where,
        reason=reason,
    )


def _where(context: ToolContext, names: Sequence[str]) -> str:
    return context.words.text(" on {devices}", devices=", ".join(names)) if names else ""


def _why(context: ToolContext, found: Forecast) -> str:
    """Return why it would wait first; empty where it would not."""
    if found.wait is None:
        return ""
    told = render(explain(found.wait, context.daemon.snapshot().time), context.words.language)
    return phrases.plain(told, 1000)
