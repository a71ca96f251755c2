"""Measure attention by every backend over a grid of shapes, against the targets for an H100.

    python -m tests.benchmarks.attention_grid [--seconds 0.4] [--only backward] [--tune] [--out DIR]
        [--compile-s 60] [--limit-s 40]

Every cell has 16384 tokens, heads x head size = 2048 and bfloat16. Lengths go from 512 to 16384,
head sizes are 64, 128 and 256; with and without causality, forward and backward. The workload
`compare` checks every backend against float64 and then times all of them in turn: peers in their
own layout, kernels only, `auto` twice. A matrix product is measured before and after. Each head
size and mask is a run of its own, which is stored when it ends. The kernels of all backends compile
first, in processes side by side, for at most --compile-s seconds; a run that takes longer than
--limit-s is repeated without flash-attn-4, which compiles longest. With --tune, the workload `tune`
first measures the same grid, with shorter and fewer sequences as well, and writes the table that
`auto` uses: on this grid `auto` knows the answers. See attention_models for shapes that it does not
know.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gpudeck.accel.attention import table
from gpudeck.accel.result import Cell, Direction, Result, read, twins
from gpudeck.app.workloads.result_export import as_csv
from tests.benchmarks.rows import RESULTS

OURS = "hopper"
PEERS = ("flash", "cudnn", "fa4", "fa3")
ALL = ("auto", OURS, "triton", *PEERS)
LENGTHS = "512,2048,8192,16384"
GROUPS = [(dim, causal) for dim in ("128", "64", "256") for causal in ("no", "yes")]
"""Head size and causality of each run."""
PARTS: tuple[Direction, ...] = ("forward", "backward")
PRODUCT = {"size": "8192", "seconds": "2"}
TUNED = (
    {"seq": "512,1024,2048,4096,8192,16384", "head-dim": "64,128,256", "causal": "both"},
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


def run(workload: str, limit: float | None = None, **options: str) -> Result | None:
    """Run a workload as a job would.

    Returns:
        The result; None if it takes longer than `limit` seconds, or ends without a result.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        try:
            subprocess.run(
                _command(workload, options),
                env={**os.environ, "GPUDECK_RESULT": str(file)},
                stdout=subprocess.DEVNULL,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return None
        return read(file.read_bytes()) if file.exists() else None


def whole(workload: str, **options: str) -> Result:
    """Run a workload that must leave a result."""
    if (result := run(workload, **options)) is None:
        raise SystemExit(f"{workload} left no result")
    return result


def _command(workload: str, options: Mapping[str, str]) -> list[str]:
    argv = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-P", "-m", f"gpudeck.accel.workloads.{workload}", *argv]


def compile_kernels(direction: Direction, limit: float) -> None:
    """Run every group once, side by side, so that the kernels of all backends are on the disk."""
    started = time.monotonic()
    processes = [
        subprocess.Popen(
            _command("compare", _group(direction, *group, "0.1", ALL)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for group in GROUPS
    ]
    for (dim, causal), process in zip(GROUPS, processes, strict=True):
        try:
            process.wait(max(0.0, started + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            print(f"d{dim}, causal {causal}: not compiled in {limit:g} s", flush=True)
    print(f"compiled for {time.monotonic() - started:.0f} s", flush=True)


def measure(direction: Direction, seconds: str, limit: float) -> Iterator[Result]:
    """Yield the result of each group of one direction."""
    backends = list(ALL)
    for group in GROUPS:
        done = run("compare", limit, **_group(direction, *group, seconds, backends))
        if done is None and "fa4" in backends:
            print(f"{direction} {group}: no result; without fa4 from now on", flush=True)
            backends.remove("fa4")
            done = run("compare", limit, **_group(direction, *group, seconds, backends))
        if done is None:
            print(f"{direction} {group}: not measured", flush=True)
        else:
            yield done


def _group(
    direction: Direction, dim: str, causal: str, seconds: str, backends: Sequence[str]
) -> dict[str, str]:
    return {
        "direction": direction,
        "head-dim": dim,
        "causal": causal,
        "seq": LENGTHS,
        "seconds": seconds,
        "backends": ",".join(backends),
    }


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
        cell = self._cells.get(shape, {}).get(name)
        return cell.tflops if cell is not None and cell.passed else 0.0

    def of(self, name: str) -> Callable[[tuple[object, ...]], float]:
        """Return the function that gives the TFLOP/s of one contender."""
        return lambda shape: self.rate(shape, name)

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


def forward_targets(grid: Grid, gemm: float) -> Iterator[str]:
    """Return each target of our forward kernel, with what was measured."""
    fa4 = grid.ratios("forward", grid.of(OURS), grid.of("fa4"))
    mean = f"geometric mean of {len(fa4)} cells: {geometric_mean(fa4):.3f}"
    yield f"own forward / flash-attn-4, {mean} (required 0.95, aim 1.05)"
    for dim, required in ((128, 650), (256, 715)):
        rate = grid.rate(("forward", dim, False, 16384), OURS)
        aim = 0.92 * gemm
        yield f"own forward d={dim} S=16384: {rate:.0f} (required {required}, aim {aim:.0f})"
    rate = grid.rate(("forward", 128, True, 16384), OURS)
    yield f"own forward causal d=128 S=16384: {rate:.0f} (required 600, aim 670)"


def ratios(grid: Grid, direction: Direction) -> Iterator[str]:
    """Return how fast `auto` and our kernels are beside the peers in one direction."""

    def best(shape: tuple[object, ...]) -> float:
        return max(grid.rate(shape, peer) for peer in PEERS)

    own = grid.ratios(direction, grid.of(OURS), best)
    required = " (required 0.85, aim 1.00)" if direction == "backward" else ""
    mean = f"geometric mean of {len(own)} cells: {geometric_mean(own):.3f}"
    yield f"own {direction} / best peer, {mean}{required}"
    auto = grid.ratios(direction, grid.of("auto"), best)
    low = [r for r in auto if r < 0.98]
    below = f"{len(low)} of {len(auto)} cells below 0.98 (required: none)"
    mean = f"geometric mean {geometric_mean(auto):.3f}, least {min(auto, default=0):.3f}"
    yield f"auto / best peer, {direction}: {mean}, {below}; {grid.twins(direction)}"
    for peer in PEERS:
        each = grid.ratios(direction, grid.of(OURS), grid.of(peer))
        yield f"own / {peer}, {direction}: {geometric_mean(each):.3f} of {len(each)} cells"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", default="0.4")
    parser.add_argument("--only", choices=PARTS, help="one direction instead of both")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--compile-s", type=float, default=300.0)
    parser.add_argument("--limit-s", type=float, default=300.0)
    options = parser.parse_args()
    if options.tune:
        for shapes in TUNED:
            tuned = whole("tune", **shapes, seconds="0.2", backends=",".join(ALL[1:]))
            print(f"tune {shapes}: {tuned.verdict}", flush=True)
        print(f"the table is in {table.user_file()}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    cells: tuple[Cell, ...] = ()
    for direction in (options.only,) if options.only else PARTS:
        compile_kernels(direction, options.compile_s)
        before = whole("gemm", **PRODUCT).tflops
        for compared in measure(direction, options.seconds, options.limit_s):
            cells += compared.cells
            (options.out / "attention_grid.csv").write_text(
                as_csv(msgspec.structs.replace(compared, cells=cells))
            )
            print(compared.verdict, *Grid(compared.cells).lines(), sep="\n", flush=True)
        after = whole("gemm", **PRODUCT).tflops
        grid = Grid(cells)
        if direction == "forward":
            print(*forward_targets(grid, (before + after) / 2), sep="\n")
        print(*ratios(grid, direction), f"gemm {before:.0f} before, {after:.0f} after", sep="\n")


if __name__ == "__main__":
    main()
