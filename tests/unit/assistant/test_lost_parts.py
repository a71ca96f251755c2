"""A part of an order that makes it no other order is refused: it would be lost without a word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import Understood, understand
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.reader.reading import Reader
from tests.unit.assistant.test_follow_ups import NOW, _Labelled, reading

KNOWN = Known((), ("sweep", "nightly"), (), ("lea", "mara"), "mara")


def read(text: str, head: str, *marks: str, **spans: str | tuple[str, ...]) -> Understood:
    reader = cast(Reader, _Labelled(head, *marks, spans=spans))  # type: ignore[arg-type]
    return understand(text, KNOWN, State(), NOW, reader)


@pytest.mark.parametrize(
    ("head", "text", "lost", "spans"),
    [
        ("order unbook", "end the bookings of group sweep", "sweep", {"group": "sweep"}),
        ("order drain", "drain gpu 1 and node2", "node2", {"gpus": "node2"}),
        ("order book", "book 3 gpus, gpu 1 and 2, until 18:00", "3",
         {"count": "3", "gpus": "1 and 2", "until": "18:00"}),
        ("order drain", "drain gpu 1 for lea", "lea", {"gpus": "1", "user": "lea"}),
        ("order note", 'note job 7 for lea "lr 0.1"', "lea",
         {"jobs": "7", "user": "lea", "notes": '"lr 0.1"'}),
        ("order cancel", "cancel job 7 with 4 hours", "4 hours",
         {"jobs": "7", "timeout": "4 hours"}),
    ],
)  # fmt: skip
def test_a_part_that_an_order_does_not_use_is_named(
    head: str, text: str, lost: str, spans: dict[str, str]
) -> None:
    found = read(text, head, **spans)
    assert found.request is None and not found.choices
    assert found.refusal is not None and lost in found.refusal.words


def test_what_is_said_of_a_job_that_is_named_is_in_its_order() -> None:
    found = read("cancel job 7 of lea on gpu 2", "order cancel", jobs="7", user="lea", gpus="2")
    assert found.request == Order("cancel", jobs=(7,), user="lea", devices=(2,))
    found = read("kill 4711, it is mine", "order kill", "user=@me", pid="4711")
    assert found.request == Order("kill", number=4711, user="mara")


def test_letters_that_say_one_value_in_two_places_are_not_lost() -> None:
    found = read("low priority for 7, low", "order edit", jobs="7", priority="low")
    assert found.request == Order("edit", jobs=(7,), options={"priority": "-10"})


def test_what_names_one_job_twice_is_not_lost() -> None:
    known = KNOWN._replace(jobs=("export-onnx", "train"))
    found = reading("order cancel", spans=(("jobs", "export thing"), ("jobs", "the onnx one")))
    text = "cancel the export thing, the onnx one"
    found = found._replace(places=((11, 23), (25, 37)), languages=(1.0, 0.0, 0.0, 0.0), plain=1.0)
    reader = cast(Reader, SimpleNamespace(read=lambda *_: found))
    made = understand(text, known, State(), NOW, reader)
    assert made.request == Order("cancel", jobs=("export-onnx",))


def test_all_that_wait_are_those_of_one_state() -> None:
    found = read("cancel all that wait", "order cancel", "jobs=@all", "states=queued")
    assert found.request == Order("cancel", states=("queued",))


def test_mine_is_of_who_says_that_they_type() -> None:
    found = read("soy lea, cancela mi 14", "order cancel", "user=@me", jobs="14")
    assert found.request == Order("cancel", jobs=(14,), user="lea")


def test_the_name_of_another_machine_is_no_gpu() -> None:
    text = "run python a.py on node2"
    found = read(text, "order submit", command="python a.py", gpus="node2")
    assert found.request is None and found.refusal is not None
    asked = read("how hot is node2", "ask gpus", "measure=temperature", gpus="node2")
    assert asked.request == Query("devices", "temp", model="node2")
