"""What the device's sensors say while work is timed: clock, power, temperature.

torch asks NVML. From Ampere on NVML's power is an average over the last second, so that a reading tells of work that has gone on for
longer than that, and of nothing shorter.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch

from accel.result import Sensors

POWER_AVERAGE_S = 1.0
"""Of the card's own average of its power."""
_EVERY_S = 0.1
_PATIENCE_S = 2.0
"""NVML may hang where a GPU is in trouble; the work that was timed is done then, and is not held up."""
_NO_SENSORS = "a CPU's sensors are not read here"

Reading = tuple[float | None, float | None, float | None]
"""MHz, W and °C; None for what cannot be read."""


class Watch:
    """Reads the sensors ten times a second in a thread of its own, while its block runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._readings: list[Reading] = []

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

    def sensors(self, tflops: float = 0.0) -> Sensors:
        """What was read; `tflops`: the rate of the work meanwhile (TFLOP/s), for the energy it took."""
        if self._device.type != "cuda":
            return Sensors(absent=_NO_SENSORS)
        late = round(POWER_AVERAGE_S / _EVERY_S)
        mhz, celsius = (_mean([r[i] for r in self._readings]) for i in (0, 2))
        watts = _mean([r[1] for r in self._readings[late:]])
        absent = "" if watts is not None else _why(len(self._readings) <= late)
        return Sensors(
            mhz,
            watts,
            celsius,
            watts / tflops if watts is not None and tflops > 0 else None,
            absent,
        )

    def _look(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._readings.append(read(self._device))


def in_turn(readings: list[Reading], device: torch.device) -> Sensors:
    """Of one contender's slices of time: clock and temperature. Power is an average over longer than a slice."""
    if device.type != "cuda":
        return Sensors(absent=_NO_SENSORS)
    return Sensors(
        _mean([r[0] for r in readings]),
        None,
        _mean([r[2] for r in readings]),
        None,
        "power: not measured while in turn",
    )


def read(device: torch.device) -> Reading:
    """The sensors of a CUDA device now."""
    mhz = _ask(lambda: float(torch.cuda.clock_rate(device)))
    watts = _ask(lambda: torch.cuda.power_draw(device) / 1e3)
    return mhz, watts, _ask(lambda: float(torch.cuda.temperature(device)))


def _ask(sensor: Callable[[], float]) -> float | None:
    try:
        return sensor()
    except (
        RuntimeError,
        ModuleNotFoundError,
    ):  # of torch: NVML cannot be started, or its module is not there
        return None
    except Exception as e:
        if type(e).__name__.startswith(
            "NVMLError"
        ):  # of NVML, whose module only the daemon's probe imports: this card has no such sensor
            return None
        raise


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def _why(short: bool) -> str:
    if short:
        return f"power: timed for less than the {POWER_AVERAGE_S:g} s that the card averages over"
    return "power: the driver gives none"
