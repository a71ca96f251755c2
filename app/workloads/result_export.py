"""Write a Result as CSV, with one row for each cell, or as JSON with all fields."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path

import msgspec

from gpudeck.accel.result import Cell, Result
from gpudeck.app.format.results import result_of
from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Call
from gpudeck.language.text import Text
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job


class SaveResult(msgspec.Struct, frozen=True):
    """Save the result of a job to a file."""

    job: int
    file: str

    def carry_out(self, call: Call) -> None:
        """Read the whole job and save its result."""
        with call.client() as client:
            save_result(client.job(self.job), Path(self.file))


def save_result(job: Job, file: Path) -> None:
    """Write the Result that a job left.

    Args:
        file: Its name ends with .csv or .json, which chooses the format.

    Raises:
        UserError: There is no Result, the name ends otherwise, or the file cannot be written.
    """
    result = result_of(job)
    if result is None:
        raise UserError(tr("job {job} left no result to save", job=job.id))
    made = {".csv": lambda: as_csv(result).encode(), ".json": lambda: as_json(result)}.get(
        file.suffix.lower()
    )
    if made is None:
        raise UserError(
            tr("the file name must end with .csv or .json; got {name!r}", name=file.name)
        )
    try:
        file.write_bytes(made())
    except OSError as e:
        raise UserError(tr("cannot write {file}: {why}", file=file, why=e.strerror)) from e


def as_json(result: Result) -> bytes:
    """Return indented JSON with every field, empty ones included."""
    return msgspec.json.format(msgspec.json.encode(whole(result))) + b"\n"


def as_csv(result: Result) -> str:
    """Return a header and a row for each cell, or a single row for a Result without cells.

    A value that was not measured is empty. Every row contains the versions and the device, so
    that the rows of several files can be combined.
    """
    rows = [_cell(cell) for cell in result.cells] or [_single(result)]
    common = {
        "workload": result.workload,
        "device": result.device,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(result.ended)),
        **{f"{name}_version": version for name, version in result.versions.items()},
    }
    out = io.StringIO()
    writer = csv.DictWriter(out, [*rows[0], *common], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: _text(value) for name, value in {**row, **common}.items()} for row in rows
    )
    return out.getvalue()


_DESCRIBED = (
    "operation", "sizes", "direction", "contender", "backend", "dtype", "causal", "batch", "heads",
    "kv_heads", "seq", "head_dim",
)  # fmt: skip


def _cell(cell: Cell) -> dict[str, object]:
    timed, t, s, r = bool(cell.timing.count), cell.timing, cell.sensors, cell.trials
    return {
        **{name: getattr(cell, name) for name in _DESCRIBED},
        "tflops": cell.tflops if timed else None,
        **{
            f"{name}_ms": getattr(t, name) if timed else None
            for name in ("median", "p5", "p95", "p99")
        },
        "calls": t.count,
        "same_twice": cell.twin or None,
        "flop": cell.flops,
        "bytes": cell.moved,
        "joules_per_tflop": s.joules_per_tflop,
        "sm_mhz": s.sm_mhz,
        "watts": s.watts,
        "celsius": s.celsius,
        "passed": cell.passed if cell.backend else None,
        "worst_error_of_allowed": r.worst
        if r
        else max((c.error / c.bound for c in cell.checks if c.bound), default=None),
        "relative_error": cell.error or None,
        "trials": r.count if r else None,
        "trials_failed": r.failed if r else None,
        "worst_seed": r.worst_seed if r else None,
        "note": cell.note,
    }


def _single(result: Result) -> dict[str, object]:
    t = result.timing
    return {
        "backend": result.backend,
        **result.params,
        "verdict": result.verdict,
        "tflops": result.tflops or None,
        "bytes_per_second": result.bandwidth or None,
        **{
            f"{name}_ms": getattr(t, name) if t.count else None
            for name in ("median", "p5", "p95", "p99")
        },
        "calls": t.count,
        "sm_mhz": result.sensors.sm_mhz,
        "watts": result.sensors.watts,
        "celsius": result.sensors.celsius,
    }


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    # a spreadsheet would run such a text as a formula
    quoted = isinstance(value, str | Text) and text[:1] in ("=", "+", "-", "@")
    return f"'{text}" if quoted else text


def whole(result: Result) -> dict[str, object]:
    """Return all fields, including those that the compact form omits, with texts in English."""
    return {name: _plain(getattr(result, name)) for name in result.__struct_fields__}


def _plain(value: object) -> object:
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return [_plain(x) for x in value] if isinstance(value, tuple) else value
