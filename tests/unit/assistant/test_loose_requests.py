"""Requests as people type them: typos, slang, compounds, small talk, several at once."""

from __future__ import annotations

from datetime import datetime

import pytest

from gpudeck.assistant.answers.listings import processes
from gpudeck.assistant.intents.parser import Parsed, parse
from gpudeck.assistant.intents.repair import distance, mended
from gpudeck.assistant.intents.spots import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.assistant.query.request import NEWEST, Order, Query, Span, Where
from gpudeck.assistant.query.rows import Note, Rows
from gpudeck.language.text import Text
from gpudeck.language.words import words

KNOWN = Known(("train", "oom", "finetune"), ("sweep",))
NOW = datetime(2026, 11, 23, 15, 20).timestamp()
RUNNING = ("running", "starting")
ACTIVE = ("queued", "starting", "running")


def read(request: str, state: State | None = None) -> Parsed:
    return parse(request, KNOWN, state or State(), NOW)


@pytest.mark.parametrize(
    ("typed", "norms"),
    [
        ("wich gpu is hotest", ["which", "gpu", "is", "hottest"]),
        ("durchschnittstemperatur", ["durchschnitt", "temperatur"]),
        ("was laeuft", ["was", "lauft"]),
        ("cancélalo", ["cancela", "lo"]),
        ("whats running", ["what", "s", "running"]),
        ("the weather", ["the", "weather"]),
    ],
)
def test_words_are_mended_by_what_is_known(typed: str, norms: list[str]) -> None:
    assert [token.norm for token in mended(tokens(typed), ())] == norms


def test_names_words_of_other_scripts_and_split_words_are_never_mended() -> None:
    assert [t.norm for t in mended(tokens("cancl"), {"cancl"})] == ["cancl"]
    for hostile in ("\u0441ancel job 7", "c\u200dancel job 7", "cance\u200bl job 7"):
        assert [t.norm for t in mended(tokens(hostile), ())] == [t.norm for t in tokens(hostile)]


def test_the_distance_counts_swapped_letters_once_and_stops() -> None:
    assert distance("teh", "the", 2) == 1
    assert distance("temprature", "temperature", 2) == 1
    assert distance("abcdef", "uvwxyz", 2) == 3


def test_an_order_with_a_typo_is_a_card_that_says_what_was_read() -> None:
    found = read("cancl job 7")
    assert found.request == Order("cancel", jobs=(7,)) and not found.exact
    assert found.changes == (("cancl", "cancel"),)


QUERIES = {
    "hey, could you tell me what is running right now please": Query("jobs", states=RUNNING),
    "what's eating my vram": Query("processes", "memory", aggregate="max", extreme=True),
    "any problems?": Query("overview"),
    "ist alles in ordnung?": Query("overview"),
    "jobs that ran longer than 2 hours": Query(
        "jobs",
        states=("done", "rejected", "failed", "cancelled", "lost"),
        where=(Where("duration", above=7200.0),),
    ),
    "gpus with less than 10 gb free": Query(
        "devices", "mem_free", where=(Where("mem_free", below=10e9),)
    ),
    "could i fit a 70 GB model on gpu 0": Query(
        "devices", "mem_free", devices=(0,), where=(Where("mem_free", above=70e9),)
    ),
    "why did 12 die": Query("jobs", "reason", jobs=(12,)),
    "which gpu is job 13 on": Query("jobs", "devices", jobs=(13,)),
    "which cards are not idle": Query("devices", "use", states=("busy",)),
    "how many joules in a kWh": Query("conversion", amount=1.0, unit="kWh", to="J"),
    "will job 13 be done by 6pm": Query("jobs", "estimate", jobs=(13,)),
    "what does lost mean": Query("manual", "what lost", text="what does lost mean"),
    "combien de mémoire reste-t-il": Query("devices", "mem_free"),
    "qu'est-ce qui tourne": Query("jobs", states=RUNNING),
    "welche gpu soll ich nehmen?": Query("devices", "use", states=("idle",)),
    "cuántos vatios en total": Query("devices", "power", aggregate="sum"),
    "power of 1, 3 and 5 please": Query("devices", "power", devices=(1, 3, 5)),
    "any card with 24 GiB free": Query(
        "devices", "mem_free", where=(Where("mem_free", above=24 * 2.0**30),)
    ),
    "which oom run was the quickest": Query(
        "jobs", "duration", states=("done", "rejected"), aggregate="min", extreme=True, text="oom"
    ),
    "whats the server doing": Query("overview"),
    "who is pid 4321": Query("processes", text="4321"),
    "2 kW over an hour in kWh": Query("conversion", amount=7.2e6, unit="J", to="kWh"),
    "wie heiß sind 1 und 2": Query("devices", "temp", devices=(1, 2)),
    "how are 8 and 9 doing": Query("jobs", jobs=(8, 9)),
    "how many gpus are hotter than 60 degrees": Query(
        "devices", "temp", where=(Where("temp", above=60.0),), aggregate="count"
    ),
    "24 Gio en Go": Query("conversion", amount=24.0, unit="GiB", to="GB"),
}

