"""record: what the devices do, on file."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from accel.workloads import catalog
from app.cli.output import say, say_json, status_line
from app.cli.queue import submit_workload
from app.cli.usage import UsageError
from app.cli.watch import first_reading
from scheduler.client import Client
from scheduler.devices import trace
from scheduler.protocol.devices import Device, Reading
from scheduler.protocol.errors import UserError
from scheduler.protocol.progress import printable

MAX_PHASE_S = 86400.0


def record(args: Namespace) -> int:
    """Write a trace: for some seconds, or through phases in which workloads run as jobs."""
    try:
        phases = (
            [_phase(text) for text in args.phases.split(",")]
            if args.phases
            else [("", float(args.seconds))]
        )
    except ValueError as e:
        raise UsageError(str(e)) from e
    with Client() as deck, Client() as feed:
        devices = tuple(anonymous(s.device) for s in first_reading(deck).devices)
        if not devices:
            raise UserError(
                "no device can be read, so there is nothing to record. See: gpudeck doctor"
            )
        started = time.time()
        try:
            with trace.TraceWriter(
                Path(args.file), devices, started, {"phases": args.phases or ""}
            ) as out:
                _record(deck, feed, phases, out)
        except KeyboardInterrupt:
            _cut_short(args.file, out.moments, time.time() - started)
            raise
        except OSError as e:
            raise UserError(f"cannot write the trace {args.file}: {e.strerror}") from e
    seconds = time.time() - started
    if args.json:
        say_json({"file": args.file, "moments": out.moments, "seconds": round(seconds, 1)})
    else:
        say(f"{out.moments} moments in {seconds:.0f} s written to {args.file}")
    return 0


def _phase(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    try:
        length = float(seconds)
    except ValueError:
        length = 0.0
    if not 0 < length <= MAX_PHASE_S:
        raise ValueError(f"a phase is idle=SECONDS or WORKLOAD=SECONDS; got {text!r}")
    if name != "idle":
        catalog.find(name)
    return name, length


def _cut_short(file: str, moments: int, seconds: float) -> None:
    """Say what there is of a trace whose recording was interrupted; one without a moment is taken away."""
    status_line("")
    if not moments:
        Path(file).unlink(missing_ok=True)
        words = "nothing was recorded yet, and no file is left"
    else:
        words = f"{moments} moments in {seconds:.0f} s are whole in {file}; play it with: gpudeck daemon start --source replay:{file}"
    print(f"gpudeck: interrupted: {printable(words)}", file=sys.stderr)


def _record(
    deck: Client, feed: Client, phases: list[tuple[str, float]], out: trace.TraceWriter
) -> None:
    moments = _moments(feed)
    total, spent = sum(s for _, s in phases), 0.0
    for name, seconds in phases:
        job = (
            submit_workload(deck, catalog.find(name), {"seconds": f"{seconds:g}"}).id
            if name not in ("", "idle")
            else None
        )
        end = time.monotonic() + seconds
        try:
            for moment in moments:
                runs = job is not None and deck.job(job).active
                out.add(msgspec.structs.replace(moment, label=name if runs or job is None else ""))
                done = spent + seconds - max(end - time.monotonic(), 0)
                status_line(
                    f"recording {name or 'the devices'}: {out.moments} moments, {done:.0f} of {total:.0f} s"
                )
                if (
                    time.monotonic() >= end and not runs
                ):  # a phase with a job lasts until the job has ended
                    break
        finally:
            if job is not None and deck.job(job).active:  # we were interrupted
                deck.cancel(job)
        spent += seconds
    status_line("")


def _moments(feed: Client) -> Iterator[trace.Moment]:
    """Each new reading of the devices, once."""
    seen = 0.0
    for snapshot in feed.subscribe():
        readings = tuple(
            _anonymous_reading(s.device, s.reading)
            for s in snapshot.devices
            if s.reading is not None
        )
        if readings and readings[0].time > seen:
            seen = readings[0].time
            yield trace.Moment(seen, readings)


def anonymous(device: Device) -> Device:
    """A trace is made to be passed on: it names the kind of card, not this card."""
    facts = {k: v for k, v in device.facts.items() if k != "VBIOS"}
    return msgspec.structs.replace(
        device, id=f"{device.kind}-{device.index}", facts=facts, instances=()
    )


def _anonymous_reading(device: Device, reading: Reading) -> Reading:
    return msgspec.structs.replace(reading, device=f"{device.kind}-{device.index}", processes=())
