"""Show the devices and the active jobs."""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace

from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.app.cli.devices.screen import status_lines
from gpudeck.app.cli.output import print_json, print_line, render, supports_color
from gpudeck.app.format.bookings import gpu_names
from gpudeck.app.format.free_devices import free_devices
from gpudeck.app.format.job_rows import describe
from gpudeck.app.format.values import device_label
from gpudeck.app.strip.tile_model import rates_by_type
from gpudeck.language.numbers import clock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.protocol.fields import FIELDS, HEADLINE
from gpudeck.scheduler.protocol.snapshot import Snapshot, everywhere, printable


def run(args: Namespace) -> None:
    """Print one snapshot: what is free, devices, alerts, notices, and jobs."""
    with Client() as client:
        snapshot = wait_for_reading(client)
    if args.json:
        print_json(printable(snapshot))
        return
    if free := free_devices(snapshot).text:
        print_line(free)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in status_lines(everywhere(snapshot), width):
        print(render(line, supports_color(sys.stdout)).rstrip())
    for rates in rate_lines(snapshot):
        print_line(rates)
    for alert in snapshot.alerts:
        print_line(f"alert {alert.id}: {alert.text}")
    notes = {str(d.device.note) for d in snapshot.devices if d.device.note} | set(
        map(str, snapshot.notices)
    )
    for note in sorted(notes) + _missing_fields(snapshot):
        print_line(note)
    for booking in snapshot.settings.reservations.values():
        if booking.end > snapshot.time:
            span = f"{clock(booking.begin, snapshot.time)} to {clock(booking.end, snapshot.time)}"
            names = gpu_names(booking, snapshot)
            print_line(f"{names}: reserved for {booking.holder}, {span}")
    for host in snapshot.hosts:
        if host.problem is not None:
            since = clock(host.since, snapshot.time)
            print_line(f"{host.name}: unreachable since {since}: {host.problem}")
    for text in _job_lines(snapshot):
        print_line(text)


def _job_lines(snapshot: Snapshot) -> list[str]:
    """Return a line for each active job."""
    active = [job for job in snapshot.jobs if job.active]
    if not active:
        return ["No jobs are waiting or running."]
    return [f"job {job.id} ({job.spec.name}): {describe(job)}" for job in active]


def rate_lines(snapshot: Snapshot) -> list[str]:
    """Return for each device that computes what its rate is for each data type."""
    found = [(s.device, rates_by_type(s.reading)) for s in snapshot.devices if s.reading]
    return [f"{device_label(device)}: {rates}" for device, rates in found if rates]


def _missing_fields(snapshot: Snapshot) -> list[str]:
    """Return why headline fields have no value, each reason once."""
    reasons: dict[str, None] = {}
    for state in snapshot.devices:
        for field in HEADLINE:
            if state.reading is not None and isinstance(value := state.reading.get(field), NA):
                reasons[f"{FIELDS[field].label}: – ({value.reason})"] = None
    return list(reasons)
