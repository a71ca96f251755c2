"""Compare what is ours with peers, by the measured rows: how many times as fast at each shape."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from tests.benchmarks.code_state import SOURCES, digest_sources
from tests.benchmarks.rows import RESULTS

OURS = ("hopper", "triton")
_PEERS = ("flash", "cudnn", "efficient", "fa3", "fa4", "flex", "torch sdpa", "torch sdpa cudnn")
_BESIDE = {
    "other programs on other GPUs of the host": "shared host",
    "processes that compiled, on the same GPU": "shared GPU",
}
"""What else ran, as the rows say it and as the tables do."""
Row = Mapping[str, str]
Cells = dict[tuple[str, ...], dict[str, dict[str, float]]]
"""Times by shape, run and contender."""


@lru_cache
def rows(file: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a file of results."""
    with (RESULTS / f"{file}.csv").open(newline="") as f:
        return tuple(csv.DictReader(f))


def name_run(row: Row) -> str:
    """Return the run that a row belongs to: its day where the run was not written down."""
    return row.get("run") or row.get("date", "")[:10]


def describe_rows(file: str, counts: Callable[[Row], bool]) -> str:
    """Return devices and days of a file's rows that count, whether other programs used the host's
    other GPUs or the same one, and whether their code is older.
    """
    found = [row for row in rows(file) if counts(row)]
    days = sorted({day for row in found if (day := row.get("date", "")[:10])})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "undated"
    names = {row["device"].removeprefix("NVIDIA ").removesuffix(" 80GB HBM3") for row in found}
    devices = ", ".join(sorted(names))
    now = digest_sources(*SOURCES[file])
    old = any(row.get("code") != now for row in found)
    beside = {f", {_BESIDE[row['beside']]}" for row in found if row.get("beside")}
    return f"{devices}, {when}{''.join(sorted(beside))}{', older code' if old else ''}"


def ratios(file: str, column: str, shape: tuple[str, ...], **wanted: str) -> list[float]:
    """Return a column of the rows that have the wanted values, the last one of each shape."""
    found = {
        tuple(row[name] for name in shape): float(row[column])
        for row in rows(file)
        if row.get(column) and all(row.get(name) == value for name, value in wanted.items())
    }
    return list(found.values())


def times(column: str, shape: tuple[str, ...], found: Iterable[Row]) -> Cells:
    """Return the time of each contender at each shape in each run."""
    cells: Cells = {}
    for row in found:
        if row[column]:
            runs = cells.setdefault(tuple(row[name] for name in shape), {})
            runs.setdefault(name_run(row), {})[row["contender"]] = float(row[column])
    return cells


def over_best(cells: Cells, ours: Iterable[str], peers: Iterable[str]) -> list[float]:
    """Return the best peer's time over our best one at each shape, in the last run of both.

    Times of different runs are never compared: a shape at which no run has both is left out.
    """
    ours, peers = tuple(ours), tuple(peers)
    found = (_last_ratio(runs.values(), ours, peers) for runs in cells.values())
    return [ratio for ratio in found if ratio is not None]


def _last_ratio(
    runs: Iterable[Mapping[str, float]], ours: tuple[str, ...], peers: tuple[str, ...]
) -> float | None:
    both = [at for at in runs if not at.keys().isdisjoint(ours) and not at.keys().isdisjoint(peers)]
    if not both:
        return None
    at = both[-1]
    return min(at[p] for p in peers if p in at) / min(at[o] for o in ours if o in at)


def grid(direction: str, ours: tuple[str, ...]) -> list[float]:
    """Compare on the cells of the grid that were measured beside all peers in one run."""
    found = (row for row in rows("attention_grid_peers") if row["direction"] == direction)
    return over_best(times("us", ("name",), found), ours, _PEERS)


def zoo(direction: str, contender: str, beside: str = "") -> list[float]:
    """Compare on the shapes of published models, or only on those that a peer computed, too."""
    found = [row for row in rows("attention_zoo") if row["direction"] == direction and row["us"]]
    there = {row["name"] for row in found if row["contender"] == (beside or contender)}
    return [
        float(row["ratio_to_best_peer"])
        for row in found
        if row["contender"] == contender and row["ratio_to_best_peer"] and row["name"] in there
    ]


def own_zoo(direction: str) -> list[float]:
    """Compare our own kernels alone on the shapes of published models with the best peer."""
    found = (row for row in rows("attention_zoo") if row["direction"] == direction)
    return over_best(times("us", ("name",), found), OURS, _PEERS)


def flex(
    direction: str, peer: str, *, own: bool = False, file: str = "attention_flex"
) -> list[float]:
    """Compare on FlexAttention's benchmark matrix, or only where a kernel of our own ran."""
    found = (
        row
        for row in rows(file)
        if row["direction"] == direction
        and not (own and row["contender"] == "ours" and row["ran"] not in OURS)
    )
    shape = ("kind", "head_dim", "length", "kv_heads")
    return over_best(times("us", shape, found), ("ours",), (peer,))


def fp8_attention(head_dim: str, ours: str) -> list[float]:
    """Compare attention in FP8."""
    found = (row for row in rows("attention_fp8") if row["head_dim"] == head_dim)
    return over_best(
        times("median_ms", ("causal", "seq"), found), (ours,), ("cudnn", "cudnn bhsd", "fa3")
    )


