"""Test amounts that an order says in relation to what a job has: more memory, 4 hours longer."""

from __future__ import annotations

from typing import cast

import pytest

from gpudeck.assistant.intents.amounts import factor, sign
from gpudeck.assistant.intents.choices import describe
from gpudeck.assistant.intents.composed import completing
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import understand
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.reader.reading import Reader, shipped_reader
from gpudeck.assistant.tools.changes import settle
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.words import words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from tests.unit.assistant.test_follow_ups import NOW, _Labelled

KNOWN = Known(("train", "eval"), ("nightly",))
FAILED = State((7,), (), Query("jobs", "failure", jobs=(7,)), "job",
               before="ask jobs jobs why_failed: why did job 7 fail")  # fmt: skip


def of_7(verb: str, **changes: str) -> Order:
    return Order(verb, jobs=(7,), changes=changes)


READ = {
    "retry job 7 with more memory": of_7("retry", memory="more"),
    "again, with more memory": of_7("retry", memory="more"),
    "noch mal mit mehr Speicher": of_7("retry", memory="more"),
    "starte job 7 noch mal mit mehr Speicher": of_7("retry", memory="more"),
    "relance le 7 avec plus de mémoire": of_7("retry", memory="more"),
    "repite el 7 con más memoria": of_7("retry", memory="more"),
    "retry 7 with double the memory": of_7("retry", memory="x2"),
    "wiederhole 7 mit doppelt so viel Speicher": of_7("retry", memory="x2"),
    "relance le 7 avec deux fois plus de mémoire": of_7("retry", memory="x2"),
    "relanza el 7 con el doble de memoria": of_7("retry", memory="x2"),
    "retry 7 with 8 GB more": of_7("retry", memory="+8gb"),
    "retry 7 with twice the memory and 4 hours": Order(
        "retry", jobs=(7,), options={"timeout": "4h"}, changes={"memory": "x2"}),
    "run 7 again with 40 GB": Order("retry", jobs=(7,), options={"memory": "40gb"}),
    "give job 7 one more gpu": of_7("retry", gpus="+1"),
    "give job 7 4 hours longer": of_7("edit", timeout="+4h"),
    "give job 7 4 more hours": of_7("edit", timeout="+4h"),
    "extend the time limit of job 7 by 2 hours": of_7("edit", timeout="+2h"),
    "prolonge la limite du job 7 de 3 heures": of_7("edit", timeout="+3h"),
    "verlängere das zeitlimit von job 7 um 4 Stunden": of_7("edit", timeout="?4h"),
    "amplía el límite del job 7 en 4 horas": of_7("edit", timeout="?4h"),
    "raise the time limit of job 7 to 8 hours": Order(
        "edit", jobs=(7,), options={"timeout": "8h"}),
    "set the priority of job 7 to 10": Order("edit", jobs=(7,), options={"priority": "10"}),
    "lower the priority of job 7 to 2": Order("edit", jobs=(7,), options={"priority": "2"}),
    "setze die priorität von job 7 auf 10": Order("edit", jobs=(7,), options={"priority": "10"}),
    "mets la priorité du job 7 à 10": Order("edit", jobs=(7,), options={"priority": "10"}),
    "pon la prioridad del job 7 en 10": Order("edit", jobs=(7,), options={"priority": "10"}),
    "no more than 4 hours for job 7": Order("edit", jobs=(7,), options={"timeout": "4h"}),
}  # fmt: skip


@pytest.mark.parametrize(("request_text", "order"), READ.items())
def test_an_amount_is_read_in_relation_to_what_the_job_has(request_text: str, order: Order) -> None:
    state = State() if "7" in request_text else FAILED
    assert understand(request_text, KNOWN, state, NOW, shipped_reader()).request == order


@pytest.mark.parametrize(
    "request_text",
    ["start job 7 half an hour later", "starte job 7 eine halbe Stunde später",
     "lance le job 7 une demi-heure plus tard", "empieza el job 7 media hora más tarde"],
)  # fmt: skip
def test_a_begin_is_moved_by_a_length_of_time(request_text: str) -> None:
    found = understand(request_text, KNOWN, State(), NOW, shipped_reader())
    meant = found.request or found.choices[0]  # where it is not sure, the person chooses
    assert meant == of_7("edit", begin="+30min")


