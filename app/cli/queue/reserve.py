"""Reserve GPUs for a time, list what is reserved, or cancel bookings."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.devices.drain import find_device
from gpudeck.app.cli.output import UsageError, print_list, print_result
from gpudeck.app.format.bookings import booking_rows, gpu_names, outlasting_text
from gpudeck.language.numbers import clock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking, user_id
from gpudeck.scheduler.protocol.units import parse_begin

ACTIONS = ("list", "cancel")


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to do, the GPUs, the time, and for whom."""
    named = parser.add_argument(
        "what",
        nargs="*",
        metavar="list | cancel N | GPU",
        help="list the bookings (the default), cancel the bookings with these numbers, or book "
        "these GPUs, by index or UUID",
    )
    named.words = ACTIONS  # type: ignore[attr-defined] # for the completion of shells
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="when it begins, e.g. 22:30, '2026-12-01 08:00' or +2h (default: now)",
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="when the booking ends, in the same forms; a span such as "
        "+2h counts from the beginning",
    )
    parser.add_argument("--user", metavar="NAME", help="in a shared daemon: whose jobs may run")
    parser.add_argument("--group", default="", metavar="NAME", help="the group whose jobs may run")


def run(args: Namespace) -> None:
    """Make, cancel or list bookings, as the arguments ask."""
    action = args.what[0] if args.what else "list"
    rest = args.what[1:]
    if action == "cancel":
        _cancel(args, rest)
    elif action == "list":
        _list(args, rest)
    else:
        _reserve(args)


def _list(args: Namespace, rest: list[str]) -> None:
    if rest or args.until or args.begin:
        raise UsageError("list takes no GPU and no time. Example: gpudeck reserve 0 --until +2h")
    with Client() as client:
        snapshot = client.snapshot(live=False)
    print_list(
        args, snapshot.settings.reservations, ("NUMBER", "GPUS", "FOR", "FROM", "UNTIL", "STATE"),
        [row.cells for row in booking_rows(snapshot)],
        "Nothing is reserved. Example: gpudeck reserve 0 1 --from 22:00 --until 08:00",
    )  # fmt: skip


def _cancel(args: Namespace, numbers: list[str]) -> None:
    """Cancel the bookings with these numbers."""
    if not numbers or not all(number.isascii() and number.isdigit() for number in numbers):
        raise UsageError("cancel takes the numbers of bookings. Example: gpudeck reserve cancel 2")
    cancelled = [int(number) for number in numbers]
    with Client() as client:
        for number in cancelled:
            client.cancel_booking(number)
    lines = (f"Booking {number} was cancelled." for number in cancelled)
    print_result(args, {"cancelled": cancelled}, *lines)


def _reserve(args: Namespace) -> None:
    if args.until is None:
        raise UsageError("a booking needs its end. Example: --until 08:00, or --until +2h")
    with Client() as client:
        now, snapshot = time.time(), client.snapshot()
        begin = now if args.begin is None else parse_begin(args.begin, now)
        end = parse_begin(args.until, begin)
        gpus = tuple(find_device(snapshot, name).id for name in args.what)
        user = None if args.user is None else user_id(args.user)
        booking = Booking(gpus, begin, end, user, args.group)
        made = client.reserve(booking)
    text = (
        f"Booking {made.number}: {gpu_names(booking, snapshot)} for {booking.holder} from "
        f"{clock(begin, now)} to {clock(end, now)}"
    )
    print_result(args, made, text, *filter(None, [outlasting_text(made.outlasting)]))
