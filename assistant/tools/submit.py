"""New jobs: a workload, a command, or one that ended once more. Planned by the daemon's own forecast, not done."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from accel.workloads import catalog
from assistant.facts import phrases
from assistant.facts.devices import label
from assistant.intents.tool_call import ToolCall
from assistant.tools.job_lookup import find_job, listed, title
from assistant.tools.plan import Environment, PlannedAction
from assistant.writing.template.sentences import listed as enumerated
from assistant.writing.template.sentences import upper
from scheduler.client import Client
from scheduler.protocol import jobs as j
from scheduler.protocol.devices import ASSISTANT_MARK
from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import make_spec
from scheduler.protocol.search import Search
from scheduler.protocol.units import clock, numbered

_TOGETHER = 20
"""Jobs that one proposal may run again."""
_SHOWN = 300
"""Characters of a command."""


def submit(daemon: Client, call: ToolCall, folder: str) -> PlannedAction:
    """A workload with this machine's defaults, or a command, in the asker's folder and environment."""
    if name := call.text("workload"):
        spec = _workload(daemon, name, call.params, folder)
    elif command := call.text("command"):
        spec = _command(command, call.integer("gpus") or 0, folder)
    else:
        known = ", ".join(workload.name for workload in catalog.WORKLOADS)
        raise UserError(
            f"say what to run: a workload ({known}), or a command in quotes, such as: run 'python train.py' on 1 gpu"
        )

    def act(daemon: Client, env: Environment) -> str:
        return f"{numbered([job.id for job in daemon.submit_many([_in(spec, env)])]).capitalize()} was queued."

    told = (
        f"A new job would run the workload {spec.workload} with {_parameters(spec.params)}."
        if spec.workload
        else _runs(spec)
    )
    effect = " ".join(filter(None, (told, _held(daemon, spec), _foretold(daemon, spec))))
    verb = (
        " ".join(["gpudeck run", spec.workload, *(f"{k}={v}" for k, v in call.params.items())])
        if spec.workload
        else f"gpudeck submit --gpus {spec.gpus} -- {_shown(spec.argv)}"
    )
    basis = (spec.argv, spec.cwd, spec.gpus)
    return PlannedAction(
        f"Run {phrases.plain(spec.name, 60)}", effect, basis, act, (("Command", verb),)
    )


def retry(daemon: Client, call: ToolCall, folder: str) -> PlannedAction:
    """One job that ended, or all that failed, as new jobs."""
    named = call.job()
    if named is None and not call.text("state"):
        raise UserError("say which job to run once more")
    jobs = _of_state(daemon, call.text("state")) if named is None else [find_job(daemon, named)]
    if active := [job for job in jobs if job.active]:
        raise UserError(f"{title(active[0])} has not ended: it is {active[0].status}")
    specs = [_again(job) for job in jobs]

    def act(daemon: Client, env: Environment) -> str:
        made = [job.id for job in daemon.submit_many([_in(spec, env) for spec in specs])]
        return f"{numbered(made).capitalize()} {'was' if len(made) == 1 else 'were'} queued."

    if len(jobs) > 1:
        effect = f"{listed(jobs)} would be queued once more, as {len(jobs)} new jobs with the same commands and needs."
        effect = upper(effect)
    else:
        same = f"{_runs(specs[0])} It has all that job {jobs[0].id} needed."
        effect = " ".join(
            filter(None, (same, _held(daemon, specs[0]), _foretold(daemon, specs[0])))
        )
    what = title(jobs[0]) if len(jobs) == 1 else f"{len(jobs)} jobs"
    settled = call.with_job(jobs[0].id) if named is not None else call
    return PlannedAction(
        f"Run {what} once more",
        effect,
        tuple(job.id for job in jobs),
        act,
        (),
        settled,
        tuple(job.id for job in jobs),
    )


def _of_state(daemon: Client, state: str) -> Sequence[j.Job]:
    if state not in ("failed", "lost", "cancelled", "done"):
        raise UserError(
            f"jobs that are {state} have not ended: only those that ended can run once more"
        )
    jobs, more = daemon.find(Search(outcomes=(state,)), _TOGETHER)
    if not jobs:
        raise UserError(f"no job is {state}")
    if more is not None:
        raise UserError(f"more than {_TOGETHER} jobs are {state}: name the one to run once more")
    return [
        daemon.job(job.id) for job in jobs
    ]  # all of each: a list has the beginning of a long command only


def _workload(daemon: Client, name: str, params: Mapping[str, str], folder: str) -> j.Spec:
    workload = catalog.find(name)
    devices = daemon.snapshot().devices
    try:
        values = workload.complete(params, devices[0].device.kind if devices else "nvidia")
    except ValueError as e:
        raise UserError(str(e)) from e
    return make_spec(
        workload.argv(values),
        {"name": name, "gpus": 1, "workload": name, "params": values, "cwd": folder, "env": {}},
    )


def _command(text: str, gpus: int, folder: str) -> j.Spec:
    try:
        argv = shlex.split(text)
    except ValueError as e:
        raise UserError(f"a command is needed, as in a terminal but without a shell: {e}") from e
    if not argv:
        raise UserError("a command is needed, as in a terminal but without a shell")
    return make_spec(argv, {"name": Path(argv[0]).name, "gpus": gpus, "cwd": folder, "env": {}})


def _again(job: j.Job) -> j.Spec:
    return msgspec.structs.replace(job.spec, kind="", after=(), after_any=(), hold=False)


def _in(spec: j.Spec, env: Environment) -> j.Spec:
    """With its environment: of who approved, else the assistant's own, without its mark. A cluster is sent none."""
    own = env or {name: value for name, value in os.environ.items() if name != ASSISTANT_MARK}
    return spec if spec.where else msgspec.structs.replace(spec, env=own)


def _runs(spec: j.Spec) -> str:
    return f"A new job would run in {phrases.plain(spec.cwd, 200)}, without a shell: {_shown(spec.argv)}."


def _held(daemon: Client, spec: j.Spec) -> str:
    if spec.gpus:
        return ""
    gpus = any(state.device.kind == "nvidia" for state in daemon.snapshot().devices)
    return "It holds no GPU and sees none; to give it one, say: on 1 gpu." if gpus else ""


def _foretold(daemon: Client, spec: j.Spec) -> str:
    """Where and when it would start, by the daemon's dry run. Raises UserError where it could never run here."""
    snapshot = daemon.snapshot()
    found = daemon.foresee_spec(spec)
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    where = f" on {enumerated([labels.get(d, d) for d in found.devices])}" if found.devices else ""
    if found.wait is None:
        return f"It would start at once{where}."
    reason = phrases.plain(found.reason)
    if found.at is None:
        return f"It would wait, nobody knows how long: {reason}."
    return f"It would start about {clock(found.at, snapshot.time)}{where}: {reason}."


def _shown(argv: Sequence[str]) -> str:
    return phrases.plain(" ".join(map(_quoted, argv)), _SHOWN)


def _parameters(params: Mapping[str, str]) -> str:
    return phrases.plain(", ".join(f"{name} {value}" for name, value in params.items()), _SHOWN)


def _quoted(word: str) -> str:
    """As a shell would read it, in double quotes where that is easier for a person to read than what `shlex` makes of single ones."""
    plain = "'" in word and not re.search(r'["$`\\!]', word)
    return f'"{word}"' if plain else shlex.quote(word)
