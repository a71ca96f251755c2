"""Test what becomes of orders that are said in several turns, and of questions about the past."""

from __future__ import annotations

import re
from datetime import datetime
from typing import cast

import pytest

from gpudeck.assistant.intents.composed import completing, compose
from gpudeck.assistant.intents.guards import against, points
from gpudeck.assistant.intents.moments import moment_of
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.spans import completed
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.submission import read_submission
from gpudeck.assistant.intents.times import read_time
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.assistant.intents.understand import understand
from gpudeck.assistant.intents.values import Unread
from gpudeck.assistant.query.request import COST, Order, Query, Request, Span
from gpudeck.assistant.reader.reading import Loose, Reader, Reading, shipped_reader
from tests.unit.assistant.test_request_reader import reading

NOW = datetime(2026, 11, 25, 9, 30).timestamp()
KNOWN = Known(("train", "eval"), ("nightly",), (), ("bob", "lea"))
SUBMITTED = Order("submit", command="python train.py", options={"gpus": "2"})


def said(head: str, *marks: str, state: State, **spans: str) -> Request:
    """Return the request of a reading behind what was said before."""
    found = reading(head, *marks, spans=tuple(spans.items()))
    return completing(compose(found, head, KNOWN, state, NOW).request, state)


@pytest.mark.parametrize(
    ("marks", "spans", "options"),
    [
        (("jobs=@it",), {"name": "testrun"}, {"gpus": "2", "name": "testrun"}),
        (("jobs=@it",), {"count": "4"}, {"gpus": "4"}),
        ((), {"timeout": "6h"}, {"gpus": "2", "timeout": "6h"}),
        (("jobs=@it",), {"retries": "3x"}, {"gpus": "2", "retries": "3"}),
        (("jobs=@it",), {"after": "eval"}, {"gpus": "2", "after": "eval"}),
        (("jobs=@it",), {"group": "lab"}, {"gpus": "2", "group": "lab"}),
        (("jobs=@it",), {"priority": "niedrig"}, {"gpus": "2", "priority": "-10"}),
    ],
)
def test_options_that_are_said_later_change_the_job_that_is_proposed(
    marks: tuple[str, ...], spans: dict[str, str], options: dict[str, str]
) -> None:
    made = said("order edit", *marks, state=State(order=SUBMITTED), **spans)
    assert made == Order("submit", command="python train.py", options=options)


def test_another_job_is_changed_as_ever_behind_a_submission() -> None:
    made = said("order edit", state=State(order=SUBMITTED), jobs="7", timeout="6h")
    assert made == Order("edit", jobs=(7,), options={"timeout": "6h"})


def test_letters_without_a_field_in_the_order_refuse_it() -> None:
    for head, field in (("order cancel", "memory"), ("order retry", "until")):
        with pytest.raises(Unread):
            said(head, state=State(), jobs="7", **{field: "20 GB"})


def test_a_time_and_its_end_may_be_said_as_one() -> None:
    for letters in ("tomorrow 9-13", "tomorrow 9 - 13:00"):
        made = said("order book", state=State(), gpus="2", **{"from": letters})
        until = {"begin": "2026-11-26 09:00", "until": "2026-11-26 13:00"}
        assert made == Order("book", devices=(2,), options=until)
    made = said("order book", state=State(), gpus="2", **{"from": "2026-11-28 10:00"})
    assert made == Order("book", devices=(2,), options={"begin": "2026-11-28 10:00"})


def test_a_note_is_one_text_and_goes_on_behind_a_colon() -> None:
    for text, note in (("note job 8: disk full, not retried", "disk full, not retried"),
                       ("note disk full, retried on job 8", "disk full, retried")):  # fmt: skip
        spans = (("notes", "disk full"), ("notes", "retried"))
        at = tuple((text.index(part), text.index(part) + len(part)) for _, part in spans)
        found = reading("order note", spans=spans)._replace(places=at)
        assert ("notes", note) in completed(text, found, KNOWN).spans


