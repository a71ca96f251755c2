"""Facts have exact numbers with units, sources and times, and reasons for absence."""

from __future__ import annotations

import math
import time

import msgspec
import pytest
from examples import (
    CPU,
    CPU_FACTS,
    CPU_STATE,
    DONE,
    HISTORY,
    JOBS,
    NOW,
    REPLAY_FACTS,
    RESULT,
    job,
    snapshot,
)
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel.result import Check
from gpudeck.assistant.facts import (
    device_facts,
    during,
    gather,
    history_facts,
    job_facts,
    named,
    phrases,
)
from gpudeck.assistant.facts.fact import FactBuilder
from gpudeck.assistant.reports import charts, tables
from gpudeck.assistant.reports.cells import Cells
from gpudeck.assistant.writing.writer import write
from gpudeck.language.numbers import duration
from gpudeck.language.words import words as in_language
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Progress, Running, queued
from gpudeck.scheduler.protocol.snapshot import Columns, DeviceState, Idle
from gpudeck.scheduler.protocol.wait_reasons import StartFailed

FACTS = named(CPU_FACTS)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cpu.util", "37 %"),
        ("cpu.mem_used", "3.0 GiB"),
        ("cpu.tflops", "0.0871 TFLOP/s"),
        ("cpu.temp", "N/A (no sensor)"),
        ("cpu.util.mean", "46 %"),
        ("cpu.util.max", "90 %"),
        ("cpu.temp.mean", "N/A (nothing was read in this time)"),
        ("cpu.use", "busy: job 8 runs"),
        ("cpu.holder", "job 8"),
        ("cpu.process0", "python3 (pid 4321, 1.0 GiB)"),
        ("span.length", "10 min"),
        ("jobs.done", "1"),
        ("job9.waiting", "1 min 40 s"),
        ("job9.reason", "the CPU is held by job 8"),
        ("job8.running", "10 s"),
        ("job8.progress", "30 %"),
        ("job8.left", "23 s"),
        ("job7.duration", "50 s"),
        ("job7.backend", "efficient"),
        ("job7.tflops", "0.0873 TFLOP/s"),
        ("job7.median", "12.3 ms"),
        ("job7.p95", "13.9 ms"),
        ("job7.verdict", "pass"),
        ("job7.check0", "out: 1.2e-07, within the 1.0e-05 allowed"),
        ("job7.inputs", "batch 1, heads 4, sequence 1024"),
        ("job7.workload", "attention"),
        ("jobs.ran", "3"),
        ("job6.reason", "it exited with status 3"),
        ("job6.code", "3"),
        ("job5.state", "cancelled"),
        ("job4.reason", "its runner was killed"),
    ],
)
def test_values_are_phrased_with_units(name, said) -> None:
    assert FACTS[name].said == said


def test_every_fact_has_a_source_a_time_and_a_phrase_that_stands_alone() -> None:
    for fact in (*CPU_FACTS, *REPLAY_FACTS):
        assert fact.source
        assert NOW - 600 <= fact.time <= NOW
        assert fact.said in fact.text
        assert fact.text != fact.said
    assert FACTS["cpu.util.mean"].value == pytest.approx(46.5)
    assert str(FACTS["job7.tflops"].source) == "the job's Result"


def test_the_error_of_hardware_counters_stands_with_the_source_and_not_in_the_text() -> None:
    assert CPU_STATE.reading is not None
    values = {**CPU_STATE.reading.values, "tflops": 740.2, "tflops_error": 14.4}
    reading = msgspec.structs.replace(CPU_STATE.reading, values=values)
    found = named(device_facts(msgspec.structs.replace(CPU_STATE, reading=reading), NOW))
    assert str(found["cpu.tflops"].source) == "CPU readings, hardware counters ±14 %"
    assert found["cpu.tflops"].said == "740 TFLOP/s", "the model reads this"
    assert found["cpu.tflops"].error == 14.4
    assert {str(f.source) for n, f in found.items() if n != "cpu.tflops"} == {"CPU readings"}
    assert {f.error for n, f in found.items() if n != "cpu.tflops"} == {None}


def test_a_text_with_a_rate_of_counters_says_how_far_it_may_be_off() -> None:
    values = {**CPU_STATE.reading.values, "tflops": 740.2, "tflops_error": 14.4}
    reading = msgspec.structs.replace(CPU_STATE.reading, values=values)
    state = msgspec.structs.replace(CPU_STATE, reading=reading)
    facts = tuple(device_facts(state, NOW))
    text = write(facts).text
    assert "740 TFLOP/s" in text
    assert text.endswith("are ±14 % for FP16 and BF16; FP8 would be twice and TF32 half of it.")
    assert "±" not in write(tuple(device_facts(CPU_STATE, NOW))).text


