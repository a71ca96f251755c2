"""Train and run models in FP8.

`linear` computes a layer's products and their gradients in FP8, `layers` is the module, `history`
its scales from earlier steps, `conversion` replaces layers of a model, `selection` measures which
layers gain, `transformer` is a layer built from these. torch is imported with the first name taken
from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel.precision.conversion import convert, describe, revert
    from accel.precision.history import histories, load_histories, update_scales
    from accel.precision.layers import Fp8Linear
    from accel.precision.selection import dynamic_precision_select
    from accel.precision.transformer import transformer_engine_layer

__all__ = [
    "Fp8Linear",
    "convert",
    "describe",
    "dynamic_precision_select",
    "histories",
    "load_histories",
    "revert",
    "transformer_engine_layer",
    "update_scales",
]

_HOME = {
    "Fp8Linear": "layers",
    "convert": "conversion",
    "describe": "conversion",
    "dynamic_precision_select": "selection",
    "histories": "history",
    "load_histories": "history",
    "revert": "conversion",
    "transformer_engine_layer": "transformer",
    "update_scales": "history",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
