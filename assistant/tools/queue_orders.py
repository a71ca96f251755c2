"""Plan what changes the queue, GPUs, processes, alerts and settings."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.find import MAX_JOBS
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.setting_units import BELOW_SLOWDOWN, shown
from gpudeck.assistant.tools.buttons import Buttons, of_gpus
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.language.rendering import render
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors.remote_runner import TERM_GRACE_S
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Queued
from gpudeck.scheduler.protocol.snapshot import label

_NO_GPU = "process {pid} uses no GPU. To list those that do: gpudeck processes"


def _action(
    context: ToolContext,
    order: Order,
    heading: str,
    effect: str,
    change: Callable[[Client], object],
    done: str,
    command: str,
    buttons: tuple[Text, Text],
    *basis: object,
) -> PlannedAction:
    def carry_out(daemon: Client, env: Environment) -> str:
        change(daemon)
        return done

    details = ((context.words.text("Command"), command),) if command else ()
    return PlannedAction(
        heading,
        effect,
        (order.line, *basis),
        carry_out,
        details,
        order,
        buttons=Buttons(*buttons),
    )


def pause(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to pause or resume the queue or a group."""
    words, paused = context.words, order.verb == "pause"
    if order.group:
        return _pause_group(context, order, paused)
    if context.daemon.snapshot().paused == paused:
        raise UserError(
            words.text("the queue is paused already" if paused else "the queue is not paused")
        )
    active = context.daemon.jobs(MAX_JOBS, active=True)
    waiting = sum(isinstance(job.state, Queued) for job in active)
    counts = words.text(
        "{running} running, {waiting} waiting.", running=len(active) - waiting, waiting=waiting
    )
    if paused:
        effect = words.text("No job will start until the queue is resumed; those that run go on.")
    else:
        effect = words.text("Jobs start as soon as there is room.")
    return _action(
        context,
        order,
        words.text("Pause the queue" if paused else "Resume the queue"),
        f"{effect} {counts}",
        lambda daemon: daemon.pause(paused),
        words.text(
            "The queue is paused: no job will start." if paused else "The queue is resumed."
        ),
        f"gpudeck {order.verb}",
        (phrase("Pause the queue"), phrase("Let the queue go on"))
        if paused
        else (phrase("Resume the queue"), phrase("Keep the queue paused")),
    )


def _group(context: ToolContext, name: str) -> str:
    names = {state.group.name for state in context.daemon.groups()}
    if name not in names:
        known = ", ".join(sorted(names)) or "-"
        raise NotFound(
            context.words.text(
                "there is no group {group}; there are: {known}",
                group=phrases.plain(name, 40),
                known=phrases.plain(known),
            )
        )
    return name


def _pause_group(context: ToolContext, order: Order, paused: bool) -> PlannedAction:
    words, group = context.words, _group(context, order.group)
    name = phrases.plain(group, 60)
    return _action(
        context,
        order,
        words.text("Pause the group {group}" if paused else "Resume the group {group}", group=name),
        words.text(
            "No job of the group {group} will start; those that run go on."
            if paused
            else "Jobs of the group {group} start as soon as there is room.",
            group=name,
        ),
        lambda daemon: daemon.set_group(group, paused=paused),
        words.text(
            "The group {group} is paused." if paused else "The group {group} is resumed.",
            group=name,
        ),
        f"gpudeck {order.verb} --group {name}",
        (
            phrase("Pause the group {group}", group=name),
            phrase("Let the group {group} go on", group=name),
        )
        if paused
        else (
            phrase("Resume the group {group}", group=name),
            phrase("Keep the group {group} paused", group=name),
        ),
    )