def test_a_number_that_is_surely_filler_is_no_job() -> None:
    text, found = "again, but with seed 42", reading("order retry", "jobs=@it")
    assert [name for name, _ in completed(text, found, KNOWN).spans] == ["jobs"]
    sure = found._replace(loose=(Loose(21, 23, 0.99),))
    assert completed(text, sure, KNOWN).spans == ()


def test_a_retry_may_have_other_flags_in_its_command() -> None:
    made = said("order retry", state=State(), jobs="7", command="--lr 1e-5")
    assert made == Order("retry", jobs=(7,), command="--lr 1e-5")
    for head, command in (("order retry", "python x.py"), ("order edit", "--lr 1e-5")):
        with pytest.raises(Unread):
            said(head, state=State(), jobs="7", command=command)


def test_a_pause_may_end_at_a_time_that_was_read_as_a_later_one() -> None:
    for text, field in (("hold job 7 until 23:00 then", "until"), ("hold job 7 at 23:00", "at")):
        found = reading("order pause", spans=(("jobs", "7"), ("at", "23:00")))
        found = found._replace(places=((9, 10), (text.index("23"), text.index("23") + 5)))
        assert [name for name, _ in completed(text, found, KNOWN).spans] == ["jobs", field]


def test_a_retry_gets_what_is_said_behind_it() -> None:
    state = State((7,), about="job", order=Order("retry", jobs=(7,)))
    made = said("order edit", "jobs=@it", state=state, memory="24 GB")
    assert made == Order("retry", jobs=(7,), options={"memory": "24gb"})


@pytest.mark.parametrize(
    ("word", "level"),
    [("high", "10"), ("dringend", "10"), ("haute", "10"), ("normal", "0"), ("normale", "0"),
     ("gering", "-10"), ("baja", "-10"), ("low", "-10"), ("5", "5")],
)  # fmt: skip
def test_a_priority_may_be_a_word(word: str, level: str) -> None:
    made = said("order edit", state=State(), jobs="7", priority=word)
    assert made == Order("edit", jobs=(7,), options={"priority": level})


def test_a_job_is_held_until_a_time() -> None:
    made = said("order pause", state=State(), jobs="14", until="23 uhr")
    assert made == Order("hold", jobs=(14,), options={"until": "2026-11-25 23:00"})
    made = said("order pause", state=State(), jobs="14", until="tomorrow")
    assert made == Order("hold", jobs=(14,), options={"until": "2026-11-26 08:00"})
    made = said("order pause", state=State(), jobs="14", duration="20 min")
    assert made == Order("hold", jobs=(14,), options={"until": "+20min"})


def test_an_order_may_be_for_the_jobs_of_a_user() -> None:
    made = said("order cancel", "states=queued", state=State(), user="Bob")
    assert made == Order("cancel", states=("queued",), user="bob")
    asked = State(last=Query("jobs", user="lea"))
    made = said("order cancel", "states=queued", "user=@it", state=asked)
    assert made == Order("cancel", states=("queued",), user="lea")


def test_who_had_a_gpu_is_a_question_about_jobs() -> None:
    made = said("ask gpus", "measure=holder", state=State(), gpus="5", time="yesterday")
    assert isinstance(made, Query) and made.time is not None
    assert (made.subject, made.measure, made.devices) == ("jobs", "user", (5,))
    made = said("ask gpus", "measure=holder", state=State(), gpus="5", time="before that")
    assert isinstance(made, Query) and made.time == Span(0.0, NOW)
    made = said("ask gpus", "measure=cost", state=State(), user="lea", time="today")
    assert isinstance(made, Query)
    assert (made.measure, made.user, made.to, made.aggregate) == ("energy", "lea", COST, "sum")


def test_a_booking_may_name_how_many_gpus_and_one_that_ends_its_day() -> None:
    made = said("order book", state=State(), count="two", **{"from": "8:00", "until": "12:00"})
    assert isinstance(made, Order) and (made.number, made.devices) == (2, ())
    made = said("order unbook", state=State(), **{"from": "tomorrow"})
    assert made == Order("unbook", options={"begin": "2026-11-26"})


