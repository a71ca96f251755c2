"""Measure attention by every backend over a grid of shapes, against the targets for an H100.

    python -m tests.benchmarks.attention_grid [--seconds 0.4] [--only backward] [--tune] [--out DIR]

Every cell has 16384 tokens, heads x head size = 2048 and bfloat16. Lengths go from 512 to 16384,
head sizes are 64, 128 and 256; with and without causality, forward and backward. The workload
`compare` checks every backend against float64 and then times all of them in turn: peers in their
own layout, kernels only, `auto` twice. A matrix product is measured before and after. With --tune,
the workload `tune` first measures the same grid, with shorter and fewer sequences as well, and
writes the table that `auto` uses: on this grid `auto` knows the answers. See attention_models for
shapes that it does not know.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from accel.attention import table
from accel.result import Cell, Direction, Result, read, twins
from app.workloads.result_export import as_csv
from tests.benchmarks.rows import RESULTS

OURS = "hopper"
PEERS = ("flash", "cudnn", "fa4", "fa3")
ALL = ("auto", OURS, "triton", *PEERS)
GRID = {"seq": "512,2048,8192,16384", "head-dim": "64,128,256", "causal": "both"}
PARTS: tuple[Direction, ...] = ("forward", "backward")
"""Each part is a run of its own, which is stored when it ends."""
TUNED = (
    {**GRID, "seq": "512,1024,2048,4096,8192,16384"},
    {
        "batch": "1",
        "heads": "16",
        "seq": "512,1024,2048,4096,8192",
        "head-dim": "64,128,256",
        "causal": "both",
    },
    {"batch": "8", "heads": "8", "seq": "128,256,512", "head-dim": "64,128", "causal": "both"},
    {"batch": "32", "heads": "8", "seq": "128,256,512", "head-dim": "64,128", "causal": "both"},
)


def run(workload: str, **options: str) -> Result:
    """Run a workload as a job would, with its progress on standard error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        argv = [f"--{name}={value}" for name, value in options.items()]
        subprocess.run(
            [sys.executable, "-P", "-m", f"accel.workloads.{workload}", *argv],
            env={**os.environ, "GPUDECK_RESULT": str(file)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return read(file.read_bytes())


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


class Grid:
    """Hold the measured cells, by shape and contender."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells: dict[tuple[object, ...], dict[str, Cell]] = {}
        for cell in cells:
            shape = (cell.direction, cell.head_dim, cell.causal, cell.seq)
            self._cells.setdefault(shape, {})[cell.contender] = cell

    def rate(self, shape: tuple[object, ...], name: str) -> float:
        """Return the TFLOP/s, or 0 for a cell that was not measured or failed."""
        cell = self._cells[shape].get(name)
        return cell.tflops if cell is not None and cell.passed else 0.0

    def ratios(
        self,
        direction: str,
        ours: Callable[[tuple[object, ...]], float],
        theirs: Callable[[tuple[object, ...]], float],
    ) -> list[float]:
        """Return the ratio of every cell of one direction that both contenders measured."""
        shapes = [shape for shape in self._cells if shape[0] == direction]
        return [ours(shape) / theirs(shape) for shape in shapes if ours(shape) and theirs(shape)]

    def twins(self, direction: str) -> str:
        """Return the ratio of the same kernel measured twice in each cell of one direction."""
        return twins(cell for shape, by in self._cells.items() if shape[0] == direction
                     for cell in by.values())  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Return a line for each shape."""
        for shape in self._cells:
            rates = ", ".join(f"{name} {self.rate(shape, name):.0f}" for name in ALL)
            ran = self._cells[shape]["auto"].backend
            mask = "causal" if shape[2] else "full"
            yield f"{shape[0]:8} d{shape[1]:<3} {mask:6} S{shape[3]:<5} {rates} ({ran})"


def targets(grid: Grid, gemm: float) -> Iterator[str]:
    """Return each target, required and desired, with what was measured."""

    def of(name: str) -> Callable[[tuple[object, ...]], float]:
        return lambda shape: grid.rate(shape, name)

    def best(shape: tuple[object, ...]) -> float:
        return max(grid.rate(shape, peer) for peer in PEERS)

    fa4 = grid.ratios("forward", of(OURS), of("fa4"))
    mean = f"geometric mean of {len(fa4)} cells: {geometric_mean(fa4):.3f}"
    yield f"own forward / flash-attn-4, {mean} (required 0.95, aim 1.05)"
    for dim, required in ((128, 650), (256, 715)):
        rate = grid.rate(("forward", dim, False, 16384), OURS)
        aim = 0.92 * gemm
        yield f"own forward d={dim} S=16384: {rate:.0f} (required {required}, aim {aim:.0f})"
    rate = grid.rate(("forward", 128, True, 16384), OURS)
    yield f"own forward causal d=128 S=16384: {rate:.0f} (required 600, aim 670)"
    back = grid.ratios("backward", of(OURS), best)
    mean = f"geometric mean of {len(back)} cells: {geometric_mean(back):.3f}"
    yield f"own backward / best peer, {mean} (required 0.85, aim 1.00)"
    for direction in ("forward", "backward"):
        auto = grid.ratios(direction, of("auto"), best)
        low = [r for r in auto if r < 0.98]
        below = f"{len(low)} of {len(auto)} cells below 0.98 (required: none)"
        mean = f"geometric mean {geometric_mean(auto):.3f}, least {min(auto, default=0):.3f}"
        yield f"auto / best peer, {direction}: {mean}, {below}; {grid.twins(direction)}"
        for peer in PEERS:
            ratios = grid.ratios(direction, of(OURS), of(peer))
            yield f"own / {peer}, {direction}: {geometric_mean(ratios):.3f} of {len(ratios)} cells"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", default="0.4")
    parser.add_argument("--only", choices=PARTS, help="one direction instead of both")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.tune:
        for shapes in TUNED:
            tuned = run("tune", **shapes, seconds="0.2", backends=",".join(ALL[1:]))
            print(f"tune {shapes}: {tuned.verdict}", flush=True)
        print(f"the table is in {table.user_file()}", flush=True)
    before = run("gemm", size="8192", seconds="2").tflops
    options.out.mkdir(parents=True, exist_ok=True)
    cells: tuple[Cell, ...] = ()
    for direction in (options.only,) if options.only else PARTS:
        shapes = {**GRID, "direction": direction}
        compared = run("compare", **shapes, seconds=options.seconds, backends=",".join(ALL))
        cells += compared.cells
        (options.out / "attention_grid.csv").write_text(
            as_csv(msgspec.structs.replace(compared, cells=cells))
        )
        print(direction, compared.verdict, *Grid(compared.cells).lines(), sep="\n", flush=True)
    after = run("gemm", size="8192", seconds="2").tflops
    grid = Grid(cells)
    print(f"gemm 8192: {before:.0f} before, {after:.0f} after")
    print(*targets(grid, (before + after) / 2), sep="\n")


if __name__ == "__main__":
    main()
