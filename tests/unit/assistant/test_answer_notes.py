"""The notes below rows of an answer."""

from __future__ import annotations

from gpudeck.assistant.answers.notes import notes
from gpudeck.assistant.query.devices import uncertainty
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows
from gpudeck.language.text import Text
from gpudeck.language.words import Words


def test_rates_from_counters_are_followed_by_the_largest_error_and_counted_ones_are_not() -> None:
    query, words = Query("devices", "tflops"), Words("en")
    rows = Rows("devices", (), (), Text("NVML readings"), 0.0, notes=uncertainty([None, 3.0, 14.4]))
    assert notes(query, rows, words) == [
        "The rate is from hardware counters, ±14 % for FP16 and BF16; FP8 would be twice and TF32 "
        "half of it."
    ]
    assert uncertainty([None]) == ()
