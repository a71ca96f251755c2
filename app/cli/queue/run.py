"""Queue an accelerated workload as a job."""

from __future__ import annotations

import shlex
import time
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudeck.accel.workloads import catalog
from gpudeck.app.cli.files import read_bytes
from gpudeck.app.cli.output import UsageError, print_json, print_line, print_table
from gpudeck.app.cli.queue.delivery import deliver
from gpudeck.app.cli.queue.submit import add_token
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Job

START_S = 10.0
"""Seconds within which a daemon that has just started finds the devices."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the workload and its parameters."""
    names = ", ".join(workload.name for workload in catalog.WORKLOADS)
    parser.add_argument(
        "workload", nargs="?", metavar="WORKLOAD", help=f"{names}; left out: say what they are"
    )
    parser.add_argument(
        "params",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of the workload; those that you leave out get good defaults for this "
        "machine",
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="read parameters from a TOML file; those on the command line go first",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the parameters of the workload, with defaults"
    )
    add_token(parser)
    parser.add_argument(
        "--wait", action="store_true", help="wait for the job to end, and print its result"
    )
    parser.set_defaults(explain_extra=_explain_extra)


def run(args: Namespace) -> int:
    """Submit the workload that the arguments name, or list workloads or parameters."""
    if not args.workload:
        return _list_workloads(args.json)
    try:
        workload = _find(args.workload, args.params)
        given = _read_settings(args.settings) if args.settings else {}
        given |= dict(_parse_assignment(text) for text in args.params)
    except (ValueError, UserError) as e:
        raise UsageError(str(e)) from e
    with Client() as client:
        if args.list:
            return _list_parameters(workload, _device_kind(client), args.json)
        asked = client.spec((args.workload, *args.params), {})
        return deliver(
            client, args, [asked], lambda token: [submit_workload(client, workload, given, token)]
        )


def _explain_extra(args: Namespace, given: Sequence[str], extra: Sequence[str]) -> None:
    """Raise UsageError where the extra words are options of another command."""
    if args.workload and given.index(args.workload) < given.index(extra[0]):
        _find(args.workload, given[given.index(args.workload) + 1 :])


def _find(name: str, words: Sequence[str]) -> catalog.Workload:
    """Return the workload of this name. Raises UsageError for any other command.

    Args:
        words: What follows the name.
    """
    if (found := catalog.known(name)) is None:
        names = ", ".join(workload.name for workload in catalog.WORKLOADS)
        raise UsageError(
            f"run is for the workloads of GPU Deck: {names}. To queue a command of your own: "
            f"gpudeck submit -- {shlex.join((name, *words))}"
        )
    return found


def _list_workloads(as_json: bool) -> int:
    if as_json:
        print_json(catalog.WORKLOADS)
    else:
        rows = [(workload.name, workload.summary) for workload in catalog.WORKLOADS]
        print_table([("WORKLOAD", "WHAT IT DOES"), *rows])
        print_line("Its parameters: gpudeck run WORKLOAD --list")
    return 0


def _list_parameters(workload: catalog.Workload, device_kind: str, as_json: bool) -> int:
    if as_json:
        print_json(workload.params)
        return 0
    rows = [(one.name, one.default_for(device_kind), _meaning(one)) for one in workload.params]
    print_table([("PARAMETER", "DEFAULT", "WHAT IT IS"), *rows])
    return 0


def _meaning(param: catalog.Param) -> str:
    """Return what a parameter is, what it may be, and what is chosen where it is not given."""
    values = f": {', '.join(param.choices)}" if param.choices else ""
    chosen = f"; {catalog.AUTO}: {param.auto}" if param.auto else ""
    return f"{param.help}{values}{chosen}"


def submit_workload(
    client: Client,
    workload: catalog.Workload,
    given: Mapping[str, str],
    token: str | None = None,
) -> Job:
    """Queue a workload and return its job.

    Args:
        client: The connection to the daemon.
        workload: The workload to run.
        given: Values of parameters; the others get this machine's defaults.
        token: A name of this submission (see `Client.submit`).

    Raises:
        UsageError: A parameter is unknown or has a wrong value, or a package is missing.
    """
    device_kind = _device_kind(client)
    try:
        values = workload.complete(given, device_kind)
        _refuse_unused(workload, given, values)
        argv = workload.argv(values)
    except ValueError as e:
        raise UsageError(str(e)) from e
    return client.submit(
        argv,
        token=token,
        name=workload.job_name(values),
        gpus=workload.gpus(values, device_kind),
        workload=workload.name,
        params=values,
    ).job


def _refuse_unused(
    workload: catalog.Workload, given: Mapping[str, str], values: Mapping[str, str]
) -> None:
    """Raise ValueError for a parameter that has no meaning for the operation that was chosen."""
    used = [param.name for param in workload.used(values)]
    for name in given:
        if name not in used:
            operation = values["operation"]
            raise ValueError(f"{operation} takes no {name}. It takes: {', '.join(used)}")


def _parse_assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.lstrip("-").partition("=")
    if not equals:
        raise ValueError(f"expected a parameter as NAME=VALUE; got {text!r}")
    return name.replace("-", "_"), value


def _read_settings(name: str) -> dict[str, str]:
    """Return the parameters in a TOML file as they are typed. Raises ValueError, UserError."""
    try:
        found = tomllib.loads(read_bytes(Path(name)).decode())
    except MALFORMED as e:  # no TOML, or no UTF-8
        raise ValueError(f"{name} is not valid TOML: {e}") from e
    return {key: _as_typed(name, key, value) for key, value in found.items()}


def _as_typed(name: str, key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(_as_typed(name, key, part) for part in value)
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{name} gives {key} a value that is no text, number, yes or no")


def _device_kind(client: Client) -> str:
    """Return the kind of this machine's devices, once the daemon has found them."""
    end = time.monotonic() + START_S
    while not (devices := client.snapshot().devices):
        if time.monotonic() > end:
            raise UserError(phrase("no device can be read. See: gpudeck doctor"))
        time.sleep(0.05)
    return devices[0].device.kind
