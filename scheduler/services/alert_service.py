"""Alerts as the daemon keeps them: looked for with every reading, logged in the store, told to a webhook outside quiet hours."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.devices import Device, Reading
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job
from scheduler.protocol.settings import Settings, is_quiet
from scheduler.protocol.snapshot import Alert
from scheduler.services.webhook import Webhook
from scheduler.store import Store
from scheduler.telemetry.alerts import AlertEvaluator


class AlertService:
    """`notice(topic, words)`: what the user should know, e.g. that the log cannot be written; empty words: it is well again.

    `annotate`: is given each alert for the time axis, when it is raised and when it is cleared.
    """

    def __init__(
        self,
        store: Store,
        notice: Callable[[str, str], None],
        annotate: Callable[[Annotation], None],
    ) -> None:
        self._store, self._notice, self._annotate = store, notice, annotate
        self._alerts = AlertEvaluator(*store.open_alerts())
        self._webhook = Webhook(lambda words: notice("webhook", words))
        self._unsaved: dict[int, Alert] = {}
        self._untold: dict[int, Alert] = {}
        """What quiet hours kept back."""

    @property
    def active(self) -> tuple[Alert, ...]:
        return self._alerts.active

    def log(self, limit: int) -> tuple[Alert, ...]:
        """The newest first. Raises UserError where the store cannot be read."""
        return tuple(self._store.alerts(limit))

    def look(
        self,
        devices: Sequence[Device],
        readings: Mapping[str, Reading],
        jobs: Sequence[Job],
        settings: Settings,
        now: float,
    ) -> bool:
        """One look at everything; whether anything was raised or cleared."""
        changed = self._alerts.evaluate(devices, readings, jobs, settings, now)
        self._save(changed)
        for alert in changed:
            self._annotate(
                Annotation(
                    alert.raised,
                    alert.cleared,
                    "alert",
                    alert.text,
                    alert.device,
                    alert.job,
                    alert.rule,
                )
            )
        self._tell(changed, settings, now)
        return bool(changed)

    def acknowledge(self, number: int) -> None:
        """Raises NotFound where no such alert is raised."""
        self._save([self._alerts.acknowledge(number)])
        self._untold.pop(number, None)

    async def stop(self) -> None:
        await self._webhook.stop()

    def _save(self, changed: Sequence[Alert]) -> None:
        """To the log. Where the disk is full they are kept, and tried again with the next ones."""
        self._unsaved |= {alert.id: alert for alert in changed}
        if not changed:
            return
        try:
            self._store.put_alerts(tuple(self._unsaved.values()))
        except UserError as e:
            self._notice("alerts", str(e))
        else:
            self._unsaved = {}
            self._notice("alerts", "")

    def _tell(self, changed: Sequence[Alert], settings: Settings, now: float) -> None:
        if is_quiet(settings.quiet_hours, now):
            for alert in changed:
                if alert.cleared is None or self._untold.pop(alert.id, None) is None:
                    self._untold[alert.id] = alert
            return
        late, self._untold = self._untold, {}
        for alert in (*late.values(), *changed):
            if settings.webhook:
                self._webhook.send(settings.webhook, message(alert))


def message(alert: Alert) -> dict[str, object]:
    """What a webhook gets. `text` alone is what chat services show."""
    event = "raised" if alert.cleared is None else "cleared"
    host = socket.gethostname()
    return {
        "text": f"{host}: {alert.text}" if event == "raised" else f"{host}: over: {alert.text}",
        "event": event,
        "id": alert.id,
        "rule": alert.rule,
        "device": alert.device,
        "job": alert.job,
        "host": host,
        "since": _stamp(alert.since),
        "raised": _stamp(alert.raised),
        "cleared": None if alert.cleared is None else _stamp(alert.cleared),
    }


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
