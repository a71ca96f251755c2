"""The checker judges sentences that were written before it, by their meaning.

`data/sentences.jsonl` holds 200 true and 200 false sentences about twelve situations, written by
the checker's author. `data/second_sentences.jsonl` holds 100 of each by somebody who had read the
facts and not the checker, `data/third_sentences.jsonl` 102 false and 88 true ones by another. All
were held out until 2026-11-23. `data/fourth_sentences.jsonl` and `data/fifth_sentences.jsonl` hold
100 of each, written from the facts before their author read the checker; those that are marked
`held_out` were counted before anybody looked at them. `data/sixth_sentences.jsonl` holds 41 true
and 14 false ones, written with the checker in view and counted before they changed it. Since then
the checker has been changed by the classes of errors of all of them, so what it makes of them is
no figure of what it does with others. For that, somebody writes a new file, and this judges it:

    python -m tests.sentences FILE [-v]

FILE holds JSON, one object a line, as the two files above: the name of a situation, a sentence, and
whether it is true of the facts of this situation (`held_out` is not read).

    {"situation": "one_done", "sentence": "GPU 0 is idle.", "true": true}

`python -m tests.sentences --facts` lists the situations, `python -m tests.sentences --facts
one_done` prints all facts of one; a sentence is true if these facts say so. FILE may bring
situations of its own, in a line before their sentences: {"situation": NAME, "facts": [{"name":
"gpu0.temp", "value": 71, "unit": "°C", "said": "71 °C", "text": "GPU 0 temperature: 71 °C"}, ...]}.
Printed is how many true and false sentences passed and were refused; with -v which were misjudged.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from situations import SITUATIONS

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.facts.fact import FactBuilder
from gpudeck.assistant.writing.verify import Refused, verify
from tests.sentences import judge

DATA = Path(__file__).parent / "data"


class Sentence(NamedTuple):
    """Hold a sentence that a person wrote, and whether it is true."""

    situation: str
    text: str
    true: bool
    held_out: bool


def sentences(file: str) -> tuple[Sentence, ...]:
    rows = map(json.loads, (DATA / file).read_text(encoding="utf-8").splitlines())
    return tuple(
        Sentence(row["situation"], row["sentence"], row["true"], row["held_out"]) for row in rows
    )


SENTENCES, SECOND = sentences("sentences.jsonl"), sentences("second_sentences.jsonl")


@pytest.fixture
def situations(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[Fact, ...]]]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield {name: make() for name, make in SITUATIONS.items()}
    monkeypatch.undo()
    time.tzset()


def accepted(text: str, facts: tuple[Fact, ...]) -> bool:
    try:
        verify(text, facts)
    except Refused:
        return False
    return True


def misjudged(situations: dict[str, tuple[Fact, ...]], true: bool, held_out: bool) -> list[str]:
    found = [s for s in SENTENCES if (s.true, s.held_out) == (true, held_out)]
    assert len(found) == 100
    return [s.text for s in found if accepted(s.text, situations[s.situation]) is not true]


def test_false_sentences_are_refused(situations) -> None:
    passed = [misjudged(situations, False, held_out) for held_out in (False, True)]
    print(f"false sentences that pass: {len(passed[0])}, held out: {len(passed[1])}")
    assert len(passed[0] + passed[1]) <= 4, passed


def test_true_sentences_are_accepted(situations) -> None:
    refused = [misjudged(situations, True, held_out) for held_out in (False, True)]
    print(f"true sentences that are refused: {len(refused[0])}, held out: {len(refused[1])}")
    assert len(refused[0] + refused[1]) <= 10, refused


def test_sentences_of_a_second_author_are_misjudged_no_more_often_than_is_known(situations) -> None:
    """The aim, 5 true ones that are refused, is missed (tests/benchmarks/LOG.md)."""
    wrong = [s for s in SECOND if accepted(s.text, situations[s.situation]) is not s.true]
    counts = Counter(s.true for s in wrong)
    print(f"second author: {counts}")
    assert counts[False] == 0, wrong
    assert counts[True] <= 8, wrong


@pytest.mark.parametrize(
    ("file", "passed", "refused"),
    [("third", 0, 2), ("fourth", 0, 3), ("fifth", 0, 4), ("sixth", 0, 3)],
)
def test_sentences_of_later_sets_are_misjudged_no_more_often_than_is_known(
    file: str, passed: int, refused: int
) -> None:
    """The log says how many were misjudged before anybody had looked at them."""
    wrong = [one for one in judge(DATA / f"{file}_sentences.jsonl") if not one.right]
    counts = Counter(one.true for one in wrong)
    print(f"{file} set: {counts}")
    assert counts[False] <= passed, wrong
    assert counts[True] <= refused, wrong


def test_a_file_of_sentences_is_judged_with_situations_of_its_own(tmp_path: Path) -> None:
    facts = [
        {"name": "gpu0.label", "value": "GPU 0", "said": "GPU 0", "text": "GPU 0 called: GPU 0"},
        {"name": "gpu0.temp", "value": 71, "unit": "°C", "said": "71 °C",
         "text": "GPU 0 temperature: 71 °C"},
    ]  # fmt: skip
    rows: list[dict[str, object]] = [
        {"situation": "mine", "facts": facts},
        {"situation": "mine", "sentence": "GPU 0 is at 71 °C.", "true": True},
        {"situation": "mine", "sentence": "GPU 0 is at 72 °C.", "true": False},
        {"situation": "one_done", "sentence": "GPU 0 is idle.", "true": True},
        {"situation": "one_done", "sentence": "GPU 0 is idle.", "true": False},
    ]
    file = tmp_path / "new.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    assert [(one.true, one.right) for one in judge(file)] == [
        (True, True), (False, True), (True, True), (False, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("situation", "right", "wrong"),
    [
        ("one_busy", "Job 8 has 9.9 s left and has run for 23 s.",
         "Job 8 has 23 s left and has run for 9.9 s."),
        ("eight", "GPU 0 is at 74 °C and GPU 1 at 81 °C.",
         "GPU 0 is at 81 °C and GPU 1 at 74 °C."),
        ("eight", "GPU 1 is 7 °C hotter than GPU 0.", "GPU 1 is 9 °C hotter than GPU 0."),
        ("eight", "Two alerts were raised.", "No alerts were raised."),
        ("eight", "GPU 0 and GPU 1 are both held by job 43.",
         "GPU 0 and GPU 2 are both held by job 43."),
        ("two_gpus", "GPU 1 had a mean of 54 % utilisation.",
         "GPU 1 had a mean of 77 % utilisation."),
        ("failures", "Not all jobs succeeded.", "All jobs but one succeeded."),
        ("failures", "Job 62 was lost because its runner was killed.",
         "Job 62 was lost because it exited with status 2."),
        ("empty", "The queue is empty.", "The queue is paused."),
        ("one_busy", "Job 9 waits because GPU 0 is held by job 8.",
         "Job 9 waits because GPU 0 is held by job 6."),
        ("paused", "GPU 0 is idle.", "GPU 0 is heating up."),
        ("hot", "GPU 0 has 2.8 GiB of memory free.", "GPU 0 uses 2.8 GiB of memory."),
        ("one_busy", "GPU 0 memory used: 52.4 GiB.", "GPU 0 memory used: 641 W."),
        ("gaps", "GPU 0 mean power: N/A (nothing was read in this time).",
         "GPU 0 mean power: 44 °C."),
        ("gaps", "GPU 0 mean memory used: N/A (nothing was read in this time).",
         "GPU 0 mean memory used: 2.0 GiB."),
        ("two_gpus", "Of Job 5 there is 35 %.", "Of Job 5 there is 77 %."),
        ("one_busy", "Of Job 8 there is NVIDIA H100 80GB HBM3.",
         "Of Job 6 there is NVIDIA H100 80GB HBM3."),
        ("two_gpus", "GPU 1 runs a job.", "GPU 0 runs a job."),
        ("two_gpus", "GPU 0 runs no job.", "GPU 1 runs no job."),
        ("eight", "Job 45 is before job 44.", "Job 44 is before job 45."),
        ("one_busy", "Job 9 is waiting behind job 8.", "Job 8 is waiting behind job 9."),
        ("empty", "There is nothing in the queue.", "There is something in the queue: job 7."),
        ("eight", "Job 42 will be finished in 53 s.", "Job 40 will be finished."),
        ("one_busy", "GPU 0 is working on job 8.", "GPU 0 is working on job 9, called eval.py."),
        ("one_busy", "prep exited with status 3.", "prep ran out of memory."),
        ("eight", "GPU 5 draws 72 W.", "GPU 5 draws no power."),
        ("eight", "Job 45 waits for 4 GPUs while only 3 are free.",
         "Job 45 waits for 3 GPUs while only 4 are free."),
        ("eight", "GPU 1 is hotter than all other GPUs.", "GPU 3 is hotter than all other GPUs."),
        ("paused", "Neither GPU is warmer than 32 °C.", "Neither GPU is cooler than 32 °C."),
        ("two_gpus", "GPU 1 used 219 Wh, 74 Wh more than GPU 0.",
         "GPU 1 used 219 Wh, 72 Wh more than GPU 0."),
        ("one_done", "Job 12 needed 60 s.", "Job 12 needed 61 s."),
        ("one_done", "GPU 0 never drew more than 668 W.", "GPU 0 never drew more than 600 W."),
        ("one_done", "GPU 0 is cooler than its mean of 43 °C.",
         "GPU 0 is hotter than its mean of 43 °C."),
        ("eight", "GPU 3 drew the most power, 690 W.", "GPU 3 drew the most power, 704 W."),
        ("failures", "blender uses 23.1 GiB on GPU 0.", "blender uses 24.0 GiB on GPU 0."),
        ("hot", "Both renders are done.", "Both renders failed."),
        ("failures", "sweep_4 took half a minute.", "sweep_4 took a minute and a half."),
        ("failures", "sweep_3 failed within a second.", "sweep_4 failed within a second."),
        ("eight", "Job 45 has waited for a quarter of an hour.",
         "Job 45 has waited for three quarters of an hour."),
        ("eight", "Job 42 has less than a minute left.",
         "Job 42 has less than half a minute left."),
        ("failures", "GPU 0 is at 48 % now, less than its ten-minute mean of 66 %.",
         "GPU 0 is at 48 % now, less than its five-minute mean of 66 %."),
        ("failures", "GPU 0 is at 59 °C, 7 °C below its peak.",
         "GPU 0 is at 59 °C, 7 °C below its mean."),
        ("two_gpus", "GPU 0 is cooler by 15 °C.", "GPU 1 is cooler by 15 °C."),
        ("two_gpus", "Together the GPUs used 364 Wh.", "Together the GPUs used 365 Wh."),
        ("two_gpus", "Both GPUs together use 53.0 GiB.", "Both GPUs together use 52.0 GiB."),
        ("eight", "The too-hot alert on GPU 1 was raised at 02:02:40.",
         "The too-hot alert on GPU 0 was raised at 02:02:40."),
        ("one_busy", "Job 8 should finish in about 10 seconds.", "Job 9 will start in 10 minutes."),
        ("eight", "GPU 0 and GPU 1 were busy.", "GPU 0 and GPU 5 were busy."),
        ("eight", "GPU 0 is at 74 °C.", "GPU 0 and GPU 1 are at 74 °C."),
        ("eight", "Five GPUs are not idle.", "Three GPUs are not idle."),
        ("eight", "Job 42 will be finished in about a minute.",
         "Job 42 will be finished in about an hour."),
        ("eight", "Job 43 needs roughly another hour and a half.",
         "Job 43 needs roughly another half hour."),
        ("one_busy", "eval.py has been waiting for over two minutes.",
         "eval.py has been waiting for over three minutes."),
        ("failures", "Job 62 ran for just over three minutes.",
         "Job 62 ran for a little less than three minutes."),
        ("night", "GPU 0 has been idle for nearly an hour.",
         "GPU 0 has been idle for nearly two hours."),
        ("two_gpus", "Job 5 should be finished by 02:39.", "Job 5 should be finished by 02:29."),
        ("failures", "Job 64 failed a minute ago.", "Job 64 failed five minutes ago."),
        ("failures", "Job 63 ended 11 s after job 62.", "Job 63 ended 15 s after job 62."),
        ("two_gpus", "Neither GPU is above 70 °C.", "Neither GPU is above 60 °C."),
        ("two_gpus", "GPU 0 stayed below 60 °C.", "GPU 0 stayed below 55 °C."),
        ("eight", "Two alerts were raised.", "No 2 alerts were raised."),
        ("eight", "None of the 3 idle GPUs is hot.", "None of the 3 busy GPUs is hot."),
        ("failures", "Only one of the four jobs that ran succeeded.",
         "Only one of the three jobs that ran succeeded."),
        ("eight", "One of the two alerts is still active.",
         "None of the two alerts is still active."),
        ("eight", "Not one but two alerts were raised.", "Not two but three alerts were raised."),
        ("gaps", "One job is starting on GPU 0.", "One job is starting on GPU 1."),
        ("one_busy", "Job 9 waits because job 8 holds GPU 0.",
         "Job 9 waits because job 6 holds GPU 0."),
        ("one_busy", "Since job 8 is still running, job 9 has to wait.",
         "Since job 6 failed, job 9 has to wait."),
        ("one_busy", "Job 8 holds GPU 0, so job 9 has to wait.",
         "Job 6 failed, so job 9 has to wait."),
        ("eight", "Only three GPUs are free, so job 45 has to wait.",
         "Only four GPUs are free, so job 45 has to wait."),
        ("eight", "Since CUDA ran out of memory, job 40 failed.",
         "Since job 40 failed, job 44 cannot start."),
        ("four", "Job 213 can't start until job 210 is finished.",
         "Job 213 can't start until job 214 is finished."),
        ("two_results", "The check of job 22 passed, since its error is below the 0.001 allowed.",
         "The check of job 23 passed, since its error is below the 0.001 allowed."),
        ("hot", "Job 76 ended before job 77.", "Job 76 ended after job 77."),
        ("failures", "sweep_4 was the last job to fail.", "sweep_3 was the last job to fail."),
        ("failures", "Job 64 ran for 30 s before it failed.",
         "Job 64 ran for 30 s after it failed."),
        ("eight", "The five busy GPUs are held by jobs 41, 42 and 43.",
         "The five busy GPUs are held by jobs 42 and 43."),
        ("eight", "The three free GPUs are GPU 5, GPU 6 and GPU 7.",
         "The three free GPUs are GPU 4, GPU 5 and GPU 6."),
        ("eight", "Three GPUs are idle: GPU 5, GPU 6 and GPU 7.",
         "Three GPUs are idle: GPU 5 and GPU 6."),
        ("eight", "GPUs 0 and 1 are at 74 °C and 81 °C.", "GPUs 0 and 1 are at 81 °C and 74 °C."),
        ("eight", "GPU 1 is the only GPU above 80 °C.", "GPU 1 is the only GPU above 70 °C."),
        ("eight", "88 % of the memory of GPU 0 is used.", "88 % of the memory of GPU 1 is used."),
        ("one_busy", "About a third of the memory is free.", "About two thirds are free."),
        ("hot", "GPU 0 is hot.", "GPU 0 is cool."),
        ("four", "Job 214 needs two GPUs.", "Job 214 needs four GPUs."),
        ("eight", "Three GPUs are idle: GPU 7, GPU 6 and GPU 5.",
         "Three GPUs are idle: GPU 4, GPU 5 and GPU 6."),
        ("eight", "GPUs 5, 6 and 7 have been idle for more than 24 minutes.",
         "GPUs 5, 6 and 7 have been idle for more than 26 minutes."),
        ("eight", "No more than three GPUs are idle.", "No more than two GPUs are idle."),
        ("eight", "The two hottest GPUs are at 81 °C and 74 °C.",
         "The two hottest GPUs are at 74 °C and 81 °C."),
        ("failures", "Job 64 obviously failed.", "Job 64 repeatedly failed."),
        ("eight", "Not 2 but 3 jobs are running.", "Not 3 but 3 jobs are running."),
        ("failures", "Job 62 did not run for more than four minutes.",
         "Job 62 did not run for more than three minutes."),
        ("eight", "GPU 0 is in use.", "GPU 5 is used."),
        ("eight", "Most of the GPUs are busy.", "Most of the GPUs are idle."),
        ("eight", "The first alert was about GPU 1.", "The last alert was about GPU 1."),
        ("eight", "Job 42 is almost done.", "Job 43 is almost done."),
        ("two_gpus", "The memory of GPU 0 has been constant at 9.0 GiB.",
         "The memory of GPU 1 has been constant at 44.0 GiB."),
        ("hot", "The throttling alert lasted nine minutes.",
         "The throttling alert lasted an hour."),
        ("eight", "Alert 3 was about GPU 1.", "Alert 3 was about GPU 0."),
        ("two_gpus", "Xorg (pid 700) runs on GPU 0.", "Xorg (pid 700) runs on GPU 1."),
        ("one_done", "GPU 0 was never hotter than 66 °C.", "GPU 0 was never hotter than 60 °C."),
        ("eight", "No GPU is hotter than GPU 1.", "No GPU is hotter than GPU 0."),
        ("gaps", "The power of GPU 0 is unknown.", "The power of GPU 0 is not unknown."),
        ("one_busy", "Job 9 waits until job 8 is finished.",
         "Job 9 waits until job 9 is finished."),
        ("paused", "No job is running because the queue is paused.",
         "No job is running because GPU 0 is idle."),
        ("one_busy", "GPU 0 is busy because job 8 runs on it.",
         "GPU 0 is busy because job 9 waits for it."),
        ("one_done", "GPU 0 never went above its limit of 700 W.",
         "GPU 0 never went below its limit of 700 W."),
        ("eight", "With 3 free GPUs, job 45 cannot start.",
         "With 4 free GPUs, job 45 cannot start."),
        ("four", "GPU 3 is idle, the other GPUs are in use.",
         "GPU 2 is idle, the other GPUs are in use."),
        ("four", "Job 211 used GPU 3.", "Job 211 used GPU 2."),
        ("two_gpus", "The memory of GPU 1 is a bit more than half full.",
         "The memory of GPU 0 is a bit more than half full."),
        ("eight", "GPU 0 stayed below its power limit.", "GPU 3 stayed below its power limit."),
        ("eight", "GPU 7 has been idle longer than GPU 5.",
         "GPU 5 has been idle longer than GPU 7."),
        ("one_done", "GPU 0 is cooler than its mean of 43 °C.",
         "GPU 0 is cooler than its mean of 50 °C."),
        ("paused", "GPU 0 is idle although jobs are waiting.",
         "GPU 0 is idle although jobs are running."),
        ("one_done", "GPU 0 was busy 28 % of the time on average.",
         "GPU 0 was busy 99 % of the time on average."),
        ("eight", "Two alerts were raised, one about GPU 1 and one about GPU 0.",
         "Two alerts were raised, one about GPU 2 and one about GPU 0."),
        ("two_gpus", "Together both GPUs used 364 Wh in half an hour.",
         "Together both GPUs used 264 Wh in half an hour."),
        ("eight", "GPU 3 is 10 W under its power limit.", "GPU 3 is 20 W under its power limit."),
        ("eight", "GPU 3 power limit: 700 W.", "GPU 3 power limit: 99 %."),
        ("eight", "GPU 3 power: 690 W.", "GPU 3 power limit: 690 W."),
        ("two_gpus", "Xorg takes 307 MiB on GPU 0.", "Xorg takes 9.0 GiB on GPU 0."),
    ],
)  # fmt: skip
def test_a_value_or_claim_is_bound_to_its_owner_and_field(
    situations, situation, right, wrong
) -> None:
    assert accepted(right, situations[situation])
    assert not accepted(wrong, situations[situation])


def test_a_slot_is_bound_to_its_own_fact_and_cannot_be_used_for_another(situations) -> None:
    facts = situations["two_gpus"]
    verify("{gpu0.label} is at {gpu0.temp} and {gpu1.label} at {gpu1.temp}.", facts)
    for wrong in (
        "{gpu0.label} is at {gpu1.temp}.",
        "The power of {gpu0.label} is {gpu0.temp}.",
        "{gpu0.label} has {gpu0.mem_used} of memory free.",
        "The mean temperature of {gpu0.label} was {gpu0.temp}.",
        "{job5.called} is {job5.state}: {gpu1.temp}.",
    ):
        with pytest.raises(Refused):
            verify(wrong, facts)


def gpus(*temperatures: float) -> tuple[Fact, ...]:
    """Return the facts of GPUs that have these temperatures."""
    found: list[Fact] = []
    for number, temp in enumerate(temperatures):
        of = FactBuilder(f"gpu{number}", f"GPU {number}", "a test", 0.0)
        of.value("label", "called", f"GPU {number}", "", f"GPU {number}")
        of.value("temp", "temperature", temp, "°C", f"{temp:g} °C")
        found += of.facts
    return tuple(found)


def test_gpus_from_one_number_to_another_are_all_of_them() -> None:
    facts = gpus(71.0, 60.0, 60.0, 60.0, 71.0)
    assert accepted("GPUs 1 to 3 are at 60 °C.", facts)
    assert not accepted("GPUs 0 to 3 are at 60 °C.", facts)
    assert not accepted("GPUs 1 to 4 are at 60 °C.", facts)
    between = gpus(60.0, 71.0, 60.0)
    assert not accepted("GPUs 0 to 2 are at 60 °C.", between)


def test_what_is_compared_is_what_the_sentence_names() -> None:
    facts = gpus(71.0, 60.0, 80.0)
    assert accepted("GPU 0 is hotter than GPU 1.", facts)
    assert not accepted("GPU 0 is hotter than GPU 2.", facts)
    assert not accepted("GPU 1 is hotter than GPU 0.", facts)
    assert accepted("GPU 0 is hotter than GPU 1: 71 °C against 60 °C.", facts)
    assert not accepted("GPU 0 is hotter than GPU 1: 60 °C against 71 °C.", facts)
    assert not accepted("GPU 0 is cooler than GPU 2: 71 °C against 60 °C.", facts)
    assert accepted("GPU 0 and GPU 1 are cooler than GPU 2.", facts)
    assert not accepted("GPU 0 and GPU 2 are hotter than GPU 1 and cooler than GPU 2.", facts)
    assert not accepted("GPU 1 and GPU 2 are cooler than GPU 0.", facts)
