"""Time the pieces of our part of the way back: allocating the room, releasing it, and the restore.

    python -m tests.benchmarks.suspension.room FOLDER

On an empty GPU, memory is allocated and released again at once and after pauses, because the driver
may have to clear what was just released. Then a program of 40 GiB comes back with and without a
held room. At last, small programs come back while all of the GPU is taken but for what NVML says
that they need, and a margin. Of a larger GPU, all but LIKE is held from the start.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from gpudeck.scheduler.suspension.calls import Call, Room
from gpudeck.scheduler.suspension.driver import Driver
from tests.benchmarks import rows
from tests.benchmarks.suspension.card import Card, huge_pages_always, survive
from tests.benchmarks.suspension.programs import Program, is_exact

SIZES, PAUSES = (16.0, 40.0, 70.0), (2.0, 0.0, 0.3)
"""GiB that are held, and how many seconds after the same memory was released."""
LARGE, SMALL = 40.0, 0.5
MARGINS_MIB = (256, 64, 16, 0)
"""What stays free on the GPU beside the need of a small program."""
LIKE = 79.2
"""GiB that are free on an empty H100, on which our part was too long."""
ROOM, FILLER, REST = 1, 2, 3
"""Names under which memory is held."""
STEP = 2**21
LOCK_MS = 10_000


class Bench:
    """A GPU whose driver is called from this process."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        self.card, self.driver = Card(), Driver()
        if (rest := self.card.free - int(LIKE * 2**30)) > 0:
            self.fill(rest, REST)
        self.left = self.card.free / 2**30

    def keep(self, case: str, gib: float, pause_s: float, **seconds: object) -> None:
        empty = dict.fromkeys(("hold_s", "release_s", "restore_s", "margin_mib", "exact"), "")
        found = empty | {name: _shorten(value) for name, value in seconds.items()}
        where = {"left_gib": f"{self.left:.1f}", "case": case, "gib": gib, "pause_s": pause_s}
        row = self.card.context | where | found
        print(time.strftime("%H:%M:%S"), row, flush=True)
        rows.merge("suspension_room", [row], ("case", "gib", "pause_s", "margin_mib"), self.folder)

    def hold(self, size: int) -> None:
        code = self.driver.hold(ROOM, (Room(self.card.uuid, size),))
        assert not code, self.driver.name(code)

    def fill(self, size: int, name: int = FILLER) -> None:
        """Hold nearly so many bytes, for some of which the GPU may have no use."""
        for less in range(256):
            if not self.driver.hold(name, (Room(self.card.uuid, size - less * STEP),)):
                return
        raise AssertionError("the GPU cannot be filled")

    def call(self, call: Call, program: Program) -> int:
        return self.driver.call(call, program.pid, LOCK_MS)[0]

    def take_off(self, program: Program) -> int:
        """Take a program off the GPU; return what it held, in bytes."""
        need = self.card.held(program.pid)
        for call in ("lock", "checkpoint"):
            code = self.call(call, program)
            assert not code, self.driver.name(code)
        return need


def _shorten(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


def time_call(work: Callable[[], object]) -> float:
    """Return how long a call takes, in seconds."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def measure_holds(bench: Bench) -> None:
    """Allocate and release memory of an empty GPU, after several pauses."""
    for gib in SIZES:
        for pause in PAUSES:
            time.sleep(pause)
            held = time_call(lambda: bench.hold(int(gib * 2**30)))  # noqa: B023
            freed = time_call(lambda: bench.driver.release(ROOM))
            bench.keep("an empty GPU", gib, pause, hold_s=held, release_s=freed)


def measure_large(bench: Bench) -> None:
    """Bring a program back a while after it left, with a held room, and at once, without one."""
    program = Program("CUDA C++", LARGE, bench.scratch / "stop large")
    program.wait_ready()
    with huge_pages_always() if os.getuid() == 0 else nullcontext():
        for pause, holds in ((2.0, True), (0.0, False)):
            need = bench.take_off(program)
            time.sleep(pause)
            held = time_call(lambda: bench.hold(need)) if holds else ""  # noqa: B023
            freed = time_call(lambda: bench.driver.release(ROOM)) if holds else ""
            took = time_call(lambda: bench.call("restore", program))
            bench.call("unlock", program)
            bench.keep("a program", LARGE, pause, hold_s=held, release_s=freed, restore_s=took)
    exact = is_exact("CUDA C++", LARGE, 1, program.end(), bench.scratch)
    bench.keep("a program, after both", LARGE, 0.0, exact=exact)


def measure_margins(bench: Bench) -> None:
    """Bring small programs back into what NVML says that they need, and a margin."""
    for margin in MARGINS_MIB:
        with survive(f"a margin of {margin} MiB"):
            program = Program("CUDA C++", SMALL, bench.scratch / f"stop {margin}")
            program.wait_ready()
            need = bench.take_off(program)
            bench.fill(bench.card.free - need - margin * 2**20)
            left = (bench.card.free - need) / 2**20
            began = time.monotonic()
            code = bench.call("restore", program)
            took = time.monotonic() - began
            bench.driver.release(FILLER)
            exact: object = bench.driver.name(code)
            if not code and not bench.call("unlock", program):
                exact = is_exact("CUDA C++", SMALL, 1, program.end(), bench.scratch)
            bench.keep("beside a full GPU", SMALL, 0.0, restore_s=took, exact=exact,
                       margin_mib=f"{left:.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(folder, Path(scratch))
        for measure in (measure_holds, measure_large, measure_margins):
            with survive(measure.__name__):
                measure(bench)


if __name__ == "__main__":
    main()
