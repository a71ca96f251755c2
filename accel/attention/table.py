"""How fast each backend was measured to be, by GPU: tables shipped with the package, and one measured on the user's machine. Torch-free.

A table is a CSV file with the columns of `Row`. Its rows of one shape were measured side by side in one run. The shipped ones lie in
`accel/attention/measured`; the user's is written by `gpudeck run tune`, and its rows replace shipped ones of the same GPU and shape.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

SHIPPED = Path(__file__).parent / "measured"


class Row(msgspec.Struct, frozen=True):
    """One backend at one shape."""

    gpu: str
    """As the driver names it, e.g. "NVIDIA H100 80GB HBM3"."""
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
    """Median of one call."""
    low: float
    """5th percentile of the calls, in microseconds."""
    high: float
    """95th percentile."""
    tflops: float
    versions: str
    """e.g. "torch 2.11.0, cudnn 9.19.0, driver 580.159.04"."""
    date: str

    @property
    def kind(self) -> tuple[str, str, str, int, bool]:
        """What rows must share to be compared."""
        return self.gpu, self.direction, self.dtype, self.head_dim, self.causal

    @property
    def place(self) -> tuple[float, float, float]:
        """Where it lies among shapes: the binary logarithms of queries, keys, and heads over the batch."""
        return place(self.batch * self.heads, self.seq_q, self.seq_k)

    @property
    def identity(self) -> tuple[object, ...]:
        """What a newer measurement replaces."""
        return (*self.kind, self.batch, self.heads, self.kv_heads, self.seq_q, self.seq_k, self.backend)


def place(heads: int, seq_q: int, seq_k: int) -> tuple[float, float, float]:
    """The coordinates in which shapes are interpolated; `heads` are counted over the batch."""
    return math.log2(max(1, seq_q)), math.log2(max(1, seq_k)), math.log2(max(1, heads))


def user_file() -> Path:
    """`attention.csv` in `$GPUDECK_HOME`, else in `$XDG_STATE_HOME/gpudeck` or `~/.local/state/gpudeck`."""
    if home := os.environ.get("GPUDECK_HOME"):
        return Path(home).expanduser().absolute() / "attention.csv"
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().absolute() / "gpudeck" / "attention.csv"


def read(file: Path) -> list[Row]:
    """Its rows. Raises ValueError naming the file and the line where it is no such table."""
    rows = []
    try:
        with file.open(newline="") as f:
            for number, line in enumerate(csv.DictReader(f), start=2):
                try:
                    rows.append(msgspec.convert({**line, "causal": line.get("causal") == "True"}, Row, strict=False))
                except msgspec.ValidationError as e:
                    raise ValueError(f"{file}, line {number}: {e}. Remove the file, or measure again with `gpudeck run tune`") from e
    except FileNotFoundError:
        return []
    return rows


def write(rows: Iterable[Row], file: Path) -> None:
    """All of it or nothing, readable by its owner only."""
    new = file.with_name(file.name + ".new")
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", newline="") as f:
        sheet = csv.DictWriter(f, Row.__struct_fields__)
        sheet.writeheader()
        sheet.writerows(msgspec.structs.asdict(row) for row in rows)
        f.flush()
        os.fsync(f.fileno())
    new.replace(file)


def record(rows: Iterable[Row]) -> Path:
    """Merge into the user's table; a shape measured again is replaced. Returns the file."""
    file = user_file()
    merged = {row.identity: row for row in (*read(file), *rows)}
    write(merged.values(), file)
    rows_of.cache_clear()
    _measured.cache_clear()
    return file


@lru_cache(maxsize=1)
def _measured() -> tuple[Row, ...]:
    shipped = [row for file in sorted(SHIPPED.glob("*.csv")) for row in read(file)]
    mine = read(user_file())
    replaced = {(*row.kind, *row.place) for row in mine}
    return (*(row for row in shipped if (*row.kind, *row.place) not in replaced), *mine)


@lru_cache(maxsize=64)
def rows_of(gpu: str, direction: str, dtype: str, head_dim: int, causal: bool) -> tuple[Row, ...]:
    """All rows of that kind, at the smallest measured head size that is not below `head_dim`.

    Where that dtype was not measured those of the other two-byte type stand in: kernels run as fast in both.
    """
    near = [row for row in _measured() if (row.gpu, row.direction, row.causal) == (gpu, direction, causal) and row.head_dim >= head_dim]
    size = min((row.head_dim for row in near), default=0)
    same = [row for row in near if row.head_dim == size]
    return tuple([row for row in same if row.dtype == dtype] or same)


def expected(rows: Iterable[Row], at: tuple[float, float, float]) -> dict[str, float]:
    """TFLOP/s of each backend at the shape `at`, interpolated between the shapes where all of them were measured.

    Each measured shape weighs by the inverse square of its distance (Shepard, 1968); one at the very place decides alone.
    """
    shapes: dict[tuple[float, float, float], dict[str, float]] = {}
    for row in rows:
        shapes.setdefault(row.place, {})[row.backend] = row.tflops
    if at in shapes:
        return shapes[at]
    sums: dict[str, float] = {}
    total = 0.0
    everywhere = set.intersection(*map(set, shapes.values())) if shapes else set()
    for where, rates in shapes.items():
        weight = 1 / sum((a - b) ** 2 for a, b in zip(at, where, strict=True))
        total += weight
        for name in everywhere:
            sums[name] = sums.get(name, 0.0) + weight * rates[name]
    return {name: value / total for name, value in sums.items()}
