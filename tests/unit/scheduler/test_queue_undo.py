"""Undo the cancellation of waiting jobs. The store and the queue are real."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import UNDO_S, Cancelled, Done
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.queue import undo
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store
from tests.support import eventually
from tests.unit.scheduler.own_queue import CPU, ended, make_queue, submit


def order(queue: Queue) -> list[int]:
    """Return the waiting jobs in the order in which they are served."""
    return list(queue._index.waiting)


def environments(store: Store) -> int:
    (count,) = store.connection.execute("SELECT count(*) FROM environments").fetchone()
    return int(count)


def test_a_cancelled_job_goes_back_to_its_place_with_its_environment(store, tmp_path) -> None:
    queue, printed = make_queue(store), tmp_path / "printed"
    queue.groups.pause(True)
    jobs = [
        submit(queue, "/bin/sh", "-c", f'echo "$WHO" >> {printed}', env={"WHO": str(n)})
        for n in range(4)
    ]
    queue.editor.move(jobs[3], jobs[1], after=False)
    before = order(queue)
    assert before == [jobs[0], jobs[3], jobs[1], jobs[2]]
    queue.canceller.cancel(jobs[3])
    finish(queue.canceller.cancel_many([jobs[1]], (), None, ""))
    assert environments(store) == 2, "no secret stays on disk for an undo"
    restored = finish(queue.canceller.undo.restore([jobs[3], jobs[1]]))
    assert {job.id for job in restored} == {jobs[3], jobs[1]}
    assert order(queue) == before
    assert [e.what for e in queue.queries.timeline(jobs[1])] == [
        "submitted",
        "cancelled",
        "restored",
    ]
    assert not {jobs[1], jobs[3]} & {job.id for job in queue._index.ended}
    queue = make_queue(store)  # what was restored is on disk
    assert order(queue) == before
    queue.groups.pause(False)
    queue.step([CPU])
    for job in jobs:
        eventually(lambda job=job: (queue.step([CPU]), ended(queue, job))[1])
    assert sorted(printed.read_text().split()) == ["0", "1", "2", "3"]


def test_jobs_that_were_cancelled_because_of_it_come_back_and_others_do_not(store) -> None:
    queue = make_queue(store)
    queue.groups.pause(True)
    first = submit(queue)
    child = submit(queue, after=(first,))
    grandchild = submit(queue, after=(child,))
    own = submit(queue, after=(first,))
    queue.canceller.cancel(own)
    queue.canceller.cancel(first)
    queue.step([CPU])
    assert all(isinstance(queue.get(n).state, Cancelled) for n in (first, child, grandchild))
    assert {job.id for job in finish(queue.canceller.undo.restore([first]))} == {
        first,
        child,
        grandchild,
    }
    assert isinstance(queue.get(own).state, Cancelled), "the user had cancelled it alone"
    queue.groups.pause(False)
    for job in (first, child, grandchild):
        eventually(lambda job=job: (queue.step([CPU]), ended(queue, job))[1])
        assert isinstance(queue.get(job).state, Done)


def test_a_job_restored_after_what_it_waits_for_failed_does_not_run(store) -> None:
    queue = make_queue(store)
    first = submit(queue, "false")
    child = submit(queue, after=(first,))
    queue.canceller.cancel(child)
    queue.step([CPU])
    eventually(lambda: ended(queue, first))
    finish(queue.canceller.undo.restore([child]))
    queue.step([CPU])
    assert queue.get(child).status == "cancelled"


def test_what_can_no_longer_be_undone_is_refused_and_nothing_changes(store, monkeypatch) -> None:
    queue = make_queue(store)
    queue.groups.pause(True)
    kept, late = submit(queue), submit(queue)
    with pytest.raises(UserError, match=f"job {kept} can no longer be undone"):
        finish(queue.canceller.undo.restore([kept]))
    queue.canceller.cancel(late)
    with monkeypatch.context() as patch:
        now = undo.time.monotonic() + UNDO_S + undo.GRACE_S + 1
        patch.setattr(undo.time, "monotonic", lambda: now)
        queue.canceller.cancel(kept)
        with pytest.raises(UserError, match=f"job {late} can no longer be undone"):
            finish(queue.canceller.undo.restore([kept, late]))
        assert queue.get(kept).status == "cancelled", "all or none"
        assert [job.id for job in finish(queue.canceller.undo.restore([kept]))] == [kept]
    with pytest.raises(UserError, match="can no longer be undone"):
        finish(queue.canceller.undo.restore([kept]))  # it waits


def test_a_running_job_cannot_be_restored(store) -> None:
    queue = make_queue(store)
    running = submit(queue, "sleep", "600")
    queue.step([CPU])
    queue.canceller.cancel(running)
    with pytest.raises(UserError, match="if the job was waiting"):
        finish(queue.canceller.undo.restore([running]))
    eventually(lambda: ended(queue, running))


def test_a_job_is_not_restored_while_another_one_uses_its_artefacts(store) -> None:
    queue = make_queue(store)
    old = submit(queue)
    eventually(lambda: (queue.step([CPU]), ended(queue, old))[1])
    queue.groups.pause(True)
    first = submit(queue, artefacts_of=old)
    queue.canceller.cancel(first)
    second = submit(queue, artefacts_of=old)
    with pytest.raises(UserError, match=f"job {second} uses its artefacts now"):
        finish(queue.canceller.undo.restore([first]))
    queue.canceller.cancel(second)
    with pytest.raises(UserError, match="uses its artefacts now"):
        finish(queue.canceller.undo.restore([first, second]))
    assert [job.id for job in finish(queue.canceller.undo.restore([first]))] == [first]
