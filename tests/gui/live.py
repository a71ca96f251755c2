"""Show the recorded world of the pictures as a machine whose GPUs are live and have jobs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck.app.format.usage import UsageRow
from gpudeck.scheduler.protocol.devices import Detail, card_name
from gpudeck.scheduler.protocol.jobs import Forecast, Job, Progress, Running, Spec, queued
from gpudeck.scheduler.protocol.snapshot import Idle, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import Behind
from tests.gui.snapshots import NOW

_LLAMA = ("python", "pretrain.py", "--config", "llama-8b.yaml")


def as_live(snapshot: Snapshot, last: int) -> Snapshot:
    """Return the snapshot with live GPUs, jobs that hold those with load, and jobs that wait.

    Args:
        last: The number of the newest job that ended.
    """
    devices = tuple(
        msgspec.structs.replace(
            state,
            device=msgspec.structs.replace(
                state.device, kind="nvidia", name=card_name(state.device.name), note=""
            ),
            use=Idle(NOW - 600),
        )
        for state in snapshot.devices
    )
    busy = [s.device.id for s in devices if s.reading and s.reading.values["util"] > 50]
    tokenize, *others = reversed([job for job in snapshot.jobs if job.id > last])
    runs = [_runs(tokenize.id + at, device, at) for at, device in enumerate(busy, 1)]
    first, moved = runs[0].id, len(runs)
    waits = [
        msgspec.structs.replace(
            job, id=job.id + moved, state=queued(Behind(first), NOW), spec=_moved(job.spec, moved)
        )
        for job in others
    ]
    ended = [job for job in snapshot.jobs if job.id <= last]
    return held(
        msgspec.structs.replace(
            snapshot,
            devices=devices,
            jobs=(*reversed((tokenize, *runs, *waits)), *ended),
            waiting=len(waits),
            source="nvml",
            settings=msgspec.structs.replace(snapshot.settings, source="auto"),
        )
    )


def _moved(spec: Spec, by: int) -> Spec:
    return msgspec.structs.replace(spec, after=tuple(number + by for number in spec.after))


def _runs(number: int, device: str, at: int) -> Job:
    """Return a job that trains on this device; that of the first one has just begun."""
    began, done = (NOW - 700.0 * at, 23.0 + 17 * at) if at > 1 else (NOW - 14, 3.0)
    spec = Spec(_LLAMA, f"pretrain-{at}", "/home/ada/llama", {"USER": "ada"}, 1)
    progress = Progress(done, 100, f"step {done * 120:.0f}", 0.0, NOW)
    return Job(number, spec, began - 20, Running("a", (device,), began, 4712, 99, "b", progress))


def held(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the running jobs as the holders of their devices."""
    holders = {
        device: job.id
        for job in snapshot.jobs
        if isinstance(job.state, Running)
        for device in job.state.devices
    }
    return msgspec.structs.replace(
        snapshot,
        devices=tuple(
            msgspec.structs.replace(
                state,
                holders=(holders[state.device.id],) if state.device.id in holders else (),
            )
            for state in snapshot.devices
        ),
    )


def owned(details: tuple[Detail, ...], snapshot: Snapshot) -> tuple[Detail, ...]:
    """Return the processes as those of the jobs that hold their devices."""
    jobs = {state.device.id: state.holders[0] for state in snapshot.devices if state.holders}
    return tuple(
        msgspec.structs.replace(
            detail,
            processes=tuple(
                msgspec.structs.replace(
                    p, job=jobs[detail.device], user="ada", command=" ".join(_LLAMA), container=""
                )
                if p.kind == "compute" and detail.device in jobs
                else p
                for p in detail.processes
            ),
        )
        for detail in details
    )


def forecast(snapshot: Snapshot) -> Forecast:
    """Return that a job would start at once on a free device, or behind the job of the first."""
    free = [state.device.id for state in snapshot.devices if not state.holders]
    if free:
        return Forecast((free[0],), NOW)
    first = snapshot.devices[0]
    return Forecast((first.device.id,), NOW + 1930, wait=Behind(first.holders[0]))


def usage() -> tuple[UsageRow, ...]:
    """Return what three persons used in six weeks, the newest first."""
    hours: Sequence[tuple[str, tuple[float, ...]]] = (
        ("ada", (212, 188, 240, 96, 150, 131)),
        ("ben", (64, 120, 88, 71, 35, 52)),
        ("mara", (148, 40, 16, 90, 118, 77)),
    )
    share, failed = {"ada": 0.87, "ben": 0.41, "mara": 0.93}, {"ben": 0.22}
    return tuple(
        UsageRow(
            f"2025-W{48 - week}", user, round(held[week] / 3.1), round(held[week] / 3.4),
            held[week], 0.0, held[week] * 3600 * 480 * (0.4 + 0.6 * share[user]), held[week],
            held[week] * share[user], held[week] * failed.get(user, 0.02),
        )
        for week in range(6)
        for user, held in hours
    )  # fmt: skip
