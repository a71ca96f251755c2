"""Summarise a Result in a few lines for people."""

from __future__ import annotations

from gpudeck.accel.result import PASS, Cell, Result, twins
from gpudeck.accel.workloads.catalog import FP8

_LABEL = 34
"""The least width of the problems' names."""


def lines(result: Result) -> list[str]:
    """Return what ran, its speed and its errors, with a table for a grid."""
    t = result.timing
    found = [f"{result.workload} on {result.device}, by {result.backend} ({result.reason})"]
    if any(cell.trials for cell in result.cells):
        found += trials(result.cells)
    elif len(result.cells) > 1:
        found += table(result.cells)
    if t.count:
        rate = (
            f"{result.bandwidth / 1e9:.4g} GB/s"
            if result.bandwidth
            else f"{result.tflops:.4g} TFLOP/s"
        )
        sustained = (
            f", sustained {result.sustained_tflops:.4g} TFLOP/s" if result.sustained_tflops else ""
        )
        found.append(
            f"{rate} at the median of {t.median:.4g} ms"
            f" (P95 {t.p95:.4g}, P99 {t.p99:.4g}, {t.count} calls){sustained}"
        )
    found += [f"{f.name} {f.value:.5g} {f.unit}".rstrip() for f in result.figures]
    if not result.checks:
        return [*found, str(result.verdict)]
    compared = "; ".join(f"{c.name} {c.error:.3g} (bound {c.bound:.3g})" for c in result.checks)
    return [*found, f"{PASS if result.passed else 'fail'}: {compared}"]


def table(cells: tuple[Cell, ...]) -> list[str]:
    """Return TFLOP/s, with a line per problem and a column per contender, then the reasons of
    gaps."""
    contenders = list(dict.fromkeys(c.contender for c in cells))
    problems: dict[str, dict[str, Cell]] = {}
    for c in cells:
        problems.setdefault(_label(c), {})[c.contender] = c
    widths = [max(len(name), 9) for name in contenders]
    left = max(_LABEL, *map(len, problems))
    found = [
        " ".join(
            [
                f"{'TFLOP/s':<{left}}",
                *(f"{name:>{w}}" for name, w in zip(contenders, widths, strict=True)),
            ]
        )
    ]
    for label, row in problems.items():
        figures = (
            _figure(row.get(name)).rjust(w) for name, w in zip(contenders, widths, strict=True)
        )
        found.append(" ".join([f"{label:<{left}}", *figures]))
    if in_fp8 := {_label(c) for c in cells if c.contender in FP8 and c.error}:
        errors = (
            max(c.error for c in cells if c.contender == name and _label(c) in in_fp8)
            for name in contenders
        )
        figures = ((f"{e:.1e}" if e else "-").rjust(w) for e, w in zip(errors, widths, strict=True))
        found.append(" ".join([f"{'largest relative error':<{left}}", *figures]))
    notes = dict.fromkeys(f"{c.contender}: {c.note}" for c in cells if not c.tflops and c.note)
    return [*found, *map(str, filter(None, [twins(cells)])), *notes]


def trials(cells: tuple[Cell, ...]) -> list[str]:
    """Return errors as shares of their bounds, and latencies, a line per cell."""
    found = [
        f"{'errors (share of the bound)':<34}   trials failed    P50    P95    P99"
        "  worst (seed)    ms P50    P95    P99"
    ]
    for c in cells:
        label, r, t = _label(c), c.trials, c.timing
        if r is None:
            found.append(f"{label:<34} {c.note}")
            continue
        errors = (
            f"{r.count:>8} {r.failed:>6} {r.p50:>6.2f} {r.p95:>6.2f} {r.p99:>6.2f}"
            f" {r.worst:>6.2f} ({r.worst_seed})"
        )
        found.append(f"{label:<34} {errors:<56} {t.p50:>6.3f} {t.p95:>6.3f} {t.p99:>6.3f}")
    return found


def _label(c: Cell) -> str:
    if c.sizes:
        return f"{c.sizes}, {c.dtype}"
    return f"{c.direction}, d {c.head_dim}, S {c.seq}{', causal' if c.causal else ''}"


def _figure(cell: Cell | None) -> str:
    if cell is None or not cell.backend:
        return "-"
    if not cell.passed:
        return "WRONG"
    return f"{cell.tflops:.4g}" if cell.tflops else "-"
