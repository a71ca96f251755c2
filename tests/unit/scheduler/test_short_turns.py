"""What the daemon does in one go has a bounded size, however much a client asks for."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.scheduler.protocol import traffic, wire
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Changes, Job, Queued, Spec
from gpudeck.scheduler.protocol.turns import finish, light_parts
from gpudeck.scheduler.queue import admission, submission
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store, staging
from gpudeck.scheduler.verbs.request import encode_reply, encoding_reply
from tests.support import eventually
from tests.unit.scheduler.own_queue import CPU, GPU, ended, submit, submit_all

NOBODY = Availability()


def grouped(count: int, user: int | None = None, **more: object) -> list[Spec]:
    """Return jobs that are each in a group of their own."""
    options = {"gpus": 1, "hold": True, "user": user, **more}
    return [Spec(("true",), "x", "/", group=f"g{n}", **options) for n in range(count)]  # type: ignore[arg-type]


def test_waiting_jobs_of_a_user_ask_for_a_limited_number_of_combinations(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse what would make every pass over the queue longer for everybody."""
    monkeypatch.setattr(admission, "MAX_LANES", 5)
    first, *_ = submit_all(queue, grouped(5, user=7), [GPU])
    submit_all(queue, grouped(5, user=7) * 3, [GPU])  # more of the same needs no more time
    with pytest.raises(UserError, match="up to 5 different combinations of GPUs, memory"):
        submit_all(queue, grouped(6, user=7), [GPU])
    with pytest.raises(UserError, match="up to 5 different combinations"):
        submit_all(queue, grouped(1, user=7, memory=2**30), [GPU])
    with pytest.raises(UserError, match="up to 5 different combinations"):
        queue.editor.edit(first.id, Changes(group="another"), [GPU])
    queue.editor.edit(first.id, Changes(notes="what needs nothing new stays possible"), [GPU])
    submit_all(queue, grouped(5, user=8), [GPU])
    assert len(queue.queries.overview()) == 25
    finish(queue.canceller.cancel_many([], [(1, 20)], None, ""))
    submit_all(queue, grouped(5, user=7, memory=2**30), [GPU])


def test_many_jobs_are_bound_to_the_kind_of_device_part_by_part(store: Store, queue: Queue) -> None:
    """Bind jobs that were submitted before the devices were known, some in each step."""
    count = 2 * staging.PART + 10
    finish(
        queue.submission.submit(
            [Spec(("true",), "x", "/", gpus=1, hold=True)] * count, [], NOBODY, ""
        )
    )
    bound = []
    for _ in range(4):
        queue.step([GPU])
        bound.append(sum(job.spec.kind == "nvidia" for job in store.active()))
        if not queue.unfinished:
            break
    assert bound == [staging.PART, 2 * staging.PART, count]


def test_jobs_with_long_commands_are_stored_few_at_a_time(
    store: Store, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[int] = []
    add = Store.add_staged

    def noted(store: Store, jobs: list[Job]) -> list[Job]:
        stored.append(sum(len(job.spec.argv[1]) for job in jobs))
        return add(store, jobs)

    monkeypatch.setattr(Store, "add_staged", noted)
    submit_all(queue, [Spec(("echo", "x" * 100_000), "x", "/", hold=True)] * 50, [CPU])
    assert max(stored) <= staging.PART_BYTES
    assert sum(stored) == 50 * 100_000
    assert {len(job.spec.argv[1]) for job in store.active()} == {100_000}


@given(st.lists(st.integers(0, 9)), st.integers(1, 5), st.integers(0, 20))
def test_parts_hold_all_items_and_only_a_heavy_one_alone(
    weights: list[int], size: int, most: int
) -> None:
    found = list(light_parts(weights, size, lambda weight: weight, most))
    assert [weight for part in found for weight in part] == weights
    assert all(len(part) == 1 or (len(part) <= size and sum(part) <= most) for part in found)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 200])
def test_a_long_reply_is_encoded_part_by_part(count: int) -> None:
    jobs = tuple(Job(n, Spec(("true",), "x", "/"), 0.0, Queued()) for n in range(count))
    shown: list[int] = []

    def seen(value: tuple[Job, ...]) -> tuple[Job, ...]:
        shown.append(len(value))
        return value

    assert finish(encoding_reply(jobs, seen)) == encode_reply(jobs)
    assert max(shown, default=0) <= 32
    assert finish(encoding_reply(None, lambda value: value)) == encode_reply(None)