MANUAL = {
    "what is power limit": "what power_limit",
    "was bedeutet TDP": "what power_limit",
    "how do I pause a run": "hold",
    "comment mettre une tâche en pause": "hold",
    "cómo se cambia la prioridad de un job": "priority",
    "how can I let a job start after another": "how after",
    "cómo hago que un job espere a otro": "how after",
    "how far back is the history kept?": "how history",
    "wie lange wird der verlauf gespeichert?": "how history",
    "can the jobs be written as csv?": "how export",
    "comment empêcher l'assistant d'utiliser le gpu la nuit ?": "how quiet",
}


@pytest.mark.parametrize(("request_text", "measure"), MANUAL.items())
def test_a_question_about_the_program_is_answered_from_the_manual(
    request_text: str, measure: str
) -> None:
    found = read(request_text).request
    assert isinstance(found, Query) and (found.subject, found.measure) == ("manual", measure)


def test_the_difference_of_two_terms_is_what_both_mean() -> None:
    found = read("difference between hold and cancel?").request
    assert isinstance(found, Query) and found.other is not None
    assert (found.measure, found.other.measure) == ("what held", "what cancel")


@pytest.mark.parametrize(
    "request_text",
    ["at which temperature do you warn", "warne mich erst bei 80 grad", "avísame a 75 grados"],
)
def test_the_threshold_of_a_warning_is_its_setting(request_text: str) -> None:
    assert read(request_text).request == Query("settings", text="alert_temperature")


@pytest.mark.parametrize(
    "request_text",
    ["email me when job 3 is done", "warn me if gpu 3 gets hot", "apaga el ordenador",
     "switch the computer off"],
)  # fmt: skip
def test_what_cannot_be_done_is_not_answered_by_something_else(request_text: str) -> None:
    assert read(request_text).request is None


@pytest.mark.parametrize(("request_text", "query"), QUERIES.items())
def test_a_loose_question_is_read_whole(request_text: str, query: Query) -> None:
    found = read(request_text)
    assert found.request == query and found.unread == ()


