"""Test the formats of numbers, durations and times."""

import math

import pytest

from gpudeck.app.format.values import (
    ago,
    clock,
    device_label,
    duration,
    format_field,
    memory,
    plural,
    precise,
    scaled,
    significant,
)
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.protocol.fields import FIELDS
from tests.gui import snapshots


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("util", 99.6, "100 %"),
        ("mem_used", 12.34 * 2**30, "12.3 GiB"),
        ("tflops", 0.0852, "0.085 TFLOP/s"),
        ("tflops", 633.4, "633 TFLOP/s"),
        ("temp", 61.0, "61 °C"),
        ("power", 656.7, "657 W"),
        ("power", 4.25, "4.25 W"),
        ("bandwidth", 2.5e12, "2.50 TB/s"),
        ("pstate", 2.0, "2.00"),
    ],
)
def test_values_carry_their_unit(field, value, text):
    assert str(format_field(field, value)) == text


def test_missing_values_have_a_reason():
    shown = format_field("temp", NA("no sensor here"))
    assert (str(shown), shown.reason) == ("–", "no sensor here")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_invalid_numbers_are_shown_as_not_available(value):
    assert format_field("power", value).text == "–"
    assert format_field("power", value).reason


def test_every_field_can_be_shown():
    for field in FIELDS:
        for value in (0.0, 1.0, 1e18, -1.0):
            assert format_field(field, value).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0004, "0.000"),
        (0.9996, "1.00"),
        (9.996, "10.0"),
        (99.96, "100"),
        (-2.345, "-2.35"),
    ],
)
def test_significant_keeps_three_digits_after_rounding(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.00043, "0.00043"), (1.834e-5, "1.83e-5"), (-2e-7, "-2.00e-7"), (0, "0")]
)
def test_a_small_number_keeps_its_digits(value, text):
    assert precise(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0.0 s"),
        (0.0493, "49 ms"),
        (0.0996, "0.1 s"),
        (4.2, "4.2 s"),
        (9.96, "10 s"),
        (59.9, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (273600, "3 d 04 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (59.9, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (7300, "2 h ago"),
        (86400, "1 day ago"),
        (3 * 86400, "3 days ago"),
        (-30, "in less than a minute"),
        (-7300, "in 2 h"),
    ],
)
def test_moments_are_relative_to_now(seconds, text):
    assert ago(1000.0, 1000.0 + seconds) == text


def test_counts_and_sizes():
    assert scaled(2.2e12, "FLOP") == "2.20 TFLOP"
    assert scaled(12, "FLOP") == "12.0 FLOP"
    assert memory(256 * 2**20) == "256 MiB"
    assert (plural(1, "job"), plural(2, "job")) == ("1 job", "2 jobs")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("energy", 55387.0, "15.4 Wh"),
        ("energy", 90.0, "90 J"),
        ("energy", 4.5e9, "1250 kWh"),
        ("pcie_rx", 1.9e6, "1.90 MB/s"),
        ("pcie_rx", 2.5e9, "2.50 GB/s"),
        ("pcie_rx", 0.0, "0 GB/s"),
        ("bandwidth", 2.97e12, "2.97 TB/s"),
        ("pcie_rx", 12.0, "0.012 kB/s"),
    ],
)
def test_energy_and_rates_have_readable_units(field, value, text):
    assert str(format_field(field, value)) == text


def test_a_time_of_another_day_has_its_date():
    assert len(clock(snapshots.NOW, snapshots.NOW)) == len("12:34:56")
    assert clock(snapshots.NOW - 86400 * 3, snapshots.NOW).count("-") == 2


def test_devices_have_short_names():
    assert (device_label(snapshots.CPU), device_label(snapshots.gpu(3))) == ("CPU", "GPU 3")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00043, "0.00043"),
        (0.0098, "0.0098"),
        (0.0852, "0.085"),
        (-0.0012, "-0.0012"),
        (0, "0"),
        (602.4, "602"),
    ],
)
def test_precise_keeps_two_digits_of_small_numbers(value, text):
    assert precise(value) == text
