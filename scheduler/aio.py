"""The verbs for programs that run in an asyncio loop: those of `scheduler.client.Client`, as coroutines.

    from scheduler.aio import AsyncClient
    async with AsyncClient() as deck:
        jobs = [await deck.submit(["python", "train.py", str(i)], gpus=1) for i in range(8)]
        await asyncio.gather(*(job.wait() for job in jobs))

Each client has one connection, which a thread of its own speaks over, one request after the other. Who waits for a job or listens for
snapshots has a connection in the loop itself: a thousand may.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

from scheduler.client import AGAIN_S, GONE_S, Client, decode, door, encode
from scheduler.handle import Seen
from scheduler.protocol import messages as m
from scheduler.protocol import paths
from scheduler.protocol.errors import DaemonGone
from scheduler.protocol.jobs import Event, Job
from scheduler.protocol.log_file import Output
from scheduler.protocol.snapshot import Snapshot
from scheduler.protocol.submission import Wishes
from scheduler.protocol.wire import MAX_MESSAGE

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    verb: Callable[Concatenate[Client, P], R],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[R]]:
    """The same verb as a coroutine."""

    async def ask(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._ask(partial(verb, self._client(), *args, **kwargs))

    ask.__name__, ask.__doc__ = verb.__name__, verb.__doc__
    return ask


class AsyncClient:
    """Opened by `async with`; raises there what `Client` raises. For one loop."""

    def __init__(self, *, start: bool = True, timeout: float = 30.0) -> None:
        self._open = partial(Client, start=start, timeout=timeout)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpudeck")
        self._connected: Client | None = None

    async def __aenter__(self) -> Self:
        self._connected = await self._ask(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client().close()
        self._thread.shutdown(wait=False)

    async def _ask(self, question: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, question)

    def _client(self) -> Client:
        if self._connected is None:
            raise RuntimeError("an AsyncClient is opened by: async with AsyncClient() as deck")
        return self._connected

    async def submit(self, argv: Sequence[str], **wishes: Unpack[Wishes]) -> AsyncJobHandle:
        """As `Client.submit`."""
        handle = await self._ask(partial(self._client().submit, argv, **wishes))
        return AsyncJobHandle(self, handle.job)

    submit_many = _in_thread(Client.submit_many)
    submit_array = _in_thread(Client.submit_array)
    foresee = _in_thread(Client.foresee)
    edit = _in_thread(Client.edit)
    move = _in_thread(Client.move)
    hold = _in_thread(Client.hold)
    groups = _in_thread(Client.groups)
    set_group = _in_thread(Client.set_group)
    cancel = _in_thread(Client.cancel)
    cancel_many = _in_thread(Client.cancel_many)
    job = _in_thread(Client.job)
    jobs = _in_thread(Client.jobs)
    page = _in_thread(Client.page)
    find = _in_thread(Client.find)
    timeline = _in_thread(Client.timeline)
    log = _in_thread(Client.log)
    log_part = _in_thread(Client.log_part)
    artefacts = _in_thread(Client.artefacts)
    snapshot = _in_thread(Client.snapshot)
    configure = _in_thread(Client.configure)
    pause = _in_thread(Client.pause)

    async def wait(self, job: int, timeout: float | None = None) -> Job:
        """The job once it has ended, over restarts of the daemon.

        Raises NotFound, TimeoutError where it did not end in `timeout` seconds, DaemonGone where nobody answered for GONE_S.
        """
        heard = time.monotonic()
        async with asyncio.timeout(timeout):
            while True:
                try:
                    async with aclosing(_replies(m.Wait(job, m.WAIT_S))) as replies:
                        async for reply in replies:
                            heard = time.monotonic()
                            if isinstance(reply, m.JobReply) and not reply.job.active:
                                return reply.job
                except DaemonGone:
                    if time.monotonic() > heard + GONE_S:
                        raise
                await asyncio.sleep(AGAIN_S)
                await self._revive()

    async def _revive(self) -> None:
        """Start the daemon where none answers and this client may."""
        try:
            await self._ask(lambda: self._open().close())
        except DaemonGone:
            pass  # it may come back by itself

    async def subscribe(self) -> AsyncIterator[Snapshot]:
        """Snapshots as they come. Raises DaemonGone at their end."""
        async with aclosing(_replies(m.Subscribe())) as replies:
            async for reply in replies:
                if isinstance(reply, m.SnapshotReply):
                    yield reply.snapshot


async def _replies(request: m.Wait | m.Subscribe) -> AsyncGenerator[m.Reply, None]:
    """What is answered on a connection of its own: asked once to listen; anew each time for how a job stands."""
    try:
        with paths.short(door()) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=MAX_MESSAGE)
    except OSError as e:
        raise DaemonGone("the daemon does not run (start it with: gpudeck daemon start)") from e
    try:
        writer.write(encode(request) + b"\n")
        while (line := await reader.readline()).endswith(
            b"\n"
        ):  # a daemon that is killed may leave a part of one
            yield decode(line)
            if isinstance(request, m.Wait):
                writer.write(encode(request) + b"\n")
        raise DaemonGone("the other side closed the connection")
    except OSError as e:  # also ENOTCONN: asyncio takes being turned away for being connected
        raise DaemonGone("the connection broke") from e
    finally:
        writer.close()


class AsyncJobHandle(Seen):
    """A job that was submitted, and ways to follow it."""

    def __init__(self, client: AsyncClient, job: Job) -> None:
        super().__init__(job)
        self._client = client

    async def refresh(self) -> Self:
        """Ask how it stands now."""
        self.job = await self._client.job(self.id)
        return self

    async def wait(self, timeout: float | None = None) -> Self:
        """Until it has ended, however. Raises TimeoutError where it did not in `timeout` seconds."""
        self.job = await self._client.wait(self.id, timeout)
        return self

    async def cancel(self) -> Self:
        """Cancel it where it waits, or end its whole process tree. Raises UserError where it ended already."""
        self.job = await self._client.cancel(self.id)
        return self

    async def log(self, offset: int = 0, limit: int = 2**20) -> bytes:
        """Up to `limit` bytes of its output from `offset` on (negative: from the end), and a line where some of it was dropped."""
        return await self._client.log(self.id, offset, limit)

    async def log_part(self, offset: int = 0, limit: int = 2**20) -> Output:
        """As `log`, with where to read on: for whoever follows it."""
        return await self._client.log_part(self.id, offset, limit)

    async def timeline(self) -> tuple[Event, ...]:
        """What it went through, oldest first."""
        return await self._client.timeline(self.id)

    async def artefacts(self) -> list[Path]:
        """The files that it left in the folder GPUDECK_ARTEFACTS named to it."""
        return await self._client.artefacts(self.id)
