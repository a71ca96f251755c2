"""Provide `gpudeck.scheduler.client.Client` as coroutines, for programs that run in an asyncio
loop.

    from gpudeck.scheduler.aio import AsyncClient
    async with AsyncClient() as deck:
        jobs = [await deck.submit(["python", "train.py", str(i)], gpus=1) for i in range(8)]
        await asyncio.gather(*(job.wait() for job in jobs))

Each client has one connection and one thread, which sends the requests one after another. A call
that waits for a job or for snapshots opens a connection of its own in the loop instead, so a
thousand of them can wait at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack

from gpudeck.language.text import phrase
from gpudeck.scheduler.client import GONE_S, RECONNECT_S, AsyncVerbs, Client, Threaded, as_coroutine
from gpudeck.scheduler.handle import JobHandle, JobView
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NOT_RUNNING, DaemonGone, UserError
from gpudeck.scheduler.protocol.job_options import JobOptions, Words
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wire import MAX_MESSAGE, check_server
from gpudeck.scheduler.verbs.control import Subscribe
from gpudeck.scheduler.verbs.jobs import WAIT_S, Wait
from gpudeck.scheduler.verbs.request import Request, decode_reply, encode_request

R = TypeVar("R")


class AsyncClient(AsyncVerbs):
    """A client for one loop, opened by `async with`. It raises the errors that `Client` raises."""

    def __init__(self, *, start: bool = True, timeout: float = 30.0) -> None:
        self._open = partial(Client, start=start, timeout=timeout)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpudeck")
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        self._client = await self._run(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._blocking().close()
        self._thread.shutdown(wait=False)

    def _blocking(self) -> Client:
        if self._client is None:
            raise RuntimeError("open an AsyncClient with: async with AsyncClient() as deck")
        return self._client

    async def _run(self, call: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def submit(
        self, argv: Words, *, token: str | None = None, **options: Unpack[JobOptions]
    ) -> AsyncJobHandle:
        """Queue a command, as `Client.submit` does."""
        submit = partial(self._blocking().submit, argv, token=token, **options)
        return AsyncJobHandle(self, await self._run(submit))

    async def wait(self, job: int, timeout: float | None = None) -> Job:
        """Return the job once it has ended, even if the daemon restarts meanwhile.

        Raises:
            NotFound: There is no such job.
            TimeoutError: The job did not end within `timeout` seconds.
            DaemonGone: No daemon answered for GONE_S.
        """
        answered = time.monotonic()
        async with asyncio.timeout(timeout):
            while True:
                try:
                    async with aclosing(_replies(Wait(job, WAIT_S))) as replies:
                        async for found in replies:
                            answered = time.monotonic()
                            if not found.active:
                                return found
                except DaemonGone:
                    if time.monotonic() > answered + GONE_S:
                        raise
                await asyncio.sleep(RECONNECT_S)
                await self._restart_daemon()

    async def _restart_daemon(self) -> None:
        """Start the daemon if none answers and this client may start one."""
        try:
            await self._run(lambda: self._open().close())
        except DaemonGone:
            pass  # another process may start it

    async def subscribe(self) -> AsyncIterator[Snapshot]:
        """Yield snapshots as they arrive. Raises DaemonGone if the daemon ends."""
        async with aclosing(_replies(Subscribe())) as replies:
            async for snapshot in replies:
                yield snapshot


async def _replies(request: Request[R]) -> AsyncGenerator[R, None]:
    """Yield the replies on a new connection, to one subscription or to repeated Wait requests."""
    path = paths.client_socket()
    try:
        with paths.short(path) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=MAX_MESSAGE)
        try:
            check_server(writer.get_extra_info("socket"), path, paths.daemon_owner())
        except (OSError, UserError):
            writer.close()
            raise
    except OSError as e:
        raise DaemonGone(NOT_RUNNING) from e
    try:
        writer.write(encode_request(request) + b"\n")
        # A daemon that is killed may leave an incomplete line.
        while (line := await reader.readline()).endswith(b"\n"):
            yield decode_reply(line, request)
            if isinstance(request, Wait):
                writer.write(encode_request(request) + b"\n")
        raise DaemonGone(phrase("the other side closed the connection"))
    except OSError as e:  # also ENOTCONN: asyncio reports a refused connection late
        raise DaemonGone(phrase("the connection broke")) from e
    finally:
        writer.close()


class AsyncJobHandle(JobView, Threaded):
    """A job and the client that follows it: `JobHandle` as coroutines."""

    def __init__(self, client: AsyncClient, handle: JobHandle) -> None:
        super().__init__(handle.job)
        self._client, self._handle = client, handle

    def _blocking(self) -> JobHandle:
        return self._handle

    async def _run(self, call: Callable[[], R]) -> R:
        return await self._client._run(call)

    async def refresh(self) -> Self:
        """Request the current state of the job."""
        self.job = await self._client.job(self.id)
        return self

    async def wait(self, timeout: float | None = None) -> Self:
        """Wait until the job has ended. Raises TimeoutError after `timeout` seconds."""
        self.job = await self._client.wait(self.id, timeout)
        return self

    async def cancel(self) -> Self:
        """Cancel the waiting job, or end its processes. Raises UserError if it has ended."""
        self.job = await self._client.cancel(self.id)
        return self

    log = as_coroutine(JobHandle.log)
    log_part = as_coroutine(JobHandle.log_part)
    timeline = as_coroutine(JobHandle.timeline)
    artefacts = as_coroutine(JobHandle.artefacts)
