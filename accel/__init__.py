"""Run accelerated attention, language models and workloads on tensors.

    from gpudeck import accel

The import is cheap: torch is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpudeck.extras import missing_by

if TYPE_CHECKING:
    from gpudeck.accel.attention.api import attention, explain
    from gpudeck.accel.attention.emulation import blockwise_softmax, fp8_block_quantize
    from gpudeck.accel.attention.flash3 import (
        FlashAttention3,
        flash_attention_3_backward,
        flash_attention_3_forward,
    )
    from gpudeck.accel.attention.flex import flex_attention
    from gpudeck.accel.attention.fp8 import fp8_attention
    from gpudeck.accel.attention.frameworks.flash_attn import (
        flash_attn_func,
        flash_attn_varlen_func,
    )
    from gpudeck.accel.attention.frameworks.sdpa import install, uninstall
    from gpudeck.accel.attention.ragged import Ragged
    from gpudeck.accel.lessons.store import learning
    from gpudeck.accel.primitives.gemm.api import explain_gemm, gemm
    from gpudeck.accel.primitives.gemm.grouped import grouped_gemm
    from gpudeck.accel.primitives.gemm.int4 import int4_gemm
    from gpudeck.accel.primitives.gemm.low_precision import fp4_gemm, fp8_gemm
    from gpudeck.accel.primitives.linear_attention.api import explain_linear, linear_attention
    from gpudeck.accel.primitives.quantize.fp4 import fp4_quantize
    from gpudeck.accel.primitives.quantize.fp8 import fp8_quantize
    from gpudeck.accel.primitives.quantize.int4 import int4_quantize
    from gpudeck.accel.search.api import optimize_kernel

__all__ = [
    "FlashAttention3",
    "Ragged",
    "attention",
    "blockwise_softmax",
    "explain",
    "explain_gemm",
    "explain_linear",
    "flash_attention_3_backward",
    "flash_attention_3_forward",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flex_attention",
    "fp4_gemm",
    "fp4_quantize",
    "fp8_attention",
    "fp8_block_quantize",
    "fp8_gemm",
    "fp8_quantize",
    "gemm",
    "grouped_gemm",
    "install",
    "int4_gemm",
    "int4_quantize",
    "learning",
    "linear_attention",
    "optimize_kernel",
    "uninstall",
]

_HOME = {
    "FlashAttention3": "attention.flash3",
    "Ragged": "attention.ragged",
    "blockwise_softmax": "attention.emulation",
    "explain": "attention.api",
    "explain_gemm": "primitives.gemm.api",
    "explain_linear": "primitives.linear_attention.api",
    "flash_attention_3_backward": "attention.flash3",
    "flash_attention_3_forward": "attention.flash3",
    "flash_attn_func": "attention.frameworks.flash_attn",
    "flash_attn_varlen_func": "attention.frameworks.flash_attn",
    "flex_attention": "attention.flex",
    "fp4_gemm": "primitives.gemm.low_precision",
    "fp4_quantize": "primitives.quantize.fp4",
    "fp8_attention": "attention.fp8",
    "fp8_block_quantize": "attention.emulation",
    "fp8_gemm": "primitives.gemm.low_precision",
    "fp8_quantize": "primitives.quantize.fp8",
    "gemm": "primitives.gemm.api",
    "grouped_gemm": "primitives.gemm.grouped",
    "int4_gemm": "primitives.gemm.int4",
    "int4_quantize": "primitives.quantize.int4",
    "install": "attention.frameworks.sdpa",
    "learning": "lessons.store",
    "linear_attention": "primitives.linear_attention.api",
    "optimize_kernel": "search.api",
    "uninstall": "attention.frameworks.sdpa",
}

_PACKAGES = ("arrays", "distributed", "inject", "jax", "precision")
"""What people use by `accel.NAME`, and is imported with its first use, too."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return _load(_HOME[name], name)
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load(module: str, name: str) -> Any:
    """Import a name. Raises ModuleNotFoundError with what to install where torch is missing."""
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as e:
        if (missing := missing_by(e)) is None:
            raise
        raise ModuleNotFoundError(str(missing), name=e.name) from e


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Make `accel.attention` the operation, also for torch.compile and help().

    It remains a package, too: its contents are imported with `from accel.attention import ...`.
    """

    @property
    def attention(self) -> Any:
        """Return the operation; see `gpudeck.accel.attention.api.attention`."""
        return _load("attention.api", "attention")

    @attention.setter
    def attention(self, package: ModuleType) -> None:
        """Ignore the attribute that the import system sets after it has imported the package."""


sys.modules[__name__].__class__ = _Package
