"""Test the Python API: job handles, and the same in an asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpudeck.scheduler import aio, client
from gpudeck.scheduler.aio import AsyncClient
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, wire
from gpudeck.scheduler.protocol.errors import DaemonGone, NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Cancelling
from gpudeck.scheduler.protocol.search import Search
from tests.integration.deck import kill_daemon, python, ready
from tests.support import eventually

WAIT_S = 30.0

LEAVES = """if True:
    import os, sys
    print("said"); open(os.environ["GPUDECK_RESULT"], "w").write('{"loss": 0.25}')
    open(os.environ["GPUDECK_ARTEFACTS"] + "/model", "w").close()"""

UNTIL = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


def test_a_handle_waits_and_returns_what_the_job_left(cpu_home: Path) -> None:
    with Client() as deck:
        job = ready(deck).submit(python(LEAVES), gpus=1, name="train")
        assert job.result is None
        assert repr(job).startswith(f"<job {job.id} (train): ")
        assert job.wait(WAIT_S) is job
        assert (job.status, job.active, job.result, job.log()) == (
            "done",
            False,
            {"loss": 0.25},
            b"said\n",
        )
        assert [event.what for event in job.timeline()][-1] == "done"
        assert [file.name for file in job.artefacts()] == ["model"]
        with pytest.raises(UserError, match="has ended already"):
            job.cancel()
        failed = deck.submit(["false"]).wait(WAIT_S)
        assert (failed.status, failed.result) == ("failed", None)


def test_a_job_without_a_result_file_has_the_last_values_that_it_printed(cpu_home: Path) -> None:
    lines = 'print({"loss": 3.5}); print("text"); print("step=2 loss=0.25")'
    with Client() as deck:
        job = ready(deck).submit(python(lines)).wait(WAIT_S)
        assert job.result == {"loss": 0.25, "step": 2.0}
        silent = deck.submit(
            python(f'import os; {lines}; open(os.environ["GPUDECK_RESULT"], "w")')
        ).wait(WAIT_S)
        assert silent.result is None, "it chose a file, and left it empty"


def test_wait_returns_at_the_end_of_the_job_and_not_before(cpu_home: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Client(timeout=1.0) as deck:
        job = ready(deck).submit(python(UNTIL, go))
        with pytest.raises(TimeoutError, match=f"job {job.id} is still"):
            job.wait(0.05)
        threading.Timer(1.5, go.touch).start()  # longer than an answer may take
        assert job.wait().status == "done"
        assert go.exists()
        with pytest.raises(NotFound):
            deck.wait(99)


def test_a_loop_waits_for_many_jobs_without_blocking(cpu_home: Path) -> None:
    async def use() -> None:
        async with AsyncClient() as deck:
            jobs = [await deck.submit(python(LEAVES), name=f"job{i}") for i in range(5)]
            held = await deck.submit(["true"], hold=True)
            waiting = asyncio.create_task(held.wait())
            await asyncio.gather(*(job.wait(WAIT_S) for job in jobs))
            assert [job.result for job in jobs] == [{"loss": 0.25}] * 5
            assert await jobs[0].log() == b"said\n"
            assert not waiting.done()
            with pytest.raises(TimeoutError):
                await deck.wait(held.id, 0.05)
            assert [job.id for job in (await deck.find(Search("job3")))[0]] == [jobs[3].id]
            assert (await deck.hold(held.id, False)).id == held.id
            assert (await waiting).status == "done"
            more = [await deck.submit(["true"], hold=True, env={}) for _ in range(3)]
            done = await deck.cancel_many([range(more[0].id, 10**30), held.id])
            assert done == Cancelling(tuple(job.id for job in more), (), (held.id,))
            with pytest.raises(UserError, match="steps of 1"):
                await deck.cancel_many([range(1, 10**9, 2)])
            with pytest.raises(UserError, match="Expected `int`"):
                await deck.cancel_many(["1"])  # type: ignore[list-item]
            with pytest.raises(NotFound):
                await deck.job(99)
            with pytest.raises(NotFound):
                await deck.wait(99)
            with pytest.raises(UserError, match="no command"):
                await deck.submit([])
            async for snapshot in deck.subscribe():
                assert {job.id for job in snapshot.jobs} == {job.id for job in (*jobs, *more, held)}
                break
        eventually(lambda: not any("gpudeck_" in thread.name for thread in threading.enumerate()))

    asyncio.run(use())


def test_wait_survives_a_crash_of_the_daemon(cpu_home: Path, tmp_path: Path) -> None:
    """One waits in a thread, one in a loop; the daemon is killed, and started again by who
    waits. Both clients are good for more then."""
    go = tmp_path / "go"

    async def use() -> None:
        async with AsyncClient() as deck:
            job = await deck.submit(python(UNTIL, go))
            with Client() as other, ThreadPoolExecutor() as threads:
                one, two = (
                    asyncio.create_task(job.wait(WAIT_S)),
                    threads.submit(other.wait, job.id, WAIT_S),
                )
                await asyncio.sleep(0.2)
                kill_daemon()
                await asyncio.sleep(0.2)
                go.touch()
                assert (await one).status == (await asyncio.wrap_future(two)).status == "done"
                assert (
                    [found.id for found in other.jobs()]
                    == [found.id for found in await deck.jobs()]
                    == [job.id]
                )

    asyncio.run(use())


def test_wait_fails_if_no_daemon_comes_back(
    cpu_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GONE_S", 0.2)
    monkeypatch.setattr(aio, "GONE_S", 0.2)
    with Client() as deck:
        job = deck.submit(["sleep", "60"]).id

    async def wait() -> None:
        async with AsyncClient(start=False) as deck:
            kill_daemon()
            with pytest.raises(TimeoutError):
                await deck.wait(job, 0.01)
            await deck.wait(job)

    with Client(start=False) as deck:
        with pytest.raises(DaemonGone):
            asyncio.run(wait())
        with pytest.raises(TimeoutError):
            deck.wait(job, 0.01)
        with pytest.raises(DaemonGone):
            deck.wait(job)


def test_wait_retries_a_refused_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of waiting clients that is full: asyncio calls that connected, and fails as it
    writes."""
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    paths.ensure(paths.daemon_socket().parent)
    with (
        socket.socket(socket.AF_UNIX) as full,
        contextlib.ExitStack() as clients,
        paths.short(paths.daemon_socket()) as name,
    ):
        full.bind(name)
        full.listen(0)
        refused = 0
        while not refused:
            waiting = clients.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            refused = waiting.connect_ex(name)
        assert refused == errno.EAGAIN

        async def use() -> None:
            with pytest.raises(DaemonGone):
                async for _ in AsyncClient(start=False).subscribe():
                    pass

        asyncio.run(use())


def test_a_truncated_reply_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is killed while it answers: who waits asks the next one, as where nothing
    came."""
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))

    def answer() -> None:
        with listening.accept()[0] as client:
            client.recv(2**16)
            client.send(b'{"type":"snapshot","snapsh')

    async def use() -> None:
        with pytest.raises(DaemonGone):
            await anext(AsyncClient(start=False).subscribe())

    with wire.listen(paths.daemon_socket()) as listening, ThreadPoolExecutor(1) as pool:
        killed = pool.submit(answer)
        asyncio.run(use())
        killed.result()


def test_an_async_client_that_is_not_open_reports_how_to_open_it() -> None:
    async def use() -> None:
        with pytest.raises(RuntimeError, match="async with AsyncClient"):
            await AsyncClient().jobs()

    asyncio.run(use())
