"""A multiprocessor as far as its kernels can tell: CTAs of partitions that take turns at random,
barriers, copies that land late.

One partition runs at a time and hands over where hardware would let another one go first, so that a
seed repeats a run exactly. Which access happens before which is kept in vector clocks (Lamport
1978, Mattern 1989): a race is found even where the run at hand went well.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Clock = dict[object, int]

SHARED_BYTES = 227 * 1024
"""Shared memory that a CTA may have on sm_90."""
EVENTS_AT_MOST = 1_000_000


class Defect(AssertionError):
    """Signal an error of a kernel."""


class Race(Defect):
    """Memory or registers used while, or before, something else is done with them."""


class Deadlock(Defect):
    """Nobody can go on. The message says who waits for what."""


class Killed(BaseException):
    """Ends the partitions of a run that has failed."""


def join(into: Clock, other: Clock) -> None:
    """Make `into` know all that `other` knows."""
    for key, count in other.items():
        if into.get(key, 0) < count:
            into[key] = count


@dataclass
class Barrier:
    """An mbarrier (PTX ISA, "mbarrier"): a phase ends when all arrivals and all bytes expected have
    come."""

    name: str
    count: int = 0
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    known: Clock = field(default_factory=dict)
    """Return the clock that everyone past a finished phase may rely on."""
    arriving: Clock = field(default_factory=dict)

    def arrive(self, count: int, clock: Clock) -> None:
        """`count` arrivals of somebody who knows `clock`."""
        if not self.count:
            raise Defect(f"{self.name} is used before it is initialised")
        if count > self.pending:
            raise Defect(
                f"{count} arrivals at {self.name}, which lacks {self.pending} of {self.count} in"
                f" phase {self.phase}"
            )
        self.pending -= count
        join(self.arriving, clock)
        self._finish()

    def landed(self, count: int, clock: Clock) -> None:
        """A copy of `count` bytes is complete."""
        self.bytes -= count
        join(self.arriving, clock)
        self._finish()

    def passed(self, parity: int) -> bool:
        """Return True if the last phase of this parity is over."""
        return self.phase & 1 != parity

    def _finish(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            join(self.known, self.arriving)
            self.arriving = {}

    def __str__(self) -> str:
        return (
            f"{self.name} (phase {self.phase}, lacks {self.pending} of {self.count} arrivals and"
            f" {self.bytes} bytes)"
        )


class Task:
    """A partition of a CTA, or the CTA before it is parted."""

    def __init__(self, cta: Cta, name: str, body: Callable[[], None], clock: Clock) -> None:
        self.cta, self.name, self.body = cta, name, body
        self.clock: Clock = {**clock, self: 1}
        self.products: list[Any] = []  # wgmma in flight, the oldest first
        self.stores: list[Callable[[], None]] = []  # TMA stores in flight, likewise
        self.until: Callable[[], bool] = lambda: True
        self.waits_for = "its turn"
        self.error: BaseException | None = None
        self.over = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def resume(self) -> None:
        """Let it run until it pauses or ends; called by the machine only."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self.over:
            self._thread.join()

    def pause(self, until: Callable[[], bool] = lambda: True, waits_for: str = "its turn") -> None:
        """Let others go first, at least until `until`."""
        machine = self.cta.machine
        if machine.random.random() < machine.hurry and until():
            return
        self.until, self.waits_for = until, waits_for
        self._back.release()
        self._go.acquire()
        if machine.failed:
            raise Killed

    def release(self) -> Clock:
        """Return a copy of the clock, on which others may rely, and advance it."""
        known = dict(self.clock)
        self.clock[self] += 1
        return known

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.cta.machine.failed:
                self.body()
                self._end()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the machine raises it again
            error.add_note(f"in {self}")
            self.error = error
        self.over = True
        self._back.release()

    def _end(self) -> None:
        if self.products:
            raise Defect(
                f"ended with {len(self.products)} products (wgmma) that were not waited for"
            )
        if self.stores:
            raise Defect(f"ended with {len(self.stores)} stores (TMA) that were not waited for")

    def __str__(self) -> str:
        return f"CTA {self.cta.place}, {self.name}"