@pytest.mark.parametrize(
    ("text", "moment"),
    [("halb vier", "2026-11-26 03:30"), ("dreiviertel fünf", "2026-11-26 04:45"),
     ("half past ten", "2026-11-25 10:30"), ("dix-neuf heures", "2026-11-25 19:00"),
     ("a las once", "2026-11-25 11:00"), ("12 h et demie", "2026-11-25 12:30"),
     ("heute nacht um 2", "2026-11-26 02:00"), ("tonight at 9", "2026-11-25 21:00")],
)  # fmt: skip
def test_a_moment_may_be_said_in_words(text: str, moment: str) -> None:
    assert moment_of(text, NOW) == moment


def test_a_yes_proposes_the_order_whose_effect_was_told() -> None:
    planned = Order("cancel", jobs=(7,))
    found = understand("yes do it", KNOWN, State((7,), planned=planned), NOW, shipped_reader())
    assert found.request == planned and not found.plan


@pytest.mark.parametrize(
    ("request_text", "options"),
    [
        ("submit python train.py on 2 gpus, low prio", {"gpus": "2", "priority": "-10"}),
        ("starte python x.py mit hoher priorität ohne gpu", {"gpus": "0", "priority": "10"}),
        ("lance python a.py priorité basse", {"priority": "-10"}),
    ],
)
def test_options_of_a_new_job_may_be_words(request_text: str, options: dict[str, str]) -> None:
    job = read_submission(request_text, (), NOW)
    assert (job.options, job.unread) == (options, ())


def test_a_model_is_asked_for_by_its_parameters() -> None:
    made = said("ask models", "measure=fits", state=State(), model="Mixtral 8x7B")
    assert made == Query("models", "largest", amount=56e9)
    again = said(
        "ask models", "measure=fits", "model=@it", state=State(last=Query("models", amount=70e9))
    )
    assert again == Query("models", "largest", amount=70e9)


@pytest.mark.parametrize(
    ("letters", "devices"),
    [("2er", (2,)), ("gpu4", (4,)), ("zéro", (0,)), ("deux", (2,)), ("a", ()), ("eine", ())],
)
def test_a_gpu_may_be_named_by_a_word(letters: str, devices: tuple[int, ...]) -> None:
    made = said("ask gpus", "measure=power", state=State(), gpus=letters)
    assert made == Query("devices", "power", devices=devices)


@pytest.mark.parametrize("letters", ["bob's", "Bobs", "bob’s", "bob"])
def test_a_user_may_be_named_as_an_owner(letters: str) -> None:
    assert said("ask jobs", state=State(), user=letters) == Query("jobs", user="bob")


@pytest.mark.parametrize(
    ("letters", "price"),
    [("31 cents per kWh", 0.31), ("0,17 el kWh", 0.17), ("25 centimes", 0.25), ("14ct", 0.14),
     ("9 rupees", 9.0), ("0.22", 0.22), ("fourteen cents", 0.14), ("27p", 0.27), ("0,18 €", 0.18)],
)  # fmt: skip
def test_the_price_of_a_kwh_is_read_in_any_currency(letters: str, price: float) -> None:
    made = said("ask gpus", "measure=cost", state=State(), price=letters)
    unit = "€" if "€" in letters else ""
    assert made == Query("devices", "energy", text=COST, amount=pytest.approx(price), unit=unit,
                         aggregate="sum")  # fmt: skip
    again = said("ask gpus", "measure=cost", "gpus=@it", state=State((), (2,), made))
    assert again == Query("devices", "energy", devices=(2,), text=COST, amount=made.amount,
                          unit=unit)  # fmt: skip
    job = said("ask jobs", "measure=cost", state=State(), jobs="4", price=letters)
    assert job == Query(
        "jobs", "energy", jobs=(4,), to=COST, amount=pytest.approx(price), unit=unit
    )


@pytest.mark.parametrize(
    ("letters", "hours"),
    [("per month", 720), ("24h", 24), ("pendant une semaine", 168), ("una noche entera", 12)],
)
def test_energy_of_a_time_to_come_is_foretold(letters: str, hours: float) -> None:
    made = said("ask gpus", "measure=cost", state=State(), ahead=letters)
    assert made == Query("devices", "energy", ahead=hours * 3600.0, text=COST, aggregate="sum")


