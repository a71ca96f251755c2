"""Hold a candidate's process beside the memory that it shares with the judge."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from gpudeck.accel.search.arena import Arena, lay_out
from gpudeck.accel.search.candidate_protocol import (
    Bind,
    Capture,
    Compile,
    Ended,
    Flag,
    Hung,
    Listing,
    Load,
    Reply,
    Request,
    Show,
    Window,
)
from gpudeck.accel.search.code import Code
from gpudeck.accel.search.draws import draw
from gpudeck.accel.search.nursery import Child, Nursery
from gpudeck.accel.search.resources import Resources
from gpudeck.accel.search.tasks import Sizes, Task
from gpudeck.accel.search.verdict import Source

LOAD_S = 120.0
"""How long loading, and the first call with new shapes, may take: they may compile."""
CALL_S = 20.0
"""How long a window may take."""


class Desk:
    """Own the shared memory as the judge uses it: it writes inputs and reads results."""

    def __init__(self, arena: Arena, task: Task, device: torch.device) -> None:
        self.arena, self._task, self._device = arena, task, device
        self.bind = Bind((), (), ())
        self._bank: list[Tensor] = []

    def lay_out(self, sizes: Sizes, calls: int) -> Bind:
        """Divide the memory for these sizes; return what the processes must be told.

        Raises:
            MemoryError: if it is too small.
        """
        self.bind, needed = lay_out(self._task, sizes, calls)
        if needed > self.arena.size:
            raise MemoryError(f"{needed} bytes are needed, and {self.arena.size} are shared")
        self._inputs = [self.arena.tensor(region) for region in self.bind.inputs]
        self._fresh = [[self.arena.tensor(r) for r in regions] for regions in self.bind.fresh]
        self._results = [self.arena.tensor(region) for region in self.bind.results]
        self._kept = [[torch.empty_like(x) for x in fresh] for fresh in self._fresh]
        return self.bind

    @property
    def calls(self) -> int:
        """Return how many calls have inputs of their own."""
        return len(self._kept)

    def fill(self, name: str, random: torch.Generator) -> None:
        """Draw all inputs from a distribution."""
        values = self._generator(random)
        for kept in self._kept:
            for x in kept:
                x.copy_(draw(name, tuple(x.shape), x.dtype, values))
        self._hand_out()

    def stock(self, random: torch.Generator) -> None:
        """Draw values from which `refill` takes inputs in little time."""
        values = self._generator(random)
        self._bank = [
            torch.randn(3 * x.numel() + 64, generator=values, device=self._device).to(x)
            for x in self._kept[0]
        ]

    def _generator(self, random: torch.Generator) -> torch.Generator:
        """Return a generator on the device, where large inputs are drawn in little time."""
        seed = int(torch.randint(2**62, (), generator=random))
        return torch.Generator(self._device).manual_seed(seed)

    def refill(self, random: torch.Generator, calls: int) -> None:
        """Make new inputs for the next calls from the stock.

        Some differ from the inputs of the call before in one element only: whoever recognises
        inputs by a few of their values is wrong.
        """
        for number, kept in enumerate(self._kept[:calls]):
            few = number > 0 and int(torch.randint(4, (), generator=random)) == 0
            for position, (x, bank) in enumerate(zip(kept, self._bank, strict=True)):
                at = int(torch.randint(2 * x.numel() + 64, (), generator=random))
                scale = 0.5 + float(torch.rand((), generator=random))
                if not few:
                    torch.mul(bank[at : at + x.numel()].view_as(x), scale, out=x)
                    continue
                x.copy_(self._kept[number - 1][position])
                if position == 0:
                    place = int(torch.randint(x.numel(), (), generator=random))
                    x.view(-1)[place] += 1 + scale
        self._hand_out(calls)

    def _hand_out(self, calls: int | None = None) -> None:
        for kept, fresh in zip(self._kept[:calls], self._fresh, strict=False):
            for mine, theirs in zip(kept, fresh, strict=True):
                theirs.copy_(mine)
        for result in self._results[:calls]:
            result.fill_(torch.nan)
        self._synchronize()

    def inputs(self, call: int) -> list[Tensor]:
        """Return the judge's own copy of the inputs of a call."""
        return self._kept[call]

    def result(self, call: int) -> Tensor:
        """Return a copy of the result of a call."""
        return self._results[call].clone()

    def is_unchanged(self, last: int) -> bool:
        """Return whether the inputs still are those of the last call, and none in wait changed."""
        pairs = zip(self._inputs, self._kept[last], strict=True)
        in_wait = (
            torch.equal(mine, theirs)
            for kept, fresh in zip(self._kept[: last + 1], self._fresh, strict=False)
            for mine, theirs in zip(kept, fresh, strict=True)
        )
        return all(torch.equal(now, given) for now, given in pairs) and all(in_wait)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@dataclass(eq=False)
