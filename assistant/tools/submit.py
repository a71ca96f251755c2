"""Tools that plan new jobs: a workload, a command, or a job that ended run once more.

The effect of each is the daemon's own forecast.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudeck.accel.workloads import catalog
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools import job_options
from gpudeck.assistant.tools.buttons import Buttons, of_jobs
from gpudeck.assistant.tools.changes import settle
from gpudeck.assistant.tools.previews import forecast, preview
from gpudeck.assistant.tools.proposal import Preview
from gpudeck.assistant.tools.targets import targets, title, titles
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import JobOptions, make_spec
from gpudeck.scheduler.protocol.jobs import Job, Spec
from gpudeck.scheduler.protocol.submissions import new_token
from gpudeck.scheduler.protocol.units import numbered

MOST_SHOWN = 2000
"""Characters of a command and of its folder: a card shows all of what is approved."""


class _NewJob(NamedTuple):
    """Hold a job that is planned, what it would run in a sentence, and the command that does so."""

    spec: Spec
    effect: str
    command: str


def submit(context: ToolContext, order: Order) -> PlannedAction:
    """Plan a workload with this machine's defaults, or a command, in the person's folder."""
    words, options = context.words, job_options.read(context, order)
    spec, effect, command = _new_job(context, order, options)
    specs = job_options.in_array(order, spec)
    token = new_token()

    def carry_out(daemon: Client, env: Environment) -> str:
        made = [_with_environment(one, env) for one in specs]
        return _queued(context, daemon.submit_many(made, token=token))

    found = context.daemon.foresee_spec(spec, len(specs))
    effect = f"{effect} {forecast(context, spec, found)}"
    if len(specs) > 1:
        runs = words.text("The job runs {n} times, once for each index of its array.", n=len(specs))
        effect = f"{runs} {effect}"
    return PlannedAction(
        words.text("Run {name}", name=phrases.plain(spec.name, 60)),
        effect,
        (spec.argv, spec.cwd, tuple(sorted(order.options.items()))),
        carry_out,
        (*job_options.captions(context, spec, options), (words.text("Command"), command)),
        buttons=Buttons(
            phrase("Run {name}", name=phrases.plain(spec.name, 40)), phrase("Queue nothing")
        ),
        runs=(preview(context, spec, options, found, len(specs)),),
        submission=token,
    )


def _new_job(context: ToolContext, order: Order, options: JobOptions) -> _NewJob:
    """Return the job of an order. Raises UserError."""
    words, shown = context.words, job_options.as_flags(order, options)
    if order.workload:
        spec = _workload(context, order.workload, order.params, options)
        effect = words.text(
            "A new job will run the workload {name} with {parameters}.",
            name=order.workload,
            parameters=_parameters(spec.params),
        )
        given = [f"{key}={value}" for key, value in order.params.items()]
        command = " ".join(["gpudeck run", order.workload, *given])
        return _NewJob(spec, effect, _submitting(spec, shown) if shown else command)
    if order.command:
        spec = _command(order, context.folder, options)
        return _NewJob(spec, _runs(context, spec), _submitting(spec, shown))
    known = ", ".join(workload.name for workload in catalog.WORKLOADS)
    raise UserError(
        words.text(
            "name what to run: a workload ({known}), or a command in quotes, for example: "
            "run 'python train.py' on 1 gpu",
            known=known,
        )
    )


def _submitting(spec: Spec, shown: Sequence[str]) -> str:
    """Return the command that submits a job with options, which `gpudeck run` does not take."""
    return " ".join(["gpudeck submit", *shown, "--", _shown(spec.argv)])


def retry(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to run jobs that ended again as new jobs, perhaps with more memory."""
    words, jobs = context.words, targets(context, order)
    if active := [job for job in jobs if job.active]:
        raise UserError(
            words.text(
                "{job} has not ended: it is {state}",
                job=title(active[0]),
                state=words.text(active[0].status),
            )
        )
    order = settle(context, order, jobs)
    options = job_options.read(context, order)
    if order.command and (len(jobs) > 1 or jobs[0].spec.workload):
        raise UserError(
            words.text(
                "{option} of a job cannot be changed once it is submitted",
                option=words.text("Command"),
            )
        )
    specs = [_again(job, order, options) for job in jobs]
    if order.command:
        _check_length(shlex.join(specs[0].argv))
    token = new_token()

    def carry_out(daemon: Client, env: Environment) -> str:
        again = [_with_environment(spec, env) for spec in specs]
        return _queued(context, daemon.submit_many(again, token=token))

    effect, runs = _running_again(context, jobs, specs[0], options)
    numbers = tuple(job.id for job in jobs)
    return PlannedAction(
        words.text("Run {jobs} again", jobs=titles(jobs)),
        effect,
        (numbers, order.command, tuple(sorted(options.items()))),
        carry_out,
        (),
        Order("retry", jobs=numbers, command=order.command, options=order.options),
        numbers,
        buttons=of_jobs("retry", numbers),
        runs=runs,
        submission=token,
    )


def _again(job: Job, order: Order, options: JobOptions) -> Spec:
    """Return the job as it is submitted once more. Raises UserError for changes of no command."""
    changes = job_options.fields(options)
    if changes.get("memory") and not (job.spec.gpus or changes.get("gpus")):
        changes["gpus"] = 1
    argv = with_flags(job.spec.argv, order.command)
    again = msgspec.structs.replace(
        job.spec, argv=argv, kind="", after=(), after_any=(), hold=False
    )
    return msgspec.structs.replace(again, **changes)


