"""Verdicts on jobs: what is told of readings, and what is not."""

from __future__ import annotations

import math

import msgspec
import pytest

from gpudeck.app.runs.verdicts import judge
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.jobs import Done, Job, Progress, Running, Spec, Usage
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Columns
from tests.gui import snapshots

GIB = 2.0**30
GPU = "GPU-0"
BEGAN, N, STEP = 1000.0, 120, 10.0
NOW = BEGAN + N * STEP
TIMES = [BEGAN + STEP * i for i in range(1, N + 1)]
DONE = Job(1, Spec(("x",), "x", "/"), 0.0, Done(BEGAN, NOW, (GPU,)))
RUNS = Job(1, Spec(("x",), "x", "/"), 0.0, Running("a", (GPU,), BEGAN, 1, 1, ""))


def told(
    job: Job, util: list[float | None], memory: list[float | None] | None = None, *notes: Annotation
) -> list[tuple[str, str]]:
    columns = {"util": util, "mem_used": memory or [GIB] * N, "mem_total": [80 * GIB] * N}
    found = judge(job, {GPU: Columns(TIMES, columns)}, notes, {GPU: "GPU 0"}, Settings(), NOW)
    return [(verdict.certainty, verdict.text) for verdict in found]


def test_a_busy_job_has_no_verdict() -> None:
    busy = [90 + 5 * math.sin(i) for i in range(N)]
    waves = [(40 + 3 * math.sin(i)) * GIB for i in range(N)]
    for job in (DONE, RUNS):
        assert told(job, busy, waves) == []


def test_pauses_are_measured() -> None:
    found = told(DONE, [0.0 if i % 10 < 4 else 95.0 for i in range(N)])
    assert found[0] == (
        "measured",
        "GPU 0 did nothing for 40 % of the time: 8 min 00 s in all; pauses: 12",
    )


def test_absent_readings_are_no_pauses() -> None:
    assert told(DONE, [None] * N) == []
    assert told(DONE, [None if i % 2 else 95.0 for i in range(N)]) == []


def test_a_job_that_stopped_computing_hangs_unless_it_reports_progress() -> None:
    util: list[float | None] = [95.0] * 60 + [0.0] * 60
    assert told(RUNS, util) == [
        (
            "likely",
            "It hangs: GPU 0 has done nothing and the job has reported no progress for 10 min 00 s",
        )
    ]
    state = msgspec.structs.replace(RUNS.state, progress=Progress(1, 2, time=NOW - 20))
    assert [kind for kind, _ in told(msgspec.structs.replace(RUNS, state=state), util)] == [
        "measured"
    ]
    assert not any("hangs" in text for _, text in told(DONE, util))


def test_memory_that_grows_on_a_line_is_a_leak() -> None:
    busy: list[float | None] = [95.0] * N
    grows: list[float | None] = [(20 + 0.1 * i) * GIB for i in range(N)]
    ((kind, text),) = told(RUNS, busy, grows)
    assert kind == "likely"
    assert text == (
        "Memory leaks: on GPU 0 it grows by 0.60 GiB a minute, and is full in 1 h 20 min"
    )
    assert told(DONE, busy, grows) == [], "it is over"
    once: list[float | None] = [20 * GIB if i < 30 else 60 * GIB for i in range(N)]
    assert told(RUNS, busy, once) == [], "memory that was taken once"


@pytest.mark.parametrize(("seconds", "count"), [(240.0, 1), (5.0, 0)])
def test_clocks_that_were_held_down_are_told(seconds: float, count: int) -> None:
    note = Annotation(BEGAN + 60, BEGAN + 60 + seconds, "throttle", "Throttled: power cap", GPU)
    other = Annotation(BEGAN, None, "throttle", "Throttled: heat", "GPU-7")
    found = told(DONE, [95.0] * N, None, note, other)
    assert len(found) == count
    if found:
        text = "GPU 0: clocks were limited for 20 % of the time. Throttled: power cap"
        assert found == [("measured", text)]


