"""Correct NVML's SM clock for one GPU: what was measured, and the file that keeps it.

NVML reports the clock that the driver requests. While the tensor cores work, the multiprocessors of
some cards run up to 10 % slower (tests/benchmarks/log/telemetry.md), so that TFLOP/s from the
hardware counters read too high. A calibration measures by how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec

from gpudeck.language.text import mark_phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED

TENSOR_HALF = 0.45
"""A kernel that uses the tensor pipe for this share of its cycles, or more, slows the clock down as
much as one that always uses it: attention (0.53) as much as matrix products (0.97), measured."""


class ClockKnot(msgspec.Struct, frozen=True):
    """Give the correction at one activity of the tensor cores."""

    activity: float
    """Of 0 to 1; see `tensor_activity`."""
    ratio: float
    """The true SM clock / NVML's."""
    error: float
    """The largest deviation that was measured there, in percent."""


class ClockCalibration(msgspec.Struct, frozen=True):
    """Hold the correction of one GPU. It is valid for this VBIOS and driver only."""

    device: str
    """The GPU's UUID."""
    vbios: str
    driver: str
    made: float
    """Seconds since the epoch."""
    knots: tuple[ClockKnot, ...]
    """By activity, at least one; between two the correction is interpolated."""

    def ratio(self, activity: float) -> float:
        """Return the true SM clock / NVML's."""
        return self._between(activity)[0]

    def error(self, activity: float) -> float:
        """Return the uncertainty of corrected TFLOP/s in percent, either way."""
        return self._between(activity)[1]

    def _between(self, activity: float) -> tuple[float, float]:
        for low, high in pairwise(self.knots):
            if low.activity <= activity < high.activity:
                part = (activity - low.activity) / (high.activity - low.activity)
                return (
                    low.ratio + part * (high.ratio - low.ratio),
                    low.error + part * (high.error - low.error),
                )
        knot = self.knots[0] if activity < self.knots[0].activity else self.knots[-1]
        return knot.ratio, knot.error


NOT_KEPT = mark_phrase(
    "the calibration of job {job} was not kept: {problem}. Nothing was changed; try again with: "
    "{command}"
)
"""The notice about a calibration that failed."""
UNCALIBRATED = ClockCalibration(
    "",
    "",
    "",
    0.0,
    tuple(
        ClockKnot(activity, 1.0, error)
        for activity, error in (
            (0.0, 2.0),
            (0.15, 6.0),
            (0.3, 9.0),
            (0.5, 13.0),
            (0.6, 19.0),
            (1.0, 14.0),
        )
    ),
)
"""The largest errors that were measured without a correction, on an H200
(tests/benchmarks/log/telemetry.md)."""
KNOWN_CARDS = {"NVIDIA H200": ClockKnot(1.0, 0.9, 4.2)}
"""By the driver's name of a card: the correction at full load before a calibration. Three loads of
an H200 did 0.883 to 0.909 of the operations that NVML's clock gave. The guess is said to be no more
certain than calibrated H200s, which were up to 4.2 % off. H100s, 1 to 2.4 % off without a
correction, need none (tests/benchmarks/results/calibration_truth.csv)."""


def tensor_activity(values: Mapping[str, float]) -> float | None:
    """Return the share of cycles, 0 to 1, in which kernels that use the tensor cores ran.

    Args:
        values: Fields of a reading; None is returned where the counters are missing.
    """
    tensor, active = values.get("tensor_hmma"), values.get("sm_active")
    if tensor is None or active is None:
        return None
    if active <= 0:
        return 0.0
    return min(active / 100 * min(tensor / active / TENSOR_HALF, 1.0), 1.0)


def file() -> Path:
    """Return the file of the calibrations."""
    return paths.home() / "clocks.json"


def load() -> tuple[ClockCalibration, ...]:
    """Return all calibrations; none where the file is missing or damaged.

    They can be measured again, so a damaged file is no reason to stop.
    """
    try:
        found = msgspec.json.decode(file().read_bytes(), type=tuple[ClockCalibration, ...])
    except (OSError, *MALFORMED):
        return ()
    return tuple(c for c in found if c.knots)


def find(device: str, vbios: str, driver: str) -> ClockCalibration | None:
    """Return the calibration of this GPU with this VBIOS and driver, if it has one."""
    wanted = (device, vbios, driver)
    return next((c for c in load() if (c.device, c.vbios, c.driver) == wanted), None)


def in_force(device: str, name: str, vbios: str, driver: str) -> ClockCalibration:
    """Return the calibration of a GPU, or what other cards of its name need at full load."""
    if (found := find(device, vbios, driver)) is not None:
        return found
    if name not in KNOWN_CARDS:
        return UNCALIBRATED
    knots = (*UNCALIBRATED.knots[:-1], KNOWN_CARDS[name])
    return msgspec.structs.replace(UNCALIBRATED, knots=knots)


def keep(new: Iterable[ClockCalibration]) -> None:
    """Store calibrations; each replaces the earlier one of its GPU. Raises OSError."""
    made = {c.device: c for c in (*load(), *new)}
    paths.replace_file(file(), msgspec.json.format(msgspec.json.encode(tuple(made.values()))))
