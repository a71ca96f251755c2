"""Time the driver's calls and our part of a suspension, and check that programs end as they must.

    python -m tests.benchmarks.suspension.service FOLDER [--rounds 100 | --large 16 [--pause 1]]

Programs of several frameworks and sizes are suspended and resumed by the service that the daemon
uses; then the same number of steps runs undisturbed. With --rounds, a compiled training of 0.5 GiB
is suspended so often, and nothing else; with --large, a program of so many GiB once, which comes
back --pause seconds after it has left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gpudeck.scheduler.suspension.calls import Done
from gpudeck.scheduler.suspension.helper_process import HelperProcess
from gpudeck.scheduler.suspension.service import SuspensionService
from tests.benchmarks.suspension.card import (
    Card,
    Row,
    huge_pages_always,
    keep,
    read_huge_pages,
    survive,
)
from tests.benchmarks.suspension.programs import Program, is_exact

SPARE = 2**31
ROUNDS = {4.0: 3, 16.0: 2, 40.0: 1}
"""How often a training of so many GiB is suspended: the time is short."""


class TimedHelper(HelperProcess):
    """Add up what the driver took."""

    def __init__(self) -> None:
        super().__init__()
        self.driver_s = self.gap_s = 0.0

    async def call(self, *args: Any, **kwargs: Any) -> Done:
        done = await super().call(*args, **kwargs)
        self.driver_s += done.seconds
        self.gap_s = max(self.gap_s, done.gap)
        return done

    def take(self) -> tuple[float, float]:
        found = self.driver_s, self.gap_s
        self.driver_s = self.gap_s = 0.0
        return found


class Bench:
    """Suspend programs, and keep what that took."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        self.card, self.helper = Card(), TimedHelper()
        list_of_suspended = scratch / "suspensions.json"
        self.service = SuspensionService(list_of_suspended, lambda: None, lambda: SPARE)
        self.service._helper = self.helper

    def start(self, kind: Any, gib: float, seed: int = 1) -> Program:
        return Program(kind, gib, self.scratch / f"stop {kind} {gib}", seed=seed)

    async def suspend(self, program: Program, pause: float = 0.0) -> Row:
        """Take a program off and bring it back some seconds later; return what that took."""
        self.helper.take()
        found = await self.service.suspend(lambda: self.card.find(program.pid), None)
        driver, _ = self.helper.take()
        out = {"out_s": found.seconds, "out_driver_s": driver}
        await asyncio.sleep(pause)
        back = await self.service.resume(program.pid, None)
        driver, gap = self.helper.take()
        return out | {"back_s": back.seconds, "back_driver_s": driver, "gap_us": 1e6 * gap}

    async def measure(self, program: Program, rounds: int, pause: float = 0.0) -> Row:
        """Suspend a program several times, and write the row. Its end is looked at later."""
        held = self.card.held(program.pid) / 2**30
        found = [await self.suspend(program, pause) for _ in range(rounds)]
        row: Row = self.card.context | {
            "case": program.kind,
            "held_gib": f"{held:.2f}",
            "huge_pages": read_huge_pages(),
            "rounds": rounds,
            "pause_s": pause,
            "steps": "",
            "bit_equal": "",
        }
        for name in found[0]:
            values = sorted(float(str(each[name])) for each in found)
            row[name] = f"{statistics.median(values):.4g}"
            row[f"{name}_max"] = f"{values[-1]:.4g}"
        keep("suspension", row, self.folder)
        return row

    async def check(self, program: Program, measured: list[Row]) -> None:
        """End a program, and write into its rows whether it computed the right thing."""
        with survive(program.kind):
            ended = await asyncio.to_thread(program.end)
            exact = await asyncio.to_thread(
                is_exact, program.kind, program.gib, program.seed, ended, self.scratch
            )
            for row in measured:
                row |= {"steps": ended.steps, "bit_equal": exact}
                keep("suspension", row, self.folder)


async def measure_all(bench: Bench) -> None:
    """Suspend trainings of several sizes, and programs of other frameworks."""
    # the smaller ones run beside the largest, so that their starts overlap
    programs = [bench.start("torch", gib) for gib in ROUNDS]
    programs += [bench.start(kind, 0.5) for kind in ("CUDA C++", "JAX", "CuPy")]
    measured: dict[Program, list[Row]] = {}
    for program in programs:
        with survive(program.kind):
            await asyncio.to_thread(program.wait_ready)
            measured[program] = []
    for program, rows in measured.items():
        with survive(program.kind):
            rows.append(await bench.measure(program, ROUNDS.get(program.gib, 2)))
    if os.getuid() == 0 and read_huge_pages() != "always":
        with survive("huge pages"), huge_pages_always():
            for program in programs[:2]:
                measured[program].append(await bench.measure(program, 1))
    await asyncio.gather(*(bench.check(program, rows) for program, rows in measured.items()))


async def measure_large(bench: Bench, gib: float, pause: float) -> None:
    """Suspend a program in CUDA C++, which starts fast; as root with pages of 2 MiB."""
    program = bench.start("CUDA C++", gib)
    program.wait_ready()
    with huge_pages_always() if os.getuid() == 0 else nullcontext():
        rows = [await bench.measure(program, 1, pause)]
    await bench.check(program, rows)


async def measure_often(bench: Bench, rounds: int) -> None:
    """Suspend a compiled training of 0.5 GiB many times."""
    os.environ["COMPILE"] = "1"
    program = bench.start("torch", 0.5)
    program.wait_ready()
    await bench.check(program, [await bench.measure(program, rounds)])


async def measure(arguments: argparse.Namespace, scratch: Path) -> None:
    bench = Bench(arguments.folder, scratch)
    await bench.service.recover()
    print(await bench.helper.check(), "in use:", bench.card.used / 2**20, "MiB", flush=True)
    began = time.monotonic()
    if arguments.large:
        await measure_large(bench, arguments.large, arguments.pause)
    elif arguments.rounds:
        await measure_often(bench, arguments.rounds)
    else:
        await measure_all(bench)
    await bench.service.stop()
    print(f"{time.monotonic() - began:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--large", type=float, default=0.0)
    parser.add_argument("--pause", type=float, default=0.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(measure(arguments, Path(scratch)))


if __name__ == "__main__":
    main()
