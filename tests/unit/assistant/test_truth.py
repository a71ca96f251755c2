"""No writer invents a number: template, inventive writers, models and reports.

`make truth` checks 10,000 texts, 2,000 reports and the models; `make test` checks some hundred.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from examples import CPU_FACTS, NOW, REPLAY_FACTS
from truth import Count, invented, misplaced
from truth import texts as shown

from gpudeck.accel.rwkv.tokenizer import VOCABULARY
from gpudeck.assistant.engine.author import EngineAuthor
from gpudeck.assistant.engine.engine import Engine
from gpudeck.assistant.facts import Fact, gather, phrases
from gpudeck.assistant.reports.contents import compose
from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import markdown
from gpudeck.assistant.reports.material import Material
from gpudeck.assistant.reports.report import Chart, Prose, Report, Table
from gpudeck.assistant.workloads import random_machines
from gpudeck.assistant.writing.writer import write
from gpudeck.scheduler.protocol.jobs import Event, Usage
from gpudeck.scheduler.protocol.snapshot import Alert
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf


class Spot(NamedTuple):
    text: str
    ended: bool = False


class Inventor:
    """Write true sentences with slots, and false ones among them."""

    name = "inventor"

    def __init__(self, random: Random, facts: tuple[Fact, ...]) -> None:
        self.random, self.facts = random, facts

    def begin(self, system: str, user: str) -> Spot:
        return Spot("")

    def preference(self, after: Spot, question: str, answers: tuple[str, str]) -> float | None:
        return None

    def write(self, after: Spot, seed: int):
        more = self.lie(self.truth(first=not after.text))
        for end in range(7, len(more), 7):
            yield Spot(f"{after.text} {more[:end]}")
        yield Spot(f"{after.text} {more}", ended=self.random.random() < 0.7)
        yield Spot(f"{after.text} {more}", ended=True)

    def truth(self, first: bool) -> str:
        """State what is about no device or job first; otherwise it would be about the last one
        named.
        """
        values = [
            fact for fact in self.facts if fact.value is not None and (first or of(fact) != "Now")
        ]
        some = self.random.sample(values, min(3, len(values)))
        some.sort(key=lambda fact: of(fact) != "Now")
        told = [f"{fact.text.removesuffix(fact.said)}{{{fact.name}}}." for fact in some]
        return " ".join(told) or "There is nothing."

    def lie(self, text: str) -> str:
        slots = {fact.name: fact.said for fact in self.facts}
        filled = re.sub(r"\{([^}]*)\}", lambda slot: slots[slot[1]], text)
        digit = re.search(r"\d", filled)
        lies = (
            text,
            filled,
            filled.replace(digit[0], str((int(digit[0]) + 1) % 10), 1) if digit else "It is 5 °C.",
            filled.replace(" W", " kW").replace("°C", "W").replace(" ms", " s"),
            f"{text} It took {self.random.randint(2, 99)} s.",
            f"{self.random.randint(1, 9)} jobs ran. {text}",
            f"{text} {{gpu9.temp}} is high.",
            f"{text} It is {self.random.choice(('three', 'half', 'twice'))} as fast.",
            filled.replace(digit[0], f"-{digit[0]}", 1) if digit else "It is at -5 °C.",
            f"{text} {self.swapped()}",
            self.misnamed() or text,
        )
        return self.random.choice(lies)

    def misnamed(self) -> str:
        """Return a value under the name of another one."""
        known = [fact for fact in self.facts if isinstance(fact.value, float)]
        one, other = self.random.choice(known or [None]), self.random.choice(known or [None])
        return f"{one.text.removesuffix(one.said)}{other.said}." if one and other else ""

    def swapped(self) -> str:
        """Return a value that may belong to another subject."""
        owners = [named for fact in self.facts if (named := of(fact)) != "Now"]
        return (
            f"{self.random.choice(owners)} there is {self.random.choice(self.facts).said}."
            if owners
            else "There is nothing."
        )


def of(fact: Fact) -> str:
    """Return the beginning of a sentence: Of Job 7, Of REPLAY GPU 0, or Now for no
    device or job.
    """
    kind, number = re.fullmatch(r"([a-z]+)(\d*)", fact.subject).groups()
    called = {
        "gpu": f"GPU {number}",
        "replay": f"REPLAY GPU {number}",
        "cpu": "CPU",
        "job": f"Job {number}",
    }
    return f"Of {called[kind]}" if kind in called else "Now"


def inventor(random: Random, facts: tuple[Fact, ...]) -> Inventor | None:
    return Inventor(random, facts) if random.random() < 0.6 else None


@pytest.mark.parametrize("texts", [100, pytest.param(10_000, marks=pytest.mark.truth)])
def test_no_number_is_invented_whoever_writes(texts) -> None:
    count = Count(shown(texts, texts, inventor))
    assert count.by_model > 0.05 * count.shown, "what the inventor got right is shown"
    assert len(count.facts) == 5, "none, missing, contradicted, both, whole"
    assert count.found == []


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with random weights, whose tokens are bytes."""
    folder = write_hf(
        tmp_path_factory.mktemp("models") / "noise-7",
        to_hf(random_model(layers=1, channels=64, vocabulary=300)),
    )
    (folder / VOCABULARY).write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    return folder


