"""The benchmark that decides how GPM's shares become FLOP/s: with made-up cards of which the truth
is known, and NVML at its edge."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Made

import pynvml
import pytest

from gpudeck.scheduler.protocol.devices import Reading
from tests.benchmarks import raw_counters, tflops_truth
from tests.benchmarks.clock_models import LATE_S, NET_S, Case, best, error, errors, evidence
from tests.benchmarks.gpu_probe import Ran
from tests.benchmarks.raw_counters import GPM_S, LONG, METRICS, Interval, Raw, Recorder
from tests.benchmarks.tflops_truth import PERIOD, Counted, Session, analyse
from tests.unit.scheduler.recorded_nvml import RecordedNvml

REST, WORK, BUSY, SMS = 1980.0, 1400.0, 0.94, 132
PEAK = BUSY * 4096 * SMS * 1e6
"""FLOP/s for each MHz while it is busy."""
STEP_MS = 100
"""The driver renews the clock so often."""


def card(
    duty: float,
    period: float,
    over: str = "cycles",
    renewed_ms: int = 1,
    late_ms: int = 0,
    seconds: float = 4.0,
) -> tuple[Case, float]:
    """A card that idles at REST and works at WORK: the recording, and the FLOP/s counted.

    `over`: what its shares are means over. `renewed_ms`: how often its clock is told anew.
    `late_ms`: how late it tells WORK.
    """
    raw = Raw(SMS, (9, 0), REST)
    ms = range(int(seconds * 1000))
    busy = [i % round(period * 1000) < duty * period * 1000 for i in ms]
    told = [WORK if all(busy[max(i - late_ms, 0) : i + 1]) else REST for i in ms]
    raw.clocks = [(i / 1000 + LATE_S - NET_S, told[i - i % renewed_ms]) for i in ms]
    raw.slow = [
        (i / 1000, 650.0 if b else 120.0, 4 if b else 1)
        for i, b in zip(ms, busy, strict=True)
        if i % 20 == 0
    ]
    for length in (1, LONG):
        size = int(length * GPM_S * 1000)
        for begin in range(0, len(busy) - size + 1, int(GPM_S * 1000)):
            part = busy[begin : begin + size]
            cycles = sum(WORK if b else REST for b in part)
            share = sum(part) / size if over == "time" else sum(WORK for b in part if b) / cycles
            values = {"hmma_tensor_util": 100 * BUSY * share, "sm_util": 100 * share}
            raw.intervals.append(
                Interval(begin / 1000 + LATE_S, (begin + size) / 1000 + LATE_S, length > 1, values)
            )
    spans = [
        (i * period - 1e-4, i * period + duty * period - 1e-4)
        for i in range(int(seconds / period) + 1)
    ]
    return Case(raw, 0.0, seconds, spans), sum(busy) / len(busy) * PEAK * WORK


def off(
    duty: float, period: float, over: str = "cycles", renewed_ms: int = 1
) -> dict[str, float | None]:
    case, counted = card(duty, period, over, renewed_ms)
    return errors(case, counted, 1.0)


@pytest.mark.parametrize("duty", [0.15, 0.3, 0.6])
def test_shares_over_time_would_want_the_clock_while_it_is_busy(duty: float) -> None:
    found = off(duty, 0.1, "time")
    assert found["while busy (known), 0.1 s"] == pytest.approx(0, abs=1)
    assert found["mean, 0.5 s"] == pytest.approx(
        100 * ((1 - duty) * REST + duty * WORK - WORK) / WORK, abs=1.5
    )


@pytest.mark.parametrize(
    ("duty", "period"), [(0.15, 0.1), (0.3, 0.13), (0.6, 0.1), (0.6, 0.13), (0.5, 1.0)]
)
def test_shares_over_cycles_want_the_mean_clock(duty: float, period: float) -> None:
    found = off(duty, period)
    assert found["mean, before, 0.1 s"] == pytest.approx(0, abs=0.5)
    assert found["mean, before, 0.5 s"] == pytest.approx(0, abs=0.5)


def test_a_load_in_step_with_the_driver_is_seen_in_one_moment_of_its_course() -> None:
    """And one that is not is seen evenly: why the benchmark's load has the period that it has."""
    in_step, evenly = (card(0.6, period, renewed_ms=STEP_MS) for period in (0.1, PERIOD))
    assert abs(errors(*in_step, 1.0)["mean, 0.5 s"] or 0) > 10
    assert errors(*evenly, 1.0)["mean, 0.5 s"] == pytest.approx(0, abs=3)
    assert evidence(evenly[0])["busy_percent"] == pytest.approx(60, abs=1)


