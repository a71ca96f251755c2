"""Search for a text that holds, with a model whose every choice is known."""

from __future__ import annotations

import re
from itertools import islice
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from examples import CPU_STATE, DONE, HISTORY, NOW, snapshot

from gpudeck.accel.result import Result
from gpudeck.accel.rwkv.tokenizer import VOCABULARY
from gpudeck.accel.workloads.harness import serve
from gpudeck.assistant.engine.author import EngineAuthor
from gpudeck.assistant.engine.engine import Engine
from gpudeck.assistant.facts import gather
from gpudeck.assistant.workloads.rain import work
from gpudeck.assistant.writing.rain import Rain, SearchLimits, Verdict, sentence
from gpudeck.assistant.writing.verify import Refused
from gpudeck.assistant.writing.writer import judged, write
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf

pytestmark = pytest.mark.xdist_group(
    "rwkv"
)  # Numba compiles at the first use; the tests of a group share the result.

ONE = gather(snapshot(CPU_STATE), (DONE,), HISTORY, NOW - 80, NOW - 30)


class Spot(NamedTuple):
    text: str
    ended: bool = False


class Tree:
    """Act as a model with known sentences after each text, likeliest first; without any, the text
    ends.
    """

    name = "tree"

    def __init__(
        self, ways: dict[str, tuple[str, ...]], opinion: dict[str, float] | None = None
    ) -> None:
        self.ways, self.opinion = ways, opinion
        self.began: list[str] = []

    def begin(self, system: str, user: str) -> Spot:
        return Spot("")

    def preference(self, after: Spot, question: str, answers: tuple[str, str]) -> float | None:
        if self.opinion is None:
            return None
        likes_yes = next(
            (value for end, value in self.opinion.items() if after.text.endswith(end)), 1.0
        )
        bias = 0.5  # for whichever answer is called A
        return max(-1.0, min(1.0, (likes_yes if "(A) yes" in question else -likes_yes) + bias))

    def write(self, after: Spot, seed: int):
        self.began.append(after.text)
        text = after.text
        while ways := self.ways.get(text):
            more = ways[seed % len(ways)]
            for end in range(1, len(more)):
                yield Spot(text + more[:end])
            text += more
            yield Spot(text)
        yield Spot(text, ended=True)


def holds(place: Spot) -> Verdict:
    return Verdict(-1.0, "it lies") if "lie" in place.text else Verdict(1.0)


def test_a_text_without_faults_is_written_once_greedily() -> None:
    author = Tree({"": ("A.", "No."), "A.": (" B.",), "A. B.": (" C.",)})
    rain = Rain(author, holds)
    assert rain.text(author.begin("", "")).text == "A. B. C."
    assert (rain.written, rain.rewound) == (3, 0)


def test_if_the_greedy_text_fails_a_faithful_branch_is_found_further_back() -> None:
    author = Tree(
        {
            "": ("Nice.", "True."),
            "Nice.": (" A lie.", " Another lie.", " More lies."),
            "True.": (" A lie.", " So it is."),
            "True. So it is.": (" A lie.", " A lie!", " Done."),
        }
    )
    rain = Rain(author, holds)
    assert rain.text(Spot("")).text == "True. So it is. Done."
    assert rain.rewound > 0
    assert author.began.count("Nice.") == SearchLimits().children, (
        "all its ways were tried before it was given up"
    )


def test_if_nothing_holds_the_search_ends_with_the_reason() -> None:
    author = Tree(
        {"": ("A lie.", "Well."), "Well.": (" A lie.", " Well."), "Well. Well.": (" A lie!",)}
    )
    with pytest.raises(Refused, match="it lies"):
        Rain(author, holds).text(Spot(""))
    endless = Tree({" A." * n: (" A.", " B lie.") for n in range(500)})
    rain = Rain(
        endless,
        lambda place: (
            Verdict(0.1)
            if "lie" not in place.text and not place.ended
            else Verdict(-1.0, "it lies")
        ),
    )
    with pytest.raises(Refused):
        rain.text(Spot(""))
    assert rain.written <= SearchLimits().sentences


def test_a_sentence_ends_before_white_space_and_not_within_a_number_or_slot() -> None:
    author = Tree({"": ("It is 0.5 of {job7.tflops} in all. Then",)})
    assert sentence(author, Spot(""), 0) == Spot("It is 0.5 of {job7.tflops} in all.")
    assert sentence(Tree({"": ("One\nTwo",)}), Spot(""), 0) == Spot("One\n")
    assert sentence(Tree({"": ("One.",)}), Spot(""), 0) == Spot("One.", ended=True)