@pytest.mark.parametrize("texts", [2, pytest.param(100, marks=pytest.mark.truth)])
def test_no_number_of_an_untrained_model_is_shown(noise: Path, texts: int) -> None:
    engine = Engine(str(noise), "cpu")
    count = Count(shown(texts, 3, lambda random, facts: EngineAuthor(engine, lambda: False)))
    engine.retire()
    assert (count.shown, count.found) == (texts, [])


def material(random: Random) -> Material:
    """Return a random machine as the material of a report on a job or a day."""
    snapshot, jobs, histories = random_machines.random_machine(random)
    jobs = tuple(msgspec.structs.replace(job, usage=usage(random)) for job in jobs)
    span = (random_machines.NOW - random_machines.SPAN, random_machines.NOW)
    if jobs and random.random() < 0.4:
        kind, jobs = "job", jobs[:1]
    else:
        kind = "daily"
    events = (
        Event(random_machines.NOW - 90, "submitted"),
        Event(random_machines.NOW - 80, "started", "attempt 1 on GPU 0, 20 GiB reserved"),
    )
    alerts = (
        Alert(
            random.randint(1, 99),
            "too hot",
            "g0",
            None,
            "GPU 0 is at 93 °C",
            random_machines.NOW - 60,
            random_machines.NOW - 50,
        ),
    )
    facts = gather(snapshot, jobs, histories, *span)
    return Material(
        kind,
        *span,
        snapshot,
        jobs,
        histories,
        alerts,
        events if kind == "job" else (),
        b"loss 0.3\n",
        facts,
    )


def usage(random: Random) -> Usage | None:
    absent = {
        field: "nobody told" for field in ("energy", "util", "memory") if random.random() < 0.3
    }
    known = Usage(
        random.uniform(0, 9e4),
        random.uniform(0, 8e10),
        random.uniform(0, 1e8),
        random.uniform(0, 100),
        absent,
    )
    return known if random.random() < 0.8 else None


def claims(report: Report) -> str:
    """Return what a report states, except foreign words and axis ends, below what it is about."""
    told = []
    for block in (block for section in report.sections for block in section.blocks):
        match block:
            case Prose(text):
                told += [f"# {report.title}", text]
            case Table():
                told += [
                    f"# {report.title}",
                    *(f"| {' | '.join(row)} |" for row in block.rows),
                    f"# {report.title}",
                    block.note,
                ]
            case Chart():
                told += [f"# {report.title}", block.title, block.note]
    return "\n".join(told)


@pytest.mark.parametrize("reports", [30, pytest.param(2_000, marks=pytest.mark.truth)])
def test_no_number_of_a_report_is_invented_and_every_page_of_it_can_be_made(reports) -> None:
    random, found = Random(reports), []
    for _ in range(reports):
        read = material(random)
        report = compose(read, write(read.facts))
        if lies := invented(
            claims(report), report.facts, phrases.stretch(report.since, report.until)
        ):
            found.append(f"{sorted(lies)} in {report.title}")
        assert "<!doctype html>" in html(report) and "## Sources" in markdown(report)
    assert found == []


