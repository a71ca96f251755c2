"""The template takes every number from the facts, and answers the question."""

from __future__ import annotations

import re

import msgspec
import pytest
from examples import (
    CPU_FACTS,
    CPU_STATE,
    DONE,
    HISTORY,
    NOW,
    REPLAY_FACTS,
    RESULT,
    job,
    replayed,
    snapshot,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.assistant.facts import gather, phrases
from gpudeck.assistant.writing.template import template
from gpudeck.assistant.writing.verify import Refused, verify
from gpudeck.assistant.writing.writer import required_facts
from gpudeck.scheduler.protocol.busy_causes import JobWaits, Loaded, QuietHours, Settling
from gpudeck.scheduler.protocol.jobs import Done, Failed, queued
from gpudeck.scheduler.protocol.snapshot import Busy
from gpudeck.scheduler.protocol.wait_reasons import StartFailed

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_number_is_in_the_facts(data) -> None:
    """Take any subset of the facts, in any order, some of them contradicted."""
    facts = data.draw(
        st.lists(st.sampled_from(CPU_FACTS + REPLAY_FACTS), unique_by=id, max_size=60)
    )
    if facts:
        odd = data.draw(st.sampled_from(facts))
        facts.append(
            msgspec.structs.replace(
                odd, said="4711 %", text="contradiction: 4711 %", source="elsewhere", value=4711
            )
        )
    text = template(facts)
    assert text.strip()
    known = {n for fact in facts for n in NUMBER.findall(f"{fact.text} {fact.name} {fact.said}")}
    assert set(NUMBER.findall(text)) <= known


def test_the_template_says_that_there_are_no_facts() -> None:
    assert "no facts" in template(())


def test_contradicting_facts_are_both_given_with_their_sources() -> None:
    fact = next(f for f in CPU_FACTS if f.name == "cpu.util")
    other = msgspec.structs.replace(
        fact, said="12 %", text="CPU utilisation: 12 %", source="somewhere else"
    )
    text = template((*CPU_FACTS, other))
    assert "The sources disagree" in text
    assert "37 %" in text
    assert "12 % (somewhere else)" in text


def opening(text: str) -> str:
    return text.split("\n\n")[1]


def test_a_brief_opens_with_what_happened_in_plain_sentences() -> None:
    when = phrases.stretch(NOW - 600, NOW)
    assert opening(template(CPU_FACTS)) == (
        f"{when[0].upper()}{when[1:]}, 3 jobs ran, of which 1 failed and 1 got lost. "
        "Job 6 (bad.py) failed: it exited with status 3. Job 4 (adrift) was lost: its runner "
        "was killed. "
        "Job 7 (attention) passed: its attention workload reached 0.0873 TFLOP/s with backend "
        "efficient "
        "on CPU: AMD EPYC 9654, and took 50 s. "
        "Job 8 (attention) has been running for 10 s on CPU, and is 30 % through (timing). It "
        "has about 23 s left. "
        "Job 9 (train_big) has been queued for 1 min 40 s: the CPU is held by job 8. CPU is "
        "busy: job 8 runs."
    )


def test_a_brief_covers_every_job_and_every_device() -> None:
    text = template(CPU_FACTS)
    ended = {n: phrases.clock(NOW - ago) for n, ago in ((7, 30), (6, 79), (5, 50), (4, 20))}
    for words in (
        "### Other jobs\n\n**Jobs queued:** job 9 (train_big): the CPU is held by job "
        "8.\n\n**Jobs cancelled:** job 5 (unloved).\n",
        "### Job 8: attention\n\nIt has been running for 10 s on CPU, and is 30 % through "
        "(timing). It has about 23 s left.\n",
        "It passed: 0.0873 TFLOP/s with backend efficient, median 12.3 ms (P95 13.9 ms, P99 "
        "15.0 ms) over 320 calls. "
        f"It ran for 50 s on CPU, and ended at {ended[7]}.\n",
        "### Job 6: bad.py\n\nIt failed: it exited with status 3. It ran for 1.0 s, and "
        f"ended at {ended[6]}.\n",
        "### Job 4: adrift\n\nIt was lost: its runner was killed. It ran for 1 min 10 s, and "
        f"ended at {ended[4]}.\n",
        "**CPU** (AMD EPYC 9654) is busy: job 8 runs. CPU: no NVIDIA GPU found. There are "
        "readings from ",
        "| Utilisation | 37 % | 46 % | 90 % |",
        "Temperature is N/A: no sensor. Power is N/A: no counter.",
    ):
        assert words in text
    assert (
        text.index("### Job 8")
        < text.index("### Job 6")
        < text.index("### Job 7")
        < text.index("### Other jobs")
    )


def test_details_of_a_result_are_a_table() -> None:
    text = template(gather(snapshot(CPU_STATE), (DONE,), HISTORY, NOW - 80, NOW - 30))
    for row in (
        "| Inputs | batch 1, heads 4, sequence 1024 |",
        "| Why this backend | chosen by auto |",
        "| Sustained rate | 0.0851 TFLOP/s |",
        "| Check | out: 1.2e-07, within the 1.0e-05 allowed |",
    ):
        assert row in text


def test_a_result_whose_check_failed_says_so_and_why_nothing_was_timed() -> None:
    timing = msgspec.structs.replace(RESULT.timing, count=0)
    raw = msgspec.Raw(
        msgspec.json.encode(
            msgspec.structs.replace(RESULT, verdict="fail: out is off", timing=timing)
        )
    )
    text = template(
        gather(
            snapshot(CPU_STATE),
            (job(1, Failed(NOW - 9, NOW, "exit code 1", 1, (), raw)),),
            {},
            NOW - 9,
            NOW,
        )
    )
    assert "It failed: exit code 1. Its verdict is fail: out is off." in text
    assert "| Time of one call | N/A: nothing was timed, because a check failed |" in text
    assert "passed" not in text


@pytest.mark.parametrize("facts", [CPU_FACTS, REPLAY_FACTS])
def test_the_prose_passes_the_checks_of_a_models_text(facts) -> None:
    """Models learn from these texts: similar texts must not be refused."""
    text = template(facts)
    prose = [
        part
        for part in text.split("\n\n")
        if not part.startswith(("|", "## ", "### Devices")) and "are N/A" not in part
    ]
    verify("\n".join(prose), facts)
    assert all(fact.said in text for fact in required_facts(facts))


EVIL = "# x\n- **b** | cell `code` {job7.state} {0} <img src=x> [a](http://e) \x1b[31m"


def test_a_hostile_name_or_reason_adds_no_heading_row_list_or_slot() -> None:
    jobs = (
        job(3, queued(StartFailed(EVIL), 0.0), EVIL),
        job(2, Failed(NOW - 9, NOW, EVIL), EVIL),
        job(1, Done(NOW - 9, NOW), EVIL),
    )
    kinds = [
        [
            line.split(" ")[0] if line.startswith(("#", "|", "-", ">", "*")) else ""
            for line in template(facts).splitlines()
        ]
        for facts in (
            gather(snapshot(CPU_STATE, notices=(words,)), jobs_, {}, NOW - 600, NOW)
            for words, jobs_ in (
                (EVIL, jobs),
                ("quiet", tuple(msgspec.structs.replace(j, spec=DONE.spec) for j in jobs)),
            )
        )
    ]
    assert kinds[0] == kinds[1]
    assert "{job7.state}" in template(gather(snapshot(CPU_STATE), jobs, {}, NOW - 600, NOW))


def test_no_list_precedes_a_heading() -> None:
    """Qt's Markdown reader would drop the bullet of the last item."""
    for facts in (CPU_FACTS, REPLAY_FACTS):
        assert not re.search(r"^[-*>] ", template(facts), re.MULTILINE)


def test_a_brief_says_that_there_are_more_jobs() -> None:
    jobs = tuple(
        job(n, queued(StartFailed("the CPU is held by job 99"), 0.0)) for n in range(1, 20)
    )
    text = template(gather(snapshot(CPU_STATE, jobs=jobs), jobs, {}, NOW - 600, NOW))
    assert "19 jobs are queued. Job 1 (attention) has been queued" in opening(text)
    assert "**Jobs queued:** jobs 1 to 19 (attention): the CPU is held by job 99." in text
    named = tuple(
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, name=f"job-{j.id}"))
        for j in jobs
    )
    failed = tuple(
        msgspec.structs.replace(j, state=Failed(NOW - 9, NOW - 8, "exit code 1", 1)) for j in named
    )
    text = template(gather(snapshot(CPU_STATE), failed, {}, NOW - 600, NOW))
    assert text.count("### Job ") == 12
    assert (
        "**Jobs failed:** job 7 (job-7), 1.0 s: exit code 1; job 6 (job-6), 1.0 s: exit code 1; "
        in text
    )