@pytest.mark.parametrize(
    ("text", "spans", "marks", "order"),
    [
        ("7 again with twice the memory", {"jobs": "7"}, (), of_7("retry", memory="x2")),
        ("7 nochmal mit der Hälfte", {"jobs": "7", "memory": "Hälfte"}, (),
         of_7("retry", memory="x0.5")),
        ("7 otra vez, 2 GPUs más", {"jobs": "7", "count": "2"}, (), of_7("retry", gpus="+2")),
        ("7 encore, 3 heures de moins", {"jobs": "7", "timeout": "3 heures"}, (),
         of_7("retry", timeout="-3h")),
        ("7 again with one gpu less", {"jobs": "7", "count": "one"}, (),
         of_7("retry", gpus="-1")),
        ("7 nochmal, eine GPU weniger", {"jobs": "7", "count": "eine"}, (),
         of_7("retry", gpus="-1")),
        ("7 encore, une gpu de moins", {"jobs": "7", "count": "une"}, (),
         of_7("retry", gpus="-1")),
        ("7 otra vez, 2 GPUs menos", {"jobs": "7", "count": "2"}, (), of_7("retry", gpus="-2")),
        ("7 again, another hour", {"jobs": "7", "timeout": "hour"}, ("change=more",),
         of_7("retry", timeout="+1h")),
        ("7 noch mal, weniger Speicher", {"jobs": "7", "memory": "Speicher"}, ("change=less",),
         of_7("retry", memory="less")),
    ],
)  # fmt: skip
def test_an_amount_has_its_relation_whatever_else_is_tagged(
    text: str, spans: dict[str, str], marks: tuple[str, ...], order: Order
) -> None:
    reader = cast(Reader, _Labelled("order retry", *marks, spans=spans))
    assert understand(text, KNOWN, State(), NOW, reader).request == order


@pytest.mark.parametrize(
    ("text", "spans", "order"),
    [
        ("two retries for 7 if it dies", {"retries": "two", "jobs": "7", "if": "if it dies"},
         Order("edit", jobs=(7,), options={"retries": "2"})),
        ("zwei versuche für 7, falls er abstürzt",
         {"retries": "zwei", "jobs": "7", "if": "falls er abstürzt"},
         Order("edit", jobs=(7,), options={"retries": "2"})),
        ("2 essais pour 7 s'il échoue", {"retries": "2", "jobs": "7", "if": "s'il échoue"},
         Order("edit", jobs=(7,), options={"retries": "2"})),
        ("2 reintentos para 7 si falla", {"retries": "2", "jobs": "7", "if": "si falla"},
         Order("edit", jobs=(7,), options={"retries": "2"})),
        ("tag 7 with paper", {"jobs": "7", "tag": "paper"}, of_7("edit", tags="+paper")),
        ("etiqueta 7 como cliente-x", {"jobs": "7", "tag": "cliente-x"},
         of_7("edit", tags="+cliente-x")),
    ],
)  # fmt: skip
def test_retries_are_for_failures_and_a_tag_is_added(
    text: str, spans: dict[str, str], order: Order
) -> None:
    reader = cast(Reader, _Labelled("order edit", spans=spans))
    assert understand(text, KNOWN, State(), NOW, reader).request == order


def test_a_condition_besides_retries_is_one() -> None:
    spans = {"retries": "2", "jobs": "7", "if": "if gpu 2 is free"}
    reader = cast(Reader, _Labelled("order edit", spans=spans))
    found = understand("2 retries for 7 if gpu 2 is free", KNOWN, State(), NOW, reader)
    assert found.refusal is not None and found.refusal.problem == "condition"


@pytest.mark.parametrize(
    "text", ["run python a.py with twice the memory", "starte python a.py mit doppelt so viel ram"]
)
def test_a_new_job_has_nothing_that_an_amount_is_related_to(text: str) -> None:
    found = understand(text, KNOWN, State(), NOW, shipped_reader())
    assert found.request is None and not found.choices


