"""Show the power limits of the GPUs, or print the command that sets one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.arguments import positive_count
from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.app.cli.output import UsageError, print_list, print_result
from gpudeck.app.format.power_limit import limit_command, limit_range
from gpudeck.app.format.values import NOT_AVAILABLE, format_field
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot, label

_FIELDS = ("power", "power_limit", "power_limit_default")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the GPU, and the limit that it is to get."""
    parser.add_argument("gpu", nargs="?", metavar="GPU", help="index or UUID")
    parser.add_argument(
        "watts",
        nargs="?",
        type=positive_count,
        metavar="WATTS",
        help="print the command that sets this limit; only root may run it",
    )


def run(args: Namespace) -> None:
    """List the limits, or print the command that sets one; nothing is set."""
    with Client() as client:
        snapshot = wait_for_reading(client)
    if args.gpu is None:
        _list(args, snapshot)
    elif args.watts is None:
        raise UsageError("missing limit in watts. Example: gpudeck power 0 300")
    else:
        _print_command(args, snapshot)


def _print_command(args: Namespace, snapshot: Snapshot) -> None:
    state = _find(snapshot, args.gpu)
    command = limit_command(state.device, state.reading, args.watts)
    asked = f"To limit {label(state.device)} to {args.watts} W until the next boot, run as root:"
    print_result(args, {"command": command}, asked, command)


def _list(args: Namespace, snapshot: Snapshot) -> None:
    gpus = [state for state in snapshot.devices if state.device.kind != "cpu"]
    print_list(
        args, [_values(state) for state in gpus],
        ("DEVICE", "NAME", "POWER", "LIMIT", "DEFAULT", "RANGE"), [_row(state) for state in gpus],
        "No GPU can be read here. See: gpudeck status",
    )  # fmt: skip


def _values(state: DeviceState) -> dict[str, object]:
    fields = (*_FIELDS, "power_limit_min", "power_limit_max")
    known = state.reading.values if state.reading else {}
    return {"device": state.device.id, **{field: known.get(field) for field in fields}}


def _row(state: DeviceState) -> tuple[str, ...]:
    reading = state.reading
    if reading is None:
        return (label(state.device), state.device.name, *(NOT_AVAILABLE,) * 3, "not read")
    values = [str(format_field(field, reading.get(field))) for field in _FIELDS]
    return (label(state.device), state.device.name, *values, limit_range(reading) or "fixed")


def _find(snapshot: Snapshot, name: str) -> DeviceState:
    for state in snapshot.devices:
        if name in {state.device.id, state.device.number} and state.device.kind != "cpu":
            return state
    raise NotFound(phrase("there is no GPU {name}. See: gpudeck power", name=name))
