"""List the commands.

The module of a command holds its arguments (`add_arguments`, if it takes any) beside its code. It
is imported only when the command runs or its help is shown, so `gpudeck --help` stays fast.
"""

from __future__ import annotations

from typing import NamedTuple

TOUR_FOLDER = "gpudeck-tour"
"""The default folder of the tour, which also runs if there is no display for the window."""


class Command(NamedTuple):
    """Describe one command."""

    name: str
    module: str
    """Module in `app`."""
    help: str
    function: str = "run"
    """The function that runs the command: takes the arguments and returns the exit status,
    or None for 0."""
    json: bool = True
    """The command has a --json option."""

    @property
    def remote(self) -> bool:
        """Return True where --host has it use the queue of another machine."""
        return self.name in _REMOTE


_REMOTE = frozenset(
    ("status", "watch", "power", "alerts", "drain", "undrain", "submit", "jobs", "logs", "retry",
     "wait", "pause", "resume", "edit", "move", "note", "groups", "cancel", "usage", "reserve",
     "notify", "settings", "web", "runs", "curves", "verdict")
)  # fmt: skip
"""Commands that need nothing but the daemon, and so can use that of another machine."""


COMMANDS = (
    Command("status", "cli.devices.status", "show the devices and the active jobs"),
    Command(
        "watch",
        "cli.devices.watch",
        "show the status live until Ctrl+C; with --json, print one line of JSON at each change",
    ),
    Command(
        "processes",
        "cli.devices.processes",
        "list the processes that use a GPU, with their jobs; on a machine without a GPU, those "
        "that use the CPU",
    ),
    Command(
        "kill",
        "cli.devices.kill",
        "end a process of the list after asking; if it belongs to a job, cancel the job",
    ),
    Command(
        "suspend",
        "cli.devices.suspend",
        "take running jobs or a program off the GPU; without either, list what is suspended",
    ),
    Command(
        "free",
        "cli.devices.free",
        "suspend the jobs on GPUs and keep the GPUs free for a time; then the jobs come back",
    ),
    Command("drain", "cli.devices.drain", "start no new jobs on GPUs; jobs that run continue"),
    Command(
        "undrain",
        "cli.devices.drain",
        "let jobs start again on GPUs that were drained, by you or after a fault",
        function="undrain",
    ),
    Command(
        "power",
        "cli.devices.power",
        "show the power limits of the GPUs, or print the command with which root sets one",
    ),
    Command("alerts", "cli.devices.alerts", "list current and past alerts, or acknowledge one"),
    Command(
        "calibrate",
        "cli.devices.calibrate",
        "measure the true clock of the GPUs, to correct the TFLOP/s that come from hardware "
        "counters",
    ),
    Command("export", "cli.devices.export", "write the history of the devices to a file"),
    Command(
        "metrics",
        "cli.devices.metrics",
        "serve the state of the devices and the queue to Prometheus",
        json=False,
    ),
    Command(
        "web",
        "cli.system.web",
        "serve a read-only page for browsers: what is free, the devices, the queue and its jobs",
        json=False,
    ),
    Command(
        "tour",
        "tour.command",
        "run the main workflow without a display: watch the devices, run attention, train a small "
        "model, write a brief, and take pictures of every page",
    ),
    Command("record", "cli.devices.record", "record a trace of the devices, to replay it later"),
    Command(
        "submit",
        "cli.queue.submit",
        "queue a command: gpudeck submit [options] -- COMMAND [ARG ...]",
    ),
    Command(
        "run",
        "cli.queue.run",
        "queue an accelerated workload: gpudeck run attention seq=16384 causal=yes",
    ),
    Command(
        "when-idle",
        "cli.queue.when_idle",
        "run a command while a GPU is idle; when the GPU is needed, the command is ended and "
        "begins anew later: gpudeck when-idle [options] -- COMMAND [ARG ...]",
        json=False,
    ),
    Command(
        "notebook",
        "cli.queue.notebook",
        "start Jupyter as a job and open it once it runs; list notebooks and shells with what they "
        "hold",
    ),
    Command(
        "shell",
        "cli.queue.shell",
        "start a shell as a job and open it here once it runs; leave it with Ctrl+] and come back",
    ),
    Command(
        "jobs", "cli.queue.jobs", "list the newest jobs, search all jobs, or show one in detail"
    ),
    Command("logs", "cli.queue.logs", "print the output of a job"),
    Command(
        "wait", "cli.queue.wait", "wait for a job to end; the exit status is 0 if it succeeded"
    ),
    Command("retry", "cli.queue.retry", "queue jobs that have ended once more, as new jobs"),
    Command("results", "cli.queue.results", "print what a job measured, or write it to a file"),
    Command(
        "verdict",
        "cli.queue.verdict",
        "judge how a job used its devices: pauses, a hang, a leak of memory, limited clocks, "
        "energy",
    ),
    Command(
        "runs",
        "cli.queue.runs",
        "list runs with the values that they left and the parameters in which they differ, sorted "
        "by any of them",
    ),
    Command(
        "curves",
        "cli.queue.curves",
        "print the curves of what jobs printed or wrote for TensorBoard, several runs on one scale",
    ),
    Command(
        "pause", "cli.queue.pause", "pause the whole queue, a group, or jobs that have not started"
    ),
    Command(
        "resume",
        "cli.queue.resume",
        "resume the queue, a group, jobs that are held or suspended, or a suspended program",
    ),
    Command(
        "edit",
        "cli.queue.edit",
        "change a waiting job; the name, notes and tags of a job can be changed at any time",
    ),
    Command("move", "cli.queue.move", "move a waiting job before or after another job"),
    Command("note", "cli.queue.note", "add a note to the timeline of a job"),
    Command(
        "usage",
        "cli.queue.usage",
        "add up the hours and the energy that jobs used, by user and month",
    ),
    Command(
        "limits",
        "cli.queue.limits",
        "list or set how many GPUs and GPU-hours a week users of a shared daemon may use",
    ),
    Command(
        "notify",
        "cli.queue.notify",
        "list where you are told about jobs, alerts and bookings (ntfy, Slack, mail, …); add, test "
        "or remove a destination",
    ),
    Command("groups", "cli.queue.groups", "list the groups of jobs, or set the limit of a group"),
    Command(
        "reserve",
        "cli.queue.reserve",
        "keep GPUs for a user or a group for a time; list or cancel bookings",
    ),
    Command("cancel", "cli.queue.cancel", "cancel jobs that wait, and end jobs that run"),
    Command(
        "inject",
        "cli.code.inject",
        "find attention in your code; show, prove, apply or undo its replacement by accelerated "
        "attention",
    ),
    Command(
        "search",
        "cli.code.search",
        "judge a GPU kernel: whether it is right, and faster than the fastest alternative; list, "
        "install or remove kernels that were found",
    ),
    Command("ask", "cli.assistant.ask", 'ask the assistant, e.g. gpudeck ask "what happened?"'),
    Command(
        "manual",
        "cli.assistant.manual",
        "print a page of the manual or one of its sections, e.g. gpudeck manual queue",
        json=False,
    ),
    Command(
        "query",
        "cli.assistant.query",
        "ask for values by subject and measure, e.g. gpudeck query devices temp --gpus 2-5",
    ),
    Command(
        "permissions",
        "cli.assistant.permissions",
        "list the actions that the assistant must never propose, or allow one again",
    ),
    Command(
        "mcp",
        "cli.assistant.mcp",
        "offer the assistant's queries and orders to other programs, by the Model Context Protocol",
        json=False,
    ),
    Command(
        "token",
        "cli.assistant.token",
        "list, add or revoke the access tokens with which programs act through gpudeck mcp without "
        "asking; show what was done with one",
    ),
    Command(
        "serve",
        "cli.assistant.serve",
        "offer the assistant's model to your editors and scripts on this machine, "
        "through OpenAI's API",
        json=False,
    ),
    Command(
        "bench",
        "cli.assistant.bench",
        "measure a language model under rising load: tokens per second, the time to the first "
        "token, and the time for each further token",
    ),
    Command(
        "proposals",
        "cli.assistant.proposals",
        "list what programs propose through gpudeck mcp, and approve or refuse it",
    ),
    Command(
        "report",
        "cli.assistant.report",
        "let the assistant write a report on the jobs that ran, failed or waited and on the energy "
        "used",
    ),
    Command(
        "models",
        "cli.assistant.models",
        "list the models for the assistant; add, download, choose, benchmark or remove one",
    ),
    Command(
        "settings",
        "cli.system.settings",
        "list the settings, explain some, or change them: gpudeck settings idle_dwell_s=30",
    ),
    Command(
        "config",
        "cli.system.config",
        "check or apply a file of TOML with settings, or print the settings as TOML",
    ),
    Command("daemon", "cli.system.daemon", "start, stop or check the background process"),
    Command("backup", "cli.system.backup", "copy the queue and the settings to one file"),
    Command(
        "restore",
        "cli.system.restore",
        "put the queue and the settings of a backup back, while no daemon runs",
    ),
    Command(
        "desktop",
        "cli.system.desktop",
        "add GPU Deck to the menu of your desktop, or remove it from there",
    ),
    Command(
        "cluster",
        "cli.system.cluster",
        "list the clusters that jobs can be submitted to; add or remove one",
    ),
    Command(
        "host",
        "cli.system.host",
        "list other machines whose devices are shown; add one by ssh, test it or remove it",
    ),
    Command(
        "clean",
        "cli.system.clean",
        "find files that are no longer needed (old kernels, logs, core dumps, copies of models) "
        "and move them to the trash, after asking",
    ),
    Command(
        "completion",
        "cli.system.completion",
        "print a script that completes commands and options in bash, zsh or fish",
        json=False,
    ),
    Command(
        "diagnostics",
        "cli.system.diagnostics",
        "print a text to paste into a bug report, without names, paths and secrets",
    ),
    Command(
        "doctor",
        "cli.system.doctor",
        "check everything that GPU Deck needs, and say how to fix what is wrong",
    ),
)
