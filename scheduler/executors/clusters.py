"""Run an agent process for each cluster in the settings, and replace it when it dies."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background import children, crash
from gpudeck.scheduler.executors import agent_protocol as a
from gpudeck.scheduler.executors.cluster import Cluster, Hub
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.settings import ClusterSettings
from gpudeck.scheduler.protocol.wait_reasons import ClusterUnavailable

SILENCE_S = 120.0
"""The time after which an agent that reports nothing counts as hung, and is replaced."""
_LIMIT = 2**26
_REPORT = msgspec.json.Decoder(a.Report).decode
_ENCODE = msgspec.json.Encoder().encode


class Clusters(Mapping[str, Cluster]):
    """Map the names of clusters, such as ray:lab, to their executors."""

    def __init__(
        self, hub: Hub, wanted: Mapping[str, ClusterSettings], log_limit: Callable[[], int]
    ) -> None:
        """Create the agents without starting them. Must be called in the daemon's loop.

        Args:
            log_limit: returns how many bytes of a log are kept; called whenever an agent starts.
        """
        self._hub, self._log_limit, self._lock = hub, log_limit, asyncio.Lock()
        self._agents = {
            where: AgentProcess(where, found, hub, log_limit) for where, found in wanted.items()
        }
        self.crashed = asyncio.get_running_loop().create_future()
        """A future that fails with the error that the report of an agent caused."""

    def __getitem__(self, where: str) -> Cluster:
        return self._agents[where].cluster

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    @property
    def unavailable(self) -> dict[str, ClusterUnavailable]:
        """Return the clusters that can start nothing now, and why."""
        found = {name: agent.cluster.unavailable for name, agent in self._agents.items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    async def serve(self, wanted: Mapping[str, ClusterSettings]) -> None:
        """Run agents for these clusters only. Jobs that run in any other cluster are lost."""
        async with self._lock:
            for where, agent in tuple(self._agents.items()):
                if agent.settings != wanted.get(where):
                    await agent.stop()
                    # The next agent must be told again which attempts to follow.
                    agent.cluster.set_unavailable("its settings were changed")
                if where not in wanted:
                    agent.cluster.remove()
                    del self._agents[where]
            for where, found in wanted.items():
                self._agents.setdefault(
                    where, AgentProcess(where, found, self._hub, self._log_limit)
                ).start(found, lambda task: crash.pass_on(task, self.crashed))

    async def stop(self) -> None:
        """End all agents. The attempts that they follow keep running."""
        await asyncio.gather(*(agent.stop() for agent in self._agents.values()))


class AgentProcess:
    """Keep the agent of one cluster alive."""

    def __init__(
        self, where: str, found: ClusterSettings, hub: Hub, log_limit: Callable[[], int]
    ) -> None:
        self.settings, self._log_limit = found, log_limit
        self.cluster = Cluster(where, hub, self._send)
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, found: ClusterSettings, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        """Keep an agent alive, unless one is kept alive already."""
        if self._task is None:
            self.settings = found
            self._task = asyncio.create_task(self._keep())
            self._task.add_done_callback(on_end)

    async def stop(self) -> None:
        """End the agent, and do not replace it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _send(self, command: a.Command) -> None:
        stdin = self._process.stdin if self._process is not None else None
        if stdin is not None and not stdin.is_closing():
            stdin.write(_ENCODE(command) + b"\n")

    async def _keep(self) -> None:
        backoff = children.Backoff()
        while True:
            backoff.begin()
            problem: Message = phrase("its agent ended and is replaced")
            try:
                config = a.Config(
                    self.cluster.where,
                    self.settings.address,
                    self.settings.token_file,
                    deck(),
                    self._log_limit(),
                )
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "gpudeck.scheduler.executors.agent",
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LIMIT,
                )  # fmt: skip
                assert self._process.stdin is not None
                self._process.stdin.write(_ENCODE(config) + b"\n")
                async for line in children.lines(self._process, lambda: SILENCE_S):
                    self.cluster.receive(_REPORT(line))
            except TimeoutError:
                problem = phrase("its agent hung and is replaced")
            except OSError as error:
                problem = phrase("no agent can be started: {error}", error=str(error.strerror))
            except UserError as error:
                problem = error.message
            except MALFORMED as error:
                problem = phrase(
                    "its agent sent an invalid report ({error}) and is replaced", error=str(error)
                )
            finally:
                process, self._process = self._process, None
                if process is not None:
                    await children.end(process)
            self.cluster.set_unavailable(problem)
            await backoff.pause()


def deck() -> str:
    """Return the permanent name of this state folder in clusters. Raises UserError."""
    file = paths.home() / "deck.id"
    try:
        if not file.exists():
            new = file.with_suffix(".new")
            new.touch(mode=paths.PRIVATE_FILE)
            new.write_text(secrets.token_hex(16))
            new.rename(file)
        return file.read_text().strip()
    except OSError as error:
        raise UserError(
            phrase("{file} cannot be used: {error}", file=str(file), error=str(error.strerror))
        ) from error