ORDERS = {
    "i want to cancel job 7": Order("cancel", jobs=(7,)),
    "nimm gpu 3 aus dem betrieb": Order("drain", devices=(3,)),
    "put job 7 on hold": Order("hold", jobs=(7,)),
    "give job 7 priority 3": Order("priority", jobs=(7,), number=3),
    "den letzten job abbrechen": Order("cancel", jobs=(NEWEST,)),
    "note on job 7: bad lr": Order("note", jobs=(7,), text="bad lr"),
    "set the log limit to 512 MiB": Order("set", setting="log_limit", text="0.5"),
    "make it dark": Order("set", setting="theme", text="dark"),
    "run nvidia-smi": Order("submit", command="nvidia-smi"),
    "run ./eval.sh --fast as a job": Order("submit", command="./eval.sh --fast"),
    "put 23 on hold": Order("hold", jobs=(23,)),
    "halte 12 an": Order("hold", jobs=(12,)),
    "kill 13 thru 15": Order("cancel", jobs=(13, 14, 15)),
    "stop 4 to 6": Order("cancel", jobs=(4, 5, 6)),
    "kill all the finetune jobs": Order("cancel", jobs=("finetune",), states=ACTIVE),
    "alle train-jobs abbrechen außer 9": Order(
        "cancel", jobs=("train",), states=ACTIVE, exclude=(9,)
    ),
    "cancel all jobs except 8 and 9": Order("cancel", states=ACTIVE, exclude=(8, 9)),
    "cancel the trains": Order("cancel", jobs=("train",), states=ACTIVE),
    "limit sweeps to 2 at a time": Order("limit", group="sweep", number=2),
    "en fait, annule le 9": Order("cancel", jobs=(9,)),
    "finalement, annule le 9": Order("cancel", jobs=(9,)),
    "allow three sweeps at once": Order("limit", group="sweep", number=3),
}


@pytest.mark.parametrize(("request_text", "order"), ORDERS.items())
def test_a_loose_order_is_a_card(request_text: str, order: Order) -> None:
    found = read(request_text)
    assert found.request == order and not found.exact


@pytest.mark.parametrize(
    "request_text",
    ["release it again", "actually, release it", "relâche-le", "suéltalo", "gib ihn wieder frei"],
)
def test_a_job_that_was_just_held_is_released_again(request_text: str) -> None:
    held = State((19,), (), None, "job")
    found = read(request_text, held)
    assert found.request == Order("release", jobs=(19,)) and not found.exact


@pytest.mark.parametrize(
    "request_text",
    ["cancel jobs 3-9 but not 5", "cancel all jobs 3-9 except 5", "cancel 13 thru",
     "cancel 7 again",
     "put 19 on hold until noon", "allow it", "allow gpu 3 to be used", "kill 5 at once or later",
     "finally, don't cancel 9", "stop all train jobs except maybe 7"],
)  # fmt: skip
def test_an_order_whose_words_have_no_place_is_refused(request_text: str) -> None:
    assert not isinstance(read(request_text).request, Order)


def test_a_number_in_words_is_no_job_and_a_unit_that_does_not_fit_is_refused() -> None:
    assert read("cancel the two").request is None
    assert not isinstance(read("set the log limit to 20 minutes").request, Order) or (
        read("set the log limit to 20 minutes").request == Order("set", setting="log_limit")
    )


def test_two_questions_at_once_have_two_queries_and_share_their_targets() -> None:
    found = read("temp and power of gpu 2")
    assert found.request == Query("devices", "temp", devices=(2,))
    assert found.also == (Query("devices", "power", devices=(2,)),)
    found = read("how hot is gpu 1 and who's using it")
    assert found.request == Query("devices", "temp", devices=(1,))
    assert found.also == (Query("processes", devices=(1,)),)
    assert read("compare gpu 0 and gpu 1").also == ()


def test_a_question_without_a_job_is_about_that_of_the_last_answer() -> None:
    state = State(jobs=(12, 15), last=Query("jobs", states=RUNNING), about="job")
    for request_text, measure in {
        "why?": "reason", "wie lange läuft er schon": "duration", "quand finira-t-il ?": "estimate",
        "muéstrame su registro": "log",
    }.items():  # fmt: skip
        found = read(request_text, state)
        assert found.request == Query("jobs", measure, jobs=(12,)), request_text
        assert found.resolved == ("job 12",)
    assert read("annule les deux", state).request == Order("cancel", jobs=(12, 15))


