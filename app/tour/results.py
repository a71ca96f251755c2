"""Describe the results of a tour, and write them to files."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from gpudeck.app.format.results import result_of
from gpudeck.language.rendering import json_in_english
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Done, Job
from gpudeck.scheduler.protocol.snapshot import DeviceState

DURING = "dashboard-during-the-job"
"""The picture that is taken while the attention job is timed."""
TRAINED = "training"
"""The picture of the losses of the model that the tour trained."""
MOST_OFF = 0.05
"""The counters may differ from the job's count by this share; more fails the tour."""
_FIELDS = ("tflops", "tflops_gpm", "tflops_gpm_error")
RATE_DELAY_S = 2.5
"""A counted rate covers the two seconds before its reading, which covers half a second."""


class Live(msgspec.Struct, frozen=True):
    """Compare what the dashboard showed while the job was timed with what the job counted."""

    shown_tflops: float | None
    """The mean of the dashboard's curve, or None if it was empty."""
    method: str
    counted_tflops: float
    ratio: float | None
    """The hardware counters / the job's count; None if the device has no counters."""
    counters_tflops: float | None
    """The mean of the hardware counters, or None if the device has none."""
    counters_error: float | None
    """How far the counters may be off, in percent, either way; None if the device has none."""
    readings: int

    @property
    def disagreement(self) -> str:
        """Return why the figures cannot both be right, or an empty text if they can."""
        if self.ratio is None or abs(self.ratio - 1) <= MOST_OFF:
            return ""
        return (
            f"the hardware counters measured {self.counters_tflops:.4g} TFLOP/s and the job "
            f"counted {self.counted_tflops:.4g}: {100 * (self.ratio - 1):+.1f} %, and at most "
            f"{100 * MOST_OFF:.0f} % is accepted. If the GPU is not calibrated, run: "
            "gpudeck calibrate"
        )


class Brief(msgspec.Struct, frozen=True):
    """Hold the assistant's brief."""

    text: str
    """Markdown."""
    writer: str
    """`template` or `model NAME`."""


class Tour(msgspec.Struct, frozen=True):
    """Describe a tour, as results.json holds it."""

    version: str
    started: float
    seconds: float
    source: str
    devices: tuple[DeviceState, ...]
    """The devices before the job."""
    job: Job
    live: Live
    training: Job
    brief: Brief
    pictures: tuple[str, ...]


def compare(job: Job) -> Live:
    """Compare the daemon's readings during a job with the job's own count of operations."""
    result = result_of(job)
    device = next(iter(job.state.devices), "") if isinstance(job.state, Done) else ""
    if result is None or not device or not result.sustained_tflops:
        return Live(None, "the job left no result", 0.0, None, None, None, 0)
    since, until = result.sustained_from + RATE_DELAY_S, result.sustained_to
    with Client() as client:
        past = client.history(device, _FIELDS, since, until)
    shown, counters, error = (_mean(past.columns[field]) for field in _FIELDS)
    counted, readings = result.sustained_tflops, len(past.times)
    ratio = None if counters is None else counters / counted
    if shown is None:
        why = "no reading while it was timed"
        return Live(None, why, counted, ratio, counters, error, readings)
    method = "the job's own count of FLOPs over the last 2 s"
    return Live(shown, method, counted, ratio, counters, error, readings)


def losses_of(job: Job) -> tuple[float, ...]:
    """Return the losses of a training job, which are the first curve of its result."""
    result = result_of(job)
    return result.curves[0].values if result is not None and result.curves else ()


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def write_results(out: Path, tour: Tour) -> None:
    """Write report.md and results.json to the folder `out`."""
    (out / "report.md").write_text("\n".join(_report_lines(tour)))
    encoded = json_in_english(msgspec.json.encode(tour))
    (out / "results.json").write_bytes(msgspec.json.format(encoded) + b"\n")


def _report_lines(tour: Tour) -> list[str]:
    result, live = result_of(tour.job), tour.live
    verdict = f" Verdict: {result.verdict}." if result else ""
    lines = [tour.brief.text, "", "## The tour", ""]
    lines.append(f"Job {tour.job.id} is {tour.job.status}.{verdict}")
    if live.shown_tflops is not None:
        lines.append(
            f"While it was timed, the dashboard showed {live.shown_tflops:.4g} TFLOP/s on average "
            f"({live.method}); the job counted {live.counted_tflops:.4g}."
        )
    if live.counters_tflops is not None:
        error = "" if live.counters_error is None else f" ±{live.counters_error:.0f} %"
        lines.append(f"The hardware counters measured {live.counters_tflops:.4g} TFLOP/s{error}.")
    if live.disagreement:
        lines.append(f"This fails the tour: {live.disagreement}.")
    losses = losses_of(tour.training)
    if losses:
        lines.append(
            f"Job {tour.training.id} trained a model: its loss fell from {losses[0]:.3f} to"
            f" {losses[-1]:.3f}."
        )
        lines += ["", f"![The losses of the model that was trained]({TRAINED}.png)"]
    if f"{DURING}.png" in tour.pictures:
        lines += ["", f"![The dashboard during the job]({DURING}.png)"]
    return [*lines, "", f"Written by: {tour.brief.writer}", ""]
