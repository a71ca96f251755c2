"""Take pictures of measured grids on the Workloads page: heat maps, also of FP8, and a comparison.

    python -m tests.benchmarks.attention_pictures

Reads results/attention_grid.csv and attention_fp8_compare.json, a result of `gpudeck run compare
--backends=fp8`, and writes docs/pictures/attention-*.png.
"""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path

import msgspec

from gpudeck.accel.result import Cell, Check, Result, Timing
from tests.benchmarks.rows import RESULTS

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
HEAT, COMPARISON = 0, 1


def measured(file: Path) -> Result:
    """Return the Result that was exported by `gpudeck.app.workloads.result_export.as_csv`, as far
    as the rows hold it.
    """
    rows = _rows(file)
    return _result(tuple(map(_cell, rows)), rows[0]["device"], rows[0]["torch_version"])


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as f:
        return list(csv.DictReader(f))


def _result(cells: tuple[Cell, ...], device: str, torch_version: str) -> Result:
    best = max(cells, key=lambda cell: cell.tflops)
    at = time.time()
    params = {
        **{
            name: ",".join(map(str, sorted({getattr(cell, name) for cell in cells})))
            for name in ("seq", "head_dim")
        },
        "causal": "both",
        "dtype": best.dtype,
    }
    return Result(
        "compare",
        device,
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
        {"torch": torch_version},
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
    from gpudeck.app.widgets import theme
    from gpudeck.app.workloads.cell_charts import CellCharts

    app = theme.application()
    theme.apply(app, "light")
    view = CellCharts()
    view.show()
    grid = measured(RESULTS / "attention_grid.csv")
    in_fp8 = msgspec.json.decode((RESULTS / "attention_fp8_compare.json").read_bytes(), type=Result)
    for name, result, index, size in (
        ("heat", grid, HEAT, (900, 430)),
        ("comparison", grid, COMPARISON, (1280, 560)),
        ("fp8", in_fp8, HEAT, (620, 430)),
    ):
        view.show_result(result, ())
        view.resize(*size)
        view.choose(index)
        for _ in range(4):
            app.processEvents()
        file = PICTURES / f"attention-{name}.png"
        view.grab().save(str(file))
        print(file)


if __name__ == "__main__":
    main()
