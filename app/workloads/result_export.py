"""A Result as files for other programs: CSV, a row a cell, or JSON, all of it."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path

import msgspec

from accel.result import Cell, Result
from app.link.call import Call
from app.workloads.results import result_of
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job


class SaveResult(msgspec.Struct, frozen=True):
    """Write the result of a job to a file, in the format of its name's ending."""

    job: int
    file: str

    def carry_out(self, call: Call) -> None:
        """Read the whole job, and save its result."""
        with call.client() as client:
            save_result(client.job(self.job), Path(self.file))


def save_result(job: Job, file: Path) -> None:
    """Write what the job left in the format that the file's name ends with. Raises UserError, saying what to do."""
    result = result_of(job)
    if result is None:
        raise UserError(f"job {job.id} left no result that could be written")
    made = {".csv": lambda: as_csv(result).encode(), ".json": lambda: as_json(result)}.get(
        file.suffix.lower()
    )
    if made is None:
        raise UserError(
            f"the file's name must end with .csv or .json, which says the format; got {file.name!r}"
        )
    try:
        file.write_bytes(made())
    except OSError as e:
        raise UserError(f"cannot write {file}: {e.strerror}") from e


def as_json(result: Result) -> bytes:
    """Indented, with every field, those that are empty too."""
    return msgspec.json.format(msgspec.json.encode(whole(result))) + b"\n"


def as_csv(result: Result) -> str:
    """A header, then a row a cell; a Result without cells is one row. What was not measured is empty. Versions and device stand in every
    row, so that rows of several files can be put together.
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


def _cell(cell: Cell) -> dict[str, object]:
    timed, t, s, r = bool(cell.timing.count), cell.timing, cell.sensors, cell.trials
    return {
        **{
            name: getattr(cell, name)
            for name in ("direction", "contender", "backend", "dtype", "causal")
        },
        **{name: getattr(cell, name) for name in ("batch", "heads", "kv_heads", "seq", "head_dim")},
        "tflops": cell.tflops if timed else None,
        **{
            f"{name}_ms": getattr(t, name) if timed else None
            for name in ("median", "p5", "p95", "p99")
        },
        "calls": t.count,
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
    # A spreadsheet would take such a text for a formula and run it.
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text


def whole(result: Result) -> dict[str, object]:
    """With the fields that the compact form leaves out."""
    return {name: _plain(getattr(result, name)) for name in result.__struct_fields__}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return [_plain(x) for x in value] if isinstance(value, tuple) else value