class Cta:
    """A thread block: its place in the grid, its shared memory and what it has under way."""

    def __init__(self, machine: Machine, place: tuple[int, ...], grid: tuple[int, ...]) -> None:
        self.machine, self.place, self.grid = machine, place, grid
        self.loads: list[Callable[[], None]] = []
        self.tasks: list[Task] = []
        self.memory: list[Any] = []
        self._bytes = 0

    def allocate(self, memory: object, size: int) -> None:
        """Count what it takes of shared memory."""
        self._bytes += size
        if self._bytes > SHARED_BYTES:
            raise Defect(f"{self._bytes} bytes of shared memory; a CTA may have {SHARED_BYTES}")
        self.memory.append(memory)

    def part(self, bodies: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Run the partitions to their end."""
        clock = current().release()
        tasks = [Task(self, name, body, clock) for name, body in bodies]
        self.tasks += tasks
        current().pause(lambda: all(task.over for task in tasks), "its partitions")


class Machine:
    """Runs a grid, `resident` CTAs at a time, in an order that `seed` decides."""

    def __init__(self, seed: int, resident: int) -> None:
        self.random = random.Random(seed)
        self.resident = resident
        self.hurry = self.random.choice([0.0, 0.5, 0.9])
        """The probability that a partition continues where another one could take over."""
        self.eager = self.random.choice([0.0, 0.1, 0.5])
        """The probability that a load completes before anything waits for it."""
        self.failed = False
        self.global_memory: list[Tensor] = []
        """The memory that the kernel has pointers to."""
        self._written: dict[int, Tensor] = {}

    def written(self, part: Tensor) -> None:
        """A copy wrote these elements. A second one to the same place could as well have come
        first."""
        storage = part.untyped_storage()
        every = self._written.setdefault(
            storage.data_ptr(),
            torch.zeros(storage.nbytes() // part.element_size(), dtype=torch.bool),
        )
        mine = every.as_strided(part.shape, part.stride(), part.storage_offset())
        if mine.any():
            raise Race("two copies (TMA) write to the same elements")
        mine.fill_(True)

    def run(self, grid: tuple[int, ...], body: Callable[[], None]) -> None:
        """`body` once in each place of the grid. Raises what a partition raised, or `Deadlock`."""
        waiting = (place[::-1] for place in itertools.product(*(range(n) for n in reversed(grid))))
        ctas: list[Cta] = []
        try:
            for _ in range(EVENTS_AT_MOST):
                for place in itertools.islice(waiting, self.resident - len(ctas)):
                    cta = Cta(self, place, grid)
                    cta.tasks.append(Task(cta, "before its partitions", body, {}))
                    ctas.append(cta)
                if not ctas:
                    return
                self._step(ctas)
                ctas = [cta for cta in ctas if not self._over(cta)]
            raise Deadlock(f"more than {EVENTS_AT_MOST} events:\n" + report(ctas))
        finally:
            self.failed = True
            for task in (task for cta in ctas for task in cta.tasks if not task.over):
                task.resume()

    def _step(self, ctas: list[Cta]) -> None:
        """One load lands or one partition goes on."""
        ready = [task for cta in ctas for task in cta.tasks if task.until()]
        flying = [cta for cta in ctas if cta.loads]
        if flying and (not ready or self.random.random() < self.eager):
            loads = self.random.choice(flying).loads
            loads.pop(self.random.randrange(len(loads)))()
            return
        if not ready:
            raise Deadlock("nobody can go on:\n" + report(ctas))
        task = self.random.choice(ready)
        _Current.task = task
        task.resume()
        if task.error:
            raise task.error
        if task.over:
            task.cta.tasks.remove(task)

    @staticmethod
    def _over(cta: Cta) -> bool:
        if not cta.tasks and cta.loads:
            raise Defect(f"CTA {cta.place} ended with {len(cta.loads)} loads (TMA) under way")
        return not cta.tasks


def report(ctas: list[Cta]) -> str:
    """Return a description of what each partition waits for."""
    return "\n".join(f"  {task} waits for {task.waits_for}" for cta in ctas for task in cta.tasks)


class _Current:
    task: Task


def current() -> Task:
    """The partition that runs."""
    return _Current.task
