"""What a run tells about the rest of it after its first steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.accel.result import read
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.estimate import Estimate, Price, is_due, price_in
from gpudeck.language.rendering import render

TWO_HOURS = Estimate(2**30, 2**31, 0.5, 4096.0, 7200.0, 400.0)


def test_the_estimate_has_energy_and_what_it_costs() -> None:
    said = str(TWO_HOURS.text(0.0, Price(0.5, "CHF")))
    assert said.endswith("with 0.8 kWh for 0.40 CHF")
    assert render(TWO_HOURS.text(0.0, Price(0.5, "CHF")), "de").endswith("0,8 kWh für 0,40 CHF")


def test_without_a_price_the_estimate_has_energy_alone() -> None:
    assert str(TWO_HOURS.text(0.0)).endswith("with 0.8 kWh")


def test_the_price_is_the_one_that_the_queue_tells_its_jobs() -> None:
    told = {"GPUDECK_ENERGY_PRICE": "0.32", "GPUDECK_CURRENCY": "€"}
    assert price_in(told) == Price(0.32, "€")
    assert price_in({}) is None


def test_a_price_that_is_no_number_is_refused() -> None:
    with pytest.raises(Refused, match="GPUDECK_ENERGY_PRICE is dear, and not a number"):
        price_in({"GPUDECK_ENERGY_PRICE": "dear"})


def test_short_steps_are_timed_for_two_seconds() -> None:
    assert not is_due([30.0] * 6)
    assert is_due([30.0] * 70)
    assert not is_due([900.0] * 5)
    assert is_due([900.0] * 6)


def test_a_run_that_is_only_estimated_says_so_even_if_all_its_steps_are_short(
    tmp_path: Path,
) -> None:
    (tmp_path / "text.txt").write_text("one two three four five\n" * 400)
    given = ("model=tiny", "tokens=32", "batch=2", "steps=12", "estimate=yes", "checkpoint=12",
             f"data={tmp_path / 'text.txt'}", f"out={tmp_path / 'out'}")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpudeck.accel.workloads.train", *(f"--{g}" for g in given)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "GPUDECK_HOME": str(tmp_path),
             "GPUDECK_RESULT": str(tmp_path / "result.json")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "estimate: at most" in done.stdout, done.stderr
    assert str(read((tmp_path / "result.json").read_bytes()).verdict) == "pass"
