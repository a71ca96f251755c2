"""Test what people call a thing: it stands for what exists, and for nothing else."""

from __future__ import annotations

import pytest

from gpudeck.assistant.intents.callings import _compared, alternatives
from gpudeck.assistant.intents.names import Known, misspelt
from gpudeck.assistant.intents.spoken_names import with_whole_names
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import understand
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Reading, shipped_reader

JOBS = ("pretrain-small", "clean-text", "export-onnx", "llama-lora", "llama-70b", "eval-mmlu",
        "eval-pretrain", "nightly-bench")  # fmt: skip
KNOWN = Known(JOBS, ("sweep", "nightly"), (), ("ben", "lea"), "", ("pretrain-small", "clean-text",
              "eval-pretrain", "llama-70b", "llama-lora"))  # fmt: skip


def meant(letters: str, field: str = "jobs", head: str = "ask jobs") -> list[str]:
    found = Reading(((head, 1.0),), "", frozenset(), ((field, letters),), ((0, 0),), ())
    return [one.spans[0][1] for one in alternatives(found, KNOWN, letters)]


@pytest.mark.parametrize(("letters", "name"), [
    ("the onnx one", "export-onnx"),
    ("pretraining", "pretrain-small"),
    ("text cleaning", "clean-text"),
    ("Textbereinigung", "clean-text"),
    ("le nettoyage de texte", "clean-text"),
    ("limpieza de texto", "clean-text"),
    ("Eval", "eval-pretrain"),
    ("nightly", "nightly"),
    ("expotr thing", "export-onnx"),
    ("pertrain small", "pretrain-small"),
    ("the sweap ones", "sweep"),
    ("12", "12"),
])  # fmt: skip
def test_a_thing_is_called_by_a_part_of_its_name_or_by_its_meaning(letters: str, name: str) -> None:
    assert meant(letters) == [name]


def test_an_ended_job_is_meant_where_one_shall_run_again() -> None:
    assert meant("mmlu eval", head="order retry") == ["eval-mmlu"]


def test_two_that_may_be_meant_are_both_offered() -> None:
    assert {*meant("llama")} == {"llama-lora", "llama-70b"}


@pytest.mark.parametrize("letters", ["weather forecast", "docking", "ben", "the last two"])
def test_what_does_not_exist_stands_for_nothing(letters: str) -> None:
    assert meant(letters) == [letters]


def test_users_and_groups_are_found_in_what_they_are_called() -> None:
    assert meant("lea's", "user") == ["lea"]
    assert meant("the sweep group", "group") == ["sweep"]
    assert meant("weekly", "group", "order resume") == ["weekly"]  # not the group nightly


def test_a_typo_may_stand_for_several_and_never_for_another_number() -> None:
    assert {*meant("lama")} == {"llama-lora", "llama-70b"}
    assert misspelt("llma-7b", ("llama-7b", "train")) == ("llama-7b",)
    assert misspelt("v2", ("v3",)) == misspelt("gpt2", ("gpt4",)) == misspelt("leo", ("lea",)) == ()


def test_many_names_are_encoded_over_several_requests() -> None:
    names = [f"flurbel-{i}" for i in range(40)]
    first = dict(_compared(names))
    assert 0 < len(first) < 40 and names[0] in first
    again = dict(_compared(names))
    assert len(again) > len(first) and all(again[name] is one for name, one in first.items())


def test_ones_own_thing_that_has_no_name_is_any_of_ones_own() -> None:
    spans, places = (("jobs", "zzyzx"),), ((0, 5),)
    found = Reading((("ask jobs", 1.0),), "", frozenset({"user=@me"}), spans, places, ())
    assert [one.spans for one in alternatives(found, KNOWN, "zzyzx")] == [()]
    theirs = found._replace(marks=frozenset())
    assert [one.spans for one in alternatives(theirs, KNOWN, "zzyzx")] == [spans]


NAMED = Known((*JOBS, "sweep-lr", "train-v2"), ("sweep",), (), ("ben",), "", (*JOBS, "sweep-lr"))


def ordered(request: str) -> tuple[object, ...]:
    found = understand(request, NAMED, State(), 1_795_762_512.0, shipped_reader())
    return found.request.jobs if isinstance(found.request, Order) else ()


@pytest.mark.parametrize(("request_", "name"), [
    ("den onnx export brauch ich doch nicht mehr, schmeiß raus", "export-onnx"),
    ("cancel the 70b", "llama-70b"),
    ("storniere das 70b", "llama-70b"),
    ("annule le 70b", "llama-70b"),
    ("cancela el 70b", "llama-70b"),
    ("annule le sweep de lr", "sweep-lr"),
    ("pausa el sweep de lr", "sweep-lr"),
    ("cancela el export de onnx", "export-onnx"),
    ("put the small pretrain on hold", "pretrain-small"),
])  # fmt: skip
def test_a_job_is_named_by_the_words_of_its_name_in_any_order(request_: str, name: str) -> None:
    assert ordered(request_) == (name,)


def test_a_part_with_a_digit_names_a_job_and_a_number_does_not() -> None:
    assert meant("70b") == ["llama-70b"]
    assert meant("70") == ["70"]
    assert ordered("cancel job 70") == (70,)


def test_words_of_two_names_choose_none_of_them() -> None:
    found = Reading((("order cancel", 1.0),), "", frozenset(), (("jobs", "llama"),), ((7, 12),), ())
    assert with_whole_names("cancel llama", found, NAMED) == found
    known = Known(("train-a-b", "train-a-c"))
    assert with_whole_names("cancel train a", found, known) == found


def test_words_of_a_command_name_no_job() -> None:
    command = "python export onnx"
    found = Reading((("order submit", 1.0),), "", frozenset(), (("command", command),),
                    ((4, 22),), ())  # fmt: skip
    assert with_whole_names(f"run {command}", found, NAMED) == found
