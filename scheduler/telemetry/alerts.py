"""Readings and jobs in, alerts out: every rule on every device, with hysteresis. No clock, no store, no network of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from scheduler.protocol.devices import Device, Reading
from scheduler.protocol.errors import NotFound
from scheduler.protocol.jobs import Job, Running, held_devices
from scheduler.protocol.settings import Settings
from scheduler.protocol.snapshot import Alert, called
from scheduler.protocol.units import span
from scheduler.telemetry.hysteresis import Calm, Limits, Raised, State, step
from scheduler.telemetry.rules import CORRECTED, RULES, STUCK, Sight

GAP_S = 5.0
"""Two looks further apart than this (or three intervals) do not belong together."""
HOUR_S, _MINUTE_S = 3600.0, 60.0


class Key(NamedTuple):
    rule: str
    device: str
    job: int | None


class Level(NamedTuple):
    """What one rule has to compare at one moment."""

    key: Key
    value: float | None
    limits: Limits
    words: Callable[[], str]
    """What is the matter; of a value that was told."""


class Alerts:
    """What is raised now, and what has become of it since the last look."""

    def __init__(self, active: Iterable[Alert] = (), next_id: int = 1) -> None:
        """`active`: what was raised when the last daemon ended; `next_id`: of the next alert."""
        self._active = {Key(a.rule, a.device, a.job): a for a in active}
        self._states: dict[Key, State] = {key: Raised(a.since) for key, a in self._active.items()}
        self._next = next_id
        self._counts: dict[str, deque[tuple[float, float]]] = {}
        self._progress: dict[int, tuple[float, float]] = {}
        """Of each running job: how much it has done, and when that was new."""
        self._looked = 0.0

    @property
    def active(self) -> tuple[Alert, ...]:
        """Oldest first."""
        return tuple(sorted(self._active.values(), key=lambda a: a.id))

    def look(
        self,
        devices: Sequence[Device],
        readings: Mapping[str, Reading],
        jobs: Sequence[Job],
        settings: Settings,
        now: float,
    ) -> list[Alert]:
        """One look at everything. Returns what was raised or cleared by it. `jobs`: those that run."""
        gap = max(GAP_S, 3 / settings.telemetry_hz)
        changed, states = [], {}
        for level in self._levels(devices, readings, jobs, settings, now, gap):
            key = level.key
            states[key] = after = step(
                self._states.get(key, Calm()), level.value, now, level.limits, gap
            )
            if isinstance(after, Raised) and key not in self._active:
                changed.append(self._raise(key, after.since, now, level.words()))
            elif isinstance(after, Calm) and key in self._active:
                changed.append(self._clear(key, now))
        changed += [
            self._clear(key, now) for key in tuple(self._active) if key not in states
        ]  # rule off, device gone, job ended
        self._states, self._looked = states, now
        return changed

    def acknowledge(self, number: int) -> Alert:
        """Somebody has seen it. Raises NotFound where it is not raised (any more)."""
        for key, alert in self._active.items():
            if alert.id == number:
                self._active[key] = seen = msgspec.structs.replace(alert, acknowledged=True)
                return seen
        raise NotFound(f"no alert {number} is raised now. See: gpudeck alerts")

    def _raise(self, key: Key, since: float, now: float, text: str) -> Alert:
        self._active[key] = made = Alert(
            self._next, key.rule, key.device, key.job, text, since, now
        )
        self._next += 1
        return made

    def _clear(self, key: Key, now: float) -> Alert:
        return msgspec.structs.replace(self._active.pop(key), cleared=now)

    def _levels(
        self,
        devices: Sequence[Device],
        readings: Mapping[str, Reading],
        jobs: Sequence[Job],
        settings: Settings,
        now: float,
        gap: float,
    ) -> Iterator[Level]:
        """What each rule that is on has to compare; a device that was not read has levels that cannot be told."""
        on = [
            (rule, rule.limits(limit))
            for rule in RULES
            if not isinstance(limit := getattr(settings, rule.setting), str)
        ]
        for device in devices:
            holders = [job for job in jobs if device.id in held_devices(job)]
            reading = readings.get(device.id)
            sight = (
                None
                if reading is None
                else Sight(called(device), device, reading, None, settings, self._grown(reading))
            )
            for rule, limits in on:
                for job in holders if rule.job else (None,):
                    key = Key(rule.name, device.id, job.id if job else None)
                    if sight is None:
                        yield Level(key, None, limits, str)
                    else:
                        seen = sight._replace(job=job)
                        yield Level(
                            key, rule.level(seen), limits, partial(rule.words, seen, limits.raise_s)
                        )
        yield from self._stuck(jobs, settings, now, gap)

    def _stuck(
        self, jobs: Sequence[Job], settings: Settings, now: float, gap: float
    ) -> Iterator[Level]:
        self._hear(jobs, now, gap)
        minutes = settings.alert_stuck_job
        if isinstance(minutes, str):
            return
        for job in jobs:
            if job.id in self._progress:
                stands = (now - self._progress[job.id][1]) / _MINUTE_S
                words = f"job {job.id} ({job.spec.name}) has made no progress for {span(minutes * _MINUTE_S)}"
                yield Level(
                    Key(STUCK, "", job.id), stands, Limits(minutes, minutes), partial(str, words)
                )

    def _hear(self, jobs: Sequence[Job], now: float, gap: float) -> None:
        """How far each job is. Time in which nobody looked is not held against it."""
        missed = now - self._looked if self._looked and not 0 <= now - self._looked <= gap else 0.0
        known, self._progress = self._progress, {}
        for job in jobs:
            if (
                isinstance(job.state, Running)
                and (said := job.state.progress) is not None
                and said.done < said.total
            ):
                done, at = known.get(job.id, (said.done, now))
                self._progress[job.id] = (
                    (said.done, now) if said.done != done else (done, at + missed)
                )

    def _grown(self, reading: Reading) -> float | None:
        """By how much the count of memory errors that were put right has grown within the hour; None where it cannot be told."""
        if (count := reading.values.get(CORRECTED)) is None:
            return None
        past = self._counts.setdefault(reading.device, deque())
        if past and count < past[-1][1]:
            past.clear()  # the driver was loaded anew
        if not past or count > past[-1][1] or reading.time - past[-1][0] >= _MINUTE_S:
            past.append((reading.time, count))
        while len(past) > 1 and past[1][0] <= reading.time - HOUR_S:
            past.popleft()
        return count - past[0][1]