def paged_decoding() -> list[float]:
    """Compare decoding in bf16 from a cache in pages with the best peer, in pages or not."""
    found = [
        {**row, "contender": row["implementation"]}
        for row in rows("attention_decoding")
        if row["cache"] == "bf16"
    ]
    shape, ours = ("model", "batch", "keys", "queries"), "ours, pages of 16"
    peers = {row["contender"] for row in found} - {"ours", ours}
    return over_best(times("microseconds", shape, found), (ours,), peers)


def few_rows(precision: str) -> list[float]:
    """Compare our faster kernel for up to 64 rows with cuBLAS."""
    cells: dict[tuple[str, str], float] = {}
    for row in rows("gemm"):
        ours = row["precision"] == precision and row["backend"] in OURS and row["times_cublas"]
        if ours and row["rounding"] == "False" and int(row["m"]) <= 64:
            at = row["layer"], row["m"]
            cells[at] = max(cells.get(at, 0.0), float(row["times_cublas"]))
    return list(cells.values())


def many_rows(precision: str) -> list[float]:
    """Compare our kernel for Hopper from 1,024 rows on with cuBLAS."""
    return [
        float(row["times_cublas"])
        for row in rows("gemm")
        if (row["backend"], row["rounding"]) == ("hopper", "False")
        and is_large(row, precision)
        and row["times_cublas"]
    ]


def is_large(row: Row, precision: str) -> bool:
    """Return whether a row is of a product in this precision with 1,024 rows or more."""
    return row["precision"] == precision and int(row["m"]) >= 1024


def experts(peer: str) -> list[float]:
    """Compare products of experts with one dense product of their size."""
    shape = ("precision", "rows", "n", "k", "experts")
    return ratios("grouped", "grouped_times_it", shape, contender=peer)


def layers(
    ours: str, peer: str, least: int, *, graph: bool = False, file: str = "fp8_linear"
) -> list[float]:
    """Compare a layer with bf16 or torchao's faster recipe, in the last run of each shape.

    Args:
        ours: `row`, in FP8 with scales of rows, `delayed`, with those of earlier steps, or `auto`,
            left in bf16 where that is faster.
        least: the least of rows / 2, inputs and outputs.
        graph: whether steps are replayed as CUDA graphs, so that the host's time does not count.
        file: the rows.
    """
    runs: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows(file):
        layer, ms = row["layer"].removesuffix(" graph"), float(row["ms"])
        name = layer.split()[0]
        sizes = tuple(row[size] for size in ("rows", "inputs", "outputs"))
        if not has_sizes(row, least) or row["layer"].endswith(" graph") != graph:
            continue
        if layer == name or name == "torchao":
            run = runs.setdefault((*sizes, row["date"]), {})
            run[name] = min(ms, run.get(name, ms))
    found = {at[:-1]: run[peer] / run[ours] for at, run in runs.items() if {ours, peer} <= {*run}}
    return list(found.values())


def transformer_layers() -> list[float]:
    """Compare a transformer layer in FP8 with bf16, each as it is, compiled or as a graph, in the
    way that is fastest.
    """
    found = [
        {**row, "contender": row["layer"]}
        for row in rows("fp8_engine")
        if row["direction"] == "training"
    ]
    fp8, plain = ([name + way for way in ("", " compiled", " graph")] for name in _LAYERS)
    return over_best(times("ms", ("form", "rows"), found), fp8, plain)


_LAYERS = ("row fused", "bf16")


def has_sizes(row: Row, least: int) -> bool:
    """Return whether rows / 2, inputs and outputs of a layer are `least` or more."""
    return min(int(row["rows"]) // 2, int(row["inputs"]), int(row["outputs"])) >= least


_LINEAR = ("batch", "tokens", "heads", "head_size", "key_heads")
TRITON, NEWER_TRITON = "3.6.0", "3.9.0"
"""With the older one fla-core refuses most backward passes, whose results are wrong there."""


def linear(way: str, kind: str, peer: str = "fla") -> list[float]:
    """Compare a kind of linear attention with a peer, in the rows whose column `tuning` is empty.

    Args:
        way: `forward`, `graph` for forward passes that are replayed on both sides, or `backward`.
    """
    column = f"{way}_times_peer"
    return ratios("linear_attention", column, _LINEAR, kind=kind, peer=peer, tuning="")


def linear_tuned(way: str, kind: str = "", triton: str = NEWER_TRITON) -> list[float]:
    """Compare with fla-core where it chose among all its configurations, in one run.

    Args:
        way: `forward`, `backward`, or `graph` for forward passes that are replayed on both sides.
        kind: all that were measured so if it is empty.
        triton: the version with which both were compiled.
    """
    found = {
        tuple(row[name] for name in ("kind", *_LINEAR)): float(row[f"{way}_times_peer"])
        for row in rows("linear_attention")
        if row.get(f"{way}_times_peer") and is_tuned(row, triton) and kind in ("", row["kind"])
    }
    return list(found.values())


def is_tuned(row: Row, triton: str) -> bool:
    """Return whether a row is beside a fully tuned fla-core, compiled with a version of Triton."""
    return row["tuning"] == TUNED and f"triton={triton}" in row["versions"].split()


TUNED = "all configurations"
"""The column `tuning` of rows beside a peer that chose among all it has."""