def test_a_large_model_judges_itself_without_preferring_the_first_answer() -> None:
    first, second = (
        "Job {job7.name} is {job7.state}: {job7.verdict}.",
        " The backend {job7.backend} reached {job7.tflops}.",
    )
    dull = " It is as it is."
    author = Tree(
        {"": (first,), first: (dull, second), first + dull: (second,)},
        {dull: -0.9, dull + second: -0.9},
    )
    text, writer, _ = write(ONE, author)
    assert writer == "model tree"
    assert text == "Job attention is done: pass. The backend efficient reached 0.0873 TFLOP/s."
    assert judged(Spot(dull), ONE, (), author).value == pytest.approx(-0.7), (
        "what is cut off at 1 or -1 is lost to the mean"
    )
    assert judged(Spot("It took 99 s."), ONE, (), author).refused, (
        "it is not asked what a program can tell"
    )


def test_no_number_that_is_no_fact_is_shown_whatever_the_model_writes(monkeypatch) -> None:
    """Draw random trees of true and false sentences, and check every number that is shown."""
    monkeypatch.setattr("gpudeck.assistant.writing.writer.required_facts", lambda facts: [])
    known = set(re.findall(r"\d[\d.:]*", " ".join(fact.text for fact in ONE)))
    random, shown = Random(4), 0
    true = [
        " Job {job7.name} is {job7.state}: {job7.verdict}.",
        " It reached {job7.tflops}.",
        " The backend is {job7.backend}.",
    ]
    false = [
        " It took 77 s.",
        " It reached 0.0874 TFLOP/s.",
        " Job 8 failed.",
        " {job9.tflops} it was.",
        " Twelve jobs ran.",
    ]
    for _ in range(60):
        ways = {"": tuple(random.choices(true + false, k=3))}
        for _ in range(6):
            ways |= {
                text + more: tuple(random.choices(true + false, k=3))
                for text, all_more in list(ways.items())
                for more in all_more[:2]
            }
            ways = dict(random.sample(sorted(ways.items()), min(len(ways), 40))) | {"": ways[""]}
        text, writer, _ = write(ONE, Tree(ways))
        if writer != "template":
            shown += 1
            assert set(re.findall(r"\d[\d.:]*", text)) <= known | {"7"}
    assert shown > 20


def test_the_workload_reports_how_many_texts_held_and_the_speed(home, tmp_path, capsys) -> None:
    folder = write_hf(
        tmp_path / "noise-7", to_hf(random_model(layers=1, channels=64, vocabulary=300))
    )
    (folder / VOCABULARY).write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    settings.save(Settings(model_folder=TEMPLATE))
    assert serve("rain", work, ["--texts=1"]) == 1
    assert "no model is chosen" in capsys.readouterr().err
    settings.save(Settings(model_folder=str(folder)))
    assert serve("rain", work, ["--texts=2", "--method=greedy"]) == 0
    result = msgspec.json.decode(capsys.readouterr().out.splitlines()[-1], type=Result)
    assert (result.backend, result.verdict, result.timing.count) == ("greedy", "pass", 2)
    assert "noise-7" in result.reason
    assert "0 of 2 texts held" in result.reason
    assert result.flops > 0


def test_judging_does_not_change_how_a_large_model_continues(tmp_path, monkeypatch) -> None:
    folder = write_hf(
        tmp_path / "noise-7", to_hf(random_model(layers=1, channels=64, vocabulary=300))
    )
    (folder / VOCABULARY).write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    engine = Engine(str(folder), "cpu")
    author = EngineAuthor(engine, lambda: False)
    place = next(author.write(author.begin("", "x"), 3))
    assert author.preference(place, "well?", (" A", " B")) is None
    before = [p.text for p in islice(author.write(place, 4), 9)]
    monkeypatch.setattr("gpudeck.assistant.engine.author.JUDGES", 1)
    preference = author.preference(place, "well?", ("A", "B"))
    assert preference is not None
    assert -1 <= preference <= 1
    assert author.preference(place, "well?", ("B", "A")) == pytest.approx(-preference)
    assert [p.text for p in islice(author.write(place, 4), 9)] == before
    engine.retire()
