"""Whose turn it is, in every order in which one may come and leave."""

from __future__ import annotations

import asyncio

from assistant.host.request_queue import RequestQueue


async def taken(
    line: RequestQueue, name: str, turns: list[str], *, program: bool
) -> asyncio.Task[None]:
    """In the line, or having its turn, which ends at once."""

    async def take() -> None:
        async with line.turn(program=program):
            turns.append(name)
            await asyncio.sleep(0)

    task = asyncio.create_task(take(), name=name)
    await asyncio.sleep(0)
    return task


def test_people_go_before_programs_and_else_it_is_as_they_came() -> None:
    async def run() -> list[str]:
        line, turns = RequestQueue(), list[str]()
        async with line.turn():
            tasks = [
                await taken(line, name, turns, program=name.startswith("program"))
                for name in ("program 1", "program 2", "a", "b")
            ]
        await asyncio.gather(*tasks, await taken(line, "late", turns, program=False))
        assert not line.busy
        return turns

    assert asyncio.run(run()) == ["a", "b", "late", "program 1", "program 2"]


def test_who_leaves_the_line_holds_up_nobody_even_when_called_at_that_moment() -> None:
    async def run() -> list[str]:
        line, turns = RequestQueue(), list[str]()
        async with line.turn():
            gone, called, stays = [
                await taken(line, name, turns, program=False)
                for name in ("gone", "called", "stays")
            ]
            gone.cancel()
        called.cancel()  # it was called, and has not run since
        await asyncio.gather(gone, called, stays, return_exceptions=True)
        assert not line.busy
        return turns

    assert asyncio.run(run()) == ["stays"]
