"""TFLOP/s from the hardware counters, against rows measured on an H100 with cuBLAS (counted FLOPs over wall time)."""

from __future__ import annotations

import pytest

from scheduler.devices.nvidia.gpm import flops

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
def test_against_what_was_measured(hmma: float, fp32: float, clock: float, shown: float, counted: float) -> None:
    found = flops(counters(hmma, fp32, clock), H100, 132)
    assert isinstance(found, float)
    assert found / 1e12 == pytest.approx(shown, rel=1e-3)
    assert found / 1e12 == pytest.approx(counted, rel=0.02)


def test_nothing_runs() -> None:
    assert flops(counters(0.0, 0.0, 1980.0), H100, 132) == 0.0


@pytest.mark.parametrize("missing", ["tensor_hmma", "fp32", "clock_sm"])
def test_a_missing_counter_is_no_zero(missing: str) -> None:
    values = counters(50.0, 50.0, 1000.0)
    del values[missing]
    assert flops(values, H100, 132) == "the counters or the clock cannot be read"
    assert isinstance(flops(counters(50.0, 50.0, 1000.0), H100, 0), str)


def test_a_card_that_was_not_measured_gives_no_guess() -> None:
    assert flops(counters(50.0, 50.0, 1000.0), (10, 0), 148) == "the FLOP per cycle of compute capability 10.0 was not measured yet"
