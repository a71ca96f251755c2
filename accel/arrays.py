"""Run attention on the arrays of other libraries, which hand over their memory by DLPack."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from gpudeck.accel.attention.api import attention as _attention
from gpudeck.accel.attention.inputs import Window


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: Window = (None, None),
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Any = None,
    layout: str = "bhsd",
    backend: str = "auto",
) -> Any:
    """Compute attention of arrays that offer DLPack, such as those of CuPy and NumPy.

    Inputs are read where they are, and the result, an array of the library of `q`, is written once;
    nothing is copied. There are no gradients. Programs in JAX use `accel.jax.attention`.

    Shapes and options are those of `accel.attention`.

    Raises:
        TypeError: if an array offers no DLPack, or does not name its library.
        ValueError: as `accel.attention` does.
    """
    given = {"q": q, "k": k, "v": v, "bias": bias}
    for name, x in given.items():
        if x is not None and not hasattr(x, "__dlpack__"):
            raise TypeError(
                f"{name} must offer DLPack, as arrays of CuPy and NumPy do; got {type(x)}"
            )
    library = _library(q)
    of_bias = None if bias is None else from_dlpack(bias)
    with torch.no_grad():
        out = _attention(
            *map(from_dlpack, (q, k, v)),
            causal=causal, window=window, scale=scale, softcap=softcap,
            bias=of_bias, layout=layout, backend=backend,
        )  # fmt: skip
    return library.from_dlpack(out)


def _library(x: Any) -> Any:
    """Return the module that makes arrays of the kind of `x` by `from_dlpack`. Raises TypeError."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    library = sys.modules.get(type(x).__module__.partition(".")[0])  # CuPy, up to version 15
    if not hasattr(library, "from_dlpack"):
        raise TypeError(f"{type(x)} does not name its library; give q as an array of CuPy or NumPy")
    return library
