"""Start no new jobs on GPUs, or start them again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.output import print_result
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.draining import drained
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.settings import listed
from gpudeck.scheduler.protocol.snapshot import Snapshot, label


def add_arguments(parser: ArgumentParser) -> None:
    """Add the GPUs."""
    parser.add_argument("gpus", nargs="+", metavar="GPU", help="indices or UUIDs")


def run(args: Namespace) -> None:
    """Drain the GPUs: jobs that run there continue."""
    _set_drained(args, True)


def undrain(args: Namespace) -> None:
    """Let jobs start on the GPUs again."""
    _set_drained(args, False)


def _set_drained(args: Namespace, drain: bool) -> None:
    with Client() as client:
        snapshot = client.snapshot()
        chosen = [find_device(snapshot, name) for name in args.gpus]
        new = client.configure(drained=drained(snapshot.settings, chosen, drain))
    became = "drained; no new jobs start there" if drain else "in use again"
    names = ", ".join(label(device) for device in chosen)
    verb = "are" if len(chosen) > 1 else "is"
    print_result(args, {"drained": sorted(listed(new.drained))}, f"{names} {verb} {became}.")


def find_device(snapshot: Snapshot, name: str) -> Device:
    """Return the device with this index or UUID. Raises NotFound."""
    for state in snapshot.devices:
        if name in {state.device.id, state.device.number}:
            return state.device
    raise NotFound(phrase("there is no GPU {name}. See: gpudeck status", name=name))
