"""Plan bookings: GPUs that are kept free for a time."""

from __future__ import annotations

import time
from datetime import datetime

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools.buttons import Buttons, of_gpus
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.language.rendering import render, render_moment
from gpudeck.language.text import Moment, phrase
from gpudeck.language.words import Words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking, user_id
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import held_devices
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.protocol.units import numbered, parse_begin


def book(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to keep GPUs free of jobs for a time, or for the jobs of a group."""
    words, now = context.words, time.time()
    if "until" not in order.options:
        raise UserError(words.text("say until when to keep them, for example: until 18:00"))
    begin = parse_begin(order.options["begin"], now) if "begin" in order.options else now
    end = parse_begin(order.options["until"], begin)
    snapshot = context.daemon.snapshot()
    if order.number is not None and not order.devices:
        found = _unbooked(context, snapshot, order.number, begin, end)
    else:
        found = choose_gpus(context, snapshot, order)
    group = order.options.get("group", "")
    user = user_id(order.user) if order.user else None
    booking = Booking(tuple(device.id for device in found), begin, end, user, group)
    labels = tuple(map(label, found))
    names = ", ".join(labels)

    def carry_out(daemon: Client, env: Environment) -> str:
        made = daemon.reserve(booking)
        return words.text("{gpus} will be kept: booking {n}.", gpus=names, n=made.number)

    parts = ["gpudeck reserve", *(str(device.index) for device in found)]
    parts += [f"--from '{order.options['begin']}'"] if "begin" in order.options else []
    parts += [f"--until '{order.options['until']}'", *([f"--group {group}"] if group else []),
              *([f"--user {order.user}"] if order.user else [])]  # fmt: skip
    return PlannedAction(
        words.text("Keep {gpus} free", gpus=names),
        _keeping(context, order, booking, found, snapshot),
        (booking.gpus, order.options.get("begin"), order.options["until"], group, order.user),
        carry_out,
        ((words.text("Command"), " ".join(parts)),),
        buttons=Buttons(
            phrase("Book {gpus}", gpus=of_gpus(labels)),
            phrase("Leave {gpus} unbooked", gpus=of_gpus(labels)),
        ),
    )


def _keeping(
    context: ToolContext, order: Order, booking: Booking, found: list[Device], snapshot: Snapshot
) -> str:
    """Say what a booking keeps from starting, whose jobs may run, and what runs there now."""
    words = context.words
    effect = words.text(
        "No job will start on {gpus} that could still run between {begin} and {end}. Programs that "
        "are not jobs of the queue may use it.",
        gpus=", ".join(map(label, found)), begin=_on_its_day(booking.begin, words),
        end=_on_its_day(booking.end, words),
    )  # fmt: skip
    if booking.user is not None or booking.group:
        holder = render(booking.holder, words.language)
        return f"{effect} {words.text('Only jobs of {holder} may run there.', holder=holder)}"
    running = [job.id for job in snapshot.jobs if {*held_devices(job)} & {*booking.gpus}]
    if "begin" in order.options or not running:
        return effect
    indices = " ".join(str(device.index) for device in found)
    going_on = words.text(
        "What runs there goes on: {jobs}. To suspend it: {command}", jobs=numbered(running),
        command=f"gpudeck free {indices} --until '{order.options['until']}'",
    )  # fmt: skip
    return f"{effect} {going_on}"


def _unbooked(
    context: ToolContext, snapshot: Snapshot, count: int, begin: float, end: float
) -> list[Device]:
    """Return so many GPUs that nobody has booked for a time, those without a job first.

    Raises UserError if there are fewer.
    """
    taken = {gpu for booking in snapshot.settings.reservations.values()
             if booking.begin < end and begin < booking.end for gpu in booking.gpus}  # fmt: skip
    held = {device for job in snapshot.jobs if job.active for device in held_devices(job)}
    found = [state.device for state in snapshot.devices if state.device.id not in taken]
    if not 0 < count <= len(found):
        raise UserError(
            context.words.text(
                "{n} GPUs cannot be booked: {free} of {all} are not booked in that time",
                n=count, free=len(found), all=len(snapshot.devices),
            )
        )  # fmt: skip
    chosen = sorted(found, key=lambda device: (device.id in held, device.index))[:count]
    return sorted(chosen, key=lambda device: device.index)


def unbook(context: ToolContext, order: Order) -> PlannedAction:
    """Plan to end the one booking that an order describes: its GPUs, its day, whom it is for."""
    words, snapshot = context.words, context.daemon.snapshot()
    devices = {state.device.index: state.device.id for state in snapshot.devices}
    named = {devices.get(index, "") for index in order.devices}
    number, booking = _booking_of(context, snapshot, order, named)
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    names = ", ".join(labels.get(gpu, gpu) for gpu in booking.gpus)
    if named and not {*booking.gpus} <= named:
        raise UserError(
            words.text(
                "booking {n} is for {gpus} together: end it as a whole, or book anew",
                n=number, gpus=names,
            )
        )  # fmt: skip

    def carry_out(daemon: Client, env: Environment) -> str:
        daemon.cancel_booking(int(number))
        return words.text("Booking {n} has ended.", n=number)

    effect = words.text(
        "{gpus}: no longer kept for {holder} from {begin} to {end}.", gpus=names,
        holder=render(booking.holder, words.language), begin=_on_its_day(booking.begin, words),
        end=_on_its_day(booking.end, words),
    )  # fmt: skip
    return PlannedAction(
        words.text("End booking {n}", n=number), effect, (number, booking), carry_out,
        ((words.text("Command"), f"gpudeck reserve cancel {number}"),),
        buttons=Buttons(phrase("End booking {n}", n=number), phrase("Keep booking {n}", n=number)),
    )  # fmt: skip


def _booking_of(
    context: ToolContext, snapshot: Snapshot, order: Order, named: set[str]
) -> tuple[str, Booking]:
    """Return the booking that an order describes, with its number.

    Raises:
        NotFound: There is none.
        UserError: Several are meant.
    """
    words, now = context.words, time.time()
    user = user_id(order.user) if order.user else None
    found = {
        number: booking for number, booking in snapshot.settings.reservations.items()
        if booking.end > now and (not named or named & {*booking.gpus})
        and _is_of_day(booking, order.options.get("begin", ""))
        and (user is None or booking.user == user)
    }  # fmt: skip
    if not found:
        raise NotFound(words.text("there is no such booking. See: gpudeck reserve"))
    if len(found) > 1:
        raise UserError(
            words.text(
                "{n} bookings are meant: name the GPUs or the day of one. See: gpudeck reserve",
                n=len(found),
            )
        )
    ((number, booking),) = found.items()
    return number, booking


def _is_of_day(booking: Booking, day: str) -> bool:
    """Return whether a booking begins on a day, such as `2026-11-27`; any fits an empty one."""
    return not day or datetime.fromtimestamp(booking.begin).strftime("%Y-%m-%d") == day


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


PLANNERS: dict[str, Planner] = {"book": book, "unbook": unbook}


def _on_its_day(at: float, words: Words) -> str:
    """Return a time with its day: whoever approves a booking sees if another day was meant.

    It has its year, too, where that is another one than now.
    """
    years = {datetime.fromtimestamp(one).year for one in (at, time.time())}
    return render_moment(Moment(at, "day of a year" if len(years) > 1 else "day"), words.language)