@pytest.mark.parametrize(
    ("said", "language"),
    [
        ("température à 3h du matin", "fr"),
        ("was bedeutet lost", "de"),
        ("uso entre las 2 y las 4", "es"),
    ],
)
def test_the_language_is_heard_from_times_and_longer_phrases(said: str, language: str) -> None:
    assert read(said).language == language


def test_few_known_words_make_no_question_of_many_others() -> None:
    found = read("who won the world cup")
    assert found.request is None and "world" in found.unread


def test_a_time_that_is_not_understood_is_never_now() -> None:
    assert read("temperatura pasado mañana").request is None


@pytest.mark.parametrize(
    "request_text",
    ["who may cancel the training", "is 7 GiB the name of the gpu", "which gpu is 12 of the idle"],
)
def test_a_question_is_not_answered_without_the_word_that_decides_it(request_text: str) -> None:
    assert read(request_text).request is None


THREE = Query("devices", "temp", devices=(0, 2, 6))
FIFTH = Query("jobs", jobs=(5,))


@pytest.mark.parametrize(
    ("state", "request_text", "query"),
    [
        (State((), (0, 2, 6), THREE, "device"), "and power?",
         Query("devices", "power", devices=(0, 2, 6))),
        (State((), (3,), Query("devices", "temp", devices=(3,)), "device"), "y la 5?",
         Query("devices", "temp", devices=(5,))),
        (State((), (5,), Query("devices", "temp", devices=(5,)), "device", earlier=(4,)),
         "which is warmer", Query("devices", "temp", devices=(4, 5), aggregate="max",
                                  extreme=True)),
        (State((), (5,), Query("devices", "temp", devices=(5,)), "device", earlier=(4,)),
         "which of them is cooler", Query("devices", "temp", devices=(4, 5), aggregate="min",
                                          extreme=True)),
        (State((5,), (), FIFTH, "job"), "and the one before?", Query("jobs", jobs=(4,))),
        (State((5,), (), FIFTH, "job"), "und der danach?", Query("jobs", jobs=(6,))),
    ],
)  # fmt: skip
def test_a_follow_up_keeps_what_was_spoken_of(
    state: State, request_text: str, query: Query
) -> None:
    assert read(request_text, state).request == query


def test_a_night_ends_in_the_morning() -> None:
    found = parse("what ran last night", KNOWN, State(), datetime(2026, 11, 23, 6, 7).timestamp())
    begin, end = datetime(2026, 11, 22, 20), datetime(2026, 11, 23, 6)
    assert isinstance(found.request, Query)
    assert found.request.time == Span(begin.timestamp(), end.timestamp())


def test_a_recording_is_not_said_to_have_no_processes() -> None:
    rows = Rows("processes", (), (), Text("NVML processes"), NOW, notes=(Note("unseen", ()),))
    assert "not known" in processes(Query("processes"), rows, words("en"))[0]
    read_now = Rows("processes", (), (), Text("NVML processes"), NOW)
    assert processes(Query("processes"), read_now, words("en")) == ["No process uses a GPU."]


@pytest.mark.parametrize(
    ("request_text", "jobs"),
    [
        ("kill bench pls", ("bench",)),
        ("cancel train and bench", ("train", "bench")),
    ],
)
def test_a_job_that_is_called_like_an_order_can_be_named_behind_one(
    request_text: str, jobs: tuple[str, ...]
) -> None:
    found = parse(request_text, Known(("train", "bench"), ()), State(), NOW)
    assert found.request == Order("cancel", jobs=jobs)


def test_words_beside_a_quoted_command_are_read_or_the_order_is_refused() -> None:
    found = read("please run `python a.py --x 3` on 2 gpus as a job").request
    assert found == Order("submit", command="python a.py --x 3", options={"gpus": "2"})
    found = read("lanza `python a.py` con el nombre prueba").request
    assert found == Order("submit", command="python a.py", options={"name": "prueba"})
    assert not isinstance(read("run `python a.py` on gpu 3").request, Order)
