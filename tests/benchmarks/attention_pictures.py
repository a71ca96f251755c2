"""Take pictures of the measured grid on the Workloads page: its heat map and its comparison.

    python -m tests.benchmarks.attention_pictures

Reads results/attention_grid.csv and writes docs/pictures/attention-*.png.
"""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path

import msgspec

from accel.result import Cell, Check, Result, Timing
from tests.benchmarks.rows import RESULTS

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZES = {"heat": (900, 430), "comparison": (1280, 560)}


def measured(file: Path) -> Result:
    """Return the Result that was exported by `app.workloads.result_export.as_csv`, as far as the
    rows hold it.
    """
    with file.open(newline="") as f:
        rows = list(csv.DictReader(f))
    cells = tuple(map(_cell, rows))
    best = max(cells, key=lambda cell: cell.tflops)
    at = time.mktime(time.strptime(rows[0]["measured"][:19], "%Y-%m-%dT%H:%M:%S"))
    params = {
        "seq": "512,2048,8192,16384",
        "head_dim": "64,128,256",
        "causal": "both",
        "dtype": best.dtype,
    }
    return Result(
        "compare",
        rows[0]["device"],
        best.backend,
        f"the fastest of {len(cells)} cells",
        params,
        "pass",
        (),
        best.timing,
        best.flops,
        best.tflops,
        best.tflops,
        at,
        at,
        {"torch": rows[0]["torch_version"]},
        at,
        at,
        cells=cells,
    )


def _cell(row: dict[str, str]) -> Cell:
    shape = {name: int(row[name]) for name in ("batch", "heads", "kv_heads", "seq", "head_dim")}
    words = {name: row[name] for name in ("dtype", "direction", "contender", "backend", "note")}
    if not row["tflops"]:
        return msgspec.convert({**shape, **words, "causal": row["causal"] == "yes"}, Cell)
    median, p5, p95, p99 = (float(row[f"{name}_ms"]) for name in ("median", "p5", "p95", "p99"))
    timing = Timing(median, median, p95, p99, p5, p99, int(row["calls"]), p5=p5)
    error = float(row["worst_error_of_allowed"])
    figures = {
        "flops": float(row["flop"]),
        "moved": float(row["bytes"]),
        "tflops": float(row["tflops"]),
    }
    return Cell(
        **shape,
        **words,
        causal=row["causal"] == "yes",
        timing=timing,
        checks=(Check("all", error, 1.0),),
        **figures,
    )  # type: ignore[arg-type]


def main() -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from app.widgets import theme
    from app.workloads.cell_charts import CellCharts

    app = theme.application()
    theme.apply(app, "light")
    view = CellCharts()
    view.show_result(measured(RESULTS / "attention_grid.csv"), ())
    view.show()
    for index, (name, size) in enumerate(SIZES.items()):
        view.resize(*size)
        view.choose(index)
        for _ in range(4):
            app.processEvents()
        file = PICTURES / f"attention-{name}.png"
        view.grab().save(str(file))
        print(file)


if __name__ == "__main__":
    main()
