"""Describe the strip's tiles, one for each device. `METRICS` lists the values of a tile."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from gpudeck.app.format.free_devices import is_free
from gpudeck.app.format.peak_share import KINDS, peak_share
from gpudeck.app.format.values import Meaning, device_label, duration, format_field, significant
from gpudeck.app.language.texts import (
    tr,
    tr_count,
    tr_decimal,
    tr_list,
    tr_moment,
    tr_noop,
    tr_text,
)
from gpudeck.language.numbers import amount
from gpudeck.language.text import Text
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.busy_causes import (
    Asleep,
    QuietHours,
    Reserved,
    Settling,
    Unreachable,
    explain,
)
from gpudeck.scheduler.protocol.devices import NA, Reading, card_name
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert, Busy, DeviceState, Snapshot
from gpudeck.scheduler.protocol.users import user_name

Usage = Literal["held", "in use", "idle", "recorded", "asleep", "reserved", "unreachable"]
"""Held by our jobs, in use by others, idle, or a recording, which does not contain its users;
asleep, kept for somebody, or on a machine that cannot be reached."""

WARM_BELOW_LIMIT, HOT_BELOW_LIMIT = 15.0, 5.0
"""A device is warm, or hot, within this many °C of its slow-down temperature."""
USUAL_LIMIT = 90.0
"""The slow-down temperature assumed for devices that do not report their own, in °C."""
_NO_THROTTLE = ("", "none", "idle", "application clocks", "sync boost", "display clocks")


class TileMetric(msgspec.Struct, frozen=True):
    """Describe one value of a tile."""

    caption: str
    text: str
    tooltip: str
    meaning: Meaning = ""
    share: float | None = None
    """The share of the whole, 0 to 1; None if it is not known."""
    slim_text: str = ""
    """The text in a slim tile, which has no room for all values."""
    bar: bool = False
    """Draw the share as a bar under the value."""
    value: float | None = None
    """The value itself in the field's unit; None if it is not known."""
    short_text: str = ""
    """The text where there is no room for the whole one; empty if it is the same."""


class Tile(msgspec.Struct, frozen=True):
    """Describe everything that a tile shows of its device."""

    device: str
    title: str
    name: str
    note: str
    replay: bool
    usage: Usage
    holder: str
    holder_tooltip: str
    metrics: tuple[TileMetric, ...]
    """The values, in the order of `METRICS`."""
    host: str = ""
    """The other machine that the device belongs to; empty for this one."""
    warning: str = ""
    """Why a value is coloured, in a word or two."""
    free: bool = False
    """A job could have the device to itself now."""
    progress: float | None = None
    """The share of the job that holds it which is done, 0 to 1; None if it is not known."""
    alert: str = ""
    """The alerts about it that are raised, a line for each."""
    calm: bool = False
    """The cause of all these alerts is over."""
    alerted: frozenset[int] = frozenset()
    """The indices of the values that these alerts are about, while their cause lasts."""

    @property
    def quiet(self) -> bool:
        """Return True if the tile need not draw attention to its holder."""
        return self.usage in ("idle", "recorded", "asleep")

    @property
    def meaning(self) -> Meaning:
        """Return the most serious meaning of all values and alerts."""
        alarming = self.alert and not self.calm and self.worst != "failed"
        return "hot" if alarming else self.worst

    def meaning_of(self, at: int) -> Meaning:
        """Return what the colour of the value at the index `at` of `METRICS` says."""
        return self.metrics[at].meaning or ("hot" if at in self.alerted else "")

    @property
    def worst(self) -> Meaning:
        """Return the most serious meaning of the values alone."""
        found = {metric.meaning for metric in self.metrics}
        order: tuple[Meaning, ...] = ("failed", "hot", "throttled", "warm")
        return next((meaning for meaning in order if meaning in found), "")


def tiles(snapshot: Snapshot) -> tuple[Tile, ...]:
    """Return a tile for each device."""
    jobs = {job.id: job for job in snapshot.jobs}
    return tuple(
        _tile(
            state,
            jobs,
            snapshot.settings,
            [alert for alert in snapshot.alerts if alert.device == state.device.id],
        )
        for state in snapshot.devices
    )


def temperature_meaning(reading: Reading) -> Meaning:
    """Return how serious the temperature is, given the device's own slow-down temperature."""
    temperature = reading.get("temp")
    if isinstance(temperature, NA):
        return ""
    below = _temperature_limit(reading) - temperature
    if below <= HOT_BELOW_LIMIT:
        return tr_noop("hot")
    return tr_noop("warm") if below <= WARM_BELOW_LIMIT else ""


def throttle_reasons(reading: Reading) -> tuple[str, ...]:
    """Return why the clocks are limited, apart from idling and the user's own settings."""
    reasons = reading.texts.get("throttle", "none").split(", ")
    return tuple(_with_duration(reading, r) for r in reasons if r not in _NO_THROTTLE)


def _with_duration(reading: Reading, reason: str) -> str:
    began = reading.since.get(reason)
    reason = tr_text(Text(reason))
    if began is None:
        return reason
    return tr("{reason} (for {time})", reason=reason, time=duration(reading.time - began))


