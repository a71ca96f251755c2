"""TFLOP/s from the hardware counters, against rows measured on an H100 with cuBLAS (counted FLOPs
over wall time)."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.devices.nvidia.gpm import flops
from gpudeck.scheduler.protocol.absence import RateUnknown, Unavailable

H100 = (9, 0)


def counters(hmma: float, fp32: float, clock: float) -> dict[str, float]:
    return {"tensor_hmma": hmma, "fp32": fp32, "clock_sm": clock}


@pytest.mark.parametrize(
    ("hmma", "fp32", "clock", "shown", "counted"),
    [
        (93.801, 0.0, 1344.75, 682.0, 671.3),  # bfloat16 matrix product
        (93.822, 0.0, 1348.594, 684.1, 677.7),  # float16
        (0.0, 77.306, 1980.0, 51.7, 51.7),  # float32 without tensor cores
    ],
)
def test_against_what_was_measured(
    hmma: float, fp32: float, clock: float, shown: float, counted: float
) -> None:
    found = flops(counters(hmma, fp32, clock), H100, 132)
    assert isinstance(found, float)
    assert found / 1e12 == pytest.approx(shown, rel=1e-3)
    assert found / 1e12 == pytest.approx(counted, rel=0.02)


def test_a_load_with_pauses() -> None:
    """Busy every other 0.5 s at the power limit: two readings are its period. Tensor share (%),
    clock as looked at (MHz)."""
    period = [(65.55, 1602.0), (18.71, 1809.0)], [(65.67, 1599.0), (19.23, 1875.0)]
    for readings, counted in zip(period, (363.9, 363.3), strict=True):
        shown = [flops(counters(share, 0.0, clock), H100, 132) for share, clock in readings]
        assert sum(value for value in shown if isinstance(value, float)) / 2e12 == pytest.approx(
            counted, rel=0.06
        )


def test_a_share_is_over_cycles() -> None:
    """So the mean clock belongs to it: 0.5 s of that load, in which it fell idle, and the five
    times 0.1 s in them, all recorded together.

    Weighted with the clock the short shares make the long one; their mean, which a share over time
    would be, is far above it. The memory's clock is fixed, so its long share is the mean.
    """
    tensor, clocks = (93.92, 93.86, 93.82, 68.06, 0.0), (1443, 1426, 1425, 1511, 1950)
    memory = (26.57, 27.18, 27.0, 20.22, 0.0)
    assert sum(s * c for s, c in zip(tensor, clocks, strict=True)) / sum(clocks) == pytest.approx(
        66.53, rel=0.02
    )
    assert sum(tensor) / 5 > 1.05 * 66.53
    assert sum(memory) / 5 == pytest.approx(20.20, rel=0.002)


def test_nothing_runs() -> None:
    assert flops(counters(0.0, 0.0, 1980.0), H100, 132) == 0.0


@pytest.mark.parametrize("missing", ["tensor_hmma", "fp32", "clock_sm"])
def test_a_missing_counter_is_no_zero(missing: str) -> None:
    values = counters(50.0, 50.0, 1000.0)
    del values[missing]
    assert flops(values, H100, 132) == Unavailable("counters")
    assert isinstance(flops(counters(50.0, 50.0, 1000.0), H100, 0), Unavailable)


def test_a_card_that_was_not_measured_gives_no_guess() -> None:
    assert flops(counters(50.0, 50.0, 1000.0), (10, 0), 148) == RateUnknown((10, 0))
