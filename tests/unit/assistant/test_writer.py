"""A model's text is shown only if it holds; otherwise the template's is, with the reason."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from examples import CPU_FACTS, CPU_STATE, DONE, HISTORY, NOW, REPLAY_FACTS, snapshot

from gpudeck.assistant.facts import Fact, gather
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.writing.verify import Refused, fill, verify
from gpudeck.assistant.writing.writer import write

ONE = gather(snapshot(CPU_STATE), (DONE,), HISTORY, NOW - 80, NOW - 30)
GOOD = (
    "Job {job7.name} is {job7.state}: {job7.verdict}. The backend {job7.backend} reached "
    "{job7.tflops}."
)


@pytest.mark.parametrize(
    "text",
    [
        "Job 7 is done after 50 s on CPU. The backend efficient reached 0.0873 TFLOP/s.",
        "The CPU is at 37 %, the highest was 90 %.",
        "Job 6 failed: it exited with status 3.",
        "The CPU is busy. Job 9 is queued, as the CPU is held by job 8.",
        "Its temperature is N/A (no sensor).",
        "Job 7 passed. It ran for 50 s on CPU.",
        "Job 7 (attention) is done, and job 9 (`train_big`) is queued.",
        "Job 7 (on the CPU) is done.",
        "Job 7 (which passed) ran for 50 s; job 9 (currently queued) waits.",
        "1 of 3 jobs failed.",
        "Job 4 died: its runner was killed.",
        "Job 4 was lost: its runner was killed.",
        "Job 5 was canceled; it was stopped.",
        "Job 9 has not started; it is queued.",
        "Job 9 is queued, as the CPU is held by job 8.",
        "The memory in use on average was 1.0 GiB. Its peak was 1.0 GiB.",
        "The CPU was at 46 % on average, and never above 90 %.",
        "No such job is known here, and there is no data on that.",
        "3 jobs ran, of which 1 failed and 1 got lost. 1 job is queued.",
        "Job 7 made 320 calls.",
        "Jobs that ran: 3, failed: 1. The **3** jobs that ran are there.",
    ],
)
def test_a_text_of_facts_is_accepted(text) -> None:
    verify(text, CPU_FACTS)


@pytest.mark.parametrize(
    "text",
    [
        "The CPU is at 38 %.",
        "The CPU is at 37 °C.",
        "The CPU is at 37.",
        "It reached 0.0873 GFLOP/s.",
        "It reached 87.3 TFLOP/s.",
        "Job 70 is done.",
        "GPU 7 is idle.",
        "Alice ran it.",
        "It ran on an H100.",
        "It wrote /etc/passwd.",
        "The backend was flash.",
        "Job 7 failed.",
        "Job 6 is done.",
        "Seven jobs ran.",
        "It used half of the memory.",
        "The CPU is at ３７ %.",
        "It is 10² slower.",
        "\x1b[2Jfine",
        "What\ufffd",
        "Job 7 took 1.0 s.",
        "Job 7 is done. It took 1.0 s.",
        "Job 7 is done. The CPU is busy for 50 s.",
        "Job 6 passed.",
        "The CPU is at -37 %.",
        "The CPU is at −37 %.",
        "The CPU is at − 37 %.",
        "The CPU is at –37 %.",
        "The CPU is busy (-37 %).",
        "-37 % is the CPU's utilisation.",
        "The CPU is at **-37 %**.",
        "The CPU is at minus 37 %.",
        "Job -7 is done.",
        "Job 7 (finetune) is done.",
        "Job 7 (train_big) and job 9 (train_big) are there.",
        "**Job 7** (finetune) is done.",
        "The job was run by alice.",
        "It ran on node-a.",
        "It ran on `node-a`.",
        "Job 9 was killed.",
        "Job 9 is stuck.",
        "Job 7 was aborted.",
        "Job 7 was stopped.",
        "The CPU is throttling.",
        "The CPU is overheating.",
        "The CPU is broken.",
        "Job 7 is not done.",
        "Job 7 isn't done.",
        "Job 7 isn’t yet done.",
        "Job 7 is not completely done.",
        "Job 7 is hardly done.",
        "Job 7 has yet to be done.",
        "Nothing is done.",
        "Job 5 was never cancelled.",
        "Job 8 is no longer running.",
        "The lowest was 90 %.",
        "Job 9 is at its highest.",
        "Job 8 was at 30 % on average.",
        "There are 3 jobs failed.",
        "Of them 3 have failed.",
        "Job 7 ran 7 times.",
        "Job 6 ran 3 times.",
        "",
        " \n ",
        "The CPU is at its limit of 90 %.",
        "Job 8 has about 10 s left and has run for 23 s.",
    ],
)
def test_a_made_up_number_unit_name_or_claim_is_refused(text) -> None:
    with pytest.raises(Refused):
        verify(text, CPU_FACTS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The CPU is at 38 %.", "it says '38 %', which no fact says there"),
        ("The CPU is overheating.", "it says 'overheating', which cannot be checked"),
        ("Job 7 failed.", "it says 'failed', which no fact says"),
        ("Job 70 is done.", "it names 'job 70', which is in none of the facts"),
        ("Job 9 waits because it is hot.", "it gives a reason that no fact gives"),
        ("There are 3 jobs failed.", "it says '3 … failed', which no fact says"),
        ("Job 7 took longer.", "it says 'longer', but not clearly of what"),
        ("\x1b[2Jfine", "it has a character that no fact has: U+001B"),
        ("", "it is empty"),
    ],
)
def test_a_refusal_gives_its_reason(text, reason) -> None:
    with pytest.raises(Refused) as caught:
        verify(text, CPU_FACTS)
    assert reason in str(caught.value)


def test_a_replayed_gpu_must_be_called_replay_and_have_its_own_numbers() -> None:
    verify("REPLAY GPU 1 temperature is 72 °C.", REPLAY_FACTS)
    with pytest.raises(Refused):
        verify("GPU 1 temperature is 72 °C.", REPLAY_FACTS)
    with pytest.raises(Refused):
        verify("REPLAY GPU 1 temperature is 71 °C.", REPLAY_FACTS)


def test_a_minus_belongs_to_its_number_in_facts_too_but_not_a_hyphen() -> None:
    facts = [
        Fact("cpu.temp", -5, "°C", "-5 °C", "CPU readings", NOW, "CPU temperature: -5 °C"),
        Fact("job3.name", "run-7", "", "run-7", "queue", NOW, "Job 3 name: run-7"),
        Fact("job3.inputs", "", "", "slots 3-5", "queue", NOW, "Job 3 inputs: slots 3-5"),
    ]
    for right in ("-5 °C", "−5 °C", "–5 °C"):
        verify(f"The CPU is at {right}.", facts)
    verify("Job 3 (run-7) has the inputs slots 3-5.", facts)
    for wrong in ("The CPU is at 5 °C.", "The CPU is at 3-5 °C.", "Job 3 has the inputs slots -5."):
        with pytest.raises(Refused):
            verify(wrong, facts)


def test_denials_and_superlatives_need_a_fact() -> None:
    facts = [
        Fact(
            "job3.reason",
            "x",
            "",
            "the queue is not paused",
            "queue",
            NOW,
            "Job 3 reason: the queue is not paused",
        ),
        Fact("cpu.temp.min", 5, "°C", "5 °C", "CPU readings", NOW, "CPU lowest temperature: 5 °C"),
    ]
    verify("Job 3: the queue is not paused. The lowest on CPU was 5 °C.", facts)
    with pytest.raises(Refused, match="'lowest'"):
        verify("Job 3 had the lowest.", facts)


def test_required_facts_must_be_mentioned() -> None:
    with pytest.raises(Refused, match="does not mention: Job 7 verdict: pass"):
        verify(
            "Job 7 is done.",
            ONE,
            [fact for fact in ONE if fact.name in ("job7.state", "job7.verdict")],
        )


def test_slots_become_facts_and_unknown_slots_are_refused() -> None:
    assert fill("at {cpu.util} now", CPU_FACTS) == "at 37 % now"
    with pytest.raises(Refused, match=r"gpu0\.temp"):
        fill("{gpu0.temp}", CPU_FACTS)


class Spot(NamedTuple):
    text: str
    ended: bool = False


class Scripted:
    """Act as an author with prepared texts: the greedy one, then another for each seed."""

    name = "small"

    def __init__(self, *texts: str | Exception) -> None:
        self.texts, self.tried, self.prompt, self.seen, self.written = texts, [], "", [], 0

    def begin(self, system: str, user: str) -> Spot:
        self.prompt = user
        return Spot("")

    def preference(self, after: Spot, question: str, answers: tuple[str, str]) -> float | None:
        return None

    def write(self, after: Spot, seed: int):
        self.tried.append(seed)
        self.seen.append(after.text)
        text = self.texts[min(seed, len(self.texts) - 1)]
        if isinstance(text, Exception):
            raise text
        for end in range(len(after.text) + 1, len(text) + 1):
            self.written = max(self.written, end)
            yield Spot(text[:end])
        yield Spot(text if len(text) > len(after.text) else after.text, ended=True)


def test_a_text_that_holds_is_shown_after_any_number_of_attempts() -> None:
    author = Scripted("Job 7 took 99 s.", GOOD)
    text, writer, _ = write(ONE, author)
    assert (text, writer) == (
        "Job attention is done: pass. The backend efficient reached 0.0873 TFLOP/s.",
        "model small",
    )
    assert author.tried[:2] == [0, 1]
    assert "{job7.tflops} = " in author.prompt


def test_after_a_bad_sentence_the_text_continues_from_the_last_good_one() -> None:
    first, second = (
        "Job {job7.name} is {job7.state}: {job7.verdict}.",
        " The backend {job7.backend} reached {job7.tflops}.",
    )
    author = Scripted(
        first + second + " It took 99 s.", first + second + " It ran for {job7.duration}."
    )
    text, writer, _ = write(ONE, author)
    assert writer == "model small"
    assert text.endswith("It ran for 50 s.")
    assert author.seen[:4] == ["", first, first + second, first + second]


def test_after_the_last_refusal_the_template_writes_and_says_why() -> None:
    author = Scripted("Job 7 took 99 s.")
    text, writer, _ = write(ONE, author)
    assert writer == "template"
    assert author.tried == [0, 1, 2, 3, 4]
    assert "Job 7 took" not in text
    assert (
        "Written from the template: the text of the model small was refused: it says '99 s'" in text
    )
    assert "Job 7 (attention) passed" in text


def test_a_text_is_given_up_at_a_bad_or_endless_sentence() -> None:
    early = Scripted("Job 7 took 99 s. " + "The rest is long. " * 40)
    assert write(ONE, early).writer == "template"
    assert early.written < 30
    endless = Scripted("on and " * 4000)
    assert "longer than" in write(ONE, endless).text
    assert endless.written < 500


def test_a_brief_that_leaves_the_result_out_is_refused() -> None:
    assert write(ONE, Scripted("Job 7 is done.")).writer == "template"


def test_a_model_with_infinite_output_is_not_tried_again() -> None:
    author = Scripted(ValueError("the model's output is not finite"))
    text, writer, _ = write(ONE, author)
    assert writer == "template"
    assert "not finite" in text
    assert author.tried == [0]


def test_a_cancelled_author_ends_the_request() -> None:
    with pytest.raises(Cancelled):
        write(ONE, Scripted(Cancelled()))


def test_a_mean_or_a_highest_value_names_its_span_whoever_writes(monkeypatch) -> None:
    monkeypatch.setattr("gpudeck.assistant.writing.writer.required_facts", lambda facts: [])
    when = next(fact.said for fact in CPU_FACTS if fact.name == "span.when")
    for text in ("The CPU had a mean utilisation of {cpu.util.mean}.", "The CPU is at {cpu.util}."):
        shown = write(CPU_FACTS, Scripted(text)).text
        assert shown.count(when) == ("mean" in text), shown
    assert len(re.findall(when, write(CPU_FACTS).text, re.IGNORECASE)) == 1


def test_without_a_model_the_template_gives_no_reason() -> None:
    text, writer, _ = write(ONE)
    assert writer == "template"
    assert "Written from the template" not in text
