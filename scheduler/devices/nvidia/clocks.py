"""The SM clock averaged over the interval, and why the clocks are held down, by name and since when."""

from __future__ import annotations

from typing import Any

import pynvml as nv

from scheduler.devices.nvidia.errors import why

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
    """Looked at several times an interval: one look is up to 11 % off the mean of a card at its power limit.

    On an H100 the driver renews it every 0.1 s, as what it is at that moment: to look more often tells nothing more, nor do the graphics
    clock and `nvmlDeviceGetClock`, which change as often. When work begins, the SMs slow down 50 ms before it tells so.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._looks: list[int] = []
        self._error = ""

    def look(self) -> None:
        """Note the clock now."""
        try:
            self._looks.append(nv.nvmlDeviceGetClockInfo(self._handle, nv.NVML_CLOCK_SM))
        except nv.NVMLError as e:
            self._looks.clear()  # then the reading has no clock, and says so
            self._error = f"NVML: {e}"

    def read(self, values: dict[str, float], absent: dict[str, str]) -> None:
        """The mean since the last reading."""
        self.look()
        if self._looks:
            values["clock_sm"] = sum(self._looks) / len(self._looks)
        else:
            absent["clock_sm"] = self._error
        self._looks.clear()


class Throttle:
    """Why the clocks are held down, and since when: NVML tells the first alone."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._since: dict[str, float] = {}
        self._held_since: float | None = None

    def read(
        self, now: float, values: dict[str, float], absent: dict[str, str]
    ) -> dict[str, float]:
        """`now`: seconds since the epoch. Returns when each reason in force was first seen, by its name."""
        try:
            mask = int(nv.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except nv.NVMLError as e:
            absent.update(dict.fromkeys(_FIELDS, why(e)))
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