def _utilisation(reading: Reading) -> TileMetric:
    share = _share(reading, "util", 100.0)
    return _metric(tr("Utilisation"), reading, "util", share=share, bar=True)


def _memory(reading: Reading) -> TileMetric:
    used = format_field("mem_used", reading.get("mem_used"))
    total = format_field("mem_total", reading.get("mem_total"))
    both = used.available and total.available
    about = tr("total: – ({why})", why=total.reason) if total.reason else tr("used / total")
    return TileMetric(
        tr("Memory"),
        f"{used.text} / {total}" if both else str(used),
        used.reason or about,
        share=_share(reading, "mem_used", reading.values.get("mem_total", 0.0)),
        slim_text=str(used),
        bar=True,
    )


def _compute_rate(reading: Reading) -> TileMetric:
    shown = _metric("TFLOP/s", reading, "tflops")
    error, rate = reading.values.get("tflops_error"), reading.values.get("tflops")
    if not rate or error is None:
        return msgspec.structs.replace(shown, slim_text="")
    types = rates_by_type(reading)
    told = significant(rate)
    if not reading.precision:
        told = tr("{rate} (FP8: {more})", rate=told, more=significant(2 * rate))
    return msgspec.structs.replace(
        shown,
        text=f"≈ {told} ±{error:.0f} %",
        tooltip=f"{types}: {shown.tooltip}" if types else shown.tooltip,
        slim_text="",
        short_text=f"≈ {told}",
    )


def rates_by_type(reading: Reading) -> str:
    """Return what the counters mean for each data type, which they cannot tell apart.

    Empty where nothing is computed, the jobs state a type, or the rate does not come from the
    counters.
    """
    error, rate = reading.values.get("tflops_error"), reading.values.get("tflops")
    if not rate or error is None or reading.precision:
        return ""
    return tr(
        "{half} TFLOP/s if this is FP16, BF16 or FP32, {quarter} if FP8, {full} if TF32, each "
        "±{error} %",
        half=significant(rate),
        quarter=significant(2 * rate),
        full=significant(rate / 2),
        error=f"{error:.0f}",
    )


def _with_peak_share(shown: TileMetric, device: str, precision: str) -> TileMetric:
    """Add which share of the card's peak a rate is, where that is known."""
    found = peak_share(device, shown.value, precision) if shown.value else None
    if found is None:
        return shown
    percent, peak, precision = found
    text = tr("{rate} · {percent} % of peak", rate=shown.text, percent=f"{percent:.0f}")
    about = tr(
        "the vendor's peak of this card for {precision} is {peak} TFLOP/s",
        precision=precision,
        peak=significant(peak),
    )
    return msgspec.structs.replace(
        shown,
        text=text,
        tooltip=f"{shown.tooltip}\n{about}",
        short_text=shown.short_text or shown.text,
    )


def _temperature(reading: Reading) -> TileMetric:
    share = _share(reading, "temp", _temperature_limit(reading))
    return _metric(tr("Temperature"), reading, "temp", temperature_meaning(reading), share)


def _power(reading: Reading) -> TileMetric:
    shown = format_field("power", reading.get("power"))
    reasons = throttle_reasons(reading) if shown.available else ()
    meaning: Meaning = "throttled" if reasons else ""
    tooltip = shown.reason or tr("current power draw")
    if reasons:
        tooltip = tr("Throttled: {reasons}", reasons=", ".join(reasons))
    share = _share(reading, "power", reading.values.get("power_limit", 0.0))
    return TileMetric(tr("Power"), str(shown), tooltip, meaning, share, str(shown))


METRICS: tuple[Callable[[Reading], TileMetric], ...] = (
    _utilisation,
    _memory,
    _compute_rate,
    _temperature,
    _power,
)
"""The values of every tile, in their order. Their places are in `gpudeck.app.strip.tile_view`."""
UTILISATION, MEMORY, COMPUTE_RATE, TEMPERATURE, POWER = range(len(METRICS))
_WATCHED = {
    "too hot": TEMPERATURE,
    "memory nearly full": MEMORY,
    "memory held idle": MEMORY,
    "throttled": POWER,
    "at its power limit": POWER,
    "reserved but idle": UTILISATION,
}
"""The values that rules of `gpudeck.scheduler.telemetry.alert_rules` are about, by their names."""


def _metric(
    caption: str,
    reading: Reading,
    field: str,
    meaning: Meaning = "",
    share: float | None = None,
    bar: bool = False,
) -> TileMetric:
    shown = format_field(field, reading.get(field))
    tooltip = shown.reason or tr_text(reading.methods.get(field, caption))
    value = reading.values.get(field)
    return TileMetric(caption, str(shown), tooltip, meaning, share, str(shown), bar, value)


def _temperature_limit(reading: Reading) -> float:
    return reading.values.get("temp_limit", USUAL_LIMIT)


def _share(reading: Reading, field: str, whole: float) -> float | None:
    value = reading.values.get(field)
    return None if value is None or not whole > 0 else min(max(value / whole, 0.0), 1.0)