@pytest.mark.parametrize("size", [1, wire.SENT - 1, wire.SENT, wire.SENT + 1, 5 * wire.SENT])
def test_a_long_message_is_sent_part_by_part_and_nothing_comes_between(
    tmp_path: Path, size: int
) -> None:
    message = os.urandom(size // 2 + 1).hex()[:size].encode()
    received: list[bytes] = []

    async def handle(line: bytes, peer: wire.Peer) -> None:
        sending = asyncio.ensure_future(peer.send(message))
        await asyncio.sleep(0)
        peer.write(b"an eviction")
        await sending

    def ask(path: Path) -> None:
        connection = wire.Connection(path, timeout=10.0)
        connection.send(b"x")
        received.extend([connection.receive(), connection.receive()])
        connection.close()

    async def serve(sock: socket.socket, client: threading.Thread) -> None:
        server = await wire.serve(sock, handle)
        client.start()
        while client.is_alive():
            await asyncio.sleep(0.01)
        server.close()

    path = tmp_path / "sock"
    sock = wire.listen(path)
    client = threading.Thread(target=ask, args=(path,))
    asyncio.run(serve(sock, client))
    assert [line.strip() for line in received] == [message, b"an eviction"]


def test_a_job_that_comes_while_others_are_bound_is_served(queue: Queue) -> None:
    """Start a job without a GPU although hundreds wait to be bound."""
    many = [Spec(("true",), "x", "/", gpus=1, hold=True)] * (2 * staging.PART)
    submit_all(queue, many, [])
    job = submit(queue, "true")
    queue.step([GPU])
    assert queue.unfinished
    eventually(lambda: ended(queue, job))


def test_the_artefacts_of_many_jobs_are_checked_in_one_look_at_the_queue(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse many jobs with artefacts: each would look at every job that waits or runs."""
    old = submit_all(queue, [Spec(("true",), "x", "/", hold=True)] * 3, [CPU])
    finish(queue.canceller.cancel_many([job.id for job in old], [], None, ""))
    using = [Spec(("true",), "x", "/", hold=True, artefacts_of=job.id) for job in old]
    monkeypatch.setattr(submission, "MAX_ARTEFACTS", 2)
    with pytest.raises(UserError, match="up to 2 jobs of one submission can use the artefacts"):
        submit_all(queue, using, [CPU])
    users = submit_all(queue, using[:2], [CPU])
    with pytest.raises(UserError, match=f"job {users[0].id} uses the artefacts of job {old[0].id}"):
        submit_all(queue, using[:1], [CPU])
    with pytest.raises(UserError, match=f"job {users[1].id} uses the artefacts of job {old[1].id}"):
        finish(queue.submission.forecast(using[1], [CPU]))


def test_submissions_that_are_stored_at_once_share_the_limit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * staging.PART
    monkeypatch.setattr(admission, "MAX_LANES", count + 10)
    first = queue.submission.submit(grouped(count, user=7), [GPU], NOBODY, "")
    while not queue.submission._coming[7]:
        next(first)
    more = grouped(count, user=7, memory=2**30)
    with pytest.raises(UserError, match="different combinations"):
        finish(queue.submission.submit(more, [GPU], NOBODY, ""))
    finish(queue.submission.submit(grouped(count, user=8), [GPU], NOBODY, ""))
    assert len(finish(first)) == count
    assert not queue.submission._coming.total()


def test_all_users_together_ask_for_a_limited_number_of_combinations(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave each user a few, however many the others ask for."""
    monkeypatch.setattr(admission, "MAX_ALL_LANES", 8)
    monkeypatch.setattr(admission, "OWN_LANES", 2)
    cancelled = submit_all(queue, grouped(4, user=6), [GPU])
    finish(queue.canceller.cancel_many([job.id for job in cancelled], [], None, ""))
    submit_all(queue, grouped(8, user=7), [GPU])
    submit_all(queue, grouped(2, user=8), [GPU])
    for user in (7, 8):
        with pytest.raises(UserError, match="of which yours may have 2 now"):
            submit_all(queue, grouped(1, user=user, memory=2**30), [GPU])
        submit_all(queue, grouped(2, user=user) * 3, [GPU])  # more of the same
    with pytest.raises(UserError, match="of which yours may have 2 now"):
        finish(queue.canceller.undo.restore([job.id for job in cancelled]))
    assert len(finish(queue.canceller.undo.restore([job.id for job in cancelled[:2]]))) == 2


def test_a_forecast_lets_others_have_a_turn_after_each_pass(queue: Queue) -> None:
    """Foresee what was asked for, whatever others change meanwhile."""
    ahead = submit_all(queue, [Spec(("true",), "x", "/", gpus=1, timeout=60.0)] * 5, [GPU])
    asked = queue.submission.forecast(Spec(("true",), "y", "/", gpus=1), [GPU])
    listed = queue.editor.schedule([GPU])
    turns = [sum(1 for _ in work) for work in (asked, listed)]
    assert min(turns) > len(ahead)
    asked = queue.submission.forecast(Spec(("true",), "y", "/", gpus=1), [GPU])
    for _ in range(2):  # the checks, and a look at the queue
        next(asked)
    finish(queue.canceller.cancel_many([job.id for job in ahead], [], None, ""))
    now = time.time()
    assert finish(asked).at == pytest.approx(now + 300.0, abs=30.0)
    later = finish(queue.submission.forecast(Spec(("true",), "y", "/", gpus=1), [GPU])).at
    assert later == pytest.approx(now, abs=30.0)


def test_few_requests_of_a_user_are_worked_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes every turn of the loop longer for the others, and holds what it made."""
    monkeypatch.setattr(traffic, "MAX_UNSENT", 10)

    async def flood() -> None:
        user, at_work, most = traffic.UserTraffic(limited=True), 0, 0

        async def one() -> None:
            nonlocal at_work, most
            async with user.working():
                at_work += 1
                most = max(most, at_work)
                await asyncio.sleep(0.001)
                at_work -= 1

        await asyncio.gather(*(one() for _ in range(50)))
        assert most == traffic.AT_ONCE
        with user.sending(11):
            blocked = asyncio.ensure_future(one())
            await asyncio.sleep(0.01)
            assert not blocked.done(), "nothing more is made while too much is unread"
        await blocked

    asyncio.run(flood())


_MANY_OBJECTS = """
import asyncio, gc
from gpudeck.scheduler.services import garbage

garbage.CHECK_S = 0.01
whole = []
gc.callbacks.append(lambda phase, info: whole.append(phase) if info["generation"] == 2 else None)

async def main():
    task = asyncio.create_task(garbage.collect_garbage())
    await asyncio.sleep(0)
    whole.clear()
    kept = [[n] for n in range(300_000)]
    print(len(whole))
    while not whole:
        await asyncio.sleep(0.01)
    task.cancel()

asyncio.run(main())
"""


def test_all_objects_are_looked_through_between_requests_only() -> None:
    """Python would do so within the request that makes the next object."""
    done = subprocess.run(
        [sys.executable, "-c", _MANY_OBJECTS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"