class Contender:
    """Own a process with a function that is called."""

    child: Child
    flags: list[Flag]
    """What the process noticed, or what it failed by."""
    trusted: bool = False
    """Whether its functions are ours."""

    @classmethod
    def start(
        cls,
        nursery: Nursery,
        source: Source,
        desk: Desk,
        device: torch.device,
        *,
        trusted: bool,
        threads: int,
    ) -> Contender:
        """Start a process and load a function; failures are in `flags`."""
        arena = desk.arena
        child = nursery.fork([arena.descriptor] if arena.descriptor >= 0 else [])
        contender = cls(child, [], trusted)
        contender.load(source, desk, device, trusted=trusted, threads=threads)
        return contender

    def load(
        self, source: Source, desk: Desk, device: torch.device, *, trusted: bool, threads: int
    ) -> None:
        """Load a function, in place of the one before if there was one."""
        arena = desk.arena
        request = Load(source, str(device), threads, trusted, arena.size, arena.handle)
        self._ask(request, LOAD_S, "loading")

    def compile(self, source: Source, capability: int) -> Resources | None:
        """Return what a kernel needs, None with a flag if it cannot be compiled."""
        reply = self._ask(Compile(source, capability), LOAD_S, "compiling")
        return None if reply is None else reply.resources

    def code(self, source: Source, capability: int) -> tuple[Code, ...]:
        """Return the code of kernels, nothing with a flag if they cannot be compiled."""
        reply = self._ask(Show(source, capability), LOAD_S, "compiling")
        return () if reply is None else reply.code

    def bind(self, desk: Desk, name: str) -> bool:
        """Lay out the memory and call once, which may compile; return whether that succeeded."""
        return (
            self._ask(desk.bind, CALL_S, name) is not None
            and self._ask(Window(1, warm=True), LOAD_S, name) is not None
            and not self.flags
        )

    def capture(self, repeats: int) -> bool:
        """Put calls into a graph that the next windows replay; return whether that succeeded."""
        return self._ask(Capture(repeats), LOAD_S, "capturing") is not None and not self.flags

    def window(self, request: Window, name: str) -> float | None:
        """Return the seconds of a window by the judge's clock, None if it failed."""
        begun = time.perf_counter()
        reply = self._ask(request, CALL_S, name)
        return None if reply is None else time.perf_counter() - begun

    def listing(self) -> Reply:
        """Return what a call launches."""
        return self._ask(Listing(), LOAD_S, "listing") or Reply()

    def _ask(self, request: Request, patience_s: float, name: str) -> Reply | None:
        try:
            reply = msgspec.msgpack.decode(self.child.ask(request, patience_s), type=Reply)
        except Hung:
            self.flags.append(Flag("hung", name))
        except (Ended, msgspec.DecodeError):
            self.flags.append(Flag("crashed", f"the process ended ({name})"))
        else:
            self.flags += reply.flags
            return reply
        return None

    def end(self) -> None:
        """End the process."""
        self.child.end()
