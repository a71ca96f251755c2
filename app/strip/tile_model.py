"""What the tiles on top say of each device."""

from __future__ import annotations

from typing import Literal

import msgspec

from app.format.values import FormattedValue, device_label, duration, format_field
from scheduler.protocol.absence import Unavailable
from scheduler.protocol.devices import NA, Reading
from scheduler.protocol.jobs import Job
from scheduler.protocol.snapshot import Busy, DeviceState, Snapshot
from scheduler.protocol.units import amount, numbered

Meaning = Literal["", "warm", "hot", "throttled", "failed"]
"""The only things that colour stands for."""

WARM_BELOW_LIMIT, HOT_BELOW_LIMIT = 15.0, 5.0
"""°C below the slow-down temperature from which a device is warm, or hot."""
QUIET = ("idle", "recorded")
"""Holders that nobody need look at."""
_NO_THROTTLE = ("", "none", "idle", "application clocks", "sync boost", "display clocks")
USUAL_LIMIT = 90.0
"""°C; taken for the slow-down temperature where the device does not tell its own."""


class Metric(msgspec.Struct, frozen=True):
    caption: str
    text: str
    tooltip: str
    meaning: Meaning = ""
    share: float | None = None
    """Of the whole, 0 to 1, for a bar; None: no bar."""
    short: str = ""
    """Where there is little room; empty: nothing is shown there."""


class Tile(msgspec.Struct, frozen=True):
    device: str
    title: str
    name: str
    note: str
    replay: bool
    holder: str
    holder_tooltip: str
    metrics: tuple[Metric, ...]


def tiles(snapshot: Snapshot) -> tuple[Tile, ...]:
    jobs = {job.id: job for job in snapshot.jobs}
    return tuple(_tile(state, jobs) for state in snapshot.devices)


def temperature_meaning(reading: Reading) -> Meaning:
    """Warm or hot, measured against the device's own slow-down temperature."""
    temperature, limit = reading.get("temp"), reading.get("temp_limit")
    if isinstance(temperature, NA):
        return ""
    below = (USUAL_LIMIT if isinstance(limit, NA) else limit) - temperature
    return "hot" if below <= HOT_BELOW_LIMIT else "warm" if below <= WARM_BELOW_LIMIT else ""


def throttle(reading: Reading) -> str:
    """Why the clocks are held down, where that is more than rest or the user's own setting; empty where they are not."""
    reasons = reading.texts.get("throttle", "none").split(", ")
    return ", ".join(_since(reading, r) for r in reasons if r not in _NO_THROTTLE)


def _since(reading: Reading, reason: str) -> str:
    began = reading.since.get(reason)
    return reason if began is None else f"{reason} (for {duration(reading.time - began)})"


def _tile(state: DeviceState, jobs: dict[int, Job]) -> Tile:
    device = state.device
    holder, tooltip = _holder(state, jobs)
    return Tile(
        device=device.id,
        title=device_label(device),
        name=device.name.removeprefix("REPLAY ").removeprefix(
            "NVIDIA "
        ),  # the badge says the first
        note=device.note,
        replay=device.kind == "replay",
        holder=holder,
        holder_tooltip=tooltip,
        metrics=_metrics(state.reading),
    )


def _holder(state: DeviceState, jobs: dict[int, Job]) -> tuple[str, str]:
    if len(state.holders) > 1:
        return numbered(state.holders), "shared by " + ", ".join(
            _with_needs(number, jobs.get(number)) for number in state.holders
        )
    if state.holders:
        job = jobs.get(state.holders[0])
        alone = (
            "held by this job alone"
            if job and not job.spec.memory
            else "held by this job, which lets others share it"
        )
        return f"job {state.holders[0]}" + (f" · {job.spec.name}" if job else ""), alone
    if state.device.kind == "replay":
        return "recorded", "who used it then is not in the recording"
    if isinstance(state.use, Busy):
        return "in use", state.use.reason
    return "idle", "nobody uses it"


def _with_needs(number: int, job: Job | None) -> str:
    return f"job {number}" + (
        f" · {job.spec.name} ({amount(job.spec.memory)} reserved)" if job else ""
    )


def _metrics(reading: Reading | None) -> tuple[Metric, ...]:
    if reading is None:
        reading = Reading(
            "",
            0.0,
            {},
            absent=dict.fromkeys(
                ("util", "mem_used", "tflops", "temp", "power"), Unavailable("unread")
            ),
        )
    return (
        _metric("Utilisation", reading, "util", share=_share(reading, "util", 100.0)),
        _memory(reading),
        _metric("TFLOP/s", reading, "tflops"),
        _metric(
            "Temperature",
            reading,
            "temp",
            temperature_meaning(reading),
            _share(reading, "temp", _limit(reading)),
        ),
        _power(reading),
    )


def _metric(
    caption: str, reading: Reading, field: str, meaning: Meaning = "", share: float | None = None
) -> Metric:
    shown = format_field(field, reading.get(field))
    text = str(shown)
    short = "" if field == "tflops" else text
    return Metric(
        caption, text, shown.reason or reading.methods.get(field, caption), meaning, share, short
    )


def _power(reading: Reading) -> Metric:
    shown, throttled = format_field("power", reading.get("power")), throttle(reading)
    share = _share(reading, "power", reading.values.get("power_limit", 0.0))
    if throttled and not shown.reason:
        return Metric(
            "Power", str(shown), f"clocks held down: {throttled}", "throttled", share, str(shown)
        )
    return Metric(
        "Power", str(shown), shown.reason or "power drawn now", share=share, short=str(shown)
    )


def _limit(reading: Reading) -> float:
    return reading.values.get("temp_limit", USUAL_LIMIT)


def _memory(reading: Reading) -> Metric:
    used, total = (
        format_field("mem_used", reading.get("mem_used")),
        format_field("mem_total", reading.get("mem_total")),
    )
    text = str(used) if used.reason or total.reason else f"{used.text} / {total}"
    share = _share(reading, "mem_used", reading.values.get("mem_total", 0.0))
    return Metric("Memory", text, used.reason or _of_total(total), share=share, short=str(used))


def _of_total(total: FormattedValue) -> str:
    return f"total N/A: {total.reason}" if total.reason else "used / total"


def _share(reading: Reading, field: str, whole: float) -> float | None:
    value = reading.values.get(field)
    return None if value is None or not whole > 0 else min(max(value / whole, 0.0), 1.0)