def _tile(
    state: DeviceState, jobs: dict[int, Job], settings: Settings, alerts: Collection[Alert]
) -> Tile:
    device = state.device
    reading = state.reading
    if reading is None:
        cause = state.use.cause if isinstance(state.use, Busy) else None
        why = explain(cause) if isinstance(cause, Unreachable) else Unavailable("unread")
        reading = Reading("", 0.0, {}, absent=dict.fromkeys(HEADLINE, why))
    usage, holder, tooltip = _holder(state, jobs)
    metrics = [metric(reading) for metric in METRICS]
    metrics[COMPUTE_RATE] = _with_peak_share(
        metrics[COMPUTE_RATE], device.name, KINDS.get(reading.precision, "")
    )
    # a badge says that it is a replay
    name = card_name(device.name).removeprefix("NVIDIA ")
    return Tile(
        device=device.id,
        title=device_label(device),
        name=name,
        note=tr_text(device.note),
        replay=device.kind == "replay",
        usage=usage,
        holder=holder,
        holder_tooltip=tooltip,
        metrics=tuple(metrics),
        host=device.host,
        warning=_warning(reading),
        free=device.kind != "cpu" and not device.host and is_free(state, settings),
        progress=_progress(state, jobs),
        alert="\n".join(tr_text(alert.text) for alert in alerts),
        calm=all(alert.clearing for alert in alerts),
        alerted=frozenset(
            _WATCHED[alert.rule]
            for alert in alerts
            if alert.rule in _WATCHED and not alert.clearing
        ),
    )


def _progress(state: DeviceState, jobs: dict[int, Job]) -> float | None:
    """Return how far the only job on a device is."""
    job = jobs.get(state.holders[0]) if len(state.holders) == 1 else None
    if job is None or not isinstance(job.state, Running) or job.state.progress is None:
        return None
    return job.state.progress.done / job.state.progress.total


def _warning(reading: Reading) -> str:
    """Return why the device is slowed down, or how hot it is; empty if nothing is the matter."""
    heat, reasons = temperature_meaning(reading), reading.texts.get("throttle", "none").split(", ")
    slowed = [reason for reason in reasons if reason not in _NO_THROTTLE]
    return tr_text(Text(slowed[0])) if slowed and "power" in reading.values else tr(heat)


def _holder(state: DeviceState, jobs: dict[int, Job]) -> tuple[Usage, str, str]:
    """Return how the device is used, by whom, and a tooltip on it."""
    if len(state.holders) > 1:
        shares = ", ".join(_reservation(number, jobs.get(number)) for number in state.holders)
        numbers = tr("jobs {numbers}", numbers=tr_list(state.holders))
        return "held", numbers, tr("shared by {jobs}", jobs=shares)
    if state.holders:
        job = jobs.get(state.holders[0])
        text = tr("job {job}", job=state.holders[0])
        if job is None or job.spec.memory:
            tooltip = tr("used by this job, which shares it with others")
        else:
            tooltip = tr("used by this job alone")
        who = f"{user_name(job.spec.user)} · " if job and job.spec.user is not None else ""
        return "held", f"{who}{text} · {job.spec.name}" if job else text, tooltip
    if state.device.kind == "replay":
        tooltip = tr("the recording does not contain who used the device")
        return "recorded", tr("recorded"), tooltip
    if isinstance(state.use, Busy):
        cause = state.use.cause
        if isinstance(cause, Asleep):
            text = tr("☾ Asleep since {time}", time=_clock(cause.since))
            return "asleep", text, tr("asleep; it is not read so that it can stay asleep")
        if isinstance(cause, Unreachable):
            text = tr("Unreachable since {time}", time=_clock(cause.since))
            return "unreachable", text, tr_text(cause.why)
        if isinstance(cause, Reserved):
            text = tr("reserved until {time}", time=_clock(cause.until))
            return "reserved", text, tr_text(state.use.reason)
        if isinstance(cause, Settling):
            text = tr_text(state.use.reason)
            return "idle", text, tr("not in use; the assistant may use it then")
        if isinstance(cause, QuietHours):
            hours = tr_text(explain(cause))
            return "idle", tr("idle"), tr("not in use; the assistant has {hours}", hours=hours)
        return "in use", _others(state) or tr("in use"), tr_text(state.use.reason)
    return "idle", tr("idle"), tr("not in use")


def _others(state: DeviceState) -> str:
    """Return who computes on a device outside of the queue, such as "ben · python"."""
    found = [p for p in state.reading.processes if p.foreign] if state.reading else []
    names = list(dict.fromkeys(f"{p.user} · {p.name}" if p.user else p.name for p in found))
    if len(names) > 1:
        return tr_count(
            "{first} and {n} other", "{first} and {n} others", len(names) - 1, first=names[0]
        )
    return names[0] if names else ""


def _clock(at: float) -> str:
    return tr_moment(at, time.time())


def _reservation(number: int, job: Job | None) -> str:
    if job is None:
        return tr("job {job}", job=number)
    memory = tr_decimal(amount(job.spec.memory))
    return tr(
        "job {job} · {name} ({memory} reserved)", job=number, name=job.spec.name, memory=memory
    )
