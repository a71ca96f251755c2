"""List, add, test and remove other machines, whose devices are read over ssh."""

from __future__ import annotations

import asyncio
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpudeck.app.cli.arguments import add_action
from gpudeck.app.cli.output import UsageError, print_list, print_result
from gpudeck.app.format.hosts import found, host_devices, host_state, make_host
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.hosts.connection import first_moment
from gpudeck.scheduler.hosts.decoder import Moment
from gpudeck.scheduler.protocol.errors import NotFound, UserError, no_machine
from gpudeck.scheduler.protocol.settings import HOST, HostSettings

_EXAMPLES = {
    "add": "gpudeck host add lab1 user@lab1",
    "test": "gpudeck host test lab1",
    "remove": "gpudeck host remove lab1",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the machine, and how to reach it."""
    add_action(parser, "add", "test", "remove")
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="your name for the machine, e.g. lab1")
    add(
        "address",
        nargs="?",
        metavar="ADDRESS",
        help="what you give to ssh, e.g. user@lab1, a name in ~/.ssh/config, or "
        "ssh://user@lab1:2222",
    )
    add("--ssh-config", metavar="FILE", default="", help="configuration file of ssh (ssh -F)")
    add(
        "--home",
        metavar="FOLDER",
        default="",
        help="state folder of GPU Deck on that machine, if it is not the default one",
    )


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    if args.action == "list":
        _list(args)
    elif not args.name:
        raise UsageError(f"missing name. Example: {_EXAMPLES[args.action]}")
    elif args.action == "add":
        host = _host(args)
        moment = _reached(host)
        with Client() as client:
            client.set_host(args.name, host)
        print_result(args, host, f"{args.name} was added. {found(moment)}")
    elif args.action == "test":
        with Client() as client:
            known = client.snapshot().settings.hosts
        if args.name not in known:
            raise NotFound(no_machine(args.name))
        moment = asyncio.run(first_moment(known[args.name]))
        print_result(args, moment, f"{args.name} answers. {found(moment)}")
    else:
        with Client() as client:
            client.set_host(args.name, None)
        print_result(args, None, f"{args.name} was removed. Its history is kept for 30 days.")


def _host(args: Namespace) -> HostSettings:
    """Return the machine that the arguments describe. Raises UsageError where one is wrong."""
    if re.match(HOST, args.name) and not args.address:
        raise UsageError(f"missing address. Example: {_EXAMPLES['add']}")
    config = str(Path(args.ssh_config).expanduser().absolute()) if args.ssh_config else ""
    try:
        return make_host(args.name, args.address or "", config, args.home)
    except UserError as e:
        raise UsageError(str(e)) from e


def _reached(host: HostSettings) -> Moment:
    """Return what the machine sends, before it is stored. Raises UserError."""
    try:
        return asyncio.run(first_moment(host))
    except UserError as e:
        raise UserError(phrase("{problem}. Nothing was added.", problem=e.message)) from e


def _list(args: Namespace) -> None:
    with Client() as client:
        snapshot = client.snapshot()
    print_list(
        args, snapshot.hosts, ("NAME", "ADDRESS", "DEVICES", "STATE"),
        [
            (h.name, h.address, host_devices(h), host_state(h, snapshot.time))
            for h in snapshot.hosts
        ],
        f"No other machines. Add one with: {_EXAMPLES['add']}",
    )  # fmt: skip