def test_who_had_a_gpu_last_is_the_newest_job_on_it() -> None:
    made = said("ask gpus", "measure=holder", "which=newest", state=State(), gpus="5")
    assert isinstance(made, Query) and made.time == Span(0.0, NOW)
    assert (made.measure, made.devices, made.aggregate, made.limit) == ("user", (5,), "last", 1)


def test_a_booking_from_the_afternoon_ends_in_it() -> None:
    made = said("order book", state=State(), gpus="4", **{"from": "14:00", "until": "6"})
    assert isinstance(made, Order)
    assert made.options == {"begin": "2026-11-25 14:00", "until": "2026-11-25 18:00"}


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("thursday last week", "2026-11-19 00:00", "2026-11-20 00:00"),
        ("am Donnerstag letzte Woche", "2026-11-19 00:00", "2026-11-20 00:00"),
        ("el jueves de la semana pasada", "2026-11-19 00:00", "2026-11-20 00:00"),
        ("ces derniers temps", "2026-11-18 09:30", "2026-11-25 09:30"),
        ("tonight", "2026-11-24 20:00", "2026-11-25 06:00"),
    ],
)
def test_a_time_is_read_as_it_is_said(text: str, first: str, last: str) -> None:
    found = read_time(tokens(text), NOW)
    assert found is not None
    made = (
        datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
        for at in (found.span.since, found.span.until)
    )
    assert tuple(made) == (first, last)


def test_it_may_be_the_only_job_where_none_was_spoken_of() -> None:
    assert said("order cancel", "jobs=@it", state=State()) == Order("cancel")
    found = reading("order cancel", "jobs=@it")
    assert points(found) and against("kill it now", found, Order("cancel"), KNOWN, NOW) is None
    other = found._replace(loose=(Loose(9, 16, 0.2),))
    assert against("kill the flurbel", other, Order("cancel"), KNOWN, NOW) is not None


def test_a_group_is_held_job_by_job_if_one_of_it_is_excepted() -> None:
    made = said("order pause", state=State(), group="nightly", **{"except": "13"})
    assert made == Order("hold", group="nightly", exclude=(13,))
    with pytest.raises(Unread):
        said("order move", state=State(), jobs="12", **{"except": "13"})


def test_a_booking_is_for_a_user_and_stays_so() -> None:
    made = said("order book", state=State(), gpus="3", user="lea",
                **{"from": "14:00", "until": "16:00"})  # fmt: skip
    options = {"begin": "2026-11-25 14:00", "until": "2026-11-25 16:00"}
    assert made == Order("book", devices=(3,), user="lea", options=options)
    assert isinstance(made, Order)
    later = said("order book", "gpus=@it", state=State(order=made), until="18:00")
    assert later == Order("book", devices=(3,), user="lea",
                          options=options | {"until": "2026-11-25 18:00"})  # fmt: skip
    ended = said("order unbook", state=State(), user="lea")
    assert ended == Order("unbook", user="lea")


def test_the_end_of_a_booking_that_is_corrected_is_on_its_day() -> None:
    options = {"begin": "2026-11-30 14:00", "until": "2026-11-30 16:00"}
    before = State(order=Order("book", devices=(1,), options=options))
    made = said("order book", "gpus=@it", state=before, until="18 uhr")
    assert made == Order("book", devices=(1,), options=options | {"until": "2026-11-30 18:00"})


def test_a_group_that_is_held_until_a_time_is_not_paused_for_good() -> None:
    made = said("order pause", state=State(), group="nightly", until="21:00")
    assert made == Order("hold", group="nightly", options={"until": "2026-11-25 21:00"})
    assert said("order pause", state=State(), group="nightly") == Order("pause", group="nightly")


def test_a_job_that_is_released_at_a_time_is_held_until_then() -> None:
    made = said("order resume", state=State(), jobs="14", at="midnight")
    assert made == Order("hold", jobs=(14,), options={"until": "2026-11-26 00:00"})
    made = said("order resume", state=State(), jobs="14", at="in 30 min")
    assert made == Order("hold", jobs=(14,), options={"until": "+30min"})


