"""Record a trace of the devices."""

from __future__ import annotations

import signal
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudeck.accel.workloads import catalog
from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.app.cli.output import (
    UsageError,
    clear_progress,
    print_error,
    print_result,
    show_progress,
)
from gpudeck.app.cli.queue.run import submit_workload
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError

IDLE = "idle"
Phase = tuple[str | None, float]
"""The name of a workload, IDLE, or None for an unnamed phase; and its seconds."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the file, and how long or through which phases to record."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a new file; to replay it: gpudeck daemon start --source replay:FILE",
    )
    parser.add_argument(
        "--seconds",
        type=arguments.positive_seconds,
        default=60.0,
        help="length of the recording (default: 60)",
    )
    parser.add_argument(
        "--phases",
        metavar="P=S,...",
        help="run workloads as jobs during the recording, e.g. "
        "idle=30,gemm=40,attention=40,copy=40,idle=30",
    )


def run(args: Namespace) -> None:
    """Write a trace, either of a number of seconds or of phases in which workloads run."""
    phases: list[Phase] = [(None, args.seconds)]
    if args.phases:
        phases = [_parse_phase(text) for text in args.phases.split(",")]
    with Client() as client, Client() as feed:
        devices = tuple(_anonymize_device(s.device) for s in wait_for_reading(client).devices)
        if not devices:
            raise UserError(
                phrase("no device can be read, so there is nothing to record. See: gpudeck doctor")
            )
        started = time.time()
        about = {"phases": args.phases or ""}
        try:
            out = trace.TraceWriter(Path(args.file), devices, started, about)
            with _interrupted_by(signal.SIGTERM, signal.SIGHUP), out:
                _record(client, feed, phases, out)
        except KeyboardInterrupt:
            _report_interruption(args.file, out.moments, time.time() - started)
            raise
        except OSError as e:
            raise UserError(
                phrase(
                    "cannot write the trace {file}: {error}",
                    file=str(args.file),
                    error=str(e.strerror),
                )
            ) from e
    seconds = time.time() - started
    print_result(
        args,
        {"file": args.file, "moments": out.moments, "seconds": round(seconds, 1)},
        f"Wrote {out.moments} readings of {seconds:.0f} s to {args.file}.",
    )


@contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Take signals as an interruption, which keeps what was recorded."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parse_phase(text: str) -> Phase:
    name, _, seconds = text.partition("=")
    try:
        length = float(seconds)
    except ValueError:
        length = 0.0
    if not 0 < length <= arguments.MAX_SECONDS:
        raise UsageError(f"expected a phase as idle=SECONDS or WORKLOAD=SECONDS; got {text!r}")
    if name != IDLE:
        try:
            catalog.find(name)
        except ValueError as e:
            raise UsageError(str(e)) from e
    return name, length


def _report_interruption(file: str, readings: int, seconds: float) -> None:
    """Report what an interrupted recording left, and remove a file without readings."""
    clear_progress()
    if readings:
        print_error(
            f"interrupted: {file} holds {readings} readings of {seconds:.0f} s. "
            f"To replay them: gpudeck daemon start --source replay:{file}"
        )
    else:
        Path(file).unlink(missing_ok=True)
        print_error("interrupted: nothing was recorded, and no file was left")


def _record(client: Client, feed: Client, phases: list[Phase], out: trace.TraceWriter) -> None:
    readings = _read(feed)
    total = sum(seconds for _, seconds in phases)
    spent = 0.0
    for name, seconds in phases:
        job = None
        if name is not None and name != IDLE:
            params = {"seconds": f"{seconds:g}"}
            job = submit_workload(client, catalog.find(name), params).id
        end = time.monotonic() + seconds
        try:
            for reading in readings:
                runs = job is not None and client.job(job).active
                label = name if runs or job is None else None
                out.add(msgspec.structs.replace(reading, label=label or ""))
                done = spent + seconds - max(end - time.monotonic(), 0)
                show_progress(f"recording: {out.moments} readings, {done:.0f} of {total:.0f} s")
                # a phase with a job lasts until the job has ended
                if time.monotonic() >= end and not runs:
                    break
        finally:
            if job is not None and client.job(job).active:  # the recording was interrupted
                client.cancel(job)
        spent += seconds
    clear_progress()


def _read(feed: Client) -> Iterator[trace.Moment]:
    """Yield each new reading of the devices, once."""
    last = 0.0
    for snapshot in feed.subscribe():
        readings = tuple(
            _anonymize_reading(state.device, state.reading)
            for state in snapshot.devices
            if state.reading is not None
        )
        if readings and readings[0].time > last:
            last = readings[0].time
            yield trace.Moment(last, readings)


def _anonymize_device(device: Device) -> Device:
    """Return the device without what identifies this card, because traces are shared."""
    facts = {name: value for name, value in device.facts.items() if name != "VBIOS"}
    name = f"{device.kind}-{device.number}"
    return msgspec.structs.replace(device, id=name, facts=facts, instances=())


def _anonymize_reading(device: Device, reading: Reading) -> Reading:
    name = f"{device.kind}-{device.number}"
    return msgspec.structs.replace(reading, device=name, processes=())
