"""The clusters of the settings, each with the process of its agent, which is replaced when it hangs or dies."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping

import msgspec

from scheduler.background import children
from scheduler.executors import agent_protocol as e
from scheduler.executors.cluster import Cluster, Hub
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED, UserError
from scheduler.protocol.settings import ClusterSettings

SILENCE_S = 120.0
"""An agent that says nothing for this long hangs and is replaced."""
_LIMIT = 2**26
_REPORT = msgspec.json.Decoder(e.Report).decode
_ENCODE = msgspec.json.Encoder().encode


class Clusters(Mapping[str, Cluster]):
    """By their names, such as ray:lab. To be made in the daemon's loop. `log_limit()`: bytes that a log may have, asked with each agent."""

    def __init__(
        self, hub: Hub, wanted: Mapping[str, ClusterSettings], log_limit: Callable[[], int]
    ) -> None:
        self._hub, self._log_limit, self._turn = hub, log_limit, asyncio.Lock()
        self._keepers = {
            where: Keeper(where, found, hub, log_limit) for where, found in wanted.items()
        }
        self.crashed = asyncio.get_running_loop().create_future()
        """Ends, with the error, where what an agent said led to one."""

    def __getitem__(self, where: str) -> Cluster:
        return self._keepers[where].cluster

    def __iter__(self) -> Iterator[str]:
        return iter(self._keepers)

    def __len__(self) -> int:
        return len(self._keepers)

    async def serve(self, wanted: Mapping[str, ClusterSettings]) -> None:
        """Have agents for these clusters, and no others. Jobs that run in one which is none of them any more are lost."""
        async with self._turn:
            for where, keeper in tuple(self._keepers.items()):
                if keeper.settings != wanted.get(where):
                    await keeper.stop()
                    keeper.cluster.away(
                        "its settings were changed"
                    )  # the next agent is told anew what to look after
                if where not in wanted:
                    keeper.cluster.removed()
                    del self._keepers[where]
            for where, found in wanted.items():
                self._keepers.setdefault(
                    where, Keeper(where, found, self._hub, self._log_limit)
                ).start(found, self._ended)

    async def stop(self) -> None:
        """End all agents. What they look after runs on."""
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers.values()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if (
            not task.cancelled()
            and (bug := task.exception()) is not None
            and not self.crashed.done()
        ):
            self.crashed.set_exception(bug)


class Keeper:
    """Keeps the agent of one cluster alive."""

    def __init__(
        self, where: str, found: ClusterSettings, hub: Hub, log_limit: Callable[[], int]
    ) -> None:
        self.settings, self._log_limit = found, log_limit
        self.cluster = Cluster(where, hub, self._send)
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, found: ClusterSettings, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        """Nothing where an agent is kept alive already."""
        if self._task is None:
            self.settings = found
            self._task = asyncio.create_task(self._keep())
            self._task.add_done_callback(on_end)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _send(self, command: e.Command) -> None:
        stdin = self._process.stdin if self._process is not None else None
        if stdin is not None and not stdin.is_closing():
            stdin.write(_ENCODE(command) + b"\n")

    async def _keep(self) -> None:
        backoff = children.Backoff()
        while True:
            backoff.begin()
            trouble = "its agent ended and is replaced"
            try:
                config = e.Config(
                    self.cluster.where,
                    self.settings.address,
                    self.settings.token_file,
                    deck(),
                    self._log_limit(),
                )
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "scheduler.executors.agent",
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LIMIT,
                )  # fmt: skip
                assert self._process.stdin is not None
                self._process.stdin.write(_ENCODE(config) + b"\n")
                async for line in children.lines(self._process, lambda: SILENCE_S):
                    self.cluster.hear(_REPORT(line))
            except TimeoutError:
                trouble = "its agent hung and is replaced"
            except OSError as error:
                trouble = f"no agent can be started: {error.strerror}"
            except UserError as error:
                trouble = str(error)
            except MALFORMED as error:
                trouble = f"its agent said what is no report ({error}) and is replaced"
            finally:
                process, self._process = self._process, None
                if process is not None:
                    await children.end(process)
            self.cluster.away(trouble)
            await backoff.pause()


def deck() -> str:
    """Names this state folder in clusters that others use, too; the same as long as the folder lives. Raises UserError."""
    file = paths.home() / "deck.id"
    try:
        if not file.exists():
            new = file.with_suffix(".new")
            new.touch(mode=paths.PRIVATE_FILE)
            new.write_text(secrets.token_hex(16))
            new.rename(file)
        return file.read_text().strip()
    except OSError as error:
        raise UserError(f"{file} cannot be used: {error.strerror}") from error
