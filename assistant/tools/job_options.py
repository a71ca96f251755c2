"""Read and show the options of a new job, as an order gives them by the names of JOB_OPTIONS."""

from __future__ import annotations

import re
import shlex
from typing import Any, cast

from gpudeck.assistant.facts.phrases import plain
from gpudeck.assistant.query.find import named_jobs
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.rendering import render
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.job_options import (
    JOB_OPTIONS,
    JobOption,
    JobOptions,
    moment_of,
    parse_indices,
)
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.submissions import indexed

_JOBS = ("after", "after_any")
_FIXED = {"submit": ("cwd", "env"), "retry": ("env",)}
"""Options that an order says otherwise, or that are those of who approves it."""
_NUMBERED = re.compile(r"GPU (\d+)")
MOST_VALUE = 1000
"""Characters of a value: a card shows all of what is approved."""
ARRAY = "array"
"""The option that is no part of a job: the indices of an array."""
KNOWN = {option.name: option for option in JOB_OPTIONS}


def read(context: ToolContext, order: Order) -> JobOptions:
    """Return the options of an order with their values.

    Raises:
        NotFound: A job or a GPU that it names does not exist.
        UserError: There is no such option, or its value is none.
    """
    found: dict[str, Any] = {}
    for name, text in order.options.items():
        option = KNOWN.get(name)
        if len(text) > MOST_VALUE:
            raise UserError(phrase("an option has up to {most} characters here", most=MOST_VALUE))
        if name == ARRAY and order.verb == "submit" and order.command:
            continue
        if option is None or name in _FIXED.get(order.verb, ()):
            raise UserError(
                context.words.text("a job cannot be {option} yet", option=plain(name, 40))
            )
        found[name] = _value(context, option, text)
    return cast(JobOptions, found)


def _value(context: ToolContext, option: JobOption, text: str) -> Any:
    if option.name in _JOBS:
        named = [int(part) if part.isdecimal() else part for part in text.split(",")]
        return tuple(job.id for job in named_jobs(context.daemon, named))
    if option.name == "gpu_type" and (numbered := _NUMBERED.fullmatch(text)) is not None:
        known = {state.device.index for state in context.daemon.snapshot().devices}
        if int(numbered[1]) not in known:
            raise NotFound(context.words.text("there is no {gpu} on this machine", gpu=text))
    return option.parse(text) if option.parse is not None else True


def in_array(order: Order, spec: Spec) -> list[Spec]:
    """Return the job once for each index that the order names, or alone. Raises UserError."""
    indices = order.options.get(ARRAY)
    return [spec] if indices is None else indexed(spec, parse_indices(indices))


def fields(options: JobOptions) -> dict[str, Any]:
    """Return the options as fields of a Spec."""
    begin = options.get("begin")
    return {**options, **({"begin": moment_of(begin)} if isinstance(begin, str) else {})}


def captions(context: ToolContext, spec: Spec, options: JobOptions) -> tuple[tuple[str, str], ...]:
    """Return the labels of the options and the values that the job would have, for a card."""
    words = context.words

    def write(option: JobOption) -> str:
        return plain(render(option.write(getattr(spec, option.name)), words.language), MOST_VALUE)

    return tuple(
        (words.text(option.label), write(option))
        for option in JOB_OPTIONS
        if option.name in options
    )


def as_flags(order: Order, options: JobOptions) -> list[str]:
    """Return the options as they are typed behind `gpudeck submit`."""
    numbered = {"after": options.get("after", ()), "after_any": options.get("after_any", ())}
    texts = order.options | {
        name: ",".join(map(str, jobs)) for name, jobs in numbered.items() if jobs
    }
    return [
        f"{option.flag or '--' + option.name.replace('_', '-')}"
        + (
            f" {shlex.quote(plain(texts[option.name], MOST_VALUE))}"
            if option.parse is not None
            else ""
        )
        for option in JOB_OPTIONS
        if option.name in texts
    ] + ([f"--array {shlex.quote(order.options[ARRAY])}"] if ARRAY in order.options else [])
