"""Grids of attention: what they span, what is compared, how it is tried, and what becomes of it."""

import math
import random
import time
from collections import Counter
from functools import partial
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel import result as results
from gpudeck.accel.attention import BACKENDS, table
from gpudeck.accel.attention.backends import Backend
from gpudeck.accel.result import BROKEN, Cell, Check, Result, Timing, twins
from gpudeck.accel.runtime import power
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.workloads import attention as attention_workload
from gpudeck.accel.workloads import catalog, compare, contender, summary, tune, validate
from gpudeck.accel.workloads.check import Oracle
from gpudeck.accel.workloads.grid import MOST_CELLS, TOKENS, Shape, directions, shapes
from gpudeck.accel.workloads.harness import serve
from gpudeck.accel.workloads.inputs import fresh
from gpudeck.accel.workloads.options import Values
from gpudeck.language.text import Moment, join_texts, phrase
from gpudeck.scheduler.attempts import MAX_RESULT

CPU = torch.device("cpu")
LOOP_S = 0.01
"""Each timed loop of these small problems still makes many calls."""
WORK = {
    "attention": attention_workload.work,
    "compare": compare.work,
    "validate": validate.work,
    "tune": tune.work,
}
SMALL = ["--heads=2", "--seq=16,40", "--head-dim=8", "--dtype=float32", "--causal=both"]


