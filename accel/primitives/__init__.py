"""Operations that models are built of besides attention, each with a reference and kernels.

`gpudeck.accel.primitives.gemm` and `linear_attention` are the operations; they remain packages,
whose contents are imported with `from gpudeck.accel.primitives.gemm import ...`. `tiles` has the
blocks of which kernels are built. torch is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudeck.accel.primitives.gemm.grouped import grouped_gemm
    from gpudeck.accel.primitives.gemm.int4 import int4_gemm
    from gpudeck.accel.primitives.gemm.low_precision import fp4_gemm, fp8_gemm
    from gpudeck.accel.primitives.quantize.fp4 import fp4_quantize
    from gpudeck.accel.primitives.quantize.fp8 import fp8_quantize
    from gpudeck.accel.primitives.quantize.int4 import int4_quantize

__all__ = [
    "fp4_gemm",
    "fp4_quantize",
    "fp8_gemm",
    "fp8_quantize",
    "gemm",
    "grouped_gemm",
    "int4_gemm",
    "int4_quantize",
    "linear_attention",
]

_HOME = {
    "fp4_gemm": "gemm.low_precision",
    "fp4_quantize": "quantize.fp4",
    "fp8_gemm": "gemm.low_precision",
    "fp8_quantize": "quantize.fp8",
    "gemm": "gemm.api",
    "grouped_gemm": "gemm.grouped",
    "int4_gemm": "gemm.int4",
    "int4_quantize": "quantize.int4",
    "linear_attention": "linear_attention.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Ignore the attributes that the import system sets after it has imported packages."""
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
