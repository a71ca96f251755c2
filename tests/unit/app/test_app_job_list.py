"""The table's list is kept up with what changes: it must be what one that looks at everything
makes."""

from __future__ import annotations

import random

import msgspec
import pytest

from gpudeck.app.jobs.history import JobHistory, pack, unpack
from gpudeck.app.jobs.listing import EVERY, WAITING, JobList, history_search, parse_search
from gpudeck.scheduler.protocol.jobs import Cancelled, Queued, Running, queued
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from tests.gui import snapshots
from tests.gui.snapshots import NOW, job


@pytest.mark.parametrize("kind", [EVERY, WAITING])
def test_an_updated_list_equals_a_list_built_again(kind) -> None:
    draw = random.Random(7)
    empty = snapshots.cpu_snapshot(with_jobs=False)
    search = parse_search("", kind, 0.0, empty)
    history, kept = JobHistory(), JobList()
    history.start(history_search(search))
    state = {number: Queued() for number in range(60)}

    def now(number):
        return msgspec.structs.replace(job(number, state[number]), submitted=NOW - number % 7)

    for step in range(200):
        number = draw.randrange(60)
        state[number] = draw.choice(
            [
                Queued(),
                queued(StartFailed("held"), 0.0),
                Running("a", ("cpu",), NOW, 1, 1, "boot"),
                Cancelled(NOW),
            ]
        )
        told = [now(each) for each in draw.sample(range(60), 12)]
        snapshot = msgspec.structs.replace(empty, jobs=tuple(told), time=NOW + step)
        history.update(snapshot.jobs, snapshot.time)
        if (asked := history.next_request()) is not None:
            history.take(
                asked, tuple(now(each) for each in draw.sample(range(60), 10)), asked.before
            )
        if step % 50 == 49:
            history.start(history_search(search))  # there was a gap: all is asked for anew
        lines = kept.lines(snapshot, search, history)
        anew = JobList().lines(snapshot, search, history)
        assert lines.ids == anew.ids
        shown = [(line.id, line.row.state, line.row.doing) for line in lines]
        assert shown == [(line.id, line.row.state, line.row.doing) for line in anew]


def test_an_older_page_does_not_hide_what_a_snapshot_says_of_a_job() -> None:
    history = JobHistory()
    history.start(parse_search("", EVERY, 0.0, snapshots.cpu_snapshot(with_jobs=False)))
    old = job(5, Cancelled(NOW))
    spec = msgspec.structs.replace(old.spec, notes="it ran out of disk")
    new = msgspec.structs.replace(old, spec=spec)
    asked = history.next_request()
    assert asked is not None
    history.update((new,), NOW)
    history.take(asked, (old,), None)  # it was read before the notes were written
    history.update((new,), NOW + 1)
    assert history.job(5) == new


def test_packed_jobs_are_the_same_and_take_a_fraction_of_their_json() -> None:
    known = [job(number, Cancelled(NOW - number)) for number in range(200)]
    packed = [pack(each) for each in known]
    assert [unpack(each) for each in packed] == known
    assert [pack(unpack(each)) for each in packed] == packed
    plain = sum(len(msgspec.json.encode(each)) for each in known)
    assert sum(len(each) for each in packed) < 0.4 * plain
