"""The queue of requests, for every order in which they may come and leave."""

from __future__ import annotations

import asyncio

from assistant.host.request_queue import RequestQueue


async def enqueue(
    queue: RequestQueue, name: str, turns: list[str], *, program: bool
) -> asyncio.Task[None]:
    """Wait in the queue, or have a turn that ends at once."""

    async def take() -> None:
        async with queue.admit(program=program):
            turns.append(name)
            await asyncio.sleep(0)

    task = asyncio.create_task(take(), name=name)
    await asyncio.sleep(0)
    return task


def test_people_are_admitted_before_programs_and_else_in_order() -> None:
    async def run() -> list[str]:
        queue, turns = RequestQueue(), list[str]()
        async with queue.admit():
            tasks = [
                await enqueue(queue, name, turns, program=name.startswith("program"))
                for name in ("program 1", "program 2", "a", "b")
            ]
        await asyncio.gather(*tasks, await enqueue(queue, "late", turns, program=False))
        assert not queue.busy
        return turns

    assert asyncio.run(run()) == ["a", "b", "late", "program 1", "program 2"]


def test_a_cancelled_request_holds_up_nobody_even_if_admitted_at_that_moment() -> None:
    async def run() -> list[str]:
        queue, turns = RequestQueue(), list[str]()
        async with queue.admit():
            gone, admitted, stays = [
                await enqueue(queue, name, turns, program=False)
                for name in ("gone", "admitted", "stays")
            ]
            gone.cancel()
        admitted.cancel()  # it was admitted, and has not run since
        await asyncio.gather(gone, admitted, stays, return_exceptions=True)
        assert not queue.busy
        return turns

    assert asyncio.run(run()) == ["stays"]
