"""Test the requests that people wrote: what they mean is in the table of labels."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from gpudeck.assistant.reader.labels import PAGES, SUBJECTS, heads, marks
from gpudeck.assistant.training.filler import fillers
from gpudeck.assistant.training.requests import Example, examples
from gpudeck.assistant.training.varied import names_of, varied

DATA = Path(__file__).parents[3] / "assistant" / "training" / "data" / "requests.jsonl.gz"


@pytest.fixture(scope="module")
def found() -> list[Example]:
    return examples(DATA)


def test_all_that_is_meant_is_in_the_table(found: list[Example]) -> None:
    assert {head for one in found for head in one.heads} <= {*heads()}
    assert {one.page for one in found if one.page} <= {*PAGES}
    assert {f"measure={name}" for names in SUBJECTS.values() for name in names} <= {*marks()}


def test_nearly_all_requests_have_a_meaning(found: list[Example]) -> None:
    other = [one for one in found if "measure=other" in one.marks
             or {"ask other", "order other"} & {*one.heads}]  # fmt: skip
    assert len(other) < len(found) * 0.02


def test_small_talk_stands_behind_what_is_meant(found: list[Example]) -> None:
    for one in found:
        talk = [head.startswith("talk") for head in one.heads]
        assert talk == sorted(talk), one.text


def places(tmp_path: Path, text: str, label: dict[str, object]) -> list[str]:
    row = {"profile": 1, "language": "de", "scene": "a", "turn": 1, "text": text, "label": [label]}
    file = tmp_path / "requests.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    return [text[first:last] for _, first, last in examples(file)[0].spans]


def test_letters_are_found_beside_a_sharp_s_and_inside_a_word(tmp_path: Path) -> None:
    assert places(tmp_path, "Wie groß ist Llama?", {"ask": "models", "model": "llama"}) == ["Llama"]
    assert places(tmp_path, "1 of gpu10 or 10?", {"ask": "gpus", "gpus": ["10"]}) == ["10"]
    assert places(tmp_path, "temp gpu1", {"ask": "gpus", "gpus": ["1"]}) == ["1"]


def test_a_condition_keeps_the_name_that_stands_in_it(tmp_path: Path) -> None:
    label = [{"order": "retry", "jobs": ["mist"], "if": "if mist fails"}]
    row = {"profile": 1, "language": "en", "scene": "1", "turn": 1, "text": "if mist fails, again"}
    (tmp_path / "one.jsonl").write_text(json.dumps({**row, "label": label}), "utf-8")
    (one,) = examples(tmp_path / "one.jsonl")
    assert one.spans == (("if", 0, 13),)


def test_a_request_is_learnt_behind_the_one_before_it(found: list[Example]) -> None:
    told = [one for one in found if one.before]
    assert len(told) > len(found) / 3
    one = next(one for one in told if one.profile == 219)
    assert one.before == "ask jobs jobs why_waiting: why isnt eval-mmlu running"


def test_varied_requests_mean_the_same(found: list[Example]) -> None:
    names, random = names_of(found), Random(1)
    for one in found[::50]:
        other = varied(one, random, names)
        assert (other.heads, other.marks, other.page) == (one.heads, one.marks, one.page)
        fields = sorted(field for field, _, _ in one.spans)
        assert sorted(field for field, _, _ in other.spans) == fields
        for field, first, last in other.spans:
            letters = other.text[first:last]
            assert letters and letters == letters.strip(), (field, other.text)


def test_an_amount_is_what_is_converted_or_the_memory_of_a_job() -> None:
    asked: dict[str, set[str]] = {"conversion": set(), "capacity": set()}
    for made in islice(fillers(1), 400):
        for label in made.label:
            fields = asked.get(str(label.get("ask")), set())
            fields |= {"amount", "memory"} & label.keys()
    assert asked == {"conversion": {"amount"}, "capacity": {"memory"}}
