"""Write the tables of the manual's page Cards: what each type of GPU computes, and by what.

`python -m tests.cards` asks every implementation what it refuses on a GPU of a compute capability,
looks up which GPUs were measured and which targets the tests compile for, and writes the tables
between the marks `<!-- figures NAME -->` and `<!-- end of figures -->`, which a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch

from gpudeck.accel.attention import fp8
from gpudeck.accel.attention.dispatch import prefer, rule_out
from gpudeck.accel.attention.problem import Problem as AttentionProblem
from gpudeck.accel.primitives.gemm import fp4
from gpudeck.accel.primitives.gemm.backends import BACKENDS as PRODUCTS
from gpudeck.accel.primitives.gemm.int4 import BACKENDS as INT4
from gpudeck.accel.primitives.gemm.problem import NO_STEPS, Steps
from gpudeck.accel.primitives.gemm.problem import Problem as Product
from gpudeck.accel.primitives.linear_attention.fused import refuse
from gpudeck.accel.primitives.quantize.int4 import int4_quantize
from gpudeck.scheduler.devices.nvidia.gpm import flops
from gpudeck.scheduler.protocol.absence import RateUnknown
from tests.unit.accel.compiled import FP4_TARGETS, FP8_TARGETS, TARGETS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "manual" / "cards.md"
RESULTS = ROOT / "tests" / "benchmarks" / "results"
Capability = tuple[int, int]
CARDS: dict[str, Capability] = {
    "RTX 2080 Ti": (7, 5), "RTX 3060": (8, 6), "RTX 3090": (8, 6), "RTX 4090": (8, 9),
    "RTX 5090": (12, 0), "A100": (8, 0), "L4": (8, 9), "L40S": (8, 9), "H100": (9, 0),
    "H200": (9, 0), "B200": (10, 0), "GB10": (12, 1),
}  # fmt: skip
"""By the name that the driver's contains. Source: NVIDIA's list of compute capabilities."""
_MARKED = re.compile(r"(<!-- figures (?P<name>[^>]+) -->\n).*?(<!-- end of figures -->)", re.S)
_CUDA = torch.device("cuda", 0)


class Operation(NamedTuple):
    """Describe one column: which kernels of ours compute it, and what does where none can."""

    title: str
    ours: Callable[[Capability], str | None]
    """Returns the name of the kernels that take a GPU of this compute capability."""
    otherwise: Callable[[Capability], str]
    """Returns what computes it elsewhere."""
    compiled: Collection[int]
    """The targets for which tests compile the kernels."""
    files: tuple[str, ...]
    """The measured rows."""

    def cell(self, card: str) -> str:
        """Return what computes it on a card, and how much is known about that."""
        capability = CARDS[card]
        name = self.ours(capability)
        if name is None:
            return self.otherwise(capability)
        measured = [c for c in CARDS if CARDS[c] == capability and self._has(c)]
        if card in measured:
            known = "measured"
        elif measured:
            known = f"as the {measured[0]}'s"
        else:
            known = "compiled" if 10 * capability[0] + capability[1] in self.compiled else "untried"
        return f"`{name}`, {known}"

    def _has(self, card: str) -> bool:
        named = re.compile(rf"NVIDIA (?:GeForce )?{card}\b")
        return any(named.search((RESULTS / f"{file}.csv").read_text()) for file in self.files)


def _asked(
    capability: Capability, dtype: torch.dtype = torch.bfloat16, queries: int = 4096
) -> AttentionProblem:
    """Return causal attention with heads of 128 on a GPU that need not be there."""
    return AttentionProblem(
        1, 16, 16, queries, 4096, 128, dtype, _CUDA, capability, 128**-0.5, right=0
    )


def _attention(capability: Capability) -> str | None:
    """Return the first of our backends that computes both passes."""
    kinds = {"hopper": torch.bfloat16, "triton": torch.bfloat16, "turing": torch.float16}
    for name, dtype in kinds.items():
        problem = _asked(capability, dtype)
        if not any(rule_out(problem, name, way) for way in ("forward", "backward")):
            return name
    return None


def _first(capability: Capability) -> str:
    """Return what `auto` begins with where nothing was measured, in words where types differ."""
    found = {
        dtype: next(
            name
            for name in prefer(_asked(capability, dtype))
            if rule_out(_asked(capability, dtype), name, "forward") is None
        )
        for dtype in (torch.float16, torch.bfloat16)
    }
    half, brain = found.values()
    return f"`{half}`" if half == brain else f"`{half}` in float16, `{brain}` in bfloat16"


def _fp8_attention(capability: Capability) -> str | None:
    return "hopper fp8" if fp8.refusal(_asked(capability)) is None else None


def _decoding(capability: Capability) -> str | None:
    problem = _asked(capability, queries=1)
    return "decoding" if rule_out(problem, "decoding", "forward") is None else None


def _product(capability: Capability, dtype: torch.dtype, steps: Steps = NO_STEPS) -> Product:
    scaling = "none" if steps == NO_STEPS else "outer" if steps == (1, 1) else "block"
    return Product(
        1, 4096, 4096, 4096, dtype, torch.bfloat16, _CUDA, capability, scaling, steps
    )  # fmt: skip


def _multiplied(dtype: torch.dtype, steps: Steps, capability: Capability) -> str | None:
    problem = _product(capability, dtype, steps)
    able = (name for name in ("hopper", "triton") if PRODUCTS[name].refusal(problem) is None)
    return next(able, None)


def _else_multiplied(dtype: torch.dtype, steps: Steps, capability: Capability) -> str:
    problem = _product(capability, dtype, steps)
    return "`cublas`" if PRODUCTS["cublas"].refusal(problem) is None else "emulated"


def _on(capability: Capability, refusal: Callable[[], str | None], name: str) -> str | None:
    """Return the name unless the kernel refuses to run on a GPU of this compute capability."""
    with patch.object(torch.cuda, "get_device_capability", lambda _: capability):
        return name if refusal() is None else None


def _fp4(capability: Capability) -> str | None:
    return _on(capability, partial(fp4.refusal, _CUDA), "native")


def _int4(capability: Capability) -> str | None:
    weights = int4_quantize(torch.zeros(128, 128))
    for name in ("few", "tiles"):
        asked = partial(INT4[name].refusal, weights, torch.float16, _CUDA)
        if _on(capability, asked, name):
            return name
    return None


def _experts(capability: Capability) -> str | None:
    asked = _product(capability, torch.bfloat16)
    return "hopper" if PRODUCTS["hopper"].refusal(asked) is None else None


def _linear(capability: Capability) -> str | None:
    return _on(capability, partial(refuse, _CUDA), "triton")


def _version(capability: Capability) -> str:
    return "{}.{}".format(*capability)


def _counters(capability: Capability) -> str:
    """Return whether NVML has hardware counters: from Hopper on, as its documentation says."""
    return "none" if capability < (9, 0) else "read" if _is_counted(capability) else "untried"


def _rate(capability: Capability) -> str:
    return "of any program" if _is_counted(capability) else "of our workloads only"


def _is_counted(capability: Capability) -> bool:
    """Return whether the monitor turns the counters into TFLOP/s."""
    return not isinstance(flops({}, capability, 0), RateUnknown)


def _multiply(title: str, dtype: torch.dtype, steps: Steps, compiled: Collection[int]) -> Operation:
    ours, other = (partial(f, dtype, steps) for f in (_multiplied, _else_multiplied))
    return Operation(title, ours, other, compiled, ("gemm",))


def _constant(text: str) -> Callable[[Capability], str]:
    return lambda _: text


def _nothing(_: Capability) -> None:
    """Say that a column names no kernel of ours."""


_E4M3 = torch.float8_e4m3fn
COLUMNS: dict[str, tuple[Operation, ...]] = {
    "attention": (
        Operation("compute capability", _nothing, _version, (), ()),
        Operation("forward and backward", _attention, _first, (75, *TARGETS),
                  ("attention_grid", "attention_grid_2026-11-22_h100")),
        Operation("`auto` begins with", _nothing, _first, (), ()),
        Operation("decoding", _decoding, _first, TARGETS, ("attention_decoding",)),
        Operation("in FP8", _fp8_attention, _constant("emulated, by name"), (90,),
                  ("attention_fp8",)),
    ),
    "products": (
        _multiply("bf16", torch.bfloat16, NO_STEPS, TARGETS),
        _multiply("FP8, scales of rows", _E4M3, Steps(1, 1), FP8_TARGETS),
        _multiply("FP8, scales of blocks", _E4M3, Steps(1, 128), FP8_TARGETS),
        Operation("FP4, by name", _fp4, _constant("emulated"), FP4_TARGETS, ()),
        Operation("int4, few vectors", _int4, _constant("`dequantized`"), TARGETS, ("int4",)),
        Operation("experts in one kernel", _experts, _constant("`loop`"), (90,), ("grouped",)),
    ),
    "models": (
        Operation("linear attention", _linear, _constant("`torch`"), TARGETS,
                  ("linear_attention",)),
        Operation("RWKV-7", _constant("triton"), _version, (90,),
                  ("rwkv_gpu", "rwkv_gpu_2026-11-22_h100")),
        Operation("served models", _constant("triton"), _version, (90,),
                  ("serving", "serving_2026-11-23")),
    ),
    "monitor": (
        Operation("hardware counters (GPM)", _nothing, _counters, (), ()),
        Operation("TFLOP/s", _nothing, _rate, (), ()),
    ),
}  # fmt: skip


def table(name: str) -> str:
    """Return a table with a row for each card."""
    columns = COLUMNS[name]
    rows = [["card", *(c.title for c in columns)], ["---"] * (1 + len(columns))]
    rows += [[card, *(c.cell(card) for c in columns)] for card in CARDS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def filled(text: str) -> str:
    """Return the page with its tables computed anew."""
    return _MARKED.sub(lambda m: m[1] + table(m["name"]) + m[3], text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
