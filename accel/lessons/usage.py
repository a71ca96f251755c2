"""Count which shapes programs compute, and find what is to be measured.

A program's first call at a spot is computed by the backend that is expected to be fastest. At the
second call all that could be faster are measured, and what was measured decides from then on; see
`gpudeck.accel.lessons.store`. A backward pass is measured in the second backward pass.

Only shapes and numbers of calls are kept, for each GPU, in one file an operation for all processes
of a user, so that GPU Deck can measure them while a GPU is idle.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec
import torch

from gpudeck.accel.lessons.records import Direction, Used, decode_used, encode_used
from gpudeck.accel.lessons.store import Store, gpu, learning
from gpudeck.accel.runtime import state_files

AT_CALL = 2
"""A spot is measured at this call: a shape that never comes back costs nothing."""
DEVICES = ("cuda",)
"""Where backends are measured: on a CPU, each operation has one that is fast."""
EVERY_S = 30.0
"""The least time between two writes of a process, which writes once more at its end."""
MOST = 1024
"""The most shapes that are kept; those not used for the longest time are dropped first."""

_Problem = TypeVar("_Problem")
_Shape = TypeVar("_Shape")


class Use(Generic[_Problem]):
    """Count the calls at one spot in one process."""

    __slots__ = ("backward", "calls", "due", "noted", "problem")

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        """The first problem at the spot."""
        self.calls = 0
        self.backward = 0
        self.noted = (0, 0)
        """The calls and backward passes that the file of used shapes holds already."""
        self.due: dict[Direction, bool] = {"forward": True, "backward": True}
        """Whether a direction may still be measured by this process."""

    def is_due(self, direction: Direction, device: torch.device) -> bool:
        """Return whether the pass that was counted last should be measured if it can be; this
        process asks no more once it was."""
        count = self.calls if direction == "forward" else self.backward
        if (
            count < AT_CALL
            or not self.due[direction]
            or learning() != "once"
            or is_recorded(device)
        ):
            return False  # a later call may be another one
        self.due[direction] = False
        return True


def rivals(
    use: Use[_Problem],
    direction: Direction,
    device: torch.device,
    known: bool,
    store: Store,
    contenders: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the backends to measure at the pass that was counted last, or none.

    Args:
        use: the counts at its spot.
        direction: the pass.
        device: where it runs.
        known: whether `auto` goes by a measurement already.
        store: keeps what is measured.
        contenders: finds the backends that could win.
    """
    if not use.is_due(direction, device) or known or not store.can_keep():
        return ()
    names = contenders()
    return names if len(names) > 1 else ()


def is_recorded(device: torch.device) -> bool:
    """Return True while calls are captured in a graph, compiled, traced or counted by a tool."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    )


class Described(NamedTuple, Generic[_Shape]):
    """Describe a problem as the file has it."""

    device: torch.device
    spot: str
    text: str
    """The shape in words, without the device."""
    shape: _Shape


class Pending(NamedTuple):
    """Something that programs used and nobody measured."""

    text: str
    """The shape in words."""
    direction: Direction
    measure: Callable[[], bool]
    """Measures it on random tensors; returns False if there is no choice."""


class Usage(Generic[_Problem, _Shape]):
    """Hold this process's counts of one operation, and read and write those of all."""

    def __init__(
        self, operation: str, kind: type[_Shape], described: Callable[[_Problem], Described[_Shape]]
    ) -> None:
        self._operation, self._kind, self._described = operation, kind, described
        self._last: float | None = None
        self._uses: dict[str, Use[_Problem]] = {}

    def at(self, spot: str, problem: _Problem) -> Use[_Problem]:
        """Return the counts at a spot of a device, new ones for the first problem there."""
        return self._uses.get(spot) or self._uses.setdefault(spot, Use(problem))

    def forget(self) -> None:
        """Forget this process's counts."""
        self._uses.clear()

    def read(self) -> list[Used[_Shape]]:
        """Return what was counted; nothing if the file is damaged, which the next write replaces.

        Raises:
            OSError: if the file cannot be read.
        """
        return self._held(state_files.read(state_files.used_file(self._operation)))

    def note(self) -> None:
        """Add what was counted since the last time to the file.

        Raises:
            OSError: if it cannot be written.
        """
        now, counts = time.time(), list(self._uses.values())
        new = [self._used(c, now) for c in counts if (c.calls, c.backward) != c.noted]
        if not new:
            return

        def merged(contents: bytes) -> bytes:
            held = {(u.uuid, u.spot): u for u in self._held(contents)}
            for u in new:
                old = held.pop((u.uuid, u.spot), None)
                held[u.uuid, u.spot] = msgspec.structs.replace(
                    u,
                    forward=u.forward + (old.forward if old else 0),
                    backward=u.backward + (old.backward if old else 0),
                )
            return encode_used(list(held.values())[-MOST:])

        state_files.change(state_files.used_file(self._operation), merged)
        for c in counts:
            c.noted = (c.calls, c.backward)

    def count_call(self, use: Use[_Problem]) -> None:
        """Count a call; all counts are written now and then, and at the end of the process."""
        use.calls += 1
        if use.calls & (use.calls - 1) == 0:  # seldom: the file is written beside the caller's work
            self._write_if_due()

    def _write_if_due(self) -> None:
        """Write if the last time is long ago, and at the end of the process. A file that cannot be
        written is left alone: the counts serve the user's convenience only."""
        now = time.monotonic()
        if self._last is None:
            atexit.register(self._write)
            self._last = now
        elif now - self._last >= EVERY_S:
            self._last = now
            self._write()

    def _write(self) -> None:
        if learning() != "off":
            with contextlib.suppress(OSError):
                self.note()

    def _used(self, c: Use[_Problem], now: float) -> Used[_Shape]:
        device, spot, text, shape = self._described(c.problem)
        own = gpu(device)
        forward, backward = c.calls - c.noted[0], c.backward - c.noted[1]
        return Used(own.name, own.uuid, spot, text, shape, forward, backward, now)

    def _held(self, contents: bytes) -> list[Used[_Shape]]:
        try:
            return decode_used(contents, self._kind)
        except ValueError:
            return []
