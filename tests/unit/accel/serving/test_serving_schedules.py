"""An answer is the same, bit for bit, whatever else the engine does; nothing leaks."""

from __future__ import annotations

import gc
import threading

import psutil
import pytest
from schedules import RecurrentSchedules, Schedules

from gpudeck.accel.serving import request as requests
from gpudeck.accel.serving.request import Request, Sampling


@pytest.fixture(scope="module")
def schedules(tmp_path_factory):
    return Schedules(tmp_path_factory.mktemp("schedules"))


@pytest.fixture(autouse=True)
def unread(monkeypatch):
    monkeypatch.setattr(requests, "MOST_UNREAD", requests.MOST_UNREAD)


COMMON = ("length", "cancelled", "error", "prefix hits", "preemptions", "evictions")


def check(schedules, count, events=(*COMMON, "swaps", "accepted")):
    for seed in range(count):
        schedules.run(seed)
    for event in events:
        assert schedules.happened[event] > 0, f"{event} never happened"


def test_25_schedules_give_the_answers_computed_alone(schedules):
    check(schedules, 25)


def test_12_schedules_of_states_give_the_answers_computed_alone():
    check(RecurrentSchedules(), 12, COMMON)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_2000_schedules_of_states_give_the_answers_computed_alone():
    check(RecurrentSchedules(), 2000, COMMON)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_10000_schedules_give_the_answers_computed_alone(schedules):
    check(schedules, 10_000)


def serve(schedules, engine, count):
    """Serve requests, some of them cancelled, five at a time."""
    streams = []
    for number in range(count):
        prompt = (*range(3, 3 + number % 40), 5 + number % 290)
        request = Request(prompt, 4, Sampling(temperature=1.0, seed=number))
        streams.append(engine.submit(request))
        if number % 7 == 0:
            streams[-1].cancel()
        while len(streams) > 4:
            engine.step()
            streams = [stream for stream in streams if stream.ended is None]
    while engine.step():
        pass


def test_a_request_is_admitted_with_room_for_its_next_token(schedules):
    engine = schedules.engine(4, step_tokens=256)  # blocks of 16 tokens
    long = Request(tuple(range(3, 23)), 8, ignore_end=True)  # two blocks for good
    exact = Request(tuple(range(100, 132)), 2, ignore_end=True)  # two, and a third for its answer
    streams = [engine.submit(long), engine.submit(exact)]
    while engine.step():
        pass
    assert engine.scheduler.preemptions == 0, "its blocks were taken back at once"
    assert [stream.ended.reason for stream in streams] == ["length", "length"]


def leaks(schedules, warm, count):
    engine = schedules.engine(40, host_blocks=8, step_tokens=64)
    serve(schedules, engine, warm)
    gc.collect()
    process = psutil.Process()
    before = (threading.active_count(), psutil.Process().num_fds())
    memory = process.memory_info().rss
    serve(schedules, engine, count)
    gc.collect()
    assert (threading.active_count(), psutil.Process().num_fds()) == before
    assert engine.pool.free + engine.pool.in_tree == engine.pool.total
    assert engine.pool.idle == engine.pool.in_tree and engine.pool.on_host <= 8
    assert len(engine.pool._heap) <= 2 * engine.pool.total + 65
    assert not engine.scheduler._queued and not engine.scheduler._served
    assert process.memory_info().rss - memory < 24 * 2**20


def test_nothing_leaks_in_300_requests(schedules):
    leaks(schedules, 100, 300)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_leaks_in_10000_requests(schedules):
    leaks(schedules, 1000, 10_000)


class Wrong:
    """Propose a token that is never chosen."""

    def begin(self, request):
        return self

    def propose(self, tokens, most):
        return [299] * most

    def end(self):
        pass


def test_a_proposal_takes_no_blocks_of_another_answer(schedules):
    engine = schedules.engine(2, step_tokens=64, speculator=Wrong(), most_drafts=4)
    long = Request(tuple(range(3, 13)), 10, ignore_end=True)  # two blocks of 16 tokens in the end
    short = Request(tuple(range(50, 60)), 5, ignore_end=True)  # one block
    streams = [engine.submit(long), engine.submit(short)]
    while engine.step():
        pass
    assert engine.scheduler.preemptions == 0
    assert [stream.ended.reason for stream in streams] == ["length", "length"]
    assert sum(stream.ended.proposed for stream in streams) > 0