def _running_again(
    context: ToolContext, jobs: list[Job], spec: Spec, options: JobOptions
) -> tuple[str, tuple[Preview, ...]]:
    """Say what happens to jobs that are run again, of which the first one will be `spec`."""
    words = context.words
    runs: tuple[Preview, ...] = ()
    effect = words.text(
        "{jobs} will be submitted again, as new jobs with the same commands and requirements.",
        jobs=capitalized(titles(jobs)),
    )
    if len(jobs) == 1:
        found = context.daemon.foresee_spec(spec)
        effect = f"{_runs(context, spec)} {forecast(context, spec, found)}"
        runs = (preview(context, spec, options, found),)
    if changed := ", ".join(": ".join(one) for one in job_options.captions(context, spec, options)):
        effect = f"{changed}. {effect}"
    if kept := [job.id for job in jobs if _has_artefacts(context, job)]:
        left = words.text(
            "A new job begins without artefacts. To go on in those of the old one: {command}",
            command=f"gpudeck retry {' '.join(map(str, kept))} --artefacts",
        )
        effect = f"{effect} {left}"
    return effect, runs


def with_flags(argv: Sequence[str], changes: str) -> tuple[str, ...]:
    """Return a command with other values of some flags; one that it lacks is added at its end.

    Raises UserError if the changes cannot be read as words of a shell.
    """
    made = list(argv)
    for flag, *values in _flags(changes):
        name, _, value = flag.partition("=")
        at = next((i for i, word in enumerate(made) if word.partition("=")[0] == name), len(made))
        given = [value] if value else values
        if at == len(made):
            made += [flag, *values]
        elif given and "=" in made[at]:
            made[at] = f"{name}={' '.join(given)}"
        elif given:
            has_value = not all(map(_FLAG.match, made[at + 1 : at + 2]))
            made[at + 1 : at + 1 + has_value] = given
    return tuple(made)


_FLAG = re.compile(r"--?[A-Za-z]")


def _flags(changes: str) -> list[list[str]]:
    """Return flags, each with the words behind it, such as `[["--lr", "1e-5"], ["--amp"]]`."""
    try:
        words = shlex.split(changes)
    except ValueError as e:
        raise UserError(str(e)) from e
    found: list[list[str]] = []
    for word in words:
        if _FLAG.match(word):
            found.append([word])
        elif found:
            found[-1].append(word)
    return found


def _has_artefacts(context: ToolContext, job: Job) -> bool:
    try:
        return bool(context.daemon.artefacts(job.id))
    except UserError:  # they are on another machine, or closed to this user
        return False


def _workload(
    context: ToolContext, name: str, params: Mapping[str, str], options: JobOptions
) -> Spec:
    devices = context.daemon.snapshot().devices
    try:
        workload = catalog.find(name)
        values = workload.complete(params, devices[0].device.kind if devices else "nvidia")
        argv = workload.argv(values)
    except ValueError as e:
        raise UserError(str(e)) from e
    given: JobOptions = {
        "name": workload.job_name(values),
        "gpus": 1,
        **options,
        "workload": name,
        "params": values,
        "cwd": context.folder,
        "env": {},
    }
    return _as_of_the_daemon(make_spec(argv, given))


def _command(order: Order, folder: str, options: JobOptions) -> Spec:
    needed = phrase("type the command as in a terminal, but without a shell")
    try:
        argv = shlex.split(order.command)
    except ValueError as e:
        raise UserError(phrase("{needed}: {problem}", needed=needed, problem=str(e))) from e
    if not argv:
        raise UserError(needed)
    _check_length(order.command)
    given: JobOptions = {"name": Path(argv[0]).name, **options, "cwd": folder, "env": {}}
    return _as_of_the_daemon(make_spec(argv, given))


def _check_length(command: str) -> None:
    """Raise UserError for a command that a card would not show whole."""
    if len(command) > MOST_SHOWN:
        raise UserError(
            phrase(
                "a command has up to {most} characters here: put a longer one into a script",
                most=MOST_SHOWN,
            )
        )


def _with_environment(spec: Spec, env: Environment) -> Spec:
    """Return the job with the environment of who approved, else the assistant's own.

    A cluster's job gets none, and none gets the assistant's mark.
    """
    if spec.where:
        return spec
    own = {name: value for name, value in os.environ.items() if name != ASSISTANT_MARK}
    return msgspec.structs.replace(spec, env=env or own)


def _as_of_the_daemon(spec: Spec) -> Spec:
    """Return the job without the private umask and the raised limits of the assistant's process."""
    return msgspec.structs.replace(spec, inherited=None)


def _queued(context: ToolContext, jobs: Sequence[Job]) -> str:
    return context.words.text("Queued: {jobs}.", jobs=numbered([job.id for job in jobs]))


def _runs(context: ToolContext, spec: Spec) -> str:
    return context.words.text(
        "A new job will run in {folder}, without a shell: {command}.",
        folder=phrases.plain(spec.cwd, MOST_SHOWN),
        command=_shown(spec.argv),
    )


def _shown(argv: Sequence[str]) -> str:
    return phrases.plain(" ".join(map(_quoted, argv)), MOST_SHOWN)


def _parameters(params: Mapping[str, str]) -> str:
    return phrases.plain(", ".join(f"{name} {value}" for name, value in params.items()), MOST_SHOWN)


def _quoted(word: str) -> str:
    """Quote a word for a shell, in double quotes if those are easier to read than `shlex`'s."""
    plain = "'" in word and not re.search(r'["$`\\!]', word)
    return f'"{word}"' if plain else shlex.quote(word)


PLANNERS: dict[str, Planner] = {"submit": submit, "retry": retry}
