"""export: the history of the devices as a file."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from app.cli.output import say, say_json
from app.cli.watch import first_reading
from app.dashboard.history_export import export_past
from app.format.values import plural
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.fields import FIELDS


def export(args: Namespace) -> int:
    """Write what was read between two times."""
    fields = tuple(name.strip() for name in args.fields.split(",") if name.strip())
    if unknown := [name for name in fields if name not in FIELDS]:
        raise UserError(f"no field is called {', '.join(unknown)}. There are: {', '.join(FIELDS)}")
    now = time.time()
    with Client() as deck:
        devices = [
            s.device
            for s in first_reading(deck).devices
            if args.device in (None, str(s.device.index), s.device.id)
        ]
        if not devices:
            raise NotFound(f"there is no device {args.device}. See: gpudeck status")
        rows = export_past(
            deck, devices, fields, now - args.since, now - args.until, args.points, Path(args.out)
        )
    if args.json:
        say_json({"file": args.out, "rows": rows})
    else:
        say(f"{plural(rows, 'row')} written to {args.out}")
    return 0