def test_a_clock_drop_reported_late_reads_too_high() -> None:
    """As an H100 does it: two states are then a better guess."""
    found = errors(*card(0.6, PERIOD, renewed_ms=STEP_MS, late_ms=50), 1.0)
    assert (found["five looks, 0.5 s"] or 0) > 8
    assert abs(found["two states, 0.5 s"] or 0) < (found["five looks, 0.5 s"] or 0) / 2


def test_one_run_names_the_candidate_that_is_right_whatever_the_load() -> None:
    loads = [(0.15, 0.1), (0.3, 0.1), (0.6, 0.1)]
    assert best([off(*load, "time") for load in loads])[0][0].startswith("while busy")
    assert best([off(*load) for load in loads])[0][0].startswith(("mean", "five looks"))
    assert max(abs(value or 0) for value in off(1.0, 0.1).values()) < 0.1, (
        "at full load all are the same"
    )


def test_long_shares_beside_short_ones_tell_what_the_mean_is_over() -> None:
    over_time, over_cycles = (evidence(card(0.5, 1.0, over)[0]) for over in ("time", "cycles"))
    assert over_time["long_above_short_percent"] == pytest.approx(0, abs=0.01)
    assert (over_cycles["long_above_short_percent"] or 0) < -5
    assert over_cycles["long_above_short_percent"] == pytest.approx(
        over_cycles["by_clocks_percent"], abs=0.5
    )


def test_what_was_not_recorded_is_no_zero() -> None:
    nothing = Case(Raw(SMS), 0.0, 3.0, [(0.0, 3.0)])
    assert error(nothing, "mean", False, 1e12) is None
    assert set(errors(nothing, 1e12, 1.0).values()) == {None}
    assert best([errors(nothing, 1e12, 1.0)]) == []


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedNvml]:
    kept = {name: value for name, value in vars(pynvml).items() if name.startswith("nvml")}
    recorded = RecordedNvml()
    recorded.install()
    yield recorded
    for name, value in kept.items():
        setattr(pynvml, name, value)


def test_the_recorder_keeps_clocks_power_and_counters_and_why_others_are_missing(
    nvml: RecordedNvml, tmp_path: Path
) -> None:
    nvml.gpm_returns = {METRICS["hmma_cycles_active"]: pynvml.NVML_ERROR_NOT_SUPPORTED}
    nvml.answers["nvmlDeviceGetClock"] = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    recorder = Recorder(SMS)
    for i in range(1001):
        recorder.look(i / 1000)
    raw = recorder.raw
    assert len(raw.clocks) == 1001
    assert raw.clocks[0] == (0.0, 1500.0)
    assert 45 <= len(raw.slow) <= 51
    assert 150 <= len(raw.others["graphics"]) <= 201
    assert "Not Supported" in raw.refused["clock, current"]
    assert raw.slow[0][1] == pytest.approx(719.588)
    short, long = ([i for i in raw.intervals if i.long is wanted] for wanted in (False, True))
    assert 9 <= len(short) <= 10
    assert 5 <= len(long) <= 6
    assert long[0].end - long[0].start == pytest.approx(LONG * GPM_S, rel=0.1)
    assert short[0].values["hmma_tensor_util"] == pytest.approx(93.81)
    assert "hmma_cycles_active" not in short[0].values
    assert "Not Supported" in raw.refused["hmma_cycles_active"]
    raw_counters.write(raw, tmp_path / "raw.json.gz")
    assert raw_counters.read(tmp_path / "raw.json.gz", Raw) == raw
    assert nvml.calls.count("nvmlGpmSampleAlloc") == LONG + 1