def test_means_of_counters_over_a_span_state_the_largest_error_in_facts_tables_and_charts() -> None:
    past = Columns(
        [NOW - 20, NOW - 10, NOW],
        {"tflops": [600.0, 620.0, 88.0], "tflops_error": [3.0, None, 2.0], "temp": [50.0] * 3},
        high={"tflops": [650.0, 640.0, 90.0], "tflops_error": [4.6, None, 2.0]},
    )
    facts = history_facts(CPU, past, NOW)
    found = named(facts)
    for name in ("cpu.tflops.mean", "cpu.tflops.max"):
        assert found[name].error == 4.6
        assert str(found[name].source) == "CPU readings, history, hardware counters ±5 %"
    assert found["cpu.temp.mean"].error is None
    assert found["cpu.tflops.mean"].said == "436 TFLOP/s", "the model reads this"
    cells = Cells([*facts, *device_facts(CPU_STATE, NOW)])
    table = tables.devices((CPU_STATE,), cells)
    assert "FP8 would be twice and TF32 half of it" in table.note
    (row,) = table.rows
    assert row[table.head.index("TFLOP/s")] == "436 TFLOP/s, 650 TFLOP/s (±5 %)"
    assert "±" not in row[table.head.index("Temperature")]
    chart = charts.by_field("tflops", (CPU_STATE,), {"cpu": past}, NOW - 20, NOW, cells)
    assert chart.note.endswith("mean 436 TFLOP/s, highest 650 TFLOP/s (±5 %)")


def test_a_replayed_device_is_called_replay_in_the_text_and_source_of_each_of_its_facts() -> None:
    about = [fact for fact in REPLAY_FACTS if fact.subject.startswith("replay")]
    assert len(about) > 20
    for fact in about:
        assert fact.text.startswith("REPLAY GPU ")
        assert "REPLAY" in str(fact.source)


def test_a_result_that_failed_its_check_says_that_nothing_was_timed() -> None:
    timing = msgspec.structs.replace(RESULT.timing, median=0.0, p50=0.0, p95=0.0, p99=0.0, count=0)
    failed = msgspec.structs.replace(
        RESULT, verdict="fail: out is off", timing=timing, tflops=0.0, sustained_tflops=0.0
    )
    facts = named(
        job_facts(job(1, Done(NOW - 9, NOW, (), msgspec.Raw(msgspec.json.encode(failed)))), NOW, {})
    )
    assert facts["job1.verdict"].said == "fail: out is off"
    assert facts["job1.median"].value is None
    assert "job1.tflops" not in facts


@pytest.mark.parametrize("raw", [b"{}", b"[1, 2]", b'"text"'])
def test_an_invalid_result_file_is_a_fact(raw) -> None:
    facts = named(job_facts(job(1, Done(NOW - 9, NOW, (), msgspec.Raw(raw))), NOW, {}))
    assert facts["job1.result"].said == "N/A (the job left a file that is not a Result)"


def test_odd_values_are_absent_or_left_out_and_never_nan() -> None:
    reading = msgspec.structs.replace(
        CPU_STATE.reading, values={"util": math.nan, "temp": math.inf}
    )
    history = Columns([NOW], {"util": [math.nan], "temp": [None]})
    states = (DeviceState(CPU, reading, Idle(NOW + 5)), DeviceState(CPU, None, Idle(NOW)))
    jobs = (job(1, Running("a", (), NOW + 50, 1, 1, "b", Progress(0, 0))), job(2, Cancelled(NOW)))
    for fact in gather(snapshot(*states, jobs=jobs), jobs, {"cpu": history}, NOW, NOW):
        assert not any(
            word in fact.text.lower().replace("running", "")
            for word in ("nan ", "inf ", "-0", "-5")
        )


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Check("share", 0.0, 0.0), "share: 0, as it must be"),
        (Check("out", 2e-3, 1e-5), "out: 0.002, ABOVE the 1.0e-05 allowed"),
        (Check("o|t", 3.21, 1e-5), "o\\|t: 3.2, ABOVE the 1.0e-05 allowed"),
    ],
)
def test_a_check_says_whether_its_bound_was_kept(check, said) -> None:
    assert result_facts(checks=(check,))["job1.check0"].said == said


def result_facts(**changes):
    raw = msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(RESULT, **changes)))
    return named(job_facts(job(1, Done(NOW - 9, NOW, (), raw)), NOW, {}))


