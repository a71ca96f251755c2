"""Evaluate every alert rule on every device and job, with hysteresis.

It has no clock, store or network of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Job, Running, held_devices
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert, HostState, full_label
from gpudeck.scheduler.telemetry.alert_rules import (
    CORRECTED,
    DEVICE_RULES,
    HOST_RULES,
    JOB_RULES,
    AlertRule,
    DeviceSubject,
    HostSubject,
    JobSubject,
    Subject,
    Wording,
)
from gpudeck.scheduler.telemetry.hysteresis import AlertState, Calm, Raised, Thresholds, advance

GAP_S = 5.0
"""Evaluations further apart than this (or three intervals) have a gap between them."""
HOUR_S, _MINUTE_S = 3600.0, 60.0


def _unworded() -> Wording:
    """Word nothing: a rule without a reading raises no alert."""
    return Wording(Text(""), Text(""))


class AlertKey(NamedTuple):
    """Identify an alert among those that are raised."""

    rule: str
    device: str
    job: int | None


class AlertLevel(NamedTuple):
    """Hold what one rule compares at one moment."""

    key: AlertKey
    value: float | None
    thresholds: Thresholds
    text: Callable[[], Wording]
    """Returns the alert's text; full_label only where the value is known."""


class AlertEvaluator:
    """Keep the alerts that are raised, and the state of every rule."""

    def __init__(self, active: Iterable[Alert] = (), next_id: int = 1) -> None:
        """Go on from where the last daemon ended.

        Args:
            active: The alerts that were raised then.
            next_id: The number of the next alert.
        """
        self._active = {AlertKey(a.rule, a.device, a.job): a for a in active}
        self._states: dict[AlertKey, AlertState] = {
            key: Raised(a.since) for key, a in self._active.items()
        }
        self._next = next_id
        self._corrected: dict[str, deque[tuple[float, float]]] = {}
        self._progress: dict[int, tuple[float, float]] = {}
        """The progress of each running job, and when it last changed."""
        self._evaluated = 0.0

    @property
    def active(self) -> tuple[Alert, ...]:
        """Return the alerts that are raised, oldest first."""
        return tuple(sorted(self._active.values(), key=lambda a: a.id))

    @property
    def worded(self) -> tuple[Alert, ...]:
        """Return the alerts that are raised, in the past tense where their cause is over."""
        return tuple(
            sorted((self._worded(key, a) for key, a in self._active.items()), key=lambda a: a.id)
        )

    def _worded(self, key: AlertKey, alert: Alert) -> Alert:
        state = self._states.get(key)
        if not isinstance(state, Raised) or state.under is None or not alert.cleared_text:
            return alert
        return msgspec.structs.replace(
            alert, text=phrase("{sub}; clears soon", sub=alert.cleared_text), clearing=True
        )

    def evaluate(
        self,
        devices: Sequence[Device],
        readings: Mapping[str, Reading],
        jobs: Sequence[Job],
        settings: Settings,
        now: float,
        hosts: Sequence[HostState] = (),
    ) -> list[Alert]:
        """Evaluate all rules; return the alerts that were raised or cleared.

        Args:
            devices: All devices.
            readings: The current reading of each device that has one.
            jobs: The jobs that run.
            settings: The settings in force.
            now: Seconds since the epoch.
            hosts: The machines that are watched over ssh.
        """
        gap = max(GAP_S, 3 / settings.telemetry_hz)
        self._note_progress(jobs, now, gap)
        levels = [
            *self._device_levels(devices, readings, jobs, settings),
            *self._job_levels(jobs, settings, now),
            *_host_levels(hosts, settings, now),
        ]
        changed, states = [], {}
        for level in levels:
            key = level.key
            before = self._states.get(key, Calm())
            states[key] = after = advance(before, level.value, now, level.thresholds, gap)
            if isinstance(after, Raised) and key not in self._active:
                changed.append(self._raise(level, after.since, now))
            elif isinstance(after, Calm) and key in self._active:
                changed.append(self._clear(key, now))
            elif key in self._active:
                self._note_peak(level)
        # the rule was switched off, the device is gone, or the job ended
        changed += [self._clear(key, now) for key in tuple(self._active) if key not in states]
        self._states, self._evaluated = states, now
        return changed

    def acknowledge(self, number: int) -> Alert:
        """Mark an alert as acknowledged. Raises NotFound where it is not raised (any more)."""
        for key, alert in self._active.items():
            if alert.id == number:
                self._active[key] = msgspec.structs.replace(alert, acknowledged=True)
                return self._active[key]
        raise NotFound(
            phrase("there is no active alert {number}. See: gpudeck alerts", number=number)
        )

    def _raise(self, level: AlertLevel, since: float, now: float) -> Alert:
        key, text = level.key, level.text()
        made = Alert(
            self._next,
            key.rule,
            key.device,
            key.job,
            text.now,
            since,
            now,
            peak=level.value,
            cleared_text=text.over,
            process=text.process,
        )
        self._active[key] = made
        self._next += 1
        return made

    def _note_peak(self, level: AlertLevel) -> None:
        """Word an alert anew where its level is the highest so far."""
        alert, value = self._active[level.key], level.value
        if value is None or (alert.peak is not None and value <= alert.peak):
            return
        text = level.text()
        if text.now != alert.text:
            self._active[level.key] = msgspec.structs.replace(
                alert, text=text.now, peak=value, cleared_text=text.over
            )

    def _clear(self, key: AlertKey, now: float) -> Alert:
        alert = self._active.pop(key)
        return msgspec.structs.replace(alert, cleared=now, text=alert.cleared_text or alert.text)

    def _device_levels(
        self,
        devices: Sequence[Device],
        readings: Mapping[str, Reading],
        jobs: Sequence[Job],
        settings: Settings,
    ) -> Iterator[AlertLevel]:
        """Yield the level of each rule on each device; unknown levels where there is no reading."""
        known = {device.id for device in devices}
        self._corrected = {d: past for d, past in self._corrected.items() if d in known}
        for device in devices:
            holders = [job for job in jobs if device.id in held_devices(job)]
            reading = readings.get(device.id)
            corrected = None if reading is None else self._corrected_within_hour(reading)
            for rule, thresholds in _enabled(DEVICE_RULES, settings):
                for job in holders if rule.per_job else (None,):
                    key = AlertKey(rule.name, device.id, job.id if job else None)
                    if reading is None:
                        yield AlertLevel(key, None, thresholds, _unworded)
                        continue
                    subject = DeviceSubject(
                        full_label(device), device, reading, job, settings, corrected
                    )
                    text = partial(rule.text, subject, thresholds)
                    yield AlertLevel(key, rule.level(subject), thresholds, text)

    def _job_levels(
        self, jobs: Sequence[Job], settings: Settings, now: float
    ) -> Iterator[AlertLevel]:
        for rule, thresholds in _enabled(JOB_RULES, settings):
            for job in jobs:
                if job.id in self._progress:
                    subject = JobSubject(job, (now - self._progress[job.id][1]) / _MINUTE_S)
                    key, text = (
                        AlertKey(rule.name, "", job.id),
                        partial(rule.text, subject, thresholds),
                    )
                    yield AlertLevel(key, rule.level(subject), thresholds, text)

    def _note_progress(self, jobs: Sequence[Job], now: float, gap: float) -> None:
        """Note the progress of each job. Time in which nothing was evaluated does not count."""
        elapsed = now - self._evaluated
        missed = elapsed if self._evaluated and not 0 <= elapsed <= gap else 0.0
        before, self._progress = self._progress, {}
        for job in jobs:
            progress = job.state.progress if isinstance(job.state, Running) else None
            if progress is not None and progress.done < progress.total:
                done, at = before.get(job.id, (progress.done, now))
                changed = progress.done != done
                self._progress[job.id] = (progress.done, now) if changed else (done, at + missed)

    def _corrected_within_hour(self, reading: Reading) -> float | None:
        """Return the memory errors corrected within the hour, or None where it is not known."""
        if (count := reading.values.get(CORRECTED)) is None:
            return None
        past = self._corrected.setdefault(reading.device, deque())
        if past and count < past[-1][1]:
            past.clear()  # the driver was reloaded
        if not past or count > past[-1][1] or reading.time - past[-1][0] >= _MINUTE_S:
            past.append((reading.time, count))
        while len(past) > 1 and past[1][0] <= reading.time - HOUR_S:
            past.popleft()
        return count - past[0][1]


def _host_levels(
    hosts: Sequence[HostState], settings: Settings, now: float
) -> Iterator[AlertLevel]:
    for rule, thresholds in _enabled(HOST_RULES, settings):
        for host in hosts:
            lost = 0.0 if host.problem is None else max(now - host.since, 0.0) / _MINUTE_S
            subject = HostSubject(host, lost)
            key, text = (
                AlertKey(rule.name, host.name, None),
                partial(rule.text, subject, thresholds),
            )
            yield AlertLevel(key, rule.level(subject), thresholds, text)


def _enabled(
    rules: Sequence[AlertRule[Subject]], settings: Settings
) -> list[tuple[AlertRule[Subject], Thresholds]]:
    """Return the rules that are on, each with its limits."""
    return [
        (rule, rule.thresholds(threshold))
        for rule in rules
        if not isinstance(threshold := getattr(settings, rule.setting), str)
    ]