class _Probe:
    """Shows 600 TFLOP/s."""

    def between(self, start: float, end: float) -> list[Reading]:
        return [
            Reading(
                "gpu",
                end,
                {"tflops_gpm": 600.0, "clock_sm": 1400.0, "power": 650.0, "throttle_power": 1.0},
            )
        ]

    def close(self) -> None:
        pass


def test_the_run_writes_its_tables_also_where_a_case_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    case, counted = card(0.3, PERIOD)

    def refused() -> object:
        raise RuntimeError("no FP8 here")

    def loop(call, seconds, duty, period):
        call()
        return Ran(round(counted * 4.0 / 1e12), 0.0, 4.0, list(case.spans))

    made = [
        tflops_truth.Case("gemm bf16", "busy 30% of 0.13 s", 0.3, "tflops_gpm", 1e12, lambda: None),
        tflops_truth.Case("gemm fp8", "full", 1.0, "tflops_gpm", 1e12, refused, 2.0),
    ]
    device = Made(name="made-up card", multi_processor_count=SMS)
    cuda = Made(get_device_properties=lambda _: device, empty_cache=lambda: None)
    for name, value in (
        ("need_gpu", lambda: None),
        ("torch_on_gpu", lambda: Made(cuda=cuda)),
        ("Probe", _Probe),
        ("loop", loop),
        ("gemm_cases", lambda torch, whole: made),
        ("REST_S", 0.0),
    ):
        monkeypatch.setattr(tflops_truth, name, value)
    monkeypatch.setattr(time, "sleep", lambda _: None)

    class Recording:
        def __init__(self, file: Path, sms: int) -> None:
            file.write_bytes(b"")

        def end(self) -> Raw:
            return case.raw

    monkeypatch.setattr(raw_counters, "Recording", Recording)
    monkeypatch.setattr(sys, "argv", ["tflops_truth", "--out", str(tmp_path)])
    assert tflops_truth.main() == 1
    assert "FAILED: no FP8 here" in capsys.readouterr().out
    (row,) = csv.DictReader(io.StringIO((tmp_path / "tflops_clocks.csv").read_text()))
    assert abs(float(row["error_percent: mean, 0.5 s"])) < 2
    assert (tmp_path / "tflops_truth.csv").read_text().count("\n") == 2
    (tmp_path / "tflops_clocks.csv").unlink()
    monkeypatch.setattr(
        sys,
        "argv",
        ["tflops_truth", "--out", str(tmp_path), "--again", str(tmp_path / "tflops_raw.json.gz")],
    )
    assert tflops_truth.main() == 0
    assert "while busy (known)" in (tmp_path / "tflops_clocks.csv").read_text()


def test_the_recorder_process_ends_on_request(tmp_path: Path) -> None:
    """Without a driver, or where it cannot write, it says so, and the run does not go on as if it
    had recorded."""
    recording = raw_counters.Recording(tmp_path / "no" / "raw.json.gz", SMS)
    with pytest.raises(subprocess.CalledProcessError):
        recording.end()


def test_nothing_counted_is_no_table(tmp_path: Path) -> None:
    assert analyse(Session({}, Raw(), []), tmp_path) is None
    assert (
        analyse(
            Session(
                {"device": "x"},
                Raw(),
                [Counted("gemm bf16", "full", 1.0, 1e12, 0.0, 1.0, [(0.0, 1.0)])],
            ),
            tmp_path,
        )
        is not None
    )