def test_inputs_use_the_labels_of_the_form_and_flags_become_words() -> None:
    params = {
        "heads": 16,
        "kv_heads": 0,
        "head_dim": 128,
        "causal": False,
        "dtype": "bfloat16",
        "backend": "auto",
        "seconds": 10.0,
    }
    assert (
        result_facts(params=params)["job1.inputs"].said
        == "heads 16, head size 128, not causal, data type bfloat16"
    )
    assert (
        result_facts(params={"kv_heads": 4, "causal": True})["job1.inputs"].said
        == "K/V heads 4, causal"
    )
    assert (
        result_facts(workload="of my own", params={"my_size": 3})["job1.inputs"].said == "my size 3"
    )
    train = result_facts(
        workload="train", params={"data": "0", "model": "tiny", "rewind": 0, "keep": 5}
    )
    assert train["job1.inputs"].said == "model tiny, keep 5", "what nobody chose is left out"


def test_versions_are_facts() -> None:
    assert (
        result_facts(versions={"torch": "2.11.0", "cuda": "13.0"})["job1.versions"].said
        == "torch 2.11.0, cuda 13.0"
    )
    assert "job1.versions" not in result_facts()


def test_only_active_jobs_and_those_that_ended_in_the_span_belong_to_it() -> None:
    assert [j.id for j in during(JOBS, NOW - 40, NOW)] == [9, 8, 7, 4]
    assert DONE in during(JOBS, NOW - 600, NOW - 30)


def test_a_device_without_history_has_no_data_and_one_with_gaps_its_real_values() -> None:
    assert named(history_facts(CPU, None, NOW))["cpu.util.max"].value is None
    assert named(history_facts(CPU, HISTORY["cpu"], NOW))["cpu.tflops.mean"].value == pytest.approx(
        0.0871
    )


def test_foreign_text_cannot_steer_a_terminal_or_a_page() -> None:
    evil = (
        "\x1b[31m**bold** <img src=x onerror=1> [a](http://evil.example) `code` | cell\n# "
        "head\u202egpj.exe www.evil.example &lt;"
    )
    text = named(job_facts(job(1, queued(StartFailed(evil), 0.0), evil), NOW, {}))["job1.name"].text
    assert text.isprintable()
    for mark in ("**bold", " <img", "[a](", " `", " | ", "http:", " www.", " &lt"):
        assert mark not in text


@given(st.text())
def test_escaping_leaves_one_printable_line_and_no_mark_unescaped(text) -> None:
    said = phrases.escaped(text)
    assert said.isprintable()
    bare = said.replace("\\\\", "")
    for mark in "*<[]`|~&":
        assert bare.count(mark) == bare.count("\\" + mark)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "B", "0 B"),
        (1536, "B", "1.5 KiB"),
        (80 * 2**30, "B", "80.0 GiB"),
        (3.35e12, "B/s", "3.0 TiB/s"),
        (0.00042, "ms", "4.20e-04 ms"),
        (0.0123, "ms", "0.0123 ms"),
        (1234.5, "ms", "1234 ms"),
        (0, "TFLOP/s", "0 TFLOP/s"),
        (632.81, "TFLOP/s", "633 TFLOP/s"),
        (7.34, "W", "7.3 W"),
        (700, "W", "700 W"),
        (71.4, "°C", "71 °C"),
    ],
)
def test_quantities_have_sensible_digits_and_units(value, unit, said) -> None:
    assert phrases.quantity(value, unit) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0.0 s"),
        (0.42, "0.4 s"),
        (9.97, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_have_their_two_largest_units(seconds, said) -> None:
    assert duration(seconds) == said


DAY = time.mktime((2026, 11, 21, 9, 13, 20, 0, 0, -1))


def test_the_date_is_given_once_and_seconds_only_in_short_spans() -> None:
    assert phrases.stretch(DAY, DAY + 600) == "on 21 November 2026 from 09:13 to 09:23"
    assert phrases.stretch(DAY, DAY + 44) == "on 21 November 2026 from 09:13:20 to 09:14:04"
    assert phrases.stretch(DAY, DAY + 600, now=DAY) == "from 09:13 to 09:23"
    assert (
        phrases.stretch(DAY, DAY + 86400)
        == "from 21 November 2026, 09:13 to 22 November 2026, 09:13"
    )
    assert phrases.moment(DAY, DAY + 60) == "at 09:13:20"
    assert phrases.moment(DAY, DAY + 86400) == "on 21 November 2026 at 09:13:20"


def test_a_moment_of_another_month_has_its_date_in_a_report() -> None:
    """A report in another language than English names the day of what was not today."""
    of = FactBuilder("job7", "Job 7", "a test", NOW)
    month_ago = NOW - 31 * 86400.0  # on the same day of its month
    of.value("started", "started", month_ago, "s", "on 13 October 2025")
    of.value("ended", "ended", NOW - 60.0, "s", "at 02:12")
    cells = Cells(of.facts, in_language("de"), NOW)
    assert cells.said("job7.started") == in_language("de").moment(month_ago, NOW)
    assert cells.said("job7.ended").startswith("um ")
