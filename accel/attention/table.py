"""Look up how fast each backend was measured, by GPU.

A table is a CSV file with the columns of `Row`. Rows of one shape were measured side by side in one
run. Shipped tables are in `accel/attention/measured`; `gpudeck run tune` writes the user's table,
whose rows replace shipped ones of the same GPU and shape. The module needs no torch.
"""

from __future__ import annotations

import csv
import math
import os
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from gpudeck.accel.runtime.state_files import state_folder

SHIPPED = Path(__file__).parent / "measured"

Place = tuple[float, float, float]

ENOUGH_TILES = 1024
FEW_QUERIES = 16
"""Up to this number of queries a sequence is a decoding step, for which other kernels are fastest.
"""
ALIKE = {"NVIDIA H100 80GB HBM3": "NVIDIA H200"}
"""Map a GPU that was measured at few shapes to one with the same multiprocessors, clocks and power
limit that was measured at more: the ranking there applies here."""
_FLAGS = ("causal", "ragged")
REACH = 2.0
"""The distance in octaves, in each coordinate, beyond which a measurement is ignored."""


class Row(msgspec.Struct, frozen=True):
    """The measurement of one backend at one shape."""

    gpu: str
    """The name by the driver, e.g. "NVIDIA H100 80GB HBM3"."""
    direction: str
    """`forward` or `backward`."""
    dtype: str
    head_dim: int
    causal: bool
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    backend: str
    microseconds: float
    """The median of one call."""
    low: float
    """The 5th percentile of the calls, in microseconds; the median where only that was kept."""
    high: float
    """The 95th percentile, likewise."""
    tflops: float
    versions: str
    """The versions, such as "torch 2.11.0, cudnn 9.19.0, driver 580.159.04"."""
    date: str
    left: int = -1
    """The window before a query's own position; -1 for none."""
    softcap: float = 0.0
    bias: str = "none"
    """As `Problem.bias` has it."""
    ragged: bool = False

    @property
    def kind(self) -> tuple[str, str, str, int, bool, int, float, str, bool]:
        """Return the fields that rows must share to be compared."""
        wishes = (self.left, self.softcap, self.bias, self.ragged)
        return (self.gpu, self.direction, self.dtype, self.head_dim, self.causal, *wishes)

    @property
    def plain(self) -> bool:
        """Return whether nothing but causality restricts or changes the scores."""
        return (self.left, self.softcap, self.bias, self.ragged) == (-1, 0.0, "none", False)

    @property
    def place(self) -> Place:
        """Return the coordinates of the row's shape."""
        return place(self.batch * self.heads, self.seq_q, self.seq_k)

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the key under which a newer or a user's own measurement replaces this row."""
        return (
            *self.kind,
            self.batch,
            self.heads,
            self.kv_heads,
            self.seq_q,
            self.seq_k,
            self.backend,
        )


def place(heads: int, seq_q: int, seq_k: int) -> Place:
    """Return the coordinates in which shapes are interpolated, in octaves.

    They are the queries, the keys, and the tiles of 128 queries over all heads and sequences.
    `heads` are counted over the batch. More tiles than ENOUGH_TILES make no difference, because
    every multiprocessor then has several.
    """
    tiles = heads * -(-seq_q // 128)
    return (
        math.log2(max(1, seq_q)),
        math.log2(max(1, seq_k)),
        math.log2(min(max(1, tiles), ENOUGH_TILES)),
    )


def user_file() -> Path:
    """Return the path of the user's table, `attention.csv` in the state folder."""
    return state_folder() / "attention.csv"


def read(file: Path) -> list[Row]:
    """Read the rows of a table.

    Raises:
        ValueError: names the file and the line if it is not such a table.
    """
    rows = []
    try:
        with file.open(newline="") as f:
            for number, line in enumerate(csv.DictReader(f), start=2):
                try:
                    rows.append(
                        msgspec.convert(
                            {**line, **{name: line.get(name) == "True" for name in _FLAGS}},
                            Row,
                            strict=False,
                        )
                    )
                except msgspec.ValidationError as e:
                    raise ValueError(
                        f"{file}, line {number}: {e}. Remove the file, or measure again with"
                        " `gpudeck run tune`"
                    ) from e
    except FileNotFoundError:
        return []
    return rows


def write(rows: Iterable[Row], file: Path) -> None:
    """Write a table completely or not at all, readable by its owner only."""
    new = file.with_name(file.name + ".new")
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", newline=""
    ) as f:
        sheet = csv.DictWriter(f, Row.__struct_fields__)
        sheet.writeheader()
        sheet.writerows(msgspec.structs.asdict(row) for row in rows)
        f.flush()
        os.fsync(f.fileno())
    new.replace(file)


