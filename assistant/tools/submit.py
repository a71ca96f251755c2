"""Tools that plan new jobs: a workload, a command, or a job that ended run once more.

The effect of each is the daemon's own forecast.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from accel.workloads import catalog
from assistant.facts import phrases
from assistant.intents.tool_call import ToolCall
from assistant.tools.lookup import device_labels, find_job, list_jobs, title
from assistant.tools.tool import Environment, PlannedAction, ToolContext, Tools
from assistant.writing.template.sentences import listed as enumerated
from assistant.writing.template.sentences import upper
from scheduler.client import Client
from scheduler.protocol.devices import ASSISTANT_MARK
from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import JobOptions, make_spec
from scheduler.protocol.jobs import Job, Spec
from scheduler.protocol.search import Search
from scheduler.protocol.units import clock, numbered

_MAX_TOGETHER = 20
"""Jobs that one proposal may run again."""
_SHOWN = 300
"""Characters of a command."""


def submit(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan a workload with this machine's defaults, or a command, in the person's folder."""
    if name := call.text("workload"):
        spec = _workload(context, name, call.params)
        effect = f"A new job will run the workload {name} with {_parameters(spec.params)}."
        words = ["gpudeck run", name, *(f"{key}={value}" for key, value in call.params.items())]
        command = " ".join(words)
    elif text := call.text("command"):
        spec = _command(text, call.integer("gpus") or 0, context.folder)
        effect = _runs(spec)
        command = f"gpudeck submit --gpus {spec.gpus} -- {_shown(spec.argv)}"
    else:
        known = ", ".join(workload.name for workload in catalog.WORKLOADS)
        raise UserError(
            f"name what to run: a workload ({known}), or a command in quotes, for example: "
            "run 'python train.py' on 1 gpu"
        )

    def carry_out(daemon: Client, env: Environment) -> str:
        return _queued(daemon.submit_many([_with_environment(spec, env)]))

    effect = " ".join(filter(None, (effect, _forecast(context.daemon, spec))))
    title, basis = f"Run {phrases.plain(spec.name, 60)}", (spec.argv, spec.cwd, spec.gpus)
    return PlannedAction(title, effect, basis, carry_out, (("Command", command),))


def retry(context: ToolContext, call: ToolCall) -> PlannedAction:
    """Plan to run one job that ended, or all that ended in a state, again as new jobs."""
    daemon, named, state = context.daemon, call.job(), call.text("state")
    if named is None and not state:
        raise UserError("name the job to run again")
    jobs = _jobs_in_state(daemon, state) if named is None else [find_job(daemon, named)]
    if active := [job for job in jobs if job.active]:
        raise UserError(f"{title(active[0])} has not ended: it is {active[0].status}")
    specs = [
        msgspec.structs.replace(job.spec, kind="", after=(), after_any=(), hold=False)
        for job in jobs
    ]

    def carry_out(daemon: Client, env: Environment) -> str:
        return _queued(daemon.submit_many([_with_environment(spec, env) for spec in specs]))

    if len(jobs) > 1:
        what = f"{len(jobs)} jobs"
        effect = upper(
            f"{list_jobs(jobs)} will be submitted again, as {what} with the same commands "
            "and requirements."
        )
    else:
        what = title(jobs[0])
        same = f"It has all that job {jobs[0].id} needed."
        effect = " ".join(filter(None, (_runs(specs[0]), same, _forecast(daemon, specs[0]))))
    numbers = tuple(job.id for job in jobs)
    resolved = call.with_job(jobs[0].id) if named is not None else call
    return PlannedAction(f"Run {what} again", effect, numbers, carry_out, (), resolved, numbers)


def _jobs_in_state(daemon: Client, state: str) -> Sequence[Job]:
    if state not in ("failed", "lost", "cancelled", "done"):
        raise UserError(f"jobs that are {state} have not ended: only jobs that ended can run again")
    jobs, more = daemon.find(Search(outcomes=(state,)), _MAX_TOGETHER)
    if not jobs:
        raise UserError(f"no job is {state}")
    if more is not None:
        raise UserError(f"more than {_MAX_TOGETHER} jobs are {state}: name the one to run again")
    return [daemon.job(job.id) for job in jobs]  # lists cut long commands off


def _workload(context: ToolContext, name: str, params: Mapping[str, str]) -> Spec:
    workload = catalog.find(name)
    devices = context.daemon.snapshot().devices
    try:
        values = workload.complete(params, devices[0].device.kind if devices else "nvidia")
    except ValueError as e:
        raise UserError(str(e)) from e
    spec = make_spec(
        workload.argv(values),
        {
            "name": name,
            "gpus": 1,
            "workload": name,
            "params": values,
            "cwd": context.folder,
            "env": {},
        },
    )
    return _as_of_the_daemon(spec)


def _command(text: str, gpus: int, folder: str) -> Spec:
    needed = "type the command as in a terminal, but without a shell"
    try:
        argv = shlex.split(text)
    except ValueError as e:
        raise UserError(f"{needed}: {e}") from e
    if not argv:
        raise UserError(needed)
    options: JobOptions = {"name": Path(argv[0]).name, "gpus": gpus, "cwd": folder, "env": {}}
    return _as_of_the_daemon(make_spec(argv, options))


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


def _queued(jobs: Sequence[Job]) -> str:
    numbers = numbered([job.id for job in jobs]).capitalize()
    return f"{numbers} {'was' if len(jobs) == 1 else 'were'} queued."


def _runs(spec: Spec) -> str:
    folder = phrases.plain(spec.cwd, 200)
    return f"A new job will run in {folder}, without a shell: {_shown(spec.argv)}."


def _forecast(daemon: Client, spec: Spec) -> str:
    """Say where and when a job would start. Raises UserError if it can never run here."""
    snapshot = daemon.snapshot()
    found = daemon.foresee_spec(spec)
    labels, no_gpu = device_labels(daemon), ""
    if not spec.gpus and any(state.device.kind == "nvidia" for state in snapshot.devices):
        no_gpu = "It gets no GPU; to give it one, add: on 1 gpu. "
    where = ""
    if found.devices:
        where = f" on {enumerated([labels.get(device, device) for device in found.devices])}"
    reason = phrases.plain(found.reason)
    if not reason:
        return f"{no_gpu}It will start at once{where}."
    if found.at is None:
        return f"{no_gpu}It will wait, and how long is not known: {reason}."
    return f"{no_gpu}It will start about {clock(found.at, snapshot.time)}{where}: {reason}."


def _shown(argv: Sequence[str]) -> str:
    return phrases.plain(" ".join(map(_quoted, argv)), _SHOWN)


def _parameters(params: Mapping[str, str]) -> str:
    return phrases.plain(", ".join(f"{name} {value}" for name, value in params.items()), _SHOWN)


def _quoted(word: str) -> str:
    """Quote a word for a shell, in double quotes if those are easier to read than `shlex`'s."""
    plain = "'" in word and not re.search(r'["$`\\!]', word)
    return f'"{word}"' if plain else shlex.quote(word)


TOOLS: Tools = {("operate", "submit"): submit, ("operate", "retry"): retry}
