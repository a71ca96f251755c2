"""The commands there are: a row each. What a command needs is loaded once it is run, or asked for its --help."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """One command."""

    name: str
    run: str
    """What does it, `module:function` in app: called with the arguments, it returns the exit status."""
    text: str
    arguments: str = ""
    """What adds its arguments to its parser, `module:function` in app.cli.arguments."""
    json: bool = True
    """Whether it prints data."""


VERBS = (
    Verb("status", "cli.watch:status", "what the devices do now, and which jobs wait or run"),
    Verb(
        "watch",
        "cli.live:watch",
        "status, live until Ctrl+C; with --json one line of JSON whenever something changes",
    ),
    Verb(
        "processes",
        "cli.processes:processes",
        "list the processes that use a GPU: user, command, container, job, memory, share",
    ),
    Verb(
        "kill",
        "cli.processes:kill",
        "end a process of yours that uses a GPU, after asking; one of a job by cancelling the job",
        "look:kill",
    ),
    Verb(
        "alerts",
        "cli.alerts:alerts",
        "list what is the matter with devices and jobs, and what was",
        "look:alerts",
    ),
    Verb("export", "cli.past:export", "write the history of the devices to a file", "look:export"),
    Verb(
        "metrics",
        "cli.metrics:metrics",
        "serve what the devices and the queue do to Prometheus",
        "look:metrics",
        json=False,
    ),
    Verb(
        "tour",
        "tour.tour:tour",
        "run the whole main job without a display: watch, run attention, brief, pictures of every page",
        "look:tour",
    ),
    Verb("record", "cli.record:record", "record a trace of the devices for replay", "look:record"),
    Verb(
        "submit",
        "cli.queue:submit",
        "queue a command: gpudeck submit [options] -- COMMAND [ARG ...]",
        "jobs:submit",
    ),
    Verb(
        "run",
        "cli.queue:run",
        "queue an accelerated workload: gpudeck run attention seq=16384 causal=yes",
        "jobs:run",
    ),
    Verb(
        "jobs",
        "cli.queue:jobs",
        "list the newest jobs, search all of them, or tell all about one",
        "jobs:jobs",
    ),
    Verb("logs", "cli.queue:logs", "print what a job printed", "jobs:logs"),
    Verb(
        "wait",
        "cli.queue:wait",
        "wait for a job's end; the exit status tells whether it succeeded",
        "jobs:wait",
    ),
    Verb(
        "results",
        "cli.queue:results",
        "print what a job measured, or write it to a file",
        "jobs:results",
    ),
    Verb(
        "pause",
        "cli.orders:pause",
        "start nothing new: of the whole queue, of jobs, or of a group",
        "jobs:several",
    ),
    Verb("resume", "cli.orders:resume", "let the queue, jobs, or a group go on", "jobs:several"),
    Verb(
        "edit",
        "cli.orders:edit",
        "change a job that waits; its name, notes and tags at any time",
        "jobs:edit",
    ),
    Verb(
        "move", "cli.orders:move", "let a job that waits stand before or after another", "jobs:move"
    ),
    Verb("groups", "cli.orders:groups", "list the groups of jobs, or limit one", "jobs:groups"),
    Verb(
        "cancel",
        "cli.queue:cancel",
        "cancel a job that waits, or end one that runs; several may be named",
        "jobs:cancel",
    ),
    Verb(
        "ask", "cli.words:ask", 'ask the assistant, e.g. gpudeck ask "what happened?"', "words:ask"
    ),
    Verb(
        "permissions",
        "cli.words:permissions",
        "tell what the assistant must never propose, and take it back",
        "words:permissions",
    ),
    Verb(
        "serve",
        "cli.serve:run",
        "let editors and scripts of yours use the model, by OpenAI's API, on this machine alone",
        "words:serve",
        json=False,
    ),
    Verb(
        "report",
        "cli.words:report",
        "have the assistant write a report once the device is idle: what ran, failed, waited, used energy",
        "words:report",
    ),
    Verb(
        "models",
        "cli.models:models",
        "list the models for the assistant; add, fetch, choose, time or forget one",
        "words:models",
    ),
    Verb(
        "daemon", "cli.care:daemon", "start, stop or look at the background process", "care:daemon"
    ),
    Verb(
        "cluster",
        "cli.clusters:cluster",
        "list the clusters that jobs can be submitted to, or name one",
        "care:cluster",
    ),
    Verb(
        "clean",
        "cli.clean:clean",
        "find debris: old kernels, logs, core dumps, copies of models; move it to the trash after asking",
        "care:clean",
    ),
    Verb(
        "diagnostics",
        "cli.care:diagnose",
        "print one text to paste into a bug report, without names, paths and secrets",
    ),
    Verb(
        "doctor",
        "cli.care:doctor",
        "check everything GPU Deck needs, and say what to do where something is amiss",
        "care:doctor",
    ),
)
