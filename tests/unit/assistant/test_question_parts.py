"""Parts of questions: groups, costs, other times, times to come, and measures side by side."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gpudeck.assistant.answers import answer
from gpudeck.assistant.intents.composed import compose
from gpudeck.assistant.intents.moments import span_ahead
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.spans import completed
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.costs import with_cost
from gpudeck.assistant.query.groups import by_time, grouped
from gpudeck.assistant.query.merge import in_tables
from gpudeck.assistant.query.request import COST, Query, Span
from gpudeck.assistant.query.rows import Column, Row, Rows
from gpudeck.assistant.reader.reading import Reading
from gpudeck.language.text import Text
from gpudeck.language.words import words

NOW = datetime(2026, 11, 26, 15, 20).timestamp()
KNOWN = Known(("train",), ("nightly",), (), ("lea", "ben"), "lea")


def asked(head: str, *marks: str, state: State | None = None, **spans: str) -> Any:
    """Return what is made of a reading."""
    found = tuple(spans.items())
    reading = Reading(((head, 0.9),), "", frozenset(marks), found, tuple((0, 0) for _ in found), ())
    return compose(reading, head, KNOWN, state or State(), NOW)


def jobs(*rows: tuple[float | None, str], measure: str = "energy", unit: str = "J") -> Rows:
    """Return rows of jobs with a value and a user."""
    made = tuple(
        Row(f"job{n}", f"job {n} (train)", (value, user)) for n, (value, user) in enumerate(rows, 1)
    )
    columns = (Column(measure, unit), Column("user"))
    return Rows("jobs", columns, made, Text("queue"), NOW)


def day(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("letters", "begin", "end"),
    [
        ("9am tomorrow", "2026-11-27 09:00", "2026-11-27 09:00"),
        ("esta noche", "2026-11-26 18:00", "2026-11-27 06:00"),
        ("morgen vormittag", "2026-11-27 06:00", "2026-11-27 12:00"),
        ("la semaine prochaine", "2026-11-30 00:00", "2026-12-07 00:00"),
        ("Sunday", "2026-11-29 00:00", "2026-11-30 00:00"),
        ("hoy", "2026-11-26 15:20", "2026-11-27 00:00"),
        ("before 6", "2026-11-26 18:00", "2026-11-26 18:00"),
        ("vor 6 Uhr", "2026-11-27 06:00", "2026-11-27 06:00"),
    ],
)
def test_a_time_to_come_has_a_begin_and_an_end(letters: str, begin: str, end: str) -> None:
    assert span_ahead(letters, NOW) == (day(begin), day(end))
    assert span_ahead("before the match", NOW) is None
    assert span_ahead("300 more clips", NOW) is None


@pytest.mark.parametrize(
    ("letters", "since"),
    [
        ("in the past fortnight", "2026-11-12 15:20"),
        ("the last couple of days", "2026-11-24 15:20"),
        ("since half past two", "2026-11-26 14:30"),
        ("seit Viertel nach zwölf", "2026-11-26 12:15"),
        ("vormittag", "2026-11-26 06:00"),
    ],
)
def test_a_time_is_also_said_in_words(letters: str, since: str) -> None:
    made = asked("ask gpus", "measure=power", time=letters)
    assert made.request.time is not None
    assert made.request.time.since == day(since)
    assert not made.left


def test_numbers_up_to_a_hundred_are_read_in_words() -> None:
    for letters, number in (("twenty-two cents", 0.22), ("einunddreißig Cent", 0.31),
                            ("vingt-deux centimes", 0.22), ("treinta y cinco", 35)):  # fmt: skip
        made = asked("ask gpus", "measure=cost", time="today", price=letters)
        assert made.request.amount == number


def test_a_number_before_a_unit_is_no_gpu_and_several_gpus_are_compared_by_their_mean() -> None:
    text = "why is gpu 2 5 degrees warmer than the others"
    found = (("gpus", "2"), ("gpus", "5"))
    reading = Reading((("ask gpus", 0.9),), "", frozenset(), found, ((11, 12), (13, 14)), ())
    assert completed(text, reading, KNOWN).spans == (("gpus", "2"),)
    pair = asked("ask gpus", "compare=others", "measure=temperature", gpus="2 and 5").request
    assert (pair.devices, pair.aggregate, pair.other.exclude) == ((2, 5), "mean", (2, 5))
    assert asked("ask gpus", "measure=fan", gpus="Fünfer").request.devices == (5,)


def test_who_says_who_types_is_that_user() -> None:
    reading = Reading((("ask users", 0.9),), "", frozenset({"measure=gpu_hours", "user=@me"}),
                      (("user", "ben"),), ((0, 0),), ())  # fmt: skip
    for text, user in (
        ("how much did I use, this is still ben", "ben"),
        ("ben here, my hours please", "ben"),
        ("mine and ben's", "ben,lea"),
    ):
        made = compose(reading, "ask users", KNOWN, State(), NOW, text).request
        assert isinstance(made, Query)
        assert made.user == user


def test_the_cpu_is_asked_for_and_what_alerts_tell_is_told_with_the_counters() -> None:
    assert asked("ask gpus", "measure=cpu", "measure=util").request.text == "cpu"
    made = asked("ask gpus", "measure=health", time="this week")
    assert [made.request.subject, *(one.subject for one in made.also)] == ["devices", "alerts"]


def test_somebodys_job_is_called_by_the_size_of_its_model() -> None:
    known = KNOWN._replace(active=("llama-70b", "train"))
    reading = Reading((("ask models", 0.9),), "", frozenset({"measure=fits"}),
                      (("user", "ben"), ("model", "70b")), ((0, 0), (0, 0)), ())  # fmt: skip
    made = compose(reading, "ask models", known, State(), NOW).request
    assert made == Query("jobs", "start", jobs=("llama-70b",), user="ben")
    plain = reading._replace(spans=(("model", "70b"),), places=((0, 0),))
    made = compose(plain, "ask models", known, State(), NOW).request
    assert isinstance(made, Query)
    assert made.subject == "models"
    behind = State(last=Query("jobs", "start"), jobs=(14,))
    assert asked("ask models", "measure=fits", "model=@it", state=behind).request == Query(
        "jobs", "gpus", jobs=(14,)
    )


def test_who_asks_with_which_result_jobs_ended_gets_those_that_failed_too() -> None:
    reading = Reading((("ask jobs", 0.9),), "", frozenset({"states=done"}), (), (), ())
    made = compose(reading, "ask jobs", KNOWN, State(), NOW, "what ended, and with what result?")
    assert isinstance(made.request, Query)
    assert {"done", "failed", "cancelled"} <= {*made.request.states}


def test_energy_and_hours_are_asked_by_user_day_and_group() -> None:
    by_user = asked("ask gpus", "measure=energy", "by=user", time="this month").request
    assert (by_user.subject, by_user.measure, by_user.by) == ("jobs", "energy", "user")
    day_of = asked("ask gpus", "measure=energy", "which=highest", "when=yes").request
    assert (day_of.by, day_of.aggregate, day_of.extreme) == ("day", "max", True)
    most = asked("ask users", "measure=gpu_hours", "which=highest").request
    assert (most.by, most.aggregate, most.extreme) == ("user", "max", True)
    groups = asked("ask jobs", "measure=waited", "combine=mean", "by=group").request
    assert (groups.by, groups.aggregate) == ("group", "mean")


def test_the_highest_and_the_lowest_at_once_are_among_all_values() -> None:
    both = asked("ask gpus", "measure=util", "which=highest", "which=lowest").request
    assert both == Query("devices", "util")


def test_two_times_are_compared_for_jobs_and_users_and_the_last_one_is_the_one_before() -> None:
    made = asked("ask users", "measure=gpu_hours", "user=@me", "compare=before",
                 time="this month", time2="last").request  # fmt: skip
    month = day("2026-11-01")
    assert made.aggregate == "sum"
    assert made.other.time == Span(2 * month - NOW, month)
    failed = asked("ask jobs", "states=failed", time="this week", time2="last week").request
    assert (failed.aggregate, failed.other.states) == ("count", failed.states)


def test_a_deadline_and_a_moment_to_come_are_asked_of_jobs() -> None:
    until = asked("ask jobs", "measure=time_left", jobs="train", ahead="9am tomorrow").request
    assert until.ahead == day("2026-11-27 09:00") - NOW
    then = asked("ask gpus", "measure=use", ahead="22:00").request
    assert (then.subject, then.measure, then.ahead) == ("jobs", "", day("2026-11-26 22:00") - NOW)


@pytest.mark.parametrize(
    ("letters", "comes"),
    [
        ("at 22:00 tonight", True), ("tomorrow", True), ("morgen um 9", True),
        ("heute um 10 Uhr", False), ("tonight", False), ("por la mañana", False),
        ("yesterday at 22:00", False), ("heute morgen", False), ("esta mañana", False),
        ("ayer por la mañana", False), ("mañana a las 9", True),
    ],
)  # fmt: skip
def test_a_time_that_is_to_come_is_no_past_one(letters: str, comes: bool) -> None:
    assert (asked("ask jobs", time=letters).request.ahead > 0) == comes


def test_a_gpu_is_named_by_its_place_its_number_or_words_of_its_name() -> None:
    assert asked("ask gpus", "measure=temperature", gpus="gpu08").request.devices == (8,)
    assert asked("ask gpus", "measure=temperature", gpus="zweite").request.devices == (1,)
    assert asked("ask gpus", "measure=temperature", gpus="3090").request.model == "3090"
    assert asked("ask gpus", "measure=temperature", gpus="the card").request.model == ""


def test_what_a_question_cannot_say_is_told_and_the_rest_is_asked() -> None:
    made = asked("ask disk", "by=user", folder="/data")
    assert made.request == Query("debris")
    assert made.left == (("folder", "/data"), ("by", "user"))
    assert asked("ask jobs", "measure=other").left == (("measure", "other"),)
    assert asked("ask jobs", "measure=progress", "jobs=@it").left == (("jobs", "@it"),)
    assert asked("ask gpus", "measure=temperature", time="now").left == ()


def test_groups_add_up_what_adds_up_and_cost_what_their_energy_costs() -> None:
    query = Query("jobs", "energy", by="user", to=COST, amount=0.5, unit="€")
    found = grouped(query, jobs((3.6e6, "lea"), (7.2e6, "lea"), (None, "ben")))
    assert [(row.label, row.values) for row in found.rows] == [("lea", (10.8e6,)), ("ben", (None,))]
    settings = SimpleNamespace(energy_price=0.0, currency="")
    told = with_cost(query, found, SimpleNamespace(settings=settings))  # type: ignore[arg-type]
    text = answer(query, told, words("en"))
    assert text.startswith("The cost is 1.50 €: 3 kWh at 0.5 for each.\n\nEnergy: 3.00 kWh in all.")
    assert "| lea | 3.00 kWh | 1.50 € |" in text
    waited = grouped(Query("jobs", "waited", by="user", aggregate="mean"),
                     jobs((10.0, "lea"), (20.0, "lea"), measure="waited", unit="s"))  # fmt: skip
    assert waited.rows[0].values == (15.0,)


def test_measures_of_many_things_share_a_table_and_those_of_few_do_not() -> None:
    queries = [Query("jobs", "energy"), Query("jobs", "user")]
    many = jobs(*[(float(n), "lea") for n in range(5)])
    ((query, rows),) = in_tables(queries, lambda _: many)
    assert query == Query("jobs")
    assert rows is not None
    assert [column.name for column in rows.columns] == ["energy", "user"]
    few = jobs((1.0, "lea"))
    assert in_tables(queries, lambda _: few) == [(query, few) for query in queries]


@pytest.mark.parametrize(
    ("one", "other", "spans"),
    [
        ("this week", "last week", ("11-23", "now", "11-16", "11-23")),
        ("dieser woche", "letzter woche", ("11-23", "now", "11-16", "11-23")),
        ("cette semaine", "la semaine dernière", ("11-23", "now", "11-16", "11-23")),
        ("esta semana", "la semana pasada", ("11-23", "now", "11-16", "11-23")),
        ("last week", "this week", ("11-16", "11-23", "11-23", "now")),
        ("this month", "last month", ("11-01", "now", "10-01", "11-01")),
        ("diesen monat", "letzten monat", ("11-01", "now", "10-01", "11-01")),
        ("today", "the last 24 hours", ("11-26", "now", "11-25", "11-26")),
        ("yesterday", "this week", ("11-25", "11-26", "11-23", "11-25")),
    ],
)
def test_two_times_of_a_comparison_have_nothing_in_common(
    one: str, other: str, spans: tuple[str, ...]
) -> None:
    made = asked("ask gpus", "measure=energy", "compare=before", time=one, time2=other).request
    found = (made.time.since, made.time.until, made.other.time.since, made.other.time.until)
    assert found == tuple(NOW if date == "now" else day(f"2026-{date}") for date in spans)


def test_several_users_are_compared_in_one_table() -> None:
    made = asked("ask users", "measure=gpu_hours", "compare=each", user="ben y lea").request
    assert (made.user, made.by) == ("ben,lea", "user")
    mine = asked("ask users", "measure=energy", "user=@me", "which=highest", user="ben").request
    assert (mine.user, mine.by, mine.aggregate) == ("ben,lea", "user", "max")


@pytest.mark.parametrize(
    ("letters", "since"),
    [
        ("cette semaine", "2026-11-23 00:00"),
        ("c'te semaine", "2026-11-23 00:00"),
        ("heut nacht", "2026-11-25 20:00"),
        ("the last fourteen days", "2026-11-12 15:20"),
        ("depuis 22h", "2026-11-25 22:00"),
        ("im letzten Halbjahr", "2026-01-01 00:00"),
        ("this winter", "2025-12-01 00:00"),
        ("seit Jahresbeginn", "2026-01-01 00:00"),
        ("in oct", "2026-10-01 00:00"),
        ("2024", "2024-01-01 00:00"),
        ("three days ago", "2026-11-23 00:00"),
    ],
)
def test_times_in_the_words_of_people_are_read(letters: str, since: str) -> None:
    assert asked("ask jobs", time=letters).request.time.since == day(since)


def test_a_participle_is_no_season() -> None:
    assert asked("ask jobs", "states=cancelled", time="a été").left == (("time", "a été"),)


def test_the_moment_of_jobs_is_asked_for_and_what_idle_gpus_cost() -> None:
    failed = asked("ask jobs", "measure=why_failed", "when=yes", jobs="train")
    assert [one.measure for one in (failed.request, *failed.also)] == ["failure", "end"]
    started = asked("ask jobs", "measure=start", "when=yes", jobs="train")
    assert (started.request.measure, started.also, started.left) == ("start", (), ())
    idle = asked("ask gpus", "measure=cost", "states=idle", ahead="pro Tag").request
    assert (idle.states, idle.ahead, idle.text) == (("idle",), 86400.0, COST)


def test_how_long_gpus_were_idle_is_asked_of_a_time() -> None:
    made = asked("ask gpus", "measure=use", "states=idle", "combine=sum", time="yesterday")
    assert (made.request.measure, made.request.states, made.left) == ("idle_time", (), ())
    cost = asked("ask gpus", "measure=cost", "states=idle", time="yesterday")
    assert cost.left == (("states", "idle"),)


def test_reasons_are_not_added_up_by_user_and_name_the_user() -> None:
    made = asked("ask jobs", "measure=why_failed", "states=failed", "by=user")
    queries = (made.request, *made.also)
    assert [(one.measure, one.by) for one in queries] == [("failure", ""), ("user", "")]


def test_the_energy_of_an_hour_is_that_of_its_part_that_is_asked_for() -> None:
    hour = datetime(2026, 11, 25, 13).timestamp()

    class Readings:
        def history(self, *_: object) -> object:
            return SimpleNamespace(times=[hour + 1800, hour + 5400], columns={"power": [100, 100]})

    query, span = Query("devices", "energy", by="hour"), Span(hour + 1800, hour + 3900)
    device: Any = SimpleNamespace(device=SimpleNamespace(id="REPLAY-0"))
    daemon: Any = Readings()
    found = by_time(daemon, query, span, [device], (), hour + 7200)
    assert [row.values[0] for row in found.rows] == [180_000.0, 30_000.0]


def test_the_energy_of_a_day_is_that_of_the_time_in_which_it_was_read() -> None:
    """The history has as many values as are asked for, also of a short time, and None in a gap."""
    noon = datetime(2026, 11, 25, 12).timestamp()

    class Readings:
        def history(self, *_: object) -> object:
            times = [noon, noon + 10, noon + 20, noon + 1200, noon + 7200, noon + 7210]
            power = [100, 100, 100, None, 100, 100]
            return SimpleNamespace(times=times, columns={"power": power})

    query, span = Query("devices", "energy", by="day"), Span(noon - 43_200, noon + 10_000)
    device: Any = SimpleNamespace(device=SimpleNamespace(id="REPLAY-0"))
    daemon: Any = Readings()
    found = by_time(daemon, query, span, [device], (), noon + 10_000)
    assert [row.values[0] for row in found.rows] == [3000.0]


@pytest.mark.parametrize("measure", ["energy", "cost"])
def test_a_moment_has_no_energy_and_the_answer_names_what_it_leaves_out(measure: str) -> None:
    made = asked("ask gpus", f"measure={measure}", time="at 3 am")
    assert made.request.time is None and ("time", "at 3 am") in made.left
    made = asked("ask gpus", "measure=power", time="at 3 am")
    assert made.request.time.point and not made.left