def test_a_time_may_lack_its_article_in_the_letters_that_were_found() -> None:
    found = reading("ask users", "measure=gpu_hours", spans=(("time", "semana"),))
    asked = compose(found, "ask users", KNOWN, State(), NOW, "horas gpu de la semana").request
    monday = datetime(2026, 11, 23).timestamp()
    assert isinstance(asked, Query) and asked.time is not None and asked.time.since == monday


class _Labelled:
    """Read a request as its label says."""

    def __init__(
        self, head: str, *marks: str, spans: dict[str, str], certainty: float = 1.0,
        plain: float = 1.0,
    ) -> None:  # fmt: skip
        self.head, self.marks, self.spans = head, marks, spans
        self.certainty, self.plain = certainty, plain

    def read(self, request: str, before: str = "") -> Reading:
        places = tuple((request.index(text), request.index(text) + len(text))
                       for text in self.spans.values())  # fmt: skip
        return reading(self.head, *self.marks, spans=tuple(self.spans.items()))._replace(
            places=places, languages=(1.0, 0.0, 0.0, 0.0), certainty=self.certainty,
            plain=self.plain,
            loose=tuple(Loose(*word.span(), 1.0) for word in re.finditer(r"[^\W\d_]+", request)
                        if not any(a <= word.start() < b for a, b in places)),
        )  # fmt: skip


NIGHTLY = Order("cancel", states=("queued",), group="nightly")


@pytest.mark.parametrize(
    ("text", "head", "marks", "spans", "order"),
    [
        ("cancel those of nightly that haven't started yet", "order cancel", ("states=queued",),
         {"group": "nightly"}, NIGHTLY),
        ("brich die von nightly ab, die noch nicht laufen", "order cancel", ("states=queued",),
         {"group": "nightly"}, NIGHTLY),
        ("annule ceux de nightly qui n'ont pas encore démarré", "order cancel",
         ("states=queued",), {"group": "nightly"}, NIGHTLY),
        ("cancela los de nightly que todavía no corren", "order cancel", ("states=queued",),
         {"group": "nightly"}, NIGHTLY),
        ("pon en espera los de nightly hasta las 20:00", "order pause", (),
         {"group": "nightly", "until": "20:00"},
         Order("hold", group="nightly", options={"until": "2026-11-25 20:00"})),
        ("give 14 no longer than 5 hours", "order edit", (), {"jobs": "14", "timeout": "5 hours"},
         Order("edit", jobs=(14,), options={"timeout": "5h"})),
        ("14 nicht länger als 5 stunden", "order edit", (), {"jobs": "14", "timeout": "5 stunden"},
         Order("edit", jobs=(14,), options={"timeout": "5h"})),
        ("14 bitte, aber nicht vor 22 uhr", "order edit", (), {"jobs": "14", "begin": "22 uhr"},
         Order("edit", jobs=(14,), options={"begin": "2026-11-25 22:00"})),
        ("que 14 no dure más de 5 horas", "order edit", (), {"jobs": "14", "timeout": "5 horas"},
         Order("edit", jobs=(14,), options={"timeout": "5h"})),
        ("don't start 14 before eval has ended", "order edit", (), {"jobs": "14", "after": "eval"},
         Order("edit", jobs=(14,), options={"after": "eval"})),
        ("14 bitte erst in 2 stunden", "order edit", (), {"jobs": "14", "begin": "2 stunden"},
         Order("edit", jobs=(14,), options={"begin": "+2h"})),
        ("14 à 2h", "order edit", (), {"jobs": "14", "begin": "2h"},
         Order("edit", jobs=(14,), options={"begin": "2026-11-26 02:00"})),
        ("run ncu -o prof ./bench, 1 gpu, bitte", "order submit", (),
         {"command": "ncu -o prof ./bench", "count": "1"},
         Order("submit", command="ncu -o prof ./bench", options={"gpus": "1"})),
        ("réessaie 14 trois fois", "order edit", (), {"jobs": "14", "retries": "trois fois"},
         Order("edit", jobs=(14,), options={"retries": "3"})),
        ("nightly darf nur 2 gleichzeitig", "order limit", (), {"group": "nightly", "number": "2"},
         Order("limit", group="nightly", number=2)),
        ("submit ./x --gpu with 16 cpus", "order submit", (),
         {"command": "./x --gpu", "cpus": "16"},
         Order("submit", command="./x --gpu", options={"cpus": "16"})),
        ("manda python prep.py en la gpu 2", "order submit", (),
         {"command": "python prep.py", "gpus": "2"},
         Order("submit", command="python prep.py", options={"gpus": "1", "gpu_type": "GPU 2"})),
        ("manda python prep.py, 1 gpu, 3 horas", "order submit", (),
         {"command": "python prep.py", "count": "1", "timeout": "3 horas"},
         Order("submit", command="python prep.py", options={"gpus": "1", "timeout": "3h"})),
    ],
)  # fmt: skip
def test_negations_and_limits_that_have_a_value_are_no_prohibitions(
    text: str, head: str, marks: tuple[str, ...], spans: dict[str, str], order: Order
) -> None:
    reader = cast(Reader, _Labelled(head, *marks, spans=spans))
    assert understand(text, KNOWN, State(), NOW, reader).request == order


