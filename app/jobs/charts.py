"""The charts of one job: what its devices did during its time, and what of it was its own."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from app.charts.chart_model import ChartModel, CurrentValue, chart_models, scale
from app.charts.history import SECONDS
from app.charts.job_usage import FIELDS
from app.charts.scales import round_up
from app.charts.series import Floats, decimate
from app.format.job_rows import ended, started
from app.state import State
from scheduler.protocol.jobs import Job, Queued

_MEANING = "own: of the job's processes alone, as far as the driver tells it of each process; its share of the multiprocessors, its memory"
OWN = "/job"
"""Ends the name of a curve of the job's own share of a device."""


@dataclass(frozen=True)
class JobChart:
    chart: ChartModel
    limits: tuple[float, float]
    """Both ends of the time axis, seconds since the epoch."""
    series: dict[str, tuple[Floats, Floats]]
    """Times (s) and values (the chart's unit), [n] each: of each device, by its id, and of the job's own share, by that with OWN."""


def job_charts(job: Job, state: State, pixels: int) -> tuple[JobChart, ...]:
    """One for each of FIELDS, about as many points as `pixels`; none where it held no device in the time that is remembered."""
    snapshot, began = state.snapshot, started(job)
    held = () if isinstance(job.state, Queued) else job.state.devices
    if snapshot is None or began is None or not held:
        return ()
    end = ended(job) or snapshot.time
    start = max(began, snapshot.time - SECONDS)
    if end <= start:
        return ()
    shown = msgspec.structs.replace(
        snapshot, devices=tuple(s for s in snapshot.devices if s.device.id in held)
    )
    made = {
        chart.field: chart if job.active else msgspec.structs.replace(chart, values=())
        for chart in chart_models(shown)
    }
    series: dict[str, dict[str, tuple[Floats, Floats]]] = {field: {} for field in FIELDS}
    width = round_up((end - start) / pixels * 2)
    for device in (s.device.id for s in shown.devices):
        times, values = state.history.window(device, FIELDS, start, end, width)
        own = state.job_usage.window(job.id, device, start, end)
        for row, field in enumerate(FIELDS):
            series[field][device] = times, values[row] / scale(field)
            if own is not None and not np.isnan(own[1][row]).all():
                at, thinned = decimate(own[0], own[1][row : row + 1], width)
                series[field][device + OWN] = at, thinned[0] / scale(field)
                made[field] = _with_own(made[field], device, own[1][row][-1] / scale(field))
    if all(not len(times) for times, _ in series[FIELDS[0]].values()):
        return ()
    return tuple(JobChart(made[field], (start, end), series[field]) for field in FIELDS)


def _with_own(chart: ChartModel, device: str, value: float) -> ChartModel:
    """The chart with what the job itself has now, beside the value of its device; of a job that has ended nothing is now."""
    text = (
        "" if np.isnan(value) else f"own {value:.1f}" if chart.unit == "GiB" else f"own {value:.0f}"
    )
    values = (*chart.values, CurrentValue(device + OWN, "", text)) if chart.values else ()
    return msgspec.structs.replace(chart, values=values, tooltip=f"{chart.tooltip}\n{_MEANING}")
