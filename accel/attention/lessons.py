"""Keep what attention learns on this machine; see `gpudeck.accel.lessons`.

A measurement belongs to a spot: problems of one spot are computed fastest by the same backend.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from gpudeck.accel.attention.problem import Problem, dtype_name
from gpudeck.accel.attention.records import Shape
from gpudeck.accel.attention.table import FEW_QUERIES
from gpudeck.accel.lessons import measuring, usage
from gpudeck.accel.lessons.records import Direction, Measured
from gpudeck.accel.lessons.store import Store, step

_NAMED_OTHERWISE = frozenset(
    (
        "batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "dtype", "device",
        "capability", "scale", "grad", "left", "right", "softcap", "bias", "bias_grad", "ragged",
        "deterministic", "wants_lse",
    )
)  # fmt: skip

Use = usage.Use[Problem]
STORE = Store("attention")


def spot(p: Problem) -> str:
    """Return the spot of a problem as text, without its device.

    Lengths, windows and the number of heads in the batch are rounded to steps. Everything that
    changes the work of a kernel otherwise is given exactly.
    """
    group = p.heads // p.kv_heads
    parts = [
        dtype_name(p.dtype),
        f"d{p.head_dim}",
        f"heads{step(p.batch * p.heads)}" + (f"/{group}" if group > 1 else ""),
        f"queries{step(p.seq_q)}",
        f"keys{step(p.seq_k)}",
    ]
    # causality is not named for a single query, which sees all keys
    if p.windowed:
        sides = (_name_side(side) for side in (p.left, p.right))
        parts.append(f"window {','.join(sides)}")
    elif p.mask != "none":
        parts.append(f"causal {p.mask}")
    return " ".join([*parts, *name_extras(p)])


def _name_side(side: int | None) -> str:
    return "all" if side is None else str(step(side)) if side >= 0 else f"from {step(-side)} on"


def name_extras(p: Problem) -> list[str]:
    """Return what a problem asks for beside causality and windows."""
    found = ["softcap"] if p.softcap else []
    found += [] if p.bias == "none" else ["mask" if p.bias == "bool" else "bias"]
    found += [name for name in ("bias_grad", "ragged") if getattr(p, name)]
    # what a problem may ask for later distinguishes its spot without being named here
    found += [
        f"{field.name}={value}"
        for field in dataclasses.fields(p)
        if field.name not in _NAMED_OTHERWISE and (value := getattr(p, field.name)) != field.default
    ]
    return found


def find(p: Problem, direction: Direction) -> Measured | None:
    """Return what was measured at the problem's spot; None for deterministic gradients, which must
    not depend on what was measured when."""
    return None if p.deterministic else STORE.find(p.device, direction, spot(p))


def _describe(p: Problem) -> usage.Described[Shape]:
    given = {name: getattr(p, name) for name in Shape.__struct_fields__ if name != "dtype"}
    shape = Shape(**given, dtype=dtype_name(p.dtype))
    return usage.Described(p.device, spot(p), str(p).removesuffix(f" on {p.device}"), shape)


USAGE = usage.Usage("attention", Shape, _describe)


def use_of(problem: Problem) -> Use | None:
    """Return the count of the problem's spot, or None where nothing can be learned."""
    if problem.device.type not in usage.DEVICES or problem.empty:
        return None
    return USAGE.at(place(problem), problem)


@lru_cache(maxsize=4096)
def place(problem: Problem) -> str:
    """Return the device and the spot of a problem."""
    return f"{problem.device} {spot(problem)}"


def has_few_queries(problem: Problem) -> bool:
    """Return whether a few queries read long keys, as in decoding."""
    return problem.seq_q <= FEW_QUERIES < problem.seq_k


def measure(
    problem: Problem,
    direction: Direction,
    predicted: str,
    passes: measuring.Passes,
    names: tuple[str, ...],
) -> Measured:
    """Time the named backends in turn, record the result, and let `auto` go by it.

    Raises:
        RuntimeError: if all of them fail.
    """
    flops = problem.flops * (2.5 if direction == "backward" else 1.0)
    subject = measuring.Subject(
        problem.device, direction, spot(problem), str(problem), flops, predicted
    )
    # Between two steps of decoding the other layers read their weights and keys.
    return measuring.measure(STORE, subject, passes, names, cold=has_few_queries(problem))
