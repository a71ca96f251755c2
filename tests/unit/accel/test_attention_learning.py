"""`auto` measures shapes that come back: when, what it keeps, and what it leaves alone.

The backends and the clock are real, on a CPU, where `flash` and `math` compete; only the choice to
learn on a CPU at all, and what is too fast to tell apart, are the tests' own.
"""

import json
import multiprocessing
import os
import signal
import stat
import time
import warnings

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.attention import (
    BACKENDS,
    attention,
    choose,
    describe,
    explain,
    lessons,
    passes,
)
from gpudeck.accel.attention.lessons import STORE
from gpudeck.accel.lessons import records, store, usage
from gpudeck.accel.lessons.records import Measured
from gpudeck.accel.runtime import brief_timing, state_files
from tests.unit.accel.attention_lessons import forget, kept

SHAPE = (1, 2, 24, 16)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A state folder of its own, a CPU that learns, and two backends that could win there."""
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(usage, "DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(passes, "contenders", lambda *_: ("flash", "math"))
    forget()
    yield tmp_path / "home"
    accel.learning("once")
    forget()


def tensors(shape=SHAPE, grad=False):
    return [torch.randn(shape).requires_grad_(grad) for _ in range(3)]


def fastest(monkeypatch, name):
    """Let a backend be the fastest by so much that no pause of the machine changes it."""
    original = brief_timing.medians

    def medians(calls, device, **how):
        found, failed, count = original(calls, device, **how)
        return {n: us * (1e-3 if n == name else 1e3) for n, us in found.items()}, failed, count

    monkeypatch.setattr(brief_timing, "medians", medians)


def test_the_second_call_is_measured_and_decides_from_then_on(own, monkeypatch):
    fastest(monkeypatch, "math")
    q, k, v = tensors()
    first = attention(q, k, v, return_choice=True)[1]
    assert first.backend == "flash" and not first.is_measured and kept() == []
    out, second = attention(q, k, v, return_choice=True)
    assert second.backend == "math" and second.basis == "measured here"
    [m] = kept()
    assert set(m.microseconds) == {"flash", "math"} and m.predicted == "flash"
    assert m.fastest == "math" and m.gain > 1e3 and m.direction == "forward"
    assert abs(m.at - time.time()) < 60 and "torch 2" in m.software and m.uuid
    torch.testing.assert_close(out, attention(q, k, v, backend="reference"))


@pytest.mark.parametrize(("queries", "cold"), [(1, True), (64, False)])
def test_decoding_is_measured_with_keys_that_no_cache_holds(own, monkeypatch, queries, cold):
    """As between two steps of a model, whose other layers read their own keys and weights."""
    asked = []
    original = brief_timing.medians

    def medians(calls, device, **how):
        asked.append(how["cold"])
        return original(calls, device, **how)

    monkeypatch.setattr(brief_timing, "medians", medians)
    q, k, v = (torch.randn(1, 1, n, 8) for n in (queries, 64, 64))
    for _ in range(2):
        attention(q, k, v)
    assert asked == [cold]


def test_explain_says_when_it_was_measured_or_that_it_is_predicted(own, monkeypatch):
    fastest(monkeypatch, "math")
    q, k, v = tensors()
    assert "the first of flash, math" in str(explain(q, k, v)[0])
    attention(q, k, v)
    attention(q, k, v)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    said = explain(q, k, v)[0]
    assert f"auto: measured fastest here on {day} " in str(said.reason) and " us, flash " in str(
        said.reason
    )
    assert "TFLOP/s measured" in str(said)


def test_the_second_backward_pass_is_measured_too(own, monkeypatch):
    fastest(monkeypatch, "math")
    q, k, v = tensors(grad=True)
    for _ in range(2):
        attention(q, k, v).sum().backward()
    flops = {m.direction: m.flops for m in kept()}
    assert flops["backward"] == 2.5 * flops["forward"]  # five products of tiles in place of two
    assert [c.backend for c in explain(q, k, v)] == ["math", "math"]
    q.grad = None
    attention(q, k, v).sum().backward()
    mine, q.grad = q.grad, None
    attention(q, k, v, backend="reference").sum().backward()
    torch.testing.assert_close(mine, q.grad)


def test_masks_and_ragged_batches_have_spots_of_their_own(own):
    q, k, v = tensors()
    bias = torch.zeros(1, 1, 24, 24)
    for _ in range(2):
        attention(q, k, v)
        attention(q, k, v, bias=bias)
        attention(q, k, v, causal=True)
    lengths = accel.Ragged.of([10, 14], device="cpu")
    rows = [torch.randn(24, 2, 16) for _ in range(3)]
    for _ in range(2):
        attention(*rows, seqlens=lengths)
    assert len({m.spot for m in kept()}) == 4


def test_lengths_of_one_step_are_measured_once_and_others_again(own):
    for length in (1000, 1010, 990, 2000, 2010):
        attention(*tensors((1, 1, length, 8)))
    assert [m.spot for m in kept()] == [
        "float32 d8 heads0 queries40 keys40",
        "float32 d8 heads0 queries44 keys44",
    ]


def test_what_is_measured_survives_the_process_and_other_versions_do_not_count(own, monkeypatch):
    fastest(monkeypatch, "math")
    q, k, v = tensors()
    attention(q, k, v)
    attention(q, k, v)
    forget()
    assert attention(q, k, v, return_choice=True)[1].backend == "math"
    store.software.cache_clear()
    monkeypatch.setattr(store, "versions", lambda: {"torch": "1.0", "driver": "1"})
    forget()
    assert attention(q, k, v, return_choice=True)[1].backend == "flash"
    attention(q, k, v)
    store.software.cache_clear()
    assert len({m.software for m in kept()}) == 2


def test_another_card_of_the_name_is_believed_until_this_one_is_measured(own):
    problem = describe(*tensors())
    card = store.gpu(problem.device)

    def told(uuid, name, fast):
        us = {"flash": 2.0, "math": 2.0} | {fast: 1.0}
        return Measured(
            name, uuid, store.software(), "forward", lessons.spot(problem), "", 1.0, "flash", us, 2,
            0.0,
        )  # fmt: skip

    STORE.record(told("GPU-9", "another card", "math"))
    choose.cache_clear()
    assert choose(problem).basis == "order"
    STORE.record(told("GPU-1", card.name, "math"))
    choose.cache_clear()
    assert choose(problem).backend == "math"
    STORE.record(told(card.uuid, card.name, "flash"))
    choose.cache_clear()
    assert choose(problem).backend == "flash" and len(kept()) == 3


def test_a_lead_of_a_percent_changes_nothing(own):
    problem = describe(*tensors())
    card = store.gpu(problem.device)
    for us, chosen in ((98.5, "flash"), (97.0, "math")):
        STORE.record(
            Measured(card.name, card.uuid, store.software(), "forward", lessons.spot(problem), "",
                     1.0, "flash", {"flash": 100.0, "math": us}, 2, 0.0)
        )  # fmt: skip
        choose.cache_clear()
        assert choose(problem).backend == kept()[0].fastest == chosen


def test_off_neither_measures_nor_uses_and_idle_only_counts(own, monkeypatch):
    fastest(monkeypatch, "math")
    q, k, v = tensors()
    for mode in ("off", "idle"):
        assert accel.learning(mode) == accel.learning() == mode
        for _ in range(3):
            assert attention(q, k, v, return_choice=True)[1].backend == "flash"
    assert kept() == []
    accel.learning("once")
    assert attention(q, k, v, return_choice=True)[1].backend == "math"
    accel.learning("off")
    assert attention(q, k, v, return_choice=True)[1].backend == "flash"
    with pytest.raises(ValueError, match="learning is one of off, once, idle; got 'always'"):
        accel.learning("always")


def test_named_backends_deterministic_gradients_and_compiled_calls_are_left_alone(own):
    q, k, v = tensors()
    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    for _ in range(3):
        attention(q, k, v, backend="flash")
        attention(q, k, v, deterministic=True)
        compiled(q, k, v)
    assert kept() == []


def test_a_capture_is_left_alone_and_the_next_call_measures(own, monkeypatch):
    """What the driver would answer during a capture; the rest is real."""
    q, k, v = tensors()
    with monkeypatch.context() as capture:
        capture.setattr(usage, "is_recorded", lambda device: True)
        for _ in range(4):
            attention(q, k, v)
        assert kept() == []
    attention(q, k, v)
    assert len(kept()) == 1


def test_tools_that_count_operations_see_the_callers_alone(own):
    from torch.utils.flop_counter import FlopCounterMode

    q, k, v = tensors()
    with FlopCounterMode(display=False):
        for _ in range(3):
            attention(q, k, v)
    assert kept() == []


def test_a_backend_that_fails_is_named_and_the_caller_gets_its_answer(own, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setattr(BACKENDS["math"], "forward", broken)
    q, k, v = tensors()
    attention(q, k, v)
    with pytest.warns(
        UserWarning, match="goes on without math, which failed at .*: no such kernel"
    ):
        out = attention(q, k, v)
    torch.testing.assert_close(out, attention(q, k, v, backend="reference"))
    assert list(kept()[0].microseconds) == ["flash"]


def test_nothing_is_measured_where_nothing_can_be_kept_and_one_line_says_so(own):
    own.parent.joinpath("home").write_text("a file where the state folder should be")
    q, k, v = tensors()
    attention(q, k, v)
    with pytest.warns(UserWarning, match="attention does not learn, because it cannot keep it: "):
        attention(q, k, v)
    other = tensors((1, 2, 99, 16))
    for _ in range(3):
        assert attention(*other, return_choice=True)[1].basis == "order"
        attention(q, k, v)


def test_a_damaged_file_is_told_once_and_replaced_by_the_next_measurement(own):
    own.mkdir()
    STORE.file.write_bytes(b'{"format": 1, "measured": [{"gpu": 3')
    q, k, v = tensors()
    with pytest.warns(UserWarning, match="does not use what it learned: .*attention-learned.json"):
        attention(q, k, v)
    attention(q, k, v)
    assert len(kept()) == 1
    with pytest.raises(ValueError, match="the format is 2, not 1"):
        records.decode_learned(b'{"format": 2, "measured": []}')


def test_the_file_is_its_owners_alone_and_the_oldest_are_dropped(own, monkeypatch):
    monkeypatch.setattr(store, "MOST", 3)
    for length in (8, 16, 32, 64):
        for _ in range(2):
            attention(*tensors((1, 1, length, 8)))
    assert [m.spot.rsplit(" ", 1)[1] for m in kept()] == ["keys16", "keys20", "keys24"]
    assert stat.S_IMODE(STORE.file.stat().st_mode) == 0o600
    assert {f.name for f in own.iterdir()} == {
        "attention-learned.json", "attention-learned.json.lock"
    }  # fmt: skip


def writer(number, count, ready):
    """Record `count` measurements of its own, as a process does at its calls."""
    ready.wait()
    for i in range(count):
        STORE.record(
            Measured("gpu", "uuid", "torch", "forward", f"{number}.{i}", "", 1.0, "a", {"a": 1.0},
                     1, 0.0)
        )  # fmt: skip


def processes(count, target, *args):
    spawn = multiprocessing.get_context("fork")
    started = [spawn.Process(target=target, args=(n, *args)) for n in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of a program with threads: none of them locks
        for process in started:
            process.start()
    return started


def test_processes_that_write_at_once_lose_nothing(own):
    ready = multiprocessing.get_context("fork").Event()
    started = processes(6, writer, 12, ready)
    ready.set()
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    assert {m.spot for m in kept()} == {f"{n}.{i}" for n in range(6) for i in range(12)}


def test_a_writer_killed_at_any_moment_leaves_a_whole_file_and_no_lock(own):
    STORE.record(Measured("gpu", "", "", "forward", "first", "", 1.0, "a", {"a": 1.0}, 1, 0.0))
    ready = multiprocessing.get_context("fork").Event()
    ready.set()
    for moment in range(8):
        [process] = processes(1, writer, 10_000, ready)
        before = len(kept())
        deadline = time.monotonic() + 30
        while len(kept()) == before and time.monotonic() < deadline:
            time.sleep(0.001 * moment)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert "first" in {m.spot for m in kept()}
    STORE.record(Measured("gpu", "", "", "forward", "last", "", 1.0, "a", {"a": 1.0}, 1, 0.0))
    assert {"first", "last"} <= {m.spot for m in kept()}
    assert json.loads(STORE.file.read_bytes())["format"] == records.FORMAT


def test_a_lock_that_is_never_released_delays_nobody_for_long(own, monkeypatch):
    monkeypatch.setattr(state_files, "PATIENCE_S", 0.05)
    q, k, v = tensors()
    attention(q, k, v)
    told = "does not keep what it learned: another process has"
    with (
        state_files._lock(STORE.file),
        pytest.warns(UserWarning, match=told),
    ):
        attention(q, k, v)
    assert attention(q, k, v, return_choice=True)[1].basis == "measured here" and kept() == []


def test_calls_are_limited_in_time_and_number(monkeypatch):
    now, seen = [0.0], {"quick": 0, "slow": 0, "broken": 0}
    monkeypatch.setattr(brief_timing.time, "perf_counter", lambda: now[0])

    def counted(name, ms):
        def call():
            seen[name] += 1
            now[0] += ms / 1e3
            if name == "broken":
                raise ValueError("cannot")

        return call

    cpu = torch.device("cpu")
    both = {"quick": counted("quick", 0.001), "broken": counted("broken", 0.001)}
    found, failed, calls = brief_timing.medians(both, cpu, 1e6)
    assert seen["quick"] == 1 + brief_timing.MOST_CALLS == 1 + calls and seen["broken"] == 1
    assert set(found) == {"quick"} and failed == {"broken": "ValueError: cannot"}
    slow = {"slow": counted("slow", 20.0), "quick": counted("quick", 0.001)}
    found, _, calls = brief_timing.medians(slow, cpu, 30.0)
    assert seen["slow"] == 2 and found == {
        "slow": pytest.approx(20e3),
        "quick": pytest.approx(1.0),
    }
    assert calls == 1 + brief_timing.MOST_CALLS


def test_calls_that_the_host_launched_too_late_do_not_count(monkeypatch):
    """More calls between two events left the last contenders waiting, which then dropped out."""
    host_ms, lasts = 0.06, {"first": 0.01, "second": 0.011, "third": 0.012}
    names: list[str] = []

    def round_of(turns, _, wait_ms, __):
        launched, free, times = 0.0, wait_ms, []
        for call, count in turns:
            call()
            begun = free = max(free, launched)
            for _ in range(count):
                launched += host_ms
                free = max(free, launched) + lasts[names[-1]]
            times.append((free - begun) / count)
        return times, launched

    monkeypatch.setattr(brief_timing, "_round", round_of)
    calls = {name: lambda name=name: names.append(name) for name in lasts}
    found, _, _ = brief_timing.medians(calls, torch.device("cpu"), 1e6)
    assert found == {name: pytest.approx(1e3 * ms) for name, ms in lasts.items()}


def test_a_round_that_the_host_launched_too_late_counts_beside_no_other(monkeypatch):
    """Of two rounds behind the first one was late: the median of both is the time of neither."""
    now = [0.0]
    monkeypatch.setattr(brief_timing.time, "perf_counter", lambda: now[0])
    rounds = iter([(0.01, 0.01, 0.0), (5.0, 1e3, 0.0), (0.01, 0.01, 1.0)])

    def round_of(turns, *_):
        ms, host_ms, seconds = next(rounds)
        now[0] += seconds
        return [ms for _ in turns], host_ms

    monkeypatch.setattr(brief_timing, "_round", round_of)
    calls = {"first": lambda: None, "second": lambda: None}
    found, _, _ = brief_timing.medians(calls, torch.device("cpu"), 100.0)
    assert found == {"first": pytest.approx(10.0), "second": pytest.approx(10.0)}


def test_one_hopeless_contender_does_not_take_the_time_of_the_others(monkeypatch):
    """Long calls of which the first round would be the last, were all to take part again."""
    now = [0.0]
    monkeypatch.setattr(brief_timing.time, "perf_counter", lambda: now[0])
    lasts = {"first": [1.5, 1.5, 1.0], "second": [1.2], "hopeless": [9.0]}

    def timed(name):
        def call():
            ms = lasts[name].pop(0) if len(lasts[name]) > 1 else lasts[name][0]
            now[0] += ms / 1e3

        return call

    calls = {name: timed(name) for name in lasts}
    found, _, count = brief_timing.medians(calls, torch.device("cpu"), 20.0)
    assert found["first"] == pytest.approx(1e3) and found["second"] == pytest.approx(1.2e3)
    assert count == 3 + 2 * 3 and now[0] < 0.020 + 0.0117
