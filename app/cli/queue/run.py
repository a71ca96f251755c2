"""Queue an accelerated workload as a job."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping

from accel.workloads import catalog
from app.cli.output import UsageError
from app.cli.queue.delivery import deliver
from app.cli.queue.submit import add_token
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job

START_S = 10.0
"""Seconds within which a daemon that has just started finds the devices."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the workload and its parameters."""
    names = ", ".join(workload.name for workload in catalog.WORKLOADS)
    parser.add_argument("workload", metavar="WORKLOAD", help=names)
    parser.add_argument(
        "params",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of the workload; the others get good defaults for this machine",
    )
    add_token(parser)
    parser.add_argument(
        "--wait", action="store_true", help="wait for the job to end, and print its result"
    )


def run(args: Namespace) -> int:
    """Submit the workload that the arguments name."""
    try:
        workload = catalog.find(args.workload)
        given = dict(_parse_assignment(text) for text in args.params)
    except ValueError as e:
        raise UsageError(str(e)) from e
    with Client() as client:
        asked = client.spec((args.workload, *args.params), {})
        return deliver(
            client, args, [asked], lambda token: [submit_workload(client, workload, given, token)]
        )


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
        UsageError: A parameter is unknown or has a wrong value.
    """
    try:
        values = workload.complete(given, _device_kind(client))
    except ValueError as e:
        raise UsageError(str(e)) from e
    return client.submit(
        workload.argv(values),
        token=token,
        name=workload.job_name(values),
        gpus=1,
        workload=workload.name,
        params=values,
    ).job


def _parse_assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.lstrip("-").partition("=")
    if not equals:
        raise ValueError(f"expected a parameter as NAME=VALUE; got {text!r}")
    return name.replace("-", "_"), value


def _device_kind(client: Client) -> str:
    """Return the kind of this machine's devices, once the daemon has found them."""
    end = time.monotonic() + START_S
    while not (devices := client.snapshot().devices):
        if time.monotonic() > end:
            raise UserError("no device can be read. See: gpudeck doctor")
        time.sleep(0.05)
    return devices[0].device.kind