def record(rows: Iterable[Row]) -> Path:
    """Merge rows into the user's table, replacing shapes that were measured again; return its path.

    Programs started afterwards use it.

    Raises:
        OSError: if the file cannot be written.
        ValueError: if the existing file is not such a table.
    """
    file = user_file()
    merged = {row.identity: row for row in (*read(file), *rows)}
    write(merged.values(), file)
    forget()
    return file


def forget() -> None:
    """Read the tables again when they are needed next."""
    for kept in (_read_all, rows_of):
        kept.cache_clear()


@lru_cache(maxsize=1)
def _read_all() -> tuple[Row, ...]:
    """Return the shipped rows and the user's, which replace what they measured again.

    A user's table that cannot be read causes one warning.
    """
    rows = [row for file in sorted(SHIPPED.glob("*.csv")) for row in read(file)]
    try:
        rows += read(user_file())
    except (OSError, ValueError) as e:
        warnings.warn(f"attention goes by the tables that came with the program: {e}", stacklevel=2)
    return tuple({row.identity: row for row in rows}.values())


@lru_cache(maxsize=64)
def rows_of(gpu: str, direction: str, dtype: str, head_dim: int, causal: bool) -> tuple[Row, ...]:
    """Return the rows of the tables that apply."""
    return select(_read_all(), gpu, direction, dtype, head_dim, causal)


def select(
    rows: Iterable[Row], gpu: str, direction: str, dtype: str, head_dim: int, causal: bool
) -> tuple[Row, ...]:
    """Return the plain rows that apply: of each shape those at the smallest measured head size >=
    `head_dim`.

    Rows of the GPU itself come before those of the GPU that is ALIKE, and rows of the dtype before
    those of the other two-byte type, in which kernels are equally fast.
    """
    able = [
        row
        for row in rows
        if row.plain
        and row.gpu in (gpu, ALIKE.get(gpu))
        and (row.direction, row.causal) == (direction, causal)
        and row.head_dim >= head_dim
    ]
    ranks = [(row.head_dim, row.gpu != gpu, row.dtype != dtype) for row in able]
    best: dict[Place, tuple[int, bool, bool]] = {}
    for row, rank in zip(able, ranks, strict=True):
        best[row.place] = min(rank, best.get(row.place, rank))
    return tuple(row for row, rank in zip(able, ranks, strict=True) if rank == best[row.place])


def find_gpus(rows: Iterable[Row], at: Place) -> list[str]:
    """Return the GPUs whose rows decide at the shape `at`."""
    exact, near = set[str](), set[str]()
    for row in rows:
        if row.place == at:
            exact.add(row.gpu)
        elif _reaches(row.place, at):
            near.add(row.gpu)
    return sorted(exact or near)


def expect(rows: Iterable[Row], at: Place) -> dict[str, float]:
    """Return the expected TFLOP/s of each backend at the shape `at`; empty without measurements.

    Only shapes within REACH count, with few queries from few and many from many. A shape that was
    measured decides alone. Otherwise the logarithm of each backend's rate relative to the best of
    its shape is averaged, because the ranking changes more slowly than the speed, with weights that
    fall with the fourth power of the distance (Shepard, 1968). A backend needs measurements at
    shapes with at least half of the weight.
    """
    shapes: dict[Place, dict[str, float]] = {}
    for row in rows:
        shapes.setdefault(row.place, {})[row.backend] = row.tflops
    if at in shapes:
        return shapes[at]
    near = {where: rates for where, rates in shapes.items() if _reaches(where, at)}
    weights = {
        where: sum((a - b) ** 2 for a, b in zip(at, where, strict=True)) ** -2 for where in near
    }
    total = sum(weights.values())
    found = {}
    for name in {name for rates in near.values() for name in rates}:
        there = [where for where, rates in near.items() if name in rates]
        weight = sum(weights[where] for where in there)
        if 2 * weight >= total:
            behind = (
                sum(
                    weights[where] * math.log(near[where][name] / max(near[where].values()))
                    for where in there
                )
                / weight
            )
            best = (
                sum(weights[where] * math.log(max(rates.values())) for where, rates in near.items())
                / total
            )
            found[name] = math.exp(best + behind)
    return found


def _reaches(where: Place, at: Place) -> bool:
    few = math.log2(FEW_QUERIES)
    return (where[0] <= few) == (at[0] <= few) and all(
        abs(a - b) <= REACH for a, b in zip(where, at, strict=True)
    )