@pytest.mark.parametrize(
    ("text", "head", "marks", "spans"),
    [
        ("don't cancel those of nightly that wait", "order cancel", ("states=queued",),
         {"group": "nightly"}),
        ("no canceles todavía los de nightly", "order cancel", ("states=queued",),
         {"group": "nightly"}),
        ("brich die noch nicht ab", "order cancel", ("states=queued",), {}),
        ("don't give 14 5 hours", "order edit", (), {"jobs": "14", "timeout": "5 hours"}),
        ("don't let 14 wait for eval", "order edit", (), {"jobs": "14", "after": "eval"}),
        ("manda python prep.py en las gpus 2, 3", "order submit", (),
         {"command": "python prep.py", "gpus": "2, 3"}),
        ("et après tu relâches 14", "order resume", (), {"jobs": "14"}),
    ],
)  # fmt: skip
def test_prohibitions_and_words_without_a_value_still_refuse(
    text: str, head: str, marks: tuple[str, ...], spans: dict[str, str]
) -> None:
    reader = cast(Reader, _Labelled(head, *marks, spans=spans, plain=0.5))
    found = understand(text, KNOWN, State((7,), about="job"), NOW, reader)
    assert found.request is None and found.refusal is not None


def test_the_next_request_is_read_with_this_one_and_small_talk_changes_nothing() -> None:
    asked = cast(Reader, _Labelled("ask jobs", "states=failed", spans={"time": "today"}))
    found = understand("which failed today?", KNOWN, State(), NOW, asked)
    assert found.before == "ask jobs failed time: which failed today?"
    thanked = cast(Reader, _Labelled("talk thanks", spans={}))
    assert understand("thanks", KNOWN, State(), NOW, thanked).before == ""


def test_an_order_that_names_its_job_is_proposed_and_one_that_points_is_asked_back() -> None:
    named = _Labelled("order cancel", spans={"jobs": "14"}, certainty=0.1)
    found = understand("cancel 14", KNOWN, State(), NOW, cast(Reader, named))
    assert found.request == Order("cancel", jobs=(14,))
    pointed = _Labelled("order cancel", "jobs=@it", spans={}, certainty=0.1)
    state = State((14,), about="job")
    found = understand("get rid of it", KNOWN, state, NOW, cast(Reader, pointed))
    assert found.choices == (Order("cancel", jobs=(14,)),) and found.request is None


def test_a_question_with_one_possible_meaning_is_answered_and_says_which() -> None:
    doubtful = _Labelled("ask jobs", "measure=progress", spans={}, certainty=0.1)
    found = understand("wieviel prozent", KNOWN, State(), NOW, cast(Reader, doubtful))
    assert isinstance(found.request, Query) and found.request.measure == "progress"
    assert found.guessed and not found.choices


def test_only_the_queue_that_is_named_is_paused_as_a_whole() -> None:
    assert said("order pause", "queue=yes", state=State()) == Order("pause")
    assert said("order resume", "queue=yes", state=State()) == Order("resume")
    pointed = cast(Reader, _Labelled("order pause", spans={}))
    found = understand("hold those", KNOWN, State((7, 8), about="job"), NOW, pointed)
    assert found.request is None and found.refusal is not None