def test_without_facts_every_writer_says_so() -> None:
    assert re.search(r"\bno\b", write(()).text, re.IGNORECASE)


@pytest.mark.parametrize(
    "text",
    [
        "The CPU is at 37 %, the highest was 90 %.",
        "Job 8 is 30 % through.",
        "Job 7 ran on CPU. It took 50 s.",
        "Job 7 took 50 s.\nThe median was 12.3 ms over 320 calls.",
        "3 jobs ran, of which 1 failed and 1 got lost.",
        "Jobs that ran: 3, of which failed: 1.",
        "Job 6 failed: it exited with status 3.",
        "**Jobs done:** job 7 (attention), 50 s.",
        "### Job 7: attention\nIt ran.\n| Median | 12.3 ms |\n| Inputs | batch 1, heads 4 |",
    ],
)
def test_the_checker_accepts_true_texts(text) -> None:
    assert not invented(text, CPU_FACTS)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The CPU is at 38 %.", ("38", "%")),
        ("The CPU is at 37 kW.", ("37", "kW")),
        ("The CPU is at -37 %.", ("-37", "%")),
        ("The CPU is busy (−37 %).", ("-37", "%")),
        ("The CPU is at –37 %.", ("-37", "%")),
        ("Job 7 is at 37 %.", ("37", "%")),
        ("Job 7 is done. It is at 37 %.", ("37", "%")),
        ("Job 7 is done. The utilisation is 37 %.", ("37", "%")),
        ("The CPU took 50 s.", ("50", "s")),
        ("There are 3 jobs failed.", ("3", "jobs failed")),
        ("Of them 3 have failed.", ("3", "failed")),
        ("Job 7 ran 7 times.", ("7", "times")),
        ("Job 7 ran 7 times.", ("7", "")),
        ("Job 7 was 320 jobs.", ("320", "jobs")),
        ("Job 4711 is done.", ("job4711", "")),
        ("GPU 0 is at 37 %.", ("gpu0", "")),
        ("### Job 7: attention\nIt ran.\n| Utilisation | 37 % |", ("37", "%")),
        ("| | Job 7 | Job 8 |\n| Took | 37 % | 50 s |", ("37", "%")),
    ],
)
def test_the_checker_finds_invented_numbers(text, number) -> None:
    assert number in invented(text, CPU_FACTS)


@pytest.mark.parametrize(
    ("right", "wrong", "number"),
    [
        ("REPLAY GPU 0 is at 71 °C and REPLAY GPU 1 at 72 °C.",
         "REPLAY GPU 0 is at 72 °C and REPLAY GPU 1 at 71 °C.", "72"),
        ("The mean utilisation of the CPU was 46 %, the highest 90 %.",
         "The mean utilisation of the CPU was 90 %, the highest 46 %.", "46"),
        ("Job 8 has about 23 s left.", "Job 8 has been running for 23 s.", "23"),
        ("Job 7 had a median of 12.3 ms.", "Job 7 had a P99 of 12.3 ms.", "12.3"),
    ],
)  # fmt: skip
def test_the_oracle_knows_whose_value_it_is_and_of_what(right, wrong, number) -> None:
    facts = CPU_FACTS + REPLAY_FACTS
    assert misplaced(right, facts) == set()
    assert number in {found for found, _ in misplaced(wrong, facts)}


def test_the_checker_reads_facts_that_are_negative_and_ranges_and_dates_that_are_not() -> None:
    facts = tuple(
        Fact(f"cpu.{i}", 0, "", said, "CPU readings", NOW, f"CPU x: {said}")
        for i, said in enumerate(("-5 °C", "3-5", "2026-11-22"))
    )
    assert not invented("The CPU is at -5 °C (−5 °C), slots 3-5, since 2026-11-22.", facts)
    assert invented("The CPU is at 5 °C.", facts) == {("5", "°C")}


def test_without_verification_the_inventors_lies_would_be_shown_and_counted(monkeypatch) -> None:
    monkeypatch.setattr("gpudeck.assistant.writing.writer.verify", lambda *_: None)
    assert Count(shown(40, 1, inventor)).found
