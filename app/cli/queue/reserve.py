"""Reserve GPUs for a time, list what is reserved, or cancel a reservation."""

from __future__ import annotations

import pwd
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping

from app.cli import arguments
from app.cli.devices.drain import find_device
from app.cli.output import UsageError, print_json, print_line, print_result, print_table
from scheduler.client import Client
from scheduler.protocol.bookings import Booking
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.snapshot import Snapshot, label
from scheduler.protocol.units import clock, numbered, parse_begin


def add_arguments(parser: ArgumentParser) -> None:
    """Add the GPUs, the time, and for whom."""
    parser.add_argument("gpus", nargs="*", metavar="GPU", help="indices or UUIDs")
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="when it begins, e.g. 22:30, '2026-12-01 08:00' or +2h (default: now)",
    )
    parser.add_argument(
        "--until", metavar="TIME", help="when it ends, in the same forms; a span counts from begin"
    )
    parser.add_argument("--user", metavar="NAME", help="in a shared daemon: whose jobs may run")
    parser.add_argument("--group", default="", metavar="NAME", help="the group whose jobs may run")
    parser.add_argument(
        "--cancel", type=arguments.count, metavar="N", help="cancel this reservation"
    )


def run(args: Namespace) -> int:
    """Make, cancel or list reservations, as the arguments ask."""
    with Client() as client:
        if args.cancel is not None:
            client.cancel_reservation(args.cancel)
            print_result(
                args, {"cancelled": args.cancel}, f"Reservation {args.cancel} is cancelled."
            )
            return 0
        if args.gpus:
            return _reserve(client, args)
        snapshot = client.snapshot(live=False)
    known = snapshot.settings.reservations
    if args.json:
        print_json(known)
    elif known:
        print_table([("", "GPUS", "FOR", "FROM", "UNTIL"), *_rows(known, snapshot)])
    else:
        print_line("Nothing is reserved. Example: gpudeck reserve 0 1 --from 22:00 --until 08:00")
    return 0


def _reserve(client: Client, args: Namespace) -> int:
    if args.until is None:
        raise UsageError("a reservation needs its end. Example: --until 08:00, or --until +2h")
    now, snapshot = time.time(), client.snapshot()
    begin = now if args.begin is None else parse_begin(args.begin, now)
    end = parse_begin(args.until, begin)
    devices = [find_device(snapshot, name) for name in args.gpus]
    gpus = tuple(device.id for device in devices)
    user = None if args.user is None else _uid(args.user)
    booking = Booking(gpus, begin, end, user, args.group)
    made = client.reserve(booking)
    names = ", ".join(label(device) for device in devices)
    lines = [
        f"reservation {made.number}: {names} for {booking.holder} from {clock(begin, now)} to "
        f"{clock(end, now)}"
    ]
    if made.outlasting:
        lines.append(
            f"{numbered(made.outlasting)} may run on: no time limit ends it before the beginning"
            if len(made.outlasting) == 1
            else f"{numbered(made.outlasting)} may run on: no time limit ends them before"
        )
    print_result(args, made, *lines)
    return 0


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as e:
        raise NotFound(f"this machine has no user {name}") from e
    except ValueError as e:
        raise UserError(f"{name!a} is no name of a user") from e


def _rows(known: Mapping[str, Booking], snapshot: Snapshot) -> list[tuple[str, ...]]:
    return [
        (
            number,
            gpu_names(booking, snapshot),
            booking.holder,
            clock(booking.begin, snapshot.time),
            clock(booking.end, snapshot.time),
        )
        for number, booking in sorted(known.items(), key=lambda item: item[1].begin)
    ]


def gpu_names(booking: Booking, snapshot: Snapshot) -> str:
    """Return the GPUs of a reservation as people call them."""
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    return ", ".join(labels.get(gpu, gpu) for gpu in booking.gpus)