def test_a_job_is_held_until_a_day_and_not_until_what_is_none() -> None:
    made = said("order pause", state=State(), jobs="14", until="bis morgen")
    assert made == Order("hold", jobs=(14,), options={"until": "2026-11-26 08:00"})
    with pytest.raises(Unread):
        said("order pause", state=State(), jobs="14", until="le temps que eval passe")


def test_it_is_the_job_of_the_last_order_and_no_guess_in_a_conversation() -> None:
    refused = State(order=Order("hold", jobs=("train",)), before="order pause jobs: hold train")
    assert said("order resume", "jobs=@it", state=refused) == Order("release", jobs=("train",))
    asked = State(before="manual: what does held mean?")
    with pytest.raises(Unread):
        said("order resume", "jobs=@it", state=asked)
    assert said("order resume", "jobs=@it", state=State()) == Order("release")


def test_a_user_who_is_pointed_to_may_be_that_of_the_last_order() -> None:
    booked = Order("book", user="lea", devices=(1,))
    state = State(order=booked)
    made = said("order book", "user=@it", state=state, gpus="2", until="18:00")
    assert isinstance(made, Order) and made.user == "lea" and made.devices == (2,)


@pytest.mark.parametrize(
    ("letters", "begin"),
    [("tonight", "2026-11-25 20:00"), ("demain matin", "2026-11-26 08:00"),
     ("Sonntag", "2026-11-29 08:00"), ("2300", "2026-11-25 23:00"),
     ("nine forty", "2026-11-25 09:40")],
)  # fmt: skip
def test_a_job_begins_on_a_day_without_a_clock_or_at_a_time_without_a_mark(
    letters: str, begin: str
) -> None:
    made = said("order edit", state=State(), jobs="7", begin=letters)
    assert made == Order("edit", jobs=(7,), options={"begin": begin})


def test_a_day_whose_morning_is_past_is_not_the_next_one() -> None:
    with pytest.raises(Unread):
        said("order edit", state=State(), jobs="7", begin="heute")


@pytest.mark.parametrize("head", ["order edit", "order retry"])
def test_a_job_is_changed_or_run_again_on_a_gpu_or_a_model(head: str) -> None:
    for letters, wanted in (("2", "GPU 2"), ("trois", "GPU 3"), ("4080", "4080")):
        made = said(head, state=State(), jobs="7", gpus=letters)
        assert made == Order(head.split()[1], jobs=(7,), options={"gpu_type": wanted})
    for letters in ("andere", "2 and 3"):
        with pytest.raises(Unread):
            said(head, state=State(), jobs="7", gpus=letters)


def test_a_process_is_ended_by_its_name_and_the_gpu_that_it_uses() -> None:
    made = said("order kill", state=State(), pid="python", gpus="5")
    assert made == Order("kill", devices=(5,), text="python")
    assert said("order kill", state=State(), gpus="5") == Order("kill", devices=(5,))
    assert said("order kill", state=State(), pid="4321") == Order("kill", number=4321)


@pytest.mark.parametrize(
    ("text", "head", "marks", "spans", "declined"),
    [
        ("limite toutes les cartes à 550 W", "order set", ("gpus=@all",),
         {"setting": "limite", "value": "550 W"}, "order power"),
        ("cap gpu 5 at 500W", "order set", (), {"gpus": "5", "value": "500W"}, "order power"),
        ("bob: zwei jobs gleichzeitig", "order limit", (), {"user": "bob", "number": "zwei"},
         "order limits"),
    ],
)  # fmt: skip
def test_what_another_command_sets_is_refused_with_that_command(
    text: str, head: str, marks: tuple[str, ...], spans: dict[str, str], declined: str
) -> None:
    reader = cast(Reader, _Labelled(head, *marks, spans=spans))
    assert understand(text, KNOWN, State(), NOW, reader).declined == declined


