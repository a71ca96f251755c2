"""Name the spot of a problem: problems of one spot are computed fastest by the same backend."""

from __future__ import annotations

import dataclasses

from gpudeck.accel.attention.problem import Problem, dtype_name
from gpudeck.accel.lessons.spots import step

_TOLD = frozenset(
    (
        "batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "dtype", "device",
        "capability", "scale", "grad", "left", "right", "softcap", "bias", "bias_grad", "ragged",
        "deterministic", "wants_lse",
    )
)  # fmt: skip


def spot(p: Problem) -> str:
    """Return the spot of a problem as text, without its device.

    Lengths, windows and the number of heads in the batch are rounded to steps. Everything that
    changes the work of a kernel otherwise is told exactly.
    """
    group = p.heads // p.kv_heads
    parts = [
        dtype_name(p.dtype),
        f"d{p.head_dim}",
        f"heads{step(p.batch * p.heads)}" + (f"/{group}" if group > 1 else ""),
        f"queries{step(p.seq_q)}",
        f"keys{step(p.seq_k)}",
    ]
    return " ".join([*parts, *kind(p)])


def kind(p: Problem) -> list[str]:
    """Return what distinguishes a problem from a plain one of its sizes; causality is not named
    for a single query, which sees all keys."""
    found = []
    if p.windowed:
        sides = ("all" if side is None else str(step(side)) for side in (p.left, p.right))
        found.append(f"window {','.join(sides)}")
    elif p.mask != "none":
        found.append(f"causal {p.mask}")
    return found + extras(p)


def extras(p: Problem) -> list[str]:
    """Return what a problem asks for beside causality and windows."""
    found = ["softcap"] if p.softcap else []
    found += [] if p.bias == "none" else ["mask" if p.bias == "bool" else "bias"]
    found += [name for name in ("bias_grad", "ragged") if getattr(p, name)]
    # what a problem may ask for later distinguishes its spot without being named here
    found += [
        f"{field.name}={value}"
        for field in dataclasses.fields(p)
        if field.name not in _TOLD and (value := getattr(p, field.name)) != field.default
    ]
    return found
