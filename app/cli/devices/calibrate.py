"""Measure the true SM clock of the GPUs, as jobs that hold them."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.app.cli.output import print_error, print_json, print_line
from gpudeck.app.cli.queue.wait import follow
from gpudeck.app.format.values import device_label
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import calibration
from gpudeck.scheduler.protocol.calibration import ClockCalibration
from gpudeck.scheduler.protocol.calibration_job import calibration_jobs
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Job
from gpudeck.scheduler.verbs.submit import Submit

FIT_S = 30.0
"""Seconds within which the daemon stores the calibration of a job that has ended."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option that only lists what is known."""
    parser.add_argument(
        "--list", action="store_true", help="list the calibrations; measure nothing"
    )


def run(args: Namespace) -> int:
    """Measure all GPUs with hardware counters, and print the corrections."""
    with Client() as client:
        snapshot = wait_for_reading(client)
        labels = {s.device.id: device_label(s.device) for s in snapshot.devices}
        if args.list:
            return _print(args, calibration.load(), labels)
        jobs = [client.send(Submit(each.spec)) for each in calibration_jobs(snapshot.devices)]
    ended = [_ended(job, args) for job in jobs]
    for job in ended:
        if not isinstance(job.state, Done):
            print_error(f"nothing was calibrated. See: gpudeck logs {job.id}")
    done = [job for job in ended if isinstance(job.state, Done)]
    found = [one for job in done for one in _stored(job)]
    if done:
        _print(args, found, labels)
    return 0 if len(done) == len(jobs) else 1


def _ended(job: Job, args: Namespace) -> Job:
    """Show a job's progress until it ends, and return it."""
    if not args.json:
        follow(job, args)
    with Client() as client:
        return client.wait(job.id)


def _stored(job: Job) -> list[ClockCalibration]:
    """Return the calibrations of a job that is done, once the daemon stored them."""
    assert isinstance(job.state, Done)
    end = time.monotonic() + FIT_S
    while time.monotonic() < end:
        held = job.state.devices
        found = [c for c in calibration.load() if c.made >= job.state.at and c.device in held]
        if len(found) >= job.spec.gpus:
            return found
        time.sleep(0.2)
    with Client() as client:
        notices = client.snapshot().notices
    for notice in notices:
        if isinstance(notice, Text) and notice.key == calibration.NOT_KEPT:
            raise UserError(notice)
    raise UserError(phrase("the daemon stored no calibration. See: gpudeck doctor"))


def _print(args: Namespace, found: Sequence[ClockCalibration], labels: dict[str, str]) -> int:
    if args.json:
        print_json(found)
        return 0
    for one in found:
        print_line(describe_calibration(one, labels.get(one.device, one.device)))
    if not found:
        print_line("No GPU is calibrated. To measure: gpudeck calibrate")
    return 0


def describe_calibration(found: ClockCalibration, label: str) -> str:
    """Return one line: the correction and the error of idle and of busy tensor cores."""
    calm, busy = found.knots[0], found.knots[-1]
    most = max(knot.error for knot in found.knots)
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.made))
    return (
        f"{label}: while the tensor cores work the clock is {busy.ratio:.3f} of NVML's "
        f"(±{busy.error:.0f} %), otherwise {calm.ratio:.3f} (±{calm.error:.0f} %); at most "
        f"±{most:.0f} % with pauses. Measured {made}, VBIOS {found.vbios}, driver {found.driver}"
    )