def test_energy_has_its_price() -> None:
    job = msgspec.structs.replace(DONE, usage=Usage(1200.0, GIB, 7.2e6, 90.0))
    columns = Columns(TIMES, {"util": [95.0] * N})
    settings = Settings(energy_price=0.3, currency="EUR")
    found = judge(job, {GPU: columns}, (), {}, settings, NOW)
    assert [verdict.text for verdict in found] == ["It used 2.00 kWh: 0.60 EUR"]


def test_idle_time_before_the_work_or_at_regular_pauses_has_a_likely_cause() -> None:
    waits: list[float | None] = [0.0 if i % 10 < 4 else 95.0 for i in range(N)]
    waits[:4] = [95.0] * 4
    loads: list[float | None] = [0.0] * 40 + [95.0] * 80
    saves: list[float | None] = [95.0] * 80 + [0.0] * 40
    causes = [[text for kind, text in told(DONE, util) if kind == "likely"]
              for util in (waits, loads, saves)]  # fmt: skip
    assert causes == [
        ["The GPU waits for data or for checkpoints: GPU 0 pauses every 1 min 40 s"],
        ["It loaded data or a model first: GPU 0 began to compute after 6 min 50 s"],
        ["It did something else at the end: GPU 0 last computed 6 min 40 s before"],
    ]
    scattered: list[float | None] = [95.0] * N
    for at in (3, 4, 5, 6, 7, 8, 9, 10, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54,
               55, 56, 60, 61):  # fmt: skip
        scattered[at] = 0.0
    assert {kind for kind, _ in told(DONE, scattered)} == {"measured"}, "no cause is made up"


def test_a_rate_has_its_share_of_the_peak() -> None:
    card = {GPU: "NVIDIA H100 80GB HBM3"}
    columns = Columns(TIMES, {"util": [95.0] * N, "tflops": [494.5] * N})
    (found,) = judge(DONE, {GPU: columns}, (), {GPU: "GPU 0"}, Settings(), NOW, card)
    assert found.certainty == "likely", "the precision is not known"
    assert found.text == ("Busy, GPU 0 computed 494 TFLOP/s, 50 % of its peak (989 for BF16)")
    assert judge(DONE, {GPU: columns}, (), {}, Settings(), NOW, {GPU: "Some card"}) == ()
    made = snapshots.result(tflops=989.5)
    left = msgspec.structs.replace(made, device=card[GPU], params={"dtype": "fp8"})
    state = msgspec.structs.replace(DONE.state, result=msgspec.Raw(msgspec.json.encode(left)))
    job = msgspec.structs.replace(DONE, state=state)
    (found,) = judge(job, {GPU: columns}, (), {}, Settings(), NOW, card)
    assert found.certainty == "measured"
    assert found.text == "It reached 990 TFLOP/s, 50 % of the card's peak (1979 for FP8)"


@pytest.mark.parametrize(
    ("used", "traffic", "spills"), [(79, 8e9, True), (40, 8e9, False), (79, 1e8, False)]
)
def test_full_memory_and_much_traffic_over_pcie_spill_to_the_cpu(used, traffic, spills) -> None:
    busy, most = [95.0] * N, [80 * GIB] * N
    columns = {"util": busy, "mem_used": [used * GIB] * N, "mem_total": most}
    columns |= {"pcie_rx": [0.75 * traffic] * N, "pcie_tx": [0.25 * traffic] * N}
    found = judge(DONE, {GPU: Columns(TIMES, columns)}, (), {GPU: "GPU 0"}, Settings(), NOW)
    assert [(verdict.certainty, verdict.text) for verdict in found] == spills * [
        (
            "likely",
            "Memory spills to the CPU: for 100 % of the time the memory of GPU 0 was full and "
            "8.0 GB/s went over PCIe",
        )
    ]
