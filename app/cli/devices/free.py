"""Free GPUs for a time: suspend the jobs there, and keep the GPUs free."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.devices.drain import find_device
from gpudeck.app.cli.output import UsageError, clear_progress, print_result, show_progress
from gpudeck.app.format.bookings import freed_text
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.units import parse_begin, parse_daily, parse_seconds

DEFAULT = "2h"
"""How long GPUs are freed where nothing is said."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the GPUs and the time."""
    parser.add_argument("gpus", nargs="+", metavar="GPU", help="indices or UUIDs")
    span = parser.add_mutually_exclusive_group()
    span.add_argument(
        "--for", dest="span", metavar="TIME", help=f"for how long, e.g. 45min (default: {DEFAULT})"
    )
    span.add_argument("--until", metavar="TIME", help="until when, e.g. 23:00")
    span.add_argument(
        "--daily", metavar="FROM-UNTIL", help="every day between these times, e.g. 20:00-23:00"
    )


def run(args: Namespace) -> None:
    """Free the GPUs that the arguments name."""
    now = time.time()
    begin = now
    if args.daily is not None:
        begin, end = parse_daily(args.daily, now)
    elif args.until is not None:
        end = parse_begin(args.until, now)
    else:
        end = now + parse_seconds(args.span or DEFAULT)
    if end <= now:
        raise UsageError("the time is over already. Example: --until 23:00")
    with Client(timeout=None) as client:
        snapshot = client.snapshot()
        gpus = tuple(find_device(snapshot, name).id for name in args.gpus)
        booking = Booking(gpus, begin, end, frees=True, daily=args.daily is not None)
        show_progress("waiting until the jobs are off the GPU")
        made = client.reserve(booking)
        clear_progress()
    print_result(args, made, *freed_text(made, booking, snapshot))
