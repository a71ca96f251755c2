"""Keeps a probe process alive: starts it, listens, replaces it when it hangs or dies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

import msgspec

from scheduler.background import children
from scheduler.devices.probe import (
    DECODE,
    Details,
    Glance,
    Glances,
    Hello,
    Look,
    Order,
    Pace,
    Readings,
    Refusal,
)
from scheduler.protocol.devices import Detail, Reading
from scheduler.protocol.errors import MALFORMED, UserError

SILENCE_S = 5.0
"""A probe that says nothing for this long (or five intervals) hangs and is replaced."""
_LIMIT = 16 * 2**20
PATIENCE_S = 5.0
"""How long an answer of the probe to an order is waited for."""
_ENCODE = msgspec.json.Encoder().encode


class Supervisor:
    """Runs probes one after the other. All functions are called in the loop; `on_glances` for what `glance` asked for."""

    def __init__(
        self,
        on_hello: Callable[[Hello], None],
        on_readings: Callable[[Readings], None],
        on_trouble: Callable[[str], None],
        on_glances: Callable[[Sequence[Reading]], None],
    ) -> None:
        self._on_hello, self._on_readings, self._on_trouble, self._on_glances = (
            on_hello,
            on_readings,
            on_trouble,
            on_glances,
        )
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self.crashed = asyncio.get_running_loop().create_future()
        """Ends, with the error, where one of the functions that are called raised one."""
        self.pid: int | None = None
        self._hz = 1.0
        self._probe: asyncio.subprocess.Process | None = None
        self._asked: list[asyncio.Future[tuple[Detail, ...]]] = []

    async def start(self, source: str, hz: float) -> None:
        """Watch `source`, in place of what is watched now."""
        async with self._turn:
            await self._end_current()
            self._hz = hz
            self._task = asyncio.create_task(self._keep(source))
            self._task.add_done_callback(self._ended)

    def pace(self, hz: float) -> None:
        """Read so often from now on."""
        if hz != self._hz:
            self._hz = hz
            self._order(Pace(hz))

    def glance(self) -> None:
        """Ask who is on the devices now; there is no answer while there is no probe."""
        self._order(Glance())

    async def details(self) -> tuple[Detail, ...]:
        """What is too costly to be read all the time. Raises UserError where no probe answers."""
        answer: asyncio.Future[tuple[Detail, ...]] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._order(Look())
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except TimeoutError:
            raise UserError(
                "the devices do not answer at the moment. Try again in a while, or see: gpudeck doctor"
            ) from None
        finally:
            if answer in self._asked:
                self._asked.remove(answer)

    def _order(self, order: Order) -> None:
        """To the probe, where there is one; the next one is started with the new pace, and is asked what is still awaited."""
        if (
            self._probe is not None
            and self._probe.stdin is not None
            and self._probe.returncode is None
        ):
            self._probe.stdin.write(_ENCODE(order) + b"\n")

    async def stop(self) -> None:
        """End the probe."""
        async with self._turn:
            await self._end_current()

    async def _end_current(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if (
            not task.cancelled()
            and (bug := task.exception()) is not None
            and not self.crashed.done()
        ):
            self.crashed.set_exception(bug)

    async def _keep(self, source: str) -> None:
        backoff = children.Backoff()
        while True:
            backoff.begin()
            trouble = "the probe ended and was replaced"
            probe: asyncio.subprocess.Process | None = None
            try:
                probe = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "scheduler.devices.probe", source, str(self._hz),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LIMIT,
                )  # fmt: skip
                self.pid, self._probe = probe.pid, probe
                async for line in children.lines(probe, lambda: max(SILENCE_S, 5 / self._hz)):
                    message = DECODE(line)
                    if isinstance(message, Hello):
                        source = (
                            "nvml" if message.source == "nvml" else source
                        )  # a driver that reloads must not turn GPUs into a CPU
                        self._on_hello(message)
                        if self._asked:
                            self._order(Look())
                    elif isinstance(message, Refusal):
                        trouble = message.message
                    else:
                        self._tell(message)
            except TimeoutError:
                trouble = "the probe hung and was replaced"
            except OSError as e:
                trouble = f"no probe can be started: {e.strerror}"
            except MALFORMED as e:
                trouble = f"the probe said what is no reading ({e}) and was replaced"
            finally:
                self._probe = None
                if probe is not None:
                    await children.end(probe)
            self._on_trouble(trouble)
            await backoff.pause()

    def _tell(self, message: Readings | Glances | Details) -> None:
        if isinstance(message, Readings):
            self._on_readings(message)
        elif isinstance(message, Glances):
            self._on_glances(message.readings)
        else:
            self._answer(message.details)

    def _answer(self, details: tuple[Detail, ...]) -> None:
        asked, self._asked = self._asked, []
        for answer in asked:
            if not answer.done():
                answer.set_result(details)
