"""Train and run models in FP8, and what the hardware gains from.

`products` rounds and multiplies, `linear` computes a layer and its gradients, `layers` is the
module, `history` its scales from earlier steps, `conversion` replaces layers of a model,
`selection` measures which layers gain, `transformer` is a layer built from these, `attention`
chooses the precision of attention. Products and rounding are those of `gpudeck.accel.primitives`.
torch is imported with the first name taken from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudeck.accel.precision.attention import mixed_precision_attention
    from gpudeck.accel.precision.conversion import convert, describe, revert
    from gpudeck.accel.precision.history import histories, load_histories, update_scales
    from gpudeck.accel.precision.layers import Fp8Linear
    from gpudeck.accel.precision.selection import dynamic_precision_select
    from gpudeck.accel.precision.transformer import transformer_engine_layer
    from gpudeck.accel.primitives.gemm.low_precision import fp4_gemm, fp8_gemm
    from gpudeck.accel.primitives.quantize.fp4 import fp4_quantize
    from gpudeck.accel.primitives.quantize.fp8 import fp8_quantize

__all__ = [
    "Fp8Linear",
    "convert",
    "describe",
    "dynamic_precision_select",
    "fp4_gemm",
    "fp4_quantize",
    "fp8_gemm",
    "fp8_quantize",
    "histories",
    "load_histories",
    "mixed_precision_attention",
    "revert",
    "transformer_engine_layer",
    "update_scales",
]

_HOME = {
    "Fp8Linear": "precision.layers",
    "convert": "precision.conversion",
    "describe": "precision.conversion",
    "dynamic_precision_select": "precision.selection",
    "fp4_gemm": "primitives.gemm.low_precision",
    "fp4_quantize": "primitives.quantize.fp4",
    "fp8_gemm": "primitives.gemm.low_precision",
    "fp8_quantize": "primitives.quantize.fp8",
    "histories": "precision.history",
    "load_histories": "precision.history",
    "mixed_precision_attention": "precision.attention",
    "revert": "precision.conversion",
    "transformer_engine_layer": "precision.transformer",
    "update_scales": "precision.history",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"gpudeck.accel.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
