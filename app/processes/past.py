"""Read from the history which processes used a device, and how."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpudeck.app.charts.series import Floats
from gpudeck.app.language.texts import tr_noop
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.past_processes import PROCESS_FIELDS, as_details
from gpudeck.scheduler.protocol.search import MAX_LISTED, NEWEST, Search
from gpudeck.scheduler.protocol.snapshot import Columns

if TYPE_CHECKING:
    from gpudeck.app.link.call import Call
    from gpudeck.scheduler.client import Client

MONTH_S = 30 * 86400.0
"""Seconds for which the history is kept."""
PRESENT = tr_noop("Time: now")
SPANS: dict[str, float | None] = {
    PRESENT: None,
    tr_noop("Last hour"): 3600.0,
    tr_noop("Last day"): 86400.0,
    tr_noop("Last 7 days"): 7 * 86400.0,
    tr_noop("Last 30 days"): MONTH_S,
}
"""The seconds of which processes are listed; None: those that use a device now."""
RENEW_S = 10.0
"""Seconds after which what is shown of the past is read again."""
_MOST_POINTS, _POINT_S = 240, 4.0
"""The most points of a curve, and the least seconds between two: processes are read less often
than devices."""


@dataclass(frozen=True)
class ReadPast:
    """Read which processes used a device since a moment."""

    since: float

    def carry_out(self, call: Call) -> tuple[Detail, ...]:
        with call.client() as client:
            found = client.processes(self.since)
            jobs = {past.use.job for past in found if past.use.job is not None}
            return as_details(found, _names_of(client, jobs, self.since))


def _names_of(client: Client, jobs: Set[int], since: float) -> dict[int, str]:
    """Return the names of those of these jobs that ran after a moment."""
    names, before = dict[int, str](), NEWEST if jobs else None
    while before is not None and not jobs <= names.keys():
        found, before = client.page(Search(since=since), before, MAX_LISTED)
        names |= {job.id: job.spec.name for job in found if job.id in jobs}
    return names


@dataclass(frozen=True)
class ReadUse:
    """Read how one process used its device."""

    key: str
    """Of the process, as `gpudeck.scheduler.protocol.past_processes` writes it."""
    since: float
    until: float

    def is_like(self, other: ReadUse) -> bool:
        """Return whether another request is for the same curves, some seconds earlier or later."""
        moved = abs(self.since - other.since), abs(self.until - other.until)
        return self.key == other.key and max(moved) < RENEW_S

    @property
    def points(self) -> int:
        """Return the number of points of its curves."""
        return max(min(int((self.until - self.since) / _POINT_S), _MOST_POINTS), 1)

    def carry_out(self, call: Call) -> ProcessCurves:
        with call.client() as client:
            found = client.history(self.key, PROCESS_FIELDS, self.since, self.until, self.points)
        return process_curves(self, found)


@dataclass(frozen=True, eq=False)
class ProcessCurves:
    """Hold how a process used its device, at equal distances; NaN where it was not read."""

    request: ReadUse
    sizes: Floats
    """Bytes, [n]."""
    loads: Floats
    """Percent of the multiprocessors, [n]."""


def process_curves(request: ReadUse, found: Columns) -> ProcessCurves:
    """Put what was read at its places between both ends."""
    curves = np.full((len(PROCESS_FIELDS), request.points), np.nan)
    share = (np.asarray(found.times) - request.since) / (request.until - request.since)
    places = np.clip((share * request.points).astype(int), 0, request.points - 1)
    for curve, field in zip(curves, PROCESS_FIELDS, strict=True):
        curve[places] = np.array(found.columns[field], dtype=np.float64)
    return ProcessCurves(request, *curves)
