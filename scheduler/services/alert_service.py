"""Alerts: checked with every reading, logged, and told to people outside quiet hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import Settings, is_quiet
from gpudeck.scheduler.protocol.snapshot import Alert, HostState
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.telemetry.alerts import AlertEvaluator


class AlertService:
    """Raise and clear alerts, and record them in the store and on the time axis.

    Args:
        store: Holds the log of alerts.
        notify: Takes a topic and a problem for the user; None where the problem is solved.
        annotate: Takes each alert, when it is raised and when it is cleared.
        tell: Takes the same outside quiet hours, and after them what is still raised.
    """

    def __init__(
        self,
        store: Store,
        notify: Callable[[str, Message | None], None],
        annotate: Callable[[Annotation], None],
        tell: Callable[[Alert], None],
    ) -> None:
        self._store, self._notify, self._annotate, self._tell = store, notify, annotate, tell
        self._alerts = AlertEvaluator(*store.open_alerts())
        self._unsaved: dict[int, Alert] = {}
        self._held_back: dict[int, Alert] = {}
        """Alerts that quiet hours keep from people."""

    @property
    def active(self) -> tuple[Alert, ...]:
        """Return the alerts that are raised as people read them now, oldest first."""
        return self._alerts.worded

    def log(self, limit: int) -> tuple[Alert, ...]:
        """Return the newest alerts first. Raises UserError where the store cannot be read."""
        return tuple(self._store.alerts(limit))

    def check(
        self,
        devices: Sequence[Device],
        readings: Mapping[str, Reading],
        jobs: Sequence[Job],
        settings: Settings,
        now: float,
        hosts: Sequence[HostState] = (),
    ) -> None:
        """Raise and clear alerts by the newest readings, the running jobs and other machines."""
        changed = self._alerts.evaluate(devices, readings, jobs, settings, now, hosts)
        self._save(changed)
        for a in changed:
            self._annotate(
                Annotation(a.raised, a.cleared, "alert", a.text, a.device, a.job, a.rule)
            )
        self._send(changed, settings, now)

    def acknowledge(self, number: int) -> None:
        """Record that a person has seen the alert. Raises NotFound where it is not active."""
        self._save([self._alerts.acknowledge(number)])
        self._held_back.pop(number, None)

    def stop(self) -> None:
        """Log the peaks of the alerts that are raised."""
        self._save(self._alerts.active)

    def _save(self, changed: Sequence[Alert]) -> None:
        """Log the alerts; what a full disk refuses is kept and saved with the next ones."""
        self._unsaved |= {alert.id: alert for alert in changed}
        if not changed:
            return
        try:
            self._store.put_alerts(tuple(self._unsaved.values()))
        except UserError as e:
            self._notify("alerts", e.message)
        else:
            self._unsaved = {}
            self._notify("alerts", None)

    def _send(self, changed: Sequence[Alert], settings: Settings, now: float) -> None:
        if is_quiet(settings.quiet_hours, now):
            for alert in changed:
                if alert.cleared is None or self._held_back.pop(alert.id, None) is None:
                    self._held_back[alert.id] = alert
            return
        late, self._held_back = self._held_back, {}
        for alert in (*late.values(), *changed):
            self._tell(alert)