def test_a_higher_priority_makes_no_other_amount_higher() -> None:
    spans = {"jobs": "7", "priority": "5", "timeout": "4h"}
    reader = cast(Reader, _Labelled("order edit", "change=more", spans=spans))
    found = understand("7: higher priority 5, limit 4h", KNOWN, State(), NOW, reader)
    assert found.request == Order("edit", jobs=(7,), options={"priority": "5", "timeout": "4h"})


@pytest.mark.parametrize(
    ("text", "said", "change"),
    [("lower the priority of 7", "priority", "change=less"), ("7 down", "down", ""),
     ("double the priority of 7", "priority", "change=more"), ("gib 7 höhere Prio", "höhere", ""),
     ("prio von 7 runter", "runter", "change=less"), ("half the priority for 7", "half", ""),
     ("sube la prioridad del 7", "prioridad", "change=more")],
)  # fmt: skip
def test_a_priority_without_a_level_is_asked_for(text: str, said: str, change: str) -> None:
    marks = (change,) if change else ()
    reader = cast(Reader, _Labelled("order edit", *marks, spans={"jobs": "7", "priority": said}))
    found = understand(text, KNOWN, State(), NOW, reader)
    assert found.request is None and not found.choices
    assert found.refusal is not None and found.refusal.problem == "priority"


def test_a_priority_is_lowered_to_the_one_that_is_named() -> None:
    for said, level in (("2", "2"), ("low", "-10"), ("niedrig", "-10")):
        reader = cast(Reader, _Labelled("order edit", "change=less",
                                        spans={"jobs": "7", "priority": said}))  # fmt: skip
        found = understand(f"lower the priority of 7 to {said}", KNOWN, State(), NOW, reader)
        assert found.request == Order("edit", jobs=(7,), options={"priority": level})


def test_what_is_said_again_replaces_the_amount_of_before() -> None:
    last = of_7("retry", memory="more", timeout="x2")
    meant = completing(Order("edit", jobs=(7,), options={"memory": "40gb"}), State(order=last))
    assert meant == Order("retry", jobs=(7,), options={"memory": "40gb"},
                          changes={"timeout": "x2"})  # fmt: skip


def test_jobs_get_an_amount_together_if_it_is_the_same_for_all() -> None:
    def job(number: int, *tags: str) -> Job:
        return Job(number, Spec(("x",), "x", "/", tags=tags), 0.0, Queued())

    context = ToolContext(cast(Client, None))
    tagged = Order("edit", group="sweep", changes={"tags": "+urgent"})
    made = settle(context, tagged, [job(1, "a"), job(2, "a")])
    assert made == Order("edit", group="sweep", options={"tags": "a,urgent"})
    with pytest.raises(UserError, match="different values"):
        settle(context, tagged, [job(1, "a"), job(2)])


def test_factors_and_signs_are_said_in_four_languages() -> None:
    for said in ("twice", "double the", "doppelt so viel", "deux fois plus", "el doble", "2x"):
        assert factor(said) == 2.0, said
    assert factor("4 hours") is None and factor("24 GB") is None
    assert sign("limit it to 8 hours", "8 hours", ("more",)) == ""
    assert sign("not more than 8 hours", "8 hours", ("more",)) == ""
    assert sign("um 2 Stunden", "2 Stunden", ()) == "?"
    assert sign("alarga 2 horas el 7", "2 horas", ("more",)) == "?"
    assert sign("2 Stunden früher", "2 Stunden früher", ()) == "-"


def test_choices_that_differ_in_their_amounts_are_told_apart() -> None:
    orders = (of_7("edit", timeout="+4h"), Order("edit", jobs=(7,), options={"timeout": "4h"}))
    assert [describe(order, words("en")) for order in orders] == [
        "change the options of jobs that wait: job 7, Time limit +4h",
        "change the options of jobs that wait: job 7, Time limit 4h",
    ]