def limit(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to limit how many jobs of a group run at once."""
    words, number = context.words, order.number
    if not order.group or number is None:
        raise UserError(words.text("name the group and the number of jobs that may run at once"))
    group = _group(context, order.group)
    name = phrases.plain(group, 60)
    return _action(
        context,
        order,
        words.text("Limit the group {group} to {n}", group=name, n=number),
        words.count(
            "At most {n} job of the group will run at once.",
            "At most {n} jobs of the group will run at once.",
            number,
        ),
        lambda daemon: daemon.set_group(group, limit=number),
        words.text("The group {group} is limited to {n}.", group=name, n=number),
        f"gpudeck groups {name} --limit {number}",
        (
            phrase("Limit the group {group} to {n}", group=name, n=number),
            phrase("Keep the limit of {group}", group=name),
        ),
    )


def drain(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to start no new jobs on GPUs, or to start them again."""
    words, out = context.words, order.verb == "drain"
    snapshot = context.daemon.snapshot()
    found = [s.device for s in snapshot.devices if s.device.index in order.devices]
    missing = set(order.devices) - {device.index for device in found}
    if missing or not found:
        named = ", ".join(f"GPU {index}" for index in sorted(missing)) or "GPU"
        raise NotFound(words.text("there is no {gpu} on this machine", gpu=named))
    drained = set(settings.listed(snapshot.settings.drained))
    for device in found:
        drained -= {device.id, device.number}
        drained |= {device.id} if out else set()
    labels = tuple(map(label, found))
    names, gpus = ", ".join(labels), of_gpus(labels)
    return _action(
        context,
        order,
        words.text("Drain {gpus}" if out else "Use {gpus} again", gpus=names),
        words.text(
            "No new job will start on {gpus}; jobs that run there go on."
            if out
            else "Jobs may start on {gpus} again.",
            gpus=names,
        ),
        lambda daemon: daemon.configure(drained=", ".join(sorted(drained))),
        words.text("Drained: {gpus}." if out else "In use again: {gpus}.", gpus=names),
        f"gpudeck {order.verb} {' '.join(device.number for device in found)}",
        (phrase("Drain {gpus}", gpus=gpus), phrase("Go on using {gpus}", gpus=gpus))
        if out
        else (phrase("Use {gpus} again", gpus=gpus), phrase("Keep {gpus} drained", gpus=gpus)),
    )


def _process(context: ToolContext, order: Order) -> Process:
    """Return the only process of an order: by its PID, or by its name, its user and its GPU.

    Raises:
        NotFound: There is none.
        UserError: None is named, or several fit.
    """
    words, pid, name = context.words, order.number, order.text.casefold()
    if pid is None and not (name or order.devices):
        raise UserError(words.text("name the process by its PID. To list them: gpudeck processes"))
    devices = [state.device for state in context.daemon.snapshot().devices]
    on = {device.id for device in devices if device.index in order.devices}
    found = {
        process.pid: process
        for detail in context.daemon.details()
        for process in detail.processes
        if (pid is None or process.pid == pid)
        and (not order.devices or detail.device in on)
        and (not name or _is_called(process.name, name))
        and (pid is not None or not order.user or process.user == order.user)
    }
    if not found and pid is not None:
        raise NotFound(words.text(_NO_GPU, pid=pid))
    if not found:
        raise NotFound(words.text("no such process uses a GPU. To list the processes on the "
                                  "GPUs: gpudeck processes"))  # fmt: skip
    if pid is not None and order.user and found[pid].user != order.user:
        raise UserError(words.text("process {pid} is one of {user}, not of {other}", pid=pid,
                                   user=phrases.plain(found[pid].user, 40) or "?",
                                   other=phrases.plain(order.user, 40)))  # fmt: skip
    if len(found) > 1:
        listed = (f"{one.pid} ({phrases.plain(one.name, 60)})" for one in found.values())
        raise UserError(words.text("name one of these processes by its PID: {processes}",
                                   processes=", ".join(listed)))  # fmt: skip
    return next(iter(found.values()))


def _is_called(name: str, wanted: str) -> bool:
    """Return whether a process has a word for its name; `python` is `python3.11`, too."""
    pattern = rf"(?<![\w-]){re.escape(wanted)}(?![^\W\d]|-)"
    return re.search(pattern, name.casefold()) is not None


def kill(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to end a process that uses a GPU."""
    words, process = context.words, _process(context, order)
    pid, name = process.pid, phrases.plain(process.name, 60)
    effect = words.text(
        "Process {pid} ({name}) of {user} will be sent SIGTERM, then SIGKILL after {seconds} s. "
        "Unsaved data is lost.",
        pid=pid,
        name=name,
        user=phrases.plain(process.user, 40) or "?",
        seconds=f"{TERM_GRACE_S:.0f}",
    )
    if process.job:
        effect += " " + words.text("Job {job}, which it belongs to, is cancelled.", job=process.job)
    return _action(
        context,
        Order("kill", number=pid),
        words.text("End process {pid} ({name})", pid=pid, name=name),
        effect,
        lambda daemon: daemon.kill(process),
        words.text("Process {pid} has ended.", pid=pid),
        f"gpudeck kill {pid}",
        (
            phrase("End process {pid}", pid=pid),
            phrase("Let process {pid} run on", pid=pid),
        ),
        process.ticks,
    )


def acknowledge(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to record that an alert was seen."""
    words = context.words
    found = next((a for a in context.daemon.snapshot().alerts if a.id == order.number), None)
    if found is None:
        raise NotFound(words.text("there is no such alert now. To list them: gpudeck alerts"))
    return _action(
        context,
        order,
        words.text("Acknowledge alert {n}", n=found.id),
        phrases.plain(render(found.text, words.language), 300),
        lambda daemon: daemon.acknowledge(found.id),
        words.text("Alert {n} is acknowledged.", n=found.id),
        f"gpudeck alerts --acknowledge {found.id}",
        (
            phrase("Acknowledge alert {n}", n=found.id),
            phrase("Leave alert {n} as it is", n=found.id),
        ),
    )


_MOST_BELOW = 40.0
"""A higher value of an alert below slow-down is meant as a temperature, which it is not."""


def change_setting(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to change a setting; its value is checked before anybody is asked."""
    words = context.words
    if not order.setting or not order.text:
        raise UserError(
            words.text("name the setting and its value, for example: set the theme to dark")
        )
    current = context.daemon.snapshot().settings
    known = order.setting in current.__struct_fields__  # `changed` refuses others
    before = getattr(current, order.setting) if known else ""
    value, told = _meant(context, order, before)
    after = getattr(settings.changed(current, {order.setting: value}), order.setting)
    before_text = shown(order.setting, phrases.plain(str(before), 60)) or words.text("not set")
    after_text = shown(order.setting, str(after))
    effect = [words.text("It was {before}.", before=before_text)]
    if told:
        effect.append(
            words.text("It counts down from the temperature at which the GPU slows itself down.")
        )
    if order.devices:
        effect.append(words.text("It is for all GPUs."))
    return _action(
        context,
        order,
        words.text("Set {setting} to {value}", setting=order.setting, value=after_text),
        " ".join(effect),
        lambda daemon: daemon.configure(**{order.setting: value}),
        words.text("The setting {name} is {value}.", name=order.setting, value=after_text),
        "",
        (
            phrase(
                "Set {setting} to {value}",
                setting=order.setting,
                value=phrases.plain(after_text, 40),
            ),
            phrase("Leave {setting} as it is", setting=order.setting),
        ),
        msgspec.json.encode(before),
    )


def _meant(context: ToolContext, order: Order, before: object) -> tuple[str | float | bool, bool]:
    """Return the value for a setting, and whether it was said as a temperature that it is below.

    Raises UserError for a temperature of which nobody knows how far it is below the slow-down.
    """
    value = _typed(order.text, before)
    if order.setting not in BELOW_SLOWDOWN:
        return value, False
    if (told := _below_slowdown(context, value)) is not None:
        return told, True
    if isinstance(value, float) and value > _MOST_BELOW:
        raise UserError(
            context.words.text(
                "the temperature alert is given in °C below the temperature at which the GPU slows "
                "itself down, such as 5"
            )
        )
    return value, False


def _below_slowdown(context: ToolContext, value: object) -> float | None:
    """Return how far a temperature is below that at which the GPUs slow themselves down.

    None if the value is such a distance already, or the GPUs do not say where that is.
    """
    if not isinstance(value, float) or value <= _MOST_BELOW:
        return None
    limits = [
        limit
        for state in context.daemon.snapshot().devices
        if state.reading is not None
        and isinstance(limit := state.reading.get("temp_limit"), int | float)
    ]
    return min(limits) - value if limits and min(limits) > value else None


def _typed(text: str, before: object) -> str | float | bool:
    """Return a value in the type of the one before, if it reads so."""
    if isinstance(before, bool):
        return text == "True"
    if text == "True":
        return "on"
    try:
        return float(text)
    except ValueError:
        return text


PLANNERS: dict[str, Planner] = {
    "pause": pause,
    "resume": pause,
    "limit": limit,
    "drain": drain,
    "undrain": drain,
    "kill": kill,
    "acknowledge": acknowledge,
    "set": change_setting,
}
