"""List, add, test and remove the destinations that are told about jobs, alerts and bookings."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import cast, get_args

from gpudeck.app.cli.arguments import add_action
from gpudeck.app.cli.output import UsageError, print_list, print_result
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.destinations import (
    DEFAULT_EVENTS,
    EXAMPLES,
    KINDS,
    NOTICE_EVENTS,
    Destination,
    NoticeEvent,
)

_EXAMPLES = {
    "add": "gpudeck notify add phone ntfy",
    "test": "gpudeck notify test phone",
    "remove": "gpudeck notify remove phone",
}


def _events(text: str) -> tuple[NoticeEvent, ...]:
    """Read events separated by commas; an empty text stands for none."""
    given = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := [name for name in given if name not in get_args(NoticeEvent)]:
        known = ", ".join(NOTICE_EVENTS)
        raise ArgumentTypeError(f"expected any of {known}; got {unknown[0]!r}")
    return cast("tuple[NoticeEvent, ...]", given)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the destination, its kind and its events."""
    add_action(parser, "add", "test", "remove")
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="your name for the destination, e.g. phone")
    add(
        "kind",
        nargs="?",
        choices=KINDS,
        metavar="KIND",
        help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}. The address is asked for, or read from "
        "standard input, because it may be a secret",
    )
    add(
        "--for",
        dest="events",
        type=_events,
        default=DEFAULT_EVENTS,
        metavar="EVENT,...",
        help="what it is told without being asked: end (of every job), fail, alert, booking "
        f"(default: {','.join(DEFAULT_EVENTS)}; '' for nothing). A job submitted with --notify "
        "NAME is reported in any case",
    )


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    if args.action == "list":
        _list(args)
    elif not args.name:
        raise UsageError(f"missing name. Example: {_EXAMPLES[args.action]}")
    elif args.action == "add":
        _add(args)
        text = f"{args.name} was added. Try it with: gpudeck notify test {args.name}"
        print_result(args, None, text)
    elif args.action == "test":
        with Client() as client:
            client.try_destination(args.name)
        print_result(args, None, f"A test was sent to {args.name}.")
    else:
        with Client() as client:
            client.set_destination(args.name, None)
        print_result(args, None, f"{args.name} was removed.")


def _add(args: Namespace) -> None:
    if args.kind is None:
        raise UsageError(f"missing kind: {', '.join(KINDS)}. Example: {_EXAMPLES['add']}")
    address = ""
    if args.kind != "desktop":
        ask = f"Address, such as {EXAMPLES[args.kind]} (not shown while you type): "
        given = getpass.getpass(ask) if sys.stdin.isatty() else sys.stdin.readline()
        address = given.strip()
    with Client() as client:
        client.set_destination(args.name, Destination(args.kind, address, args.events))


def _list(args: Namespace) -> None:
    with Client() as client:
        found = client.destinations()
    rows = []
    for d in found:
        waiting = f"{d.waiting} waiting" if d.waiting else ""
        state = ", ".join(filter(None, (d.problem, waiting)))
        rows.append((d.name, d.kind, d.host, ", ".join(d.events), state))
    print_list(
        args, found, ("NAME", "KIND", "SERVER", "TOLD OF", "PROBLEM"), rows,
        f"Nobody is told. Add a destination with: {_EXAMPLES['add']}",
    )  # fmt: skip
