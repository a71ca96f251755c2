"""Times that requests name, in four languages, as spans in the person's time zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from gpudeck.assistant.intents.moments import length_of, moment_of
from gpudeck.assistant.intents.times import read_period, read_time
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.language.words import words


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a time zone whose clocks change, and restore the machine's afterwards."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


TIMES = {
    "between 2 and 4pm": ("23 14:00", "23 15:20"),
    "between 2 and 4pm yesterday": ("22 14:00", "22 16:00"),
    "around 3am": ("23 02:30", "23 03:30"),
    "since yesterday evening": ("22 18:00", "23 15:20"),
    "last night": ("22 20:00", "23 06:00"),
    "since lunch": ("23 12:00", "23 15:20"),
    "between 22:00 and 02:00": ("22 22:00", "23 02:00"),
    "users of the month": ("01 00:00", "23 15:20"),
    "top utilisateurs du mois": ("01 00:00", "23 15:20"),
    "la semaine passée": ("16 15:20", "23 15:20"),
    "this month so far": ("01 00:00", "23 15:20"),
    "lo mejor del mes": ("01 00:00", "23 15:20"),
    "gestern abend": ("22 18:00", "23 00:00"),
    "zwischen 9 und 11 uhr": ("23 09:00", "23 11:00"),
    "yesterday evening at 8": ("22 20:00", "22 20:00"),
    "gpu 0 yesterday at 3": ("22 03:00", "22 03:00"),
    "yesterday at 3 in the morning": ("22 03:00", "22 03:00"),
    "gestern um 3": ("22 03:00", "22 03:00"),
    "hier à 3h du matin": ("22 03:00", "22 03:00"),
    "ayer a las 3 de la mañana": ("22 03:00", "22 03:00"),
    "hier soir": ("22 18:00", "23 00:00"),
    "entre 9h et 11h": ("23 09:00", "23 11:00"),
    "ayer por la tarde": ("22 12:00", "22 18:00"),
    "entre las 2 y las 4": ("23 02:00", "23 04:00"),
    "in the last 3 hours": ("23 12:20", "23 15:20"),
}


@pytest.mark.parametrize(("said", "span"), TIMES.items())
def test_spans_of_time(berlin: None, said: str, span: tuple[str, str]) -> None:
    now = datetime(2026, 11, 23, 15, 20).timestamp()
    found = read_time(tokens(said), now)
    assert found is not None
    ends = (found.span.since, found.span.until)
    assert tuple(datetime.fromtimestamp(end).strftime("%d %H:%M") for end in ends) == span


PERIODS = {
    "weekly": 7, "Wochenbericht": 7, "hebdomadaire": 7, "semanal": 7, "wöchentliche": 7,
    "monthly": 30, "Monatsbericht": 30, "mensuel": 30, "mensual": 30,
    "Daily": 1, "Tagesbericht": 1, "quotidien": 1, "diario": 1, "annual": 365,
    "Wochenende": 0, "the jobs of GPU 3": 0,
}  # fmt: skip


@pytest.mark.parametrize(("said", "days"), PERIODS.items())
def test_what_a_regular_report_covers(said: str, days: int) -> None:
    found = read_period(said, 1e9)
    assert (found and (found.since, found.until)) == ((1e9 - days * 86400, 1e9) if days else None)


CALENDAR = {
    "in november": ("2026-11-01", "2026-11-23"), "im märz": ("2026-03-01", "2026-04-01"),
    "depuis janvier": ("2026-01-01", "2026-11-23"), "diciembre": ("2025-12-01", "2026-01-01"),
    "last quarter": ("2026-07-01", "2026-10-01"), "ce trimestre": ("2026-10-01", "2026-11-23"),
    "q2": ("2026-04-01", "2026-07-01"), "dieses jahr": ("2026-01-01", "2026-11-23"),
    "since the 11th": ("2026-11-11", "2026-11-23"),
    "vom 13. November": ("2026-11-13", "2026-11-14"),
    "desde el 2 de noviembre": ("2026-11-02", "2026-11-23"),
    "le 30 octobre": ("2026-10-30", "2026-10-31"), "on the 30th": ("2026-10-30", "2026-10-31"),
    "between 13 november and 15 november": ("2026-11-13", "2026-11-16"),
    "the weekend of the 14th": ("2026-11-14", "2026-11-16"),
    "last weekend": ("2026-11-21", "2026-11-23"),
    "in may": ("2026-05-01", "2026-06-01"), "la semana": ("2026-11-23", "2026-11-23"),
}  # fmt: skip


@pytest.mark.parametrize(("said", "span"), CALENDAR.items())
def test_months_and_quarters_are_the_last_ones_of_their_name(
    said: str, span: tuple[str, str]
) -> None:
    found = read_time(tokens(said), datetime(2026, 11, 23, 15, 20).timestamp())
    assert found is not None
    ends = (found.span.since, found.span.until)
    assert tuple(datetime.fromtimestamp(end).strftime("%Y-%m-%d") for end in ends) == span


@pytest.mark.parametrize("said", ["may I cancel job 7", "job 3 may start", "q9"])
def test_a_verb_is_no_month_and_a_year_has_four_quarters(said: str) -> None:
    assert read_time(tokens(said), datetime(2026, 11, 23, 15, 20).timestamp()) is None


MOMENTS = {
    "friday 8pm": "2026-11-27 20:00", "am mittwoch um 8": "2026-11-25 08:00",
    "lundi 18h": "2026-11-23 18:00", "lunes a las 9": "2026-11-30 09:00",
    "tomorrow noon": "2026-11-24 12:00", "mitternacht": "2026-11-24 00:00",
}  # fmt: skip


@pytest.mark.parametrize(("said", "moment"), MOMENTS.items())
def test_a_moment_of_a_week_is_the_next_one_of_its_name(said: str, moment: str) -> None:
    assert moment_of(said, datetime(2026, 11, 23, 15, 20).timestamp()) == moment


DATES = {
    "1 December 2026": "2026-12-01", "until 1 December 2026": "2026-12-01",
    "December 1st, 2026, 6pm": "2026-12-01 18:00", "18:00 on 1 December": "2026-12-01 18:00",
    "2026-12-01": "2026-12-01", "2026-12-01T18:00": "2026-12-01 18:00",
    "1.12.": "2026-12-01", "1.12. um 18 Uhr": "2026-12-01 18:00", "bis 1.12.2026": "2026-12-01",
    "am 1. Dezember um 18 Uhr": "2026-12-01 18:00", "1/12/2026 18:00": "2026-12-01 18:00",
    "12/25/2026 8am": "2026-12-25 08:00", "le 1er décembre": "2026-12-01",
    "le 1er décembre à 18h": "2026-12-01 18:00", "1 de diciembre": "2026-12-01",
    "el 1 de diciembre de 2026 a las 18:30": "2026-12-01 18:30",
    "the 16th": "2026-12-16", "zum 16.": "2026-12-16", "au 24": "2026-11-24",
    "el 31": "2026-12-31", "the 5 pm": "2026-11-23 17:00",
    "heute abend um 9": "2026-11-23 21:00", "hoy en la noche a las 9": "2026-11-23 21:00",
    "3 november": "2027-11-03", "23 november": "2026-11-23", "um 8.10.": "2026-11-24 08:10",
}  # fmt: skip


@pytest.mark.parametrize(("said", "moment"), DATES.items())
def test_a_date_is_the_next_one_that_it_names(said: str, moment: str) -> None:
    assert moment_of(said, datetime(2026, 11, 23, 15, 20).timestamp()) == moment


@pytest.mark.parametrize("said", ["31.11.2026", "1 May 2025", "31 february"])
def test_a_date_that_there_is_not_or_that_is_past_is_no_moment(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        moment_of(said, datetime(2026, 11, 23, 15, 20).timestamp())


def test_a_day_on_which_the_clocks_change_has_25_or_23_hours(berlin: None) -> None:
    for day, hours in (((2026, 10, 25), 25), ((2026, 3, 29), 23)):
        now = datetime(*day, 12).timestamp() + 86400
        found = read_time(tokens("yesterday"), now)
        assert found is not None and found.span.until - found.span.since == hours * 3600


def test_the_answer_names_the_span_with_its_time_zone(berlin: None) -> None:
    since, until = (datetime(2026, 7, 1, hour).timestamp() for hour in (14, 16))
    assert words("en").span(since, until, until) == "1 July 2026, 14:00 to 16:00 CEST"
    assert words("de").span(since, until, until) == "1. Juli 2026, 14:00 bis 16:00 CEST"


def test_whole_days_are_named_without_a_clock(berlin: None) -> None:
    first, last, end = (datetime(2026, 10, day).timestamp() for day in (24, 25, 26))
    assert words("en").span(last, end, end) == "25 October 2026"  # the day has 25 hours
    assert words("fr").span(first, end, end) == "du 24 octobre 2026 au 25 octobre 2026"
    assert words("en").span(first, end + 60, end).endswith("26 October 2026, 00:01 CEST/CET")


def test_a_night_ends_in_the_morning() -> None:
    found = read_time(tokens("what ran last night"), datetime(2026, 11, 23, 6, 7).timestamp())
    begin, end = datetime(2026, 11, 22, 20), datetime(2026, 11, 23, 6)
    assert found is not None
    assert (found.span.since, found.span.until) == (begin.timestamp(), end.timestamp())


@pytest.mark.parametrize(
    ("said", "length"),
    [("half an hour", "30min"), ("eine halbe Stunde", "30min"), ("2 hours", "2h")],
)
def test_lengths_are_written_as_options_take_them(said: str, length: str) -> None:
    assert length_of(said) == length


@pytest.mark.parametrize("text", ["last year", "voriges Jahr", "l'année dernière", "el año pasado"])
def test_the_last_year_is_that_of_the_calendar(text: str) -> None:
    found = read_time(tokens(text), datetime(2026, 11, 23, 15, 20).timestamp())
    assert found is not None
    year = datetime(2025, 1, 1).timestamp(), datetime(2026, 1, 1).timestamp()
    assert (found.span.since, found.span.until) == year
