"""Read the device's clock, power and temperature while work is timed.

torch asks NVML. From Ampere on, NVML reports power averaged over the last second, so a reading is
valid only for work that has lasted longer.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch

from gpudeck.accel.result import Sensors
from gpudeck.language.text import Message, Text, phrase

POWER_AVERAGE_S = 1.0
"""The time over which the card averages its power."""
_EVERY_S = 0.1
_PATIENCE_S = 2.0
"""How long to wait for the last reading: NVML may hang on a faulty GPU."""
_NO_SENSORS = phrase("the sensors of a CPU are not read")

SensorReading = tuple[float | None, float | None, float | None]
"""The clock in MHz, the power in W and the temperature in °C; None for a sensor that cannot be
read."""


class _Watch:
    """Do something regularly in a thread, while a `with` block runs on a CUDA device."""

    def __init__(self, device: torch.device, every_s: float) -> None:
        self._device, self._every_s = device, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._device.type == "cuda":
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            self._take(read(self._device))

    def _take(self, reading: SensorReading) -> None:
        raise NotImplementedError


class SensorWatch(_Watch):
    """Read the sensors ten times a second in a thread, while a `with` block runs."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, _EVERY_S)
        self._readings: list[SensorReading] = []

    def sensors(self, tflops: float = 0.0) -> Sensors:
        """Return the averages. `tflops`, the rate of the work in TFLOP/s, serves to compute its
        energy."""
        if self._device.type != "cuda":
            return Sensors(absent=_NO_SENSORS)
        late = round(POWER_AVERAGE_S / _EVERY_S)
        mhz, celsius = (_mean([r[i] for r in self._readings]) for i in (0, 2))
        watts = _mean([r[1] for r in self._readings[late:]])
        absent: Message = "" if watts is not None else _why(len(self._readings) <= late)
        return Sensors(
            mhz,
            watts,
            celsius,
            watts / tflops if watts is not None and tflops > 0 else None,
            absent,
        )

    def _take(self, reading: SensorReading) -> None:
        self._readings.append(reading)


class EnergyWatch(_Watch):
    """Add up the energy of a CUDA device in a thread, while a `with` block runs.

    The power is read once a second, which is the time over which the card averages it.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, POWER_AVERAGE_S)
        self._began = self._before = time.monotonic()
        self.joules = 0.0
        self.seconds = 0.0
        """The time for which the power was known."""

    @property
    def absent(self) -> Text:
        """Return why the power is not known."""
        return (
            _NO_SENSORS
            if self._device.type != "cuda"
            else _why(time.monotonic() - self._began < POWER_AVERAGE_S)
        )

    @property
    def watts(self) -> float | None:
        """Return the mean power; None if it is not known for a second or more."""
        return self.joules / self.seconds if self.seconds >= POWER_AVERAGE_S else None

    def _take(self, reading: SensorReading) -> None:
        now, watts = time.monotonic(), reading[1]
        if watts is not None:
            self.joules += watts * (now - self._before)
            self.seconds += now - self._before
        self._before = now


def in_turn(readings: list[SensorReading], device: torch.device) -> Sensors:
    """Return the averages over one contender's turns, without power.

    The card averages its power over a longer time than a turn.
    """
    if device.type != "cuda":
        return Sensors(absent=_NO_SENSORS)
    return Sensors(
        _mean([r[0] for r in readings]),
        None,
        _mean([r[2] for r in readings]),
        None,
        phrase("power: not measured while backends take turns"),
    )


def read(device: torch.device) -> SensorReading:
    """Return what the sensors of a CUDA device read now."""
    mhz = _ask(lambda: float(torch.cuda.clock_rate(device)))
    watts = _ask(lambda: torch.cuda.power_draw(device) / 1e3)
    return mhz, watts, _ask(lambda: float(torch.cuda.temperature(device)))


def _ask(sensor: Callable[[], float]) -> float | None:
    try:
        return sensor()
    except (RuntimeError, ModuleNotFoundError):  # NVML cannot be started, or is not installed
        return None
    except Exception as e:
        # This card has no such sensor. Only the daemon's probe imports NVML's module, so the class
        # is compared by name.
        if any(kind.__name__ == "NVMLError" for kind in type(e).__mro__):
            return None
        raise


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def _why(short: bool) -> Text:
    if short:
        return phrase(
            "power: timed for less than the {n} s that the card averages over", n=POWER_AVERAGE_S
        )
    return phrase("power: the driver reports none")