@pytest.fixture(autouse=True)
def own_table(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a workload as its command would, with loops shorter than the command line allows."""
    number = Values.number
    monkeypatch.setattr(
        Values, "number", lambda values, name: LOOP_S if name == "seconds" else number(values, name)
    )

    def runs(name, *argv, status=0):
        assert serve(name, WORK[name], argv) == status
        out, err = capsys.readouterr()
        if status == 2:
            return err
        return results.read(out.splitlines()[-1].encode())

    return runs


def given_values(name="compare", **more):
    return catalog.find(name).complete(more, "nvidia")


def test_forms_offer_the_backends_there_are():
    assert set(catalog.BACKENDS) == set(BACKENDS)
    assert set(catalog.FP8) == set(contender.FP8)


def test_what_is_left_open_makes_the_usual_totals():
    found = shapes(given_values(seq="512,16384", head_dim="64,256", causal="both"))
    assert [(s.head_dim, s.causal, s.seq) for s in found] == [
        (dim, causal, seq) for dim in (64, 256) for causal in (False, True) for seq in (512, 16384)
    ]
    assert all(
        s.batch * s.seq == TOKENS and s.heads * s.head_dim == 2048 and s.kv_heads == s.heads
        for s in found
    )
    assert {(s.batch, s.heads) for s in shapes(given_values(batch="3", heads="5"))} == {(3, 5)}
    with pytest.raises(ValueError, match="8 heads cannot share 3"):
        shapes(given_values(head_dim="128,256", kv_heads="3", heads="8"))


@given(
    st.integers(1, 4), st.integers(1, 300), st.booleans(), st.sampled_from(["float32", "bfloat16"])
)
def test_operations_are_counted_as_dispatch_counts_them(group, seq, causal, dtype):
    shape = Shape(2, 2 * group, 2, seq, 16, causal, dtype)
    problem = contender.problem_of(shape, "forward", find_device())
    assert shape.flops("forward") == problem.flops
    assert shape.flops("backward") == 2.5 * problem.flops
    x = fresh(shape, CPU, 0)
    given_and_answered = [x.q, x.k, x.v, x.q]
    assert shape.moved("forward") == sum(t.nbytes for t in given_and_answered)
    lse = 4 * 2 * 2 * group * seq
    assert shape.moved("backward") == 2 * sum(t.nbytes for t in given_and_answered) + lse
    assert str(shape) in str(problem)


def test_inputs_are_fresh_and_can_be_had_again():
    shape = Shape(1, 2, 1, 512, 64, False, "bfloat16")
    one, again, other = (fresh(shape, CPU, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(float(t.float().std()) == pytest.approx(1, abs=0.05) for t in one)
    wide = fresh(shape, CPU, 1, "outliers")
    assert 0.0002 < float((wide.q.abs() > 6).float().mean()) < 0.002
    assert not any((t.abs() > 6).any() for t in one)


def test_a_grid_of_one_backend(run):
    r = run("attention", *SMALL, "--direction=both", "--seconds=0.1")
    assert [(c.direction, c.causal, c.seq) for c in r.cells] == [
        (way, causal, seq)
        for way in ("forward", "backward")
        for causal in (False, True)
        for seq in (16, 40)
    ]
    for cell in r.cells:
        t = cell.timing
        assert 0 < t.minimum <= t.p5 <= t.median <= t.p95 <= t.p99 <= t.maximum and t.count
        assert cell.tflops == pytest.approx(cell.flops / t.median / 1e9)
        assert {c.answer for c in cell.checks} == (
            {"out", "lse"} if cell.direction == "forward" else {"dq", "dk", "dv"}
        )
        assert cell.passed and cell.backend == "flash" and cell.sensors.absent
    best = max(r.cells, key=lambda c: c.tflops)
    assert (r.tflops, r.timing, r.flops) == (pytest.approx(best.tflops), best.timing, best.flops)
    assert "the fastest of 8 cells" in str(r.reason)
    assert r.started <= r.sustained_from < r.sustained_to <= r.ended + 0.01
    assert r.params["seq"] == "16,40" and r.params["head_dim"] == 8 and r.params["causal"] == "both"


def test_a_comparison_names_what_cannot_be_done(run):
    r = run(
        "compare", *SMALL, "--direction=both", "--backends=auto,flash,math,cudnn", "--seconds=0.1"
    )
    assert str(r.verdict) == "pass"
    by = {(c.contender, c.direction, c.causal, c.seq): c for c in r.cells}
    assert len(by) == len(r.cells) == 4 * 2 * 2 * 2
    for (name, *_), cell in by.items():
        if name == "cudnn":
            assert not cell.backend and not cell.tflops and "it needs a CUDA GPU" in str(cell.note)
        else:
            assert cell.tflops > 0 and cell.passed
            assert cell.backend == ("flash" if name == "auto" else name)


IN_FP8 = ["--heads=2", "--kv-heads=1", "--seq=200", "--head-dim=64", "--dtype=bfloat16"]


def test_fp8_is_compared_where_it_is_named_with_its_own_limit_of_errors(run):
    asked = [*IN_FP8, "--causal=yes", "--batch=1", "--seconds=0.1"]
    r = run("compare", *asked, "--backends=auto,flash,fp8,fp8-emulation", "--direction=both")
    by = {(c.contender, c.direction): c for c in r.cells}
    emulated, exact = by["fp8-emulation", "forward"], by["flash", "forward"]
    assert emulated.backend == "emulation fp8" and emulated.passed and emulated.tflops > 0
    assert 1e-2 < emulated.error < 0.07 and 0 < exact.error < 5e-3
    assert all(check.error < 0.6 * check.bound for check in emulated.checks), "twice its own"
    assert (
        "it needs a CUDA GPU" in str(by["fp8", "forward"].note) and not by["fp8", "forward"].backend
    )
    for name in catalog.FP8:
        assert str(by[name, "backward"].note) == "cannot do this: it has no backward pass"
    assert r.backend == "flash", "FP8 makes no headline beside exacter backends"
    line = next(x for x in summary.lines(r) if x.startswith("largest relative error"))
    assert f"{emulated.error:.1e}" in line and f"{exact.error:.1e}" in line
    plain = run("compare", *asked, "--backends=auto,flash", "--direction=forward")
    assert not any(x.startswith("largest relative error") for x in summary.lines(plain))
    assert {c.backend for c in plain.cells} == {"flash"}


def test_fp8_alone_is_measured_and_tried(run):
    asked = [*IN_FP8, "--causal=no", "--batch=1", "--backend=fp8-emulation"]
    r = run("attention", *asked, "--seconds=0.1")
    assert r.backend == "emulation fp8" and str(r.verdict) == "pass" and len(r.cells) == 1
    wide = [*asked, "--direction=forward", "--inputs=outliers", "--trials=2"]
    (cell,) = run("validate", *wide).cells
    assert cell.trials.failed == 0 and 0.4 < cell.trials.worst < 0.6
    refused = run("attention", *IN_FP8, "--causal=no", "--backend=fp8", "--seconds=0.1", status=2)
    assert "fp8 cannot do this: it needs a CUDA GPU" in refused
    assert len(refused.strip().splitlines()) == 1


def test_an_error_of_fp8_beyond_twice_the_emulations_is_found():
    shape = Shape(1, 2, 1, 200, 64, False, "bfloat16")
    case = contender.pose(shape, "forward", find_device(), seed=1)
    oracle = Oracle(case.sets[0], shape, "forward")
    right = contender.enter("fp8-emulation", case, find_device()).answers()
    wrong = {**right, "out": right["out"] * 1.12}
    assert all(c.passed for c in oracle.check(right, fp8=True))
    assert not all(c.passed for c in oracle.check(wrong, fp8=True))
    assert not all(c.passed for c in oracle.check(right)), "as bfloat16 it would be wrong"


def test_contenders_take_turns(monkeypatch):
    """On a clock that the calls advance, so that other processes on the machine change nothing."""
    from gpudeck.accel.runtime import timing

    now, seconds, calls, reports, during = [0.0], 0.1, [], [], []
    clock = SimpleNamespace(perf_counter=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr(timing, "time", clock)

    def call(i):
        calls.append(i)
        now[0] += 0.001 * (1 + 9 * i)

    loops = timing.measure_in_turn(
        [partial(call, i) for i in range(3)],
        seconds,
        CPU,
        lambda elapsed, count: reports.append((elapsed, count)),
        during.append,
    )
    turns = [b for a, b in zip([None, *calls], calls, strict=False) if a != b]
    assert len(turns) >= 9  # not one after the other
    after = Counter(zip(during[-1:] + during[:-1], during, strict=True))
    assert len(after) == 3 * 2 and len(set(after.values())) == 1  # each as often after each other
    tried = 3 * 2  # to see how many calls fill a slice
    assert reports[-1][1] == len(calls) - tried and reports == sorted(reports)
    counted = [len(loop.samples_ms) for loop in loops]
    assert sum(counted) == len(calls) - tried - len(during)  # the first of a slice is not counted
    assert all(loop.wall_s >= seconds for loop in loops)
    assert [loop.timing.median for loop in loops] == pytest.approx([1, 10, 19])


def test_the_first_contender_is_timed_twice_and_the_ratio_is_told(run):
    r = run("compare", *SMALL, "--backends=math,flash", "--seconds=0.1", "--direction=forward")
    found = {c.contender: [x.twin for x in r.cells if x.contender == c.contender] for c in r.cells}
    assert all(twin > 0 for twin in found["math"]) and set(found["flash"]) == {0.0}
    told = str(twins(r.cells))
    assert told in summary.lines(r) and told.startswith("the same kernel twice")


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_named_backend_gets_its_own_layout_and_auto_that_of_users(direction, monkeypatch):
    strides = {}

    class Watched(type(BACKENDS["math"])):
        layout = "bshd"

        def forward(self, x, problem):
            strides["forward"] = x.q.stride(), x.v.stride()
            return super().forward(x, problem)

        def backward(self, dout, x, out, lse, problem, dlse=None):
            strides["backward"] = x.q.stride(), dout.stride()
            return super().backward(dout, x, out, lse, problem, dlse)

    monkeypatch.setitem(BACKENDS, "math", Watched())
    shape = Shape(2, 3, 3, 16, 8, True, "float32")
    case = contender.pose(shape, direction, find_device(), seed=1)
    named, auto = (contender.enter(name, case, find_device()) for name in ("math", "auto"))
    got, expected = named.answers(), auto.answers()
    assert strides[direction] == ((16 * 3 * 8, 8, 3 * 8, 1),) * 2
    assert case.laid_out("bshd") is case.laid_out("bshd")
    for name in got:
        assert torch.allclose(got[name], expected[name], atol=1e-5)


def test_slow_contenders_have_no_more_than_a_turn_in_each_round():
    from gpudeck.accel.runtime.timing import measure_in_turn

    during, slow = [], lambda: time.sleep(0.02)
    loops = measure_in_turn([slow] * 4, 0.06, CPU, lambda *_: None, during.append)
    rounds = [tuple(during[i : i + 4]) for i in range(0, len(during), 4)]
    assert len(rounds) == 2 and all(
        sorted(order) == [0, 1, 2, 3] for order in rounds
    )  # of two calls of 20 ms each
    assert [len(loop.samples_ms) for loop in loops] == [2] * 4


@pytest.mark.parametrize("contenders", range(1, 9))
def test_each_comes_after_each_other_as_often(contenders):
    from gpudeck.accel.runtime.timing import circuit

    shuffled = np.random.default_rng(1)
    turns = [i for _ in range(3) for i in circuit(contenders, shuffled)]
    after = Counter(zip(turns[-1:] + turns[:-1], turns, strict=True))
    pairs = {(a, b) for a in range(contenders) for b in range(contenders) if a != b} or {(0, 0)}
    assert after == dict.fromkeys(pairs, 3)


class Wrong(Backend):
    """Answer right except now and then, like a race."""

    def __init__(self, real, spoil):
        self._real, self._spoil, self.calls = real, spoil, 0

    def rules(self, problem, direction):
        return self._real.rules(problem, direction)

    def forward(self, x, problem):
        out, lse = self._real.forward(x, problem)
        self.calls += 1
        return self._spoil(self.calls, out), lse

    def backward(self, *args):
        return self._real.backward(*args)


def test_one_wrong_trial_of_many_is_found_and_can_be_repeated(run, monkeypatch):
    def spoil(call, out):
        if call != 8:  # the seventh trial: the first call is to warm up
            return out
        out[0, 1, 3] += 0.01
        return out

    monkeypatch.setitem(BACKENDS, "flash", Wrong(BACKENDS["flash"], spoil))
    r = run(
        "validate",
        "--heads=2",
        "--seq=16",
        "--head-dim=8",
        "--causal=no",
        "--trials=20",
        "--seed=100",
        "--backend=flash",
        status=1,
    )
    forward, backward = r.cells
    assert (forward.trials.count, forward.trials.failed, forward.trials.worst_seed) == (20, 1, 106)
    assert 0 < forward.trials.p50 <= 1 < forward.trials.worst
    assert not forward.passed and not backward.passed  # the gradients rest on the answer
    assert "2 of 40 trials failed; to repeat the worst: seed=106 trials=1" in str(
        r.verdict
    ) and "2 of 2 cells were wrong" in str(r.verdict)


@pytest.mark.parametrize("what", ["stale", "unwritten", "infinite"])
def test_a_kernel_that_cheats_is_caught(what, run, monkeypatch):
    kept = []

    def spoil(call, out):
        kept.append(out)
        if what == "infinite":
            out[0, 0, 0, 0] = math.inf
        return {"stale": kept[0], "unwritten": torch.full_like(out, math.nan), "infinite": out}[
            what
        ]

    monkeypatch.setitem(BACKENDS, "flash", Wrong(BACKENDS["flash"], spoil))
    r = run(
        "validate",
        "--seq=16",
        "--head-dim=8",
        "--causal=no",
        "--trials=3",
        "--direction=forward",
        "--backend=flash",
        status=1,
    )
    (cell,) = r.cells
    assert cell.trials.failed == (2 if what == "stale" else 3)  # what is kept is right once
    assert cell.trials.worst == (
        pytest.approx(BROKEN) if what != "stale" else cell.trials.worst
    ) and math.isfinite(cell.trials.worst)


def test_what_breaks_one_backend_leaves_the_others(run, monkeypatch):
    def spoil(call, out):
        raise AttributeError("the compiler gave up\nand said more")

    monkeypatch.setitem(BACKENDS, "flash", Wrong(BACKENDS["flash"], spoil))
    r = run(
        "compare",
        "--seq=16",
        "--head-dim=8",
        "--causal=no",
        "--backends=flash,math",
        "--seconds=0.1",
        "--dtype=float32",
        status=1,
    )
    flash, math_ = r.cells
    assert (flash.note, flash.tflops, flash.passed) == ("failed: the compiler gave up", 0.0, False)
    assert math_.tflops > 0 and math_.passed
    assert str(r.verdict).startswith(
        "fail: raised an error"
    ) and "first flash at forward, head size 8" in str(r.verdict)


@pytest.mark.parametrize("name", list(WORK))
def test_what_no_backend_can_do_is_a_usage_error(name, run):
    option = "--backends=cudnn" if name in ("compare", "tune") else "--backend=cudnn"
    several = "--seq=16,32" if name != "tune" else "--seq=16"
    said = run(name, several, "--head-dim=8", option, "--dtype=float32", status=2)
    assert "needs a CUDA GPU" in said and said.count("\n") == 1


def test_tuning_writes_what_dispatch_reads(run, tmp_path):
    r = run("tune", *SMALL, "--backends=flash,math", "--seconds=0.1")
    rows = table.read(tmp_path / "attention.csv")
    assert f"{len(rows)} measurements written to {tmp_path / 'attention.csv'}" in str(r.reason)
    assert len(rows) == 2 * 2 * 2 * 2
    cells = {(c.direction, c.causal, c.seq, c.backend): c for c in r.cells}
    for row in rows:
        cell = cells[row.direction, row.causal, row.seq_q, row.backend]
        assert row.gpu == find_device().name and row.seq_q == row.seq_k
        assert (row.microseconds, row.tflops) == (
            pytest.approx(1e3 * cell.timing.median),
            pytest.approx(cell.tflops),
        )
        assert row.low <= row.microseconds <= row.high
    run("tune", *SMALL, "--backends=flash", "--seconds=0.1")
    assert len(table.read(tmp_path / "attention.csv")) == 16  # measured again, not twice there


def test_wrong_answers_are_not_recorded():
    cell = Cell(
        1,
        1,
        1,
        16,
        8,
        False,
        "float32",
        "forward",
        "flash",
        "flash",
        timing=Timing(1, 1, 1, 1, 1, 1, 5, 1),
        tflops=1.0,
    )
    spoiled = msgspec.structs.replace(cell, checks=(Check("out", 1.0, 0.1),))
    refused = msgspec.structs.replace(cell, backend="", tflops=0.0)
    assert [
        row.backend for row in tune.rows((cell, spoiled, refused), "a GPU", "torch 2", "2026-01-01")
    ] == ["flash"]


def test_the_largest_grid_fits_into_the_file_the_daemon_reads(run):
    r = run(
        "compare",
        "--seq=16",
        "--head-dim=8",
        "--direction=backward",
        "--causal=yes",
        "--seconds=0.1",
        "--backends=auto,flash",
    )
    digits = random.Random(1).random
    cell = msgspec.structs.replace(
        max(r.cells, key=lambda c: len(msgspec.json.encode(c))),
        timing=Timing(*(digits() for _ in range(6)), 123456, digits()),
        sensors=results.Sensors(
            *(digits() for _ in range(4)), absent="power: not measured while backends take turns"
        ),
        note=phrase(
            "auto: measured fastest here on {when}, {this}",
            when=Moment(1.7e9),
            this=join_texts([f"efficient {digits()}" for _ in range(6)]),
        ),
    )
    full = msgspec.structs.replace(r, cells=(cell,) * MOST_CELLS)
    assert len(msgspec.json.encode(full)) < MAX_RESULT


def test_results_from_before_there_were_cells_are_read():
    old = {
        "workload": "gemm", "device": "d", "backend": "b", "reason": "r", "params": {"size": 8}, "verdict": "pass",  # noqa: E501
        "checks": [{"name": "c", "error": 0.1, "bound": 0.2}],
        "timing": {"median": 1.0, "p50": 1.0, "p95": 2.0, "p99": 3.0, "minimum": 0.5, "maximum": 4.0, "count": 7},  # noqa: E501
        "flops": 1.0, "tflops": 1.0, "sustained_tflops": 1.0, "sustained_from": 0.0, "sustained_to": 1.0, "versions": {},  # noqa: E501
        "started": 0.0, "ended": 1.0,
    }  # fmt: skip
    read = results.read(msgspec.json.encode(old))
    assert isinstance(read, Result)
    assert (read.cells, read.timing.p5, read.sensors.watts) == ((), 0.0, None)


def test_directions():
    assert directions("both") == ("forward", "backward")
    assert directions("backward") == ("backward",)


class TestSensors:
    """With a card's answers as torch gives them."""

    GPU = torch.device("cuda", 0)

    @pytest.fixture
    def card(self, monkeypatch):
        answers = {"clock_rate": 1755, "power_draw": 640_000, "temperature": 61}

        def answer(name):
            return answers[name]() if callable(answers[name]) else answers[name]

        for name in tuple(answers):
            monkeypatch.setattr(torch.cuda, name, lambda _, name=name: answer(name))
        return answers

    def test_power_needs_longer_than_the_card_averages_over(self, card, monkeypatch):
        monkeypatch.setattr(power, "_EVERY_S", 0.01)
        monkeypatch.setattr(power, "POWER_AVERAGE_S", 0.2)
        import time

        with power.SensorWatch(self.GPU) as watch:
            time.sleep(0.4)
        long = watch.sensors(500.0)
        assert (long.sm_mhz, long.watts, long.celsius, long.joules_per_tflop, long.absent) == (
            1755,
            640,
            61,
            1.28,
            "",
        )
        with power.SensorWatch(self.GPU) as watch:
            time.sleep(0.05)
        short = watch.sensors(500.0)
        assert (short.sm_mhz, short.watts, short.joules_per_tflop) == (1755, None, None)
        assert "less than the 0.2 s" in str(short.absent)

    def test_a_sensor_that_is_not_there_is_absent_and_others_are_read(self, card):
        class NVMLError(Exception):
            pass

        class NVMLError_NotSupported(NVMLError):  # noqa: N801 - pynvml's name
            pass

        def refuse():
            raise NVMLError_NotSupported

        card["power_draw"] = refuse
        assert power.read(self.GPU) == (1755, None, 61)

        def wrong():
            raise KeyError("a mistake of ours")

        card["temperature"] = wrong
        with pytest.raises(KeyError):
            power.read(self.GPU)

    def test_a_cpu_has_none(self):
        with power.SensorWatch(CPU) as watch:
            pass
        assert watch.sensors(1.0) == power.in_turn([], CPU)
        assert watch.sensors(1.0).watts is None and watch.sensors(1.0).absent
