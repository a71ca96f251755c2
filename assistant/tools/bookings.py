"""Plan bookings: GPUs that are kept free for a time."""

from __future__ import annotations

import time

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.language.numbers import clock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.protocol.units import parse_begin


def book(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to keep GPUs free of jobs for a time, or for the jobs of a group."""
    words, now = context.words, time.time()
    found = choose_gpus(context, context.daemon.snapshot(), order)
    if "until" not in order.options:
        raise UserError(words.text("say until when to keep them, for example: until 18:00"))
    begin = parse_begin(order.options["begin"], now) if "begin" in order.options else now
    end = parse_begin(order.options["until"], begin)
    group = order.options.get("group", "")
    booking = Booking(tuple(device.id for device in found), begin, end, None, group)
    names = ", ".join(map(label, found))

    def carry_out(daemon: Client, env: Environment) -> str:
        made = daemon.reserve(booking)
        return words.text("{gpus} will be kept: booking {n}.", gpus=names, n=made.number)

    parts = ["gpudeck reserve", *(str(device.index) for device in found)]
    parts += [f"--from '{order.options['begin']}'"] if "begin" in order.options else []
    parts += [f"--until '{order.options['until']}'", *([f"--group {group}"] if group else [])]
    effect = words.text(
        "No job will start on {gpus} that could still run between {begin} and {end}. Programs that "
        "are not jobs of the queue may use it.",
        gpus=names, begin=clock(begin, now), end=clock(end, now),
    )  # fmt: skip
    return PlannedAction(
        words.text("Keep {gpus} free", gpus=names),
        effect,
        (booking.gpus, order.options.get("begin"), order.options["until"], group),
        carry_out,
        ((words.text("Command"), " ".join(parts)),),
    )


def choose_gpus(context: ToolContext, snapshot: Snapshot, order: Order) -> list[Device]:
    """Return the devices that an order names, or the only one. Raises NotFound, UserError."""
    words, found = context.words, [state.device for state in snapshot.devices]
    if order.devices:
        missing = set(order.devices) - {device.index for device in found}
        if missing:
            named = ", ".join(f"GPU {index}" for index in sorted(missing))
            raise NotFound(words.text("there is no {gpu} on this machine", gpu=named))
        found = [device for device in found if device.index in order.devices]
    elif len(found) > 1:
        raise UserError(words.text("name the GPUs, for example: keep gpu 3 free until 18:00"))
    return found


PLANNERS: dict[str, Planner] = {"book": book}
