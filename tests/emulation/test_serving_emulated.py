"""Products of one vector with a matrix in FP8 or int8, their own source, on an emulated GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpudeck.accel.serving import cpu
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.linear import Format, Heads, Linear
from gpudeck.accel.serving.rotary import Rope
from gpudeck.accel.serving.transformer import rotation
from tests.emulation.hopper import SERVING, Hopper
from tests.emulation.machine import Defect
from tests.unit.accel.serving.test_serving_gpu import config, drawn, off

KINDS: tuple[Format, ...] = ("fp8", "int8")


def posed(kind: Format, rows: int, columns: int) -> tuple[Linear, torch.Tensor]:
    linear = Linear("dense", drawn(rows, columns), bias=drawn(rows, seed=3)).quantized(kind)
    linear = replace(linear, values=linear.values.clone())  # nothing lies behind it
    return linear, drawn(1, columns, seed=1)


def launched(which: str, linear: Linear, x: torch.Tensor, given, constants, **changes):
    given |= {"scales": linear.scales, "bias": linear.bias, "x": x, "rows": linear.shape[0]}
    constants |= {"BIASED": linear.bias is not None}
    Hopper(package=SERVING, **changes).module("eight_bits").launch_one(
        which, linear, given, constants
    )


def error(kind: Format, rows: int, columns: int, gate: str | None = None, **changes) -> float:
    linear, x = posed(kind, rows, columns)
    made = rows if gate is None else rows // 2
    out, add = torch.full((1, made), torch.nan), drawn(1, made, seed=4) if gate is None else None
    given = {"add": add, "out": out, "half": 0 if gate is None else made}
    constants = {"ADDS": add is not None, "GATE": gate}
    launched("one", linear, x, given, constants, **changes)
    dense = linear.as_dense(torch.float32)
    if gate is None:
        return off(out, cpu.multiply(dense, x, None, add))
    return off(out, cpu.gated(dense, x, None, "gelu_tanh" if gate == "gelu" else "silu"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "columns", "gate"),
    [
        (40, 1280, None),  # ten groups
        (35, 128, None),  # one group, rows that are no multiple of a program's
        (276, 640, "silu"),  # five groups for two parts; an up begins within a tile of scales
        (64, 384, "gelu"),
    ],
)
def test_products(kind, rows, columns, gate):
    assert error(kind, rows, columns, gate) < 1e-3


@pytest.mark.parametrize(("kind", "turned"), [("fp8", True), ("fp8", False), ("int8", True)])
def test_the_vectors_of_a_token_are_stored(kind, turned):
    linear, x = posed(kind, 10 * 24, 256)
    caches = [PagedCache(config(), 8, torch.device("cpu"), torch.float32) for _ in range(2)]
    position, slots, q = torch.tensor([37]), torch.tensor([53]), torch.empty(1, 6, 24)
    turn = rotation(Rope(()), position, 0.5 ** torch.arange(12)) if turned else None
    given = {
        "cos": turn and turn[0], "sin": turn and turn[1], "slots": slots, "q": q,
        "keys": caches[0].values[0][0], "values": caches[0].values[0][1], "heads": 6, "kv_heads": 2,
    }  # fmt: skip
    launched("heads", linear, x, given, {"TURNED": turned, "HALF": 12})
    heads, dense = Heads(6, 2, None), linear.as_dense(torch.float32)
    known = cpu.queries(dense, x, None, heads, Place(turn, slots, caches[1], 0))
    assert off(q, known) < 1e-3 and off(caches[0].values[0], caches[1].values[0]) < 1e-3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".permute((0, 1, 3, 4, 2, 5))", ".permute((0, 1, 3, 2, 4, 5))"),
        (".permute((0, 3, 4, 2, 5, 1))", ".permute((0, 3, 2, 4, 5, 1))"),
        ("gl.minimum(group, left - 1)", "group"),
        ("seen & (group < x_left)", "seen & (group <= x_left)"),
        ("one = _take(at, left, group + 2)", "one = _take(at, left, group)"),
        ("range(0, steps, 2)", "range(0, steps - 1, 2)"),
        ("PAIRED) // 128 * groups", "PAIRED) // 256 * groups"),
        ("+ number // half * apart", ""),
        ("mask=place < half", "mask=place < 2 * half"),
    ],
    ids=["order", "order of x", "address", "past the end", "ahead", "odd", "scale", "pair",
         "store"],
)  # fmt: skip
def test_planted_defects_are_caught(old, new):
    changes = {"eight_bits_kernels.py": (old, new)}
    with pytest.raises((Defect, AssertionError, RuntimeError)):
        assert error("fp8", 276, 640, "silu", changes=changes) < 1e-3
