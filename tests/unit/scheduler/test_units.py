"""Test how amounts of memory and spans of time are read and written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB, amount, span
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.units import parse_bytes, parse_seconds, parse_size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("20GiB", 20 * GIB),
        ("20G", 20 * GIB),
        ("1.5 gib", 3 * GIB // 2),
        ("512M", 2**29),
        ("10GB", 10**10),
        ("4096", 4096),
        (4096, 4096),
    ],
)
def test_amounts_of_memory_are_read(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("20", 20 * GIB),
        ("0.5", GIB // 2),
        ("21474836480", 20 * GIB),
        (2**30, GIB),
        ("0", 0),
        (0, 0),
    ],
)
def test_a_size_without_a_unit_is_in_gib_and_one_in_bytes_stays(
    text: str | int, count: int
) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["5KiB", "512B", 20])
def test_a_size_below_one_mib_needs_a_unit(text: str | int) -> None:
    with pytest.raises(UserError, match="add a unit"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("30s", 30),
        ("45min", 2700),
        ("45m", 2700),
        ("2h", 7200),
        ("1.5d", 129600),
        (0.5, 0.5),
    ],
)
def test_spans_of_time_are_read(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1G", "0", "1e9", "20 GiB of it", "20XiB", "nan", "inf", "9" * 400, "1\n2"]
)
def test_other_texts_are_refused(text: str) -> None:
    for parse in (parse_bytes, parse_seconds):
        with pytest.raises(UserError, match="is needed; got"):
            parse(text)


@settings(deadline=None)
@given(st.integers(1, 2**50))
def test_a_written_amount_is_not_more_than_the_real_one(count: int) -> None:
    text = amount(count)
    if not text.startswith("0"):
        assert parse_bytes(text) <= count


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7200, "2 h"), (90, "90 s"), (2700, "45 min"), (86400, "1 d"), (0.5, "0.5 s")],
)
def test_spans_of_time_are_written(seconds: float, words: str) -> None:
    assert span(seconds) == words
