"""Follow one job for a browser: its facts, its log, and the curves of what it prints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import msgspec

from gpudeck.app.charts.printed_curves import PrintedCurves
from gpudeck.app.format.job_rows import JobFacts, details
from gpudeck.app.format.values import clock, device_label
from gpudeck.app.jobs.log_tail import LogTail
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.runs.run_curves import printed_curves
from gpudeck.app.runs.verdicts import read_verdicts
from gpudeck.app.web.feed import Event
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Queued

_EVERY_S, _BEHIND_S = 1.0, 0.1
"""The time between two reads, and while the log is still being read."""
_JUDGE_S = 15.0
"""The time between two verdicts, which read the history of the devices."""
_TAIL = 2**20
"""Bytes of the log that are read at first."""


@dataclass(frozen=True)
class JobView:
    """Everything that the page of a job shows beside its log and its curves."""

    facts: JobFacts
    state: str
    """In the language of the page."""
    events: tuple[tuple[str, str, str], ...]
    """The time, the kind and the text of each event."""
    devices: tuple[tuple[str, str], ...]
    """The ids and the labels of the devices that it held last."""
    started: float | None
    """Seconds since the epoch; None while it waits."""
    ended: float | None


async def job_events(number: int) -> AsyncGenerator[Event, None]:
    """Yield what changes about a job, until it has ended and its log is read.

    The last event is named `end`, or `problem` where the job cannot be read.
    """
    follower = _Follower(number)
    try:
        while True:
            try:
                found = await asyncio.to_thread(follower.read)
            except UserError as e:
                yield "problem", msgspec.json.encode(tr_text(e.message))
                return
            for event in found:
                yield event
            if follower.over:
                yield "end", b"{}"
                return
            await asyncio.sleep(_BEHIND_S if follower.behind else _EVERY_S)
    finally:
        follower.close()


class _Follower:
    """Read what is new about a job, with one connection; each call runs in some thread."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._client: Client | None = None
        self._tail, self._printed = LogTail(number), PrintedCurves()
        self._sent: dict[str, bytes] = {}
        self._judged_at = -_JUDGE_S
        self.behind = False
        """The last read returned output, so there may be more."""
        self.over = False

    def read(self) -> list[Event]:
        """Return the events since the last call. Raises UserError."""
        if self._client is None:
            self._client = Client()
        view = self._view(self._client)
        text = "" if view.started is None else self._read_log(self._client)
        self.over = view.ended is not None and not self.behind
        log = [("log", msgspec.json.encode(text))] if text else []
        curves = printed_curves(self._printed)
        judged = self._judged(self._client, view)
        return [*self._changed("job", view), *log, *self._changed("curves", curves), *judged]

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _view(self, client: Client) -> JobView:
        job, snapshot = client.job(self._number), client.snapshot()
        try:
            events = client.timeline(self._number)
        except UserError:  # another user's job on a shared daemon
            events = ()
        facts = details(job, snapshot)
        labels = {state.device.id: device_label(state.device) for state in snapshot.devices}
        held = () if isinstance(job.state, Queued) else job.state.devices
        return JobView(
            facts,
            tr(facts.state),
            tuple((clock(e.time, time.time()), tr(e.what), tr_text(e.text)) for e in events),
            tuple((device, labels.get(device, device)) for device in held),
            job.started,
            job.ended,
        )

    def _read_log(self, client: Client) -> str:
        """Return the new text of the log, and take its values."""
        at = self._tail.offset
        try:
            part = client.log_part(self._number, -_TAIL if at is None else at)
        except UserError as e:  # another user's job, or a file that is gone
            self.behind, self._tail.offset = False, at or 0
            return tr_text(e.message) if at is None else ""
        self.behind = bool(part.data)
        self._printed.feed(part.data)
        return self._tail.feed(*part)

    def _judged(self, client: Client, view: JobView) -> list[Event]:
        """Return the verdicts from time to time, and once the job has ended."""
        now = time.monotonic()
        if view.started is None or (now - self._judged_at < _JUDGE_S and view.ended is None):
            return []
        self._judged_at = now
        found = [(tr(v.certainty), v.text) for v in read_verdicts(client, self._number)]
        return self._changed("verdicts", found)

    def _changed(self, name: str, value: object) -> list[Event]:
        """Return the event, unless it is what was sent last."""
        made = msgspec.json.encode(value)
        if self._sent.get(name) == made:
            return []
        self._sent[name] = made
        return [(name, made)]