def test_a_brief_says_that_the_queue_is_paused() -> None:
    assert "The queue is paused: nothing new starts." in opening(
        template(gather(snapshot(CPU_STATE, paused=True), (), {}, NOW - 9, NOW))
    )


def test_replayed_devices_are_never_called_anything_but_replay() -> None:
    text = template(REPLAY_FACTS)
    assert "REPLAY GPU 0" in text
    assert re.search(r"(?<!REPLAY )GPU \d", text) is None
    assert template(REPLAY_FACTS).count("REPLAY of h100.trace.gz") == 1, (
        "what is noted of all of them is said once"
    )


def test_eight_gpus_make_one_table() -> None:
    facts = gather(snapshot(*(replayed(i) for i in range(8)), jobs=()), (), {}, NOW - 600, NOW)
    assert template(facts).count("\n| --- |") == 1
    assert "| REPLAY GPU 7 |" in template(facts)
    assert "REPLAY GPU 6 and REPLAY GPU 7 are idle now." in opening(template(facts))
    assert template(facts).count("nothing was read in this time") == 1


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (Settling(3.0, 15.0), "is not in use, free in 12 s."),
        (JobWaits(9), "is not in use: job 9 waits."),
        (QuietHours("09:00-17:00"), "is not in use: quiet hours, 09:00-17:00."),
        (Loaded(48.0), "is busy: utilisation 48 %."),
    ],
)
def test_a_brief_calls_a_device_busy_only_while_somebody_uses_it(cause, said) -> None:
    state = msgspec.structs.replace(CPU_STATE, use=Busy(cause), holders=())
    facts = gather(snapshot(state), (), HISTORY, NOW - 600, NOW)
    text = template(facts)
    assert f"**CPU** (AMD EPYC 9654) {said}" in text
    if not isinstance(cause, JobWaits):  # that is said of the job, which has facts of its own
        verify(f"**CPU** (AMD EPYC 9654) {said}", facts)
    with pytest.raises(Refused):
        wrong = "is not in use" if isinstance(cause, Loaded) else "is busy"
        verify(f"**CPU** (AMD EPYC 9654) {wrong}.", facts)


def test_a_value_that_some_gpus_lack_is_explained_for_these_alone() -> None:
    hot, cold = replayed(0), replayed(1)
    reading = cold.reading
    assert reading is not None
    values = {name: value for name, value in reading.values.items() if name != "temp"}
    lacks = msgspec.structs.replace(reading, values=values, absent={"temp": "no sensor"})
    lacking = msgspec.structs.replace(cold, reading=lacks)
    shown = template(gather(snapshot(hot, lacking, jobs=()), (), {}, NOW - 600, NOW))
    assert "Temperature of REPLAY GPU 1 is N/A: no sensor." in shown
    alike = msgspec.structs.replace(lacking, device=hot.device)
    shown = template(gather(snapshot(alike, lacking, jobs=()), (), {}, NOW - 600, NOW))
    assert "Temperature is N/A: no sensor." in shown
