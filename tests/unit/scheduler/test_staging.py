"""A large submission is stored part by part, and exists as a whole or not at all."""

from __future__ import annotations

import sqlite3

import pytest

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound, Unsettled, UserError
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.staging import PART
from tests.unit.scheduler.own_queue import CPU, make_queue, submit, submit_all

COUNT = 3 * PART + 7
SPECS = [Spec(("true",), f"n{n}", "/", {"TOKEN": "s3cret"}, hold=True) for n in range(COUNT)]
NOBODY = Availability()


def numbers(queue: Queue) -> list[int]:
    """Return the jobs that are listed, and found, as the index and as the store know them."""
    listed = [job.id for job in finish(queue.queries.newest(1000, active=False))]
    known = [job.id for job in finish(queue.queries.newest(1000, active=True))]
    found, before = [], 2**62
    while before is not None:
        page, before = queue.queries.find(Search(), before, 1000)
        found += [job.id for job in page]
    assert listed == known == found
    return sorted(listed)


def test_a_large_submission_is_seen_by_nobody_before_it_is_whole(store: Store) -> None:
    queue = make_queue(store)
    before = submit(queue, hold=True)
    first = before + 1
    between: list[int] = []
    for _ in queue.submission.submit(SPECS, [CPU], NOBODY, "night"):
        (last,) = store.connection.execute(store._q["last_number"]).fetchone()
        if last > before and not between:
            between = [submit(queue, hold=True)]  # others go on
            assert between == [first + COUNT]
        shown = [number for number in numbers(queue) if number not in (before, *between)]
        assert shown == list(range(first, first + len(shown)))
        with pytest.raises(Unsettled):
            submit_all(queue, SPECS, [CPU], token="night")
        if not shown:
            assert queue.queries.owners([first]) == {}
            with pytest.raises(NotFound):
                queue.get(first)
    assert numbers(queue) == list(range(before, first + COUNT + 1))
    again = submit_all(queue, SPECS, [CPU], token="night")
    assert [job.id for job in again] == list(range(first, first + COUNT))
    assert store.env(first + COUNT - 1) == {"TOKEN": "s3cret"}
    assert len(numbers(make_queue(store))) == COUNT + 2


@pytest.mark.parametrize("steps", range(0, COUNT // 32 * 3, 4))
def test_a_daemon_that_dies_meanwhile_leaves_all_of_it_or_nothing(store: Store, steps: int) -> None:
    work = make_queue(store).submission.submit(SPECS, [CPU], NOBODY, "night")
    for _ in range(steps):
        if next(work, "over") == "over":
            break
    copy = sqlite3.connect(paths.home() / "copy.sqlite")  # what a killed daemon leaves
    store.connection.backup(copy)
    copy.close()
    next_store = Store(paths.home() / "copy.sqlite")
    queue = make_queue(next_store)
    left = numbers(queue)
    assert len(left) in (0, COUNT)
    if not left:
        rows = next_store.connection.execute("SELECT count(*) FROM environments").fetchone()
        assert rows == (0,)
        assert not next_store.loss
    jobs = submit_all(queue, SPECS, [CPU], token="night")
    assert len(numbers(queue)) == COUNT
    assert [job.spec.name for job in jobs] == [spec.name for spec in SPECS]
    next_store.close()


def test_a_full_disk_leaves_nothing_of_a_large_submission(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(store)
    before = submit(queue, hold=True)
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    for _ in range(2):
        with pytest.raises(UserError, match="disk is full"):
            submit_all(queue, SPECS, [CPU], token="night")
        assert numbers(queue) == [before]
    store.connection.execute("PRAGMA max_page_count = 100000")
    assert len(submit_all(queue, SPECS, [CPU], token="night")) == COUNT
    assert len(numbers(queue)) == COUNT + 1
