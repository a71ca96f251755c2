"""Write the history of the devices to a file."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.app.cli.output import print_result
from gpudeck.app.format.values import plural
from gpudeck.app.report.history_export import export_past
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.verbs.devices import MAX_POINTS


def add_arguments(parser: ArgumentParser) -> None:
    """Add the devices, the span, the fields, and the file."""
    add = parser.add_argument
    add("--device", metavar="N", help="index or ID of a device (default: all)")
    add(
        "--since",
        type=arguments.duration,
        default=3600.0,
        metavar="TIME",
        help="start this long ago, e.g. 2h or 7d (default: 1h)",
    )
    add(
        "--until",
        type=arguments.duration,
        default=0.0,
        metavar="TIME",
        help="end this long ago (default: 0, which is now)",
    )
    add("--fields", default="", metavar="NAME,...", help="e.g. util,power (default: all)")
    add(
        "--points",
        type=_points,
        metavar="N",
        help="write at most N rows for each device (default: all that are stored)",
    )
    add(
        "--out",
        required=True,
        metavar="FILE",
        help="file to write; its name ends with .csv or .parquet, or with .trace.gz for a "
        "recording that can be replayed on any machine",
    )


def _points(text: str) -> int:
    if not 1 <= (number := arguments.count(text)) <= MAX_POINTS:
        raise ArgumentTypeError(f"expected a number from 1 to {MAX_POINTS}; got {text!r}")
    return number


def run(args: Namespace) -> None:
    """Export the history between two times."""
    fields = tuple(name.strip() for name in args.fields.split(",") if name.strip())
    if unknown := [name for name in fields if name not in FIELDS]:
        raise UserError(
            phrase(
                "unknown field {unknown}. The fields are: {names}",
                unknown=", ".join(unknown),
                names=", ".join(FIELDS),
            )
        )
    now = time.time()
    with Client() as client:
        known = (state.device for state in wait_for_reading(client).devices)
        devices = [d for d in known if args.device in (None, d.number, d.id)]
        if not devices:
            raise NotFound(
                phrase("there is no device {device}. See: gpudeck status", device=args.device)
            )
        start, end = now - args.since, now - args.until
        rows = export_past(client, devices, fields, start, end, args.points, Path(args.out))
    print_result(
        args, {"file": args.out, "rows": rows}, f"Wrote {plural(rows, 'row')} to {args.out}."
    )
