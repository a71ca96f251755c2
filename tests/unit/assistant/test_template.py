"""The template writer: every number from the facts, whatever the facts are; the right answer to a question."""

from __future__ import annotations

import re

import msgspec
import pytest
from examples import CPU_FACTS, CPU_STATE, DONE, HISTORY, NOW, REPLAY_FACTS, replayed, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.facts import gather
from assistant.template import template

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
QUESTIONS = [
    None,
    "how hot is it?",
    "power of gpu 1",
    "memory?",
    "did anything fail?",
    "is it idle?",
    "what runs now?",
    "how was job 7?",
    "job 77?",
    "hello",
    "which devices are there?",
    "tflops",
    "why does job 9 wait?",
    "gpu 5 temperature",
    "what was cancelled?",
]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(QUESTIONS))
def test_no_number_that_is_not_in_the_facts_or_the_question(data, question) -> None:
    """Any subset of the facts, in any order, some of them contradicted."""
    facts = data.draw(st.lists(st.sampled_from(CPU_FACTS + REPLAY_FACTS), unique_by=id, max_size=60))
    if facts:
        odd = data.draw(st.sampled_from(facts))
        facts.append(msgspec.structs.replace(odd, said="4711 %", text="contradiction: 4711 %", source="elsewhere", value=4711))
    text = template(facts, question)
    assert text.strip()
    known = {n for fact in facts for n in NUMBER.findall(f"{fact.text} {fact.name} {fact.said}")}
    known |= set(NUMBER.findall(question or ""))
    assert set(NUMBER.findall(text)) <= known


def test_no_facts_is_said() -> None:
    assert "no facts" in template(())
    assert "no facts" in template((), "how hot is it?")


def test_contradicting_facts_are_both_told_with_their_sources() -> None:
    fact = next(f for f in CPU_FACTS if f.name == "cpu.util")
    other = msgspec.structs.replace(fact, said="12 %", text="CPU utilisation: 12 %", source="somewhere else")
    text = template((*CPU_FACTS, other))
    assert "The sources disagree" in text
    assert "37 %" in text
    assert "12 % (somewhere else)" in text


def test_a_brief_tells_every_job_with_what_matters_about_it_and_every_device() -> None:
    text = template(CPU_FACTS)
    for words in (
        "1 failed",
        "**Job 9** (train_big): queued for 1 min 40 s; the CPU is held by job 8",
        "**Job 8** (attention): running for 10 s on CPU; 30 %, about 23 s left",
        "**Job 7** (attention): done after 50 s on CPU; pass; backend efficient: 0.0873 TFLOP/s, 12.3 ms median",
        "**Job 6** (bad.py): failed after 1.0 s; it exited with status 3",
        "**Job 4** (adrift): lost after 1 min 10 s; its runner was killed",
        "CPU: no NVIDIA GPU found",
        "| Utilisation | 37 % | 46 % | 90 % |",
        "N/A: Temperature: no sensor.",
    ):
        assert words in text


def test_a_brief_of_one_job_tells_its_result() -> None:
    text = template(gather(snapshot(CPU_STATE), (DONE,), HISTORY, NOW - 80, NOW - 30))
    for words in (
        "Verdict: pass",
        "Backend: efficient",
        "chosen by auto",
        "Rate: 0.0873 TFLOP/s",
        "P95 of one call: 13.9 ms",
        "within the bound",
    ):
        assert words in text


def test_replayed_devices_are_never_called_anything_but_replay() -> None:
    for text in (template(REPLAY_FACTS), template(REPLAY_FACTS, "how hot is it?")):
        assert "REPLAY GPU 0" in text
        assert re.search(r"(?<!REPLAY )GPU \d", text) is None


@pytest.mark.parametrize(
    ("question", "words", "absent"),
    [
        ("how hot is it?", ["temperature N/A (no sensor)"], ["Job", "power"]),
        ("did anything fail?", ["Job 6", "Job 4", "its runner was killed"], ["Job 7", "CPU utilisation"]),
        ("what is waiting?", ["Job 9", "held by job 8"], ["Job 7"]),
        ("is the device idle?", ["busy: job 8 runs", "python3"], ["Job 7"]),
        ("how did job 7 go?", ["Verdict: pass"], ["Job 6"]),
        ("how is #77?", ["I know of no job 77"], ["Job 7:"]),
        ("how much memory is used?", ["now 3.0 GiB", "of 16.0 GiB"], ["Job"]),
    ],
)
def test_an_answer_tells_what_was_asked_and_little_else(question, words, absent) -> None:
    text = template(CPU_FACTS, question)
    for word in words:
        assert word in text
    for word in absent:
        assert word not in text


def test_a_question_about_one_gpu_is_answered_about_that_one() -> None:
    text = template(REPLAY_FACTS, "temperature of gpu 1")
    assert "REPLAY GPU 1" in text
    assert "72 °C" in text
    assert "GPU 0" not in text
    assert "no such device" in template(REPLAY_FACTS, "temperature of gpu 5")


def test_what_it_does_not_understand_it_says_and_tells_what_there_is() -> None:
    text = template(CPU_FACTS, "sing me a song")
    assert text.startswith("I did not find out what this asks about")
    assert "## What happened" in text


def test_eight_gpus_make_one_table() -> None:
    facts = gather(snapshot(*(replayed(i) for i in range(8)), jobs=()), (), {}, NOW - 600, NOW)
    assert template(facts).count("|---") == 6
    assert "| REPLAY GPU 7 |" in template(facts)