@pytest.mark.parametrize(
    ("text", "head", "marks", "spans", "problem"),
    [
        ("give 14 more", "order edit", ("change=more",), {"jobs": "14"}, "change"),
        ("again 14 with batch 8", "order retry", (), {"jobs": "14", "value": "batch 8"},
         "arguments"),
        ("idioma castellano", "order set", (),
         {"setting": "idioma", "value": "castellano"}, "setting"),
    ],
)  # fmt: skip
def test_a_part_of_an_order_that_has_no_value_is_told_apart(
    text: str, head: str, marks: tuple[str, ...], spans: dict[str, str], problem: str
) -> None:
    found = understand(
        text, KNOWN, State(), NOW, cast(Reader, _Labelled(head, *marks, spans=spans))
    )
    assert found.request is None and found.refusal is not None
    assert found.refusal.problem == problem


def test_a_new_job_without_a_command_asks_for_it_and_keeps_what_was_said() -> None:
    text = "queue a job on 2 gpus with 3h"
    reader = cast(Reader, _Labelled("order submit", spans={"count": "2", "timeout": "3h"}))
    found = understand(text, KNOWN, State(), NOW, reader)
    options = {"gpus": "2", "timeout": "3h"}
    assert found.refusal is not None and found.refusal.problem == "lacking"
    assert found.begun == Order("submit", options=options) and found.request is None
    then = cast(Reader, _Labelled("order submit", spans={"command": "python x.py"}))
    last = State(order=found.begun)
    made = understand("python x.py", KNOWN, last, NOW, then).request
    assert made == Order("submit", command="python x.py", options=options)


@pytest.mark.parametrize("letters", ["dezember 2026", "tomorrow 2026", "1000 steps", "2026"])
def test_a_year_or_a_count_is_no_time(letters: str) -> None:
    with pytest.raises(ValueError, match=letters):
        moment_of(letters, NOW)


@pytest.mark.parametrize(("letters", "number"), [("pid 4711", 4711), ("4711", 4711)])
def test_a_process_is_named_by_its_pid(letters: str, number: int) -> None:
    assert said("order kill", state=State(), pid=letters) == Order("kill", number=number)


def test_digits_in_the_name_of_a_process_are_no_pid() -> None:
    made = said("order kill", state=State(), pid="ollama2", gpus="1")
    assert made == Order("kill", text="ollama2", devices=(1,))


def test_the_pieces_of_a_time_are_one_and_those_of_a_delay_stay() -> None:
    text = "book gpu 2 el miércoles de 8 hasta 16"
    for field, wanted in (("from", ["el miércoles de 8"]), ("at", ["el", "miércoles de 8"])):
        spans = ((field, "el"), (field, "miércoles de 8"))
        at = tuple((text.index(one), text.index(one) + len(one)) for _, one in spans)
        found = completed(text, reading("order book", spans=spans)._replace(places=at), KNOWN)
        assert [letters for name, letters in found.spans if name == field] == wanted


def test_an_order_for_the_queue_or_a_group_is_proposed_and_asks_nothing_back() -> None:
    for text, marks, spans, order in (
        ("pause the queue", ("queue=yes",), {}, Order("pause")),
        ("limit nightly to 2", (), {"group": "nightly", "number": "2"},
         Order("limit", group="nightly", number=2)),
    ):  # fmt: skip
        head = f"order {order.verb}"
        unsure = _Labelled(head, *marks, spans=cast(dict[str, str], spans), certainty=0.3)
        found = understand(f"{text} now", KNOWN, State(), NOW, cast(Reader, unsure))
        assert found.request == order


@pytest.mark.parametrize(
    ("text", "until"),
    [("Pará el sweep de Ben hasta que termine el 14", "el 14"),
     ("halte 7 an, bis der 14 fertig ist", "14"),
     ("hold 7 until the end of 14", "14"), ("suspends 7 jusqu'à la fin du 14", "14")],
)  # fmt: skip
def test_the_end_of_a_job_is_no_hour_whatever_is_tagged(text: str, until: str) -> None:
    spans = {"jobs": "sweep" if "sweep" in text else "7", "until": until}
    reader = cast(Reader, _Labelled("order pause", spans=spans))
    found = understand(text, KNOWN, State(), NOW, reader)
    assert found.request is None and not found.choices
