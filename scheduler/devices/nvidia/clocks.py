"""Read the SM clock, averaged over the interval, and the reasons why the clocks are held down."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pynvml as nv

from gpudeck.scheduler.devices.nvidia.errors import refusal
from gpudeck.scheduler.protocol.absence import Absence, Refused

REASONS = {
    nv.nvmlClocksEventReasonGpuIdle: "idle",
    nv.nvmlClocksEventReasonApplicationsClocksSetting: "application clocks",
    nv.nvmlClocksEventReasonSwPowerCap: "power limit",
    nv.nvmlClocksEventReasonHwSlowdown: "hardware slow-down",
    nv.nvmlClocksEventReasonSyncBoost: "sync boost",
    nv.nvmlClocksEventReasonSwThermalSlowdown: "too hot (software)",
    nv.nvmlClocksEventReasonHwThermalSlowdown: "too hot (hardware)",
    nv.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    nv.nvmlClocksEventReasonDisplayClockSetting: "display clocks",
}
_POWER = nv.nvmlClocksEventReasonSwPowerCap | nv.nvmlClocksEventReasonHwPowerBrakeSlowdown
_HEAT = nv.nvmlClocksEventReasonSwThermalSlowdown | nv.nvmlClocksEventReasonHwThermalSlowdown
_HELD = _POWER | _HEAT | nv.nvmlClocksEventReasonHwSlowdown
_FIELDS = ("throttle", "throttle_power", "throttle_heat", "throttled")


class SmClock:
    """Average the SM clock over several samples an interval.

    A single sample is up to 11 % off the mean of a card at its power limit. On an H100 the driver
    renews the value every 0.1 s, as it is at that moment: sampling more often adds nothing, nor do
    the graphics clock and `nvmlDeviceGetClock`, which change as often. When work begins, the SMs
    slow down 50 ms before the reported clock does.

    A sample stands for the time since the one before: after a gap, in which the load may have
    changed, those from before the gap count for as long as they describe. A reading takes no sample
    of its own while there is one: readings come at a steady rate, and would always see a load that
    pauses at this rate in the same phase.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples: list[tuple[int, float]] = []
        """MHz, and the seconds that they stand for."""
        self._time = monotonic()
        self._error = Refused("NVML", "")

    def sample(self) -> None:
        """Take one sample of the clock."""
        before, self._time = self._time, monotonic()
        try:
            mhz = nv.nvmlDeviceGetClockInfo(self._handle, nv.NVML_CLOCK_SM)
            self._samples.append((mhz, self._time - before))
        except nv.NVMLError as e:
            # the mean of the samples before would hide the error
            self._samples.clear()
            self._error = Refused("NVML", str(e))

    def read(self, values: dict[str, float], absent: dict[str, Absence]) -> None:
        """Add the mean since the last call to `values`."""
        if not self._samples:
            self.sample()
        if self._samples:
            seconds = sum(s for _, s in self._samples)
            weighted = sum(mhz * s for mhz, s in self._samples)
            values["clock_sm"] = weighted / seconds if seconds else float(self._samples[-1][0])
        else:
            absent["clock_sm"] = self._error
        self._samples.clear()


class Throttle:
    """Track why the clocks are held down, and since when: NVML reports only the reasons."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._since: dict[str, float] = {}
        self._held_since: float | None = None

    def read(
        self, now: float, values: dict[str, float], absent: dict[str, Absence]
    ) -> dict[str, float]:
        """Add the throttle fields to `values`; return the start time of each reason in force.

        Args:
            now: Seconds since the epoch.
            values: Receives the fields that could be read.
            absent: Receives the causes of the others.
        """
        try:
            mask = int(nv.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except nv.NVMLError as e:
            absent.update(dict.fromkeys(_FIELDS, refusal(e)))
            self._since, self._held_since = {}, None
            return {}
        self._since = {
            name: self._since.get(name, now) for bit, name in REASONS.items() if mask & bit
        }
        held = bool(mask & _HELD)
        self._held_since = (self._held_since or now) if held else None
        values.update(
            throttle=float(mask),
            throttle_power=float(bool(mask & _POWER)),
            throttle_heat=float(bool(mask & _HEAT)),
            throttled=max(now - self._held_since, 0.0) if self._held_since else 0.0,
        )
        return dict(self._since)
