"""Run our attention in JAX programs: eager, under jax.jit, jax.grad and jax.vmap.

XLA calls our functions with its own buffers and on its own stream, through JAX's interface for
foreign functions; on a CPU they are called the same way. The kernels are launched by torch, so
torch is imported into the process; no array is copied to the host or handed over by hand.
"""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from gpudeck.accel.attention.backends import BACKENDS
from gpudeck.accel.attention.inputs import Window, join_window
from gpudeck.accel.attention.problem import NO_LIMIT

__all__ = ["attention"]

_FLOATS = (jnp.float16, jnp.bfloat16, jnp.float32)
_NAMES = {False: "gpudeck_attention_forward", True: "gpudeck_attention_backward"}


class _Rules(NamedTuple):
    """Hold the options of a call, which are fixed when a program is traced."""

    window: tuple[int, int]
    scale: float
    softcap: float
    deterministic: bool
    backend: str

    def text(self, bias: Any, bias_grad: bool = False) -> str:
        """Return the rules as `gpudeck.accel.jax.handlers.Rules` in JSON."""
        more = {"has_bias": bias is not None, "bias_grad": bias_grad}
        return json.dumps(self._asdict() | more)


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
    deterministic: bool = False,
    backend: str = "auto",
) -> jax.Array:
    """Compute softmax(cap(q kᵀ · scale) + bias) v over the visible keys, with gradients.

    Arguments, shapes and results are those of `accel.attention`, with arrays of JAX. Options are
    numbers and texts, not traced values.

    Raises:
        ValueError: if the inputs do not fit together.
        jax.errors.JaxRuntimeError: if the named backend cannot compute them; it says which can.
    """
    q, k, v = (jnp.asarray(x) for x in (q, k, v))
    bias = None if bias is None else jnp.asarray(bias)
    if layout not in ("bhsd", "bshd"):
        raise ValueError(f"layout is one of bhsd, bshd; got {layout!r}")
    if layout == "bshd" and q.ndim == k.ndim == v.ndim == 4:
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    bias = _check(q, k, v, bias)
    if any(isinstance(x, jax.core.Tracer) for x in (scale, softcap)):
        raise ValueError("scale and softcap must be numbers; multiply q by a traced scale instead")
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(f"backend is auto or one of {', '.join(BACKENDS)}; got {backend!r}")
    left, right = (NO_LIMIT if side is None else side for side in join_window(causal, window))
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    rules = _Rules((left, right), scale, float(softcap), bool(deterministic), backend)
    _register()
    out = _attention(rules, q, k, v, bias)
    return out.swapaxes(1, 2) if layout == "bshd" else out


def _check(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """Return the bias with four axes. Raises ValueError."""
    shapes = f"got q {q.shape}, k {k.shape}, v {v.shape}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k and v must be [batch, heads, sequence, head size]; {shapes}")
    if q.dtype not in _FLOATS or not q.dtype == k.dtype == v.dtype:
        raise ValueError(
            "q, k and v must have one dtype, float16, bfloat16 or float32; got"
            f" {q.dtype}, {k.dtype}, {v.dtype}"
        )
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"k and v must have one shape, and batch and head size of q; {shapes}")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of k must divide those of q; {shapes}")
    if bias is None:
        return None
    whole = (*q.shape[:3], k.shape[2])
    fits = bias.ndim <= 4 and all(
        a in (1, b) for a, b in zip(reversed(bias.shape), reversed(whole), strict=False)
    )
    if bias.dtype not in (jnp.bool_, q.dtype) or not fits:
        raise ValueError(
            f"bias must be bool or {q.dtype}, and broadcastable to {whole}; got"
            f" {bias.dtype} {bias.shape}"
        )
    return bias.reshape((1,) * (4 - bias.ndim) + bias.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(rules: _Rules, q: Any, k: Any, v: Any, bias: Any) -> Any:
    return _forward(rules, q, k, v, bias)[0]


def _forward(rules: _Rules, q: Any, k: Any, v: Any, bias: Any) -> Any:
    results = (_like(q), jax.ShapeDtypeStruct(q.shape[:3], jnp.float32))
    given = (q, k, v) if bias is None else (q, k, v, bias)
    call = jax.ffi.ffi_call(_NAMES[False], results, vmap_method="broadcast_all")
    return call(*given, rules=rules.text(bias))


def _remember(rules: _Rules, *primals: Any) -> tuple[Any, Any]:
    q, k, v, bias = (None if x is None else x.value for x in primals)
    out, lse = _forward(rules, q, k, v, bias)
    wanted = bias is not None and primals[3].perturbed and bias.dtype != jnp.bool_
    # the structure of what is kept is known while tracing, its values are not
    return out, (q, k, v, bias, out, lse, () if wanted else None)


def _differentiate(rules: _Rules, kept: Any, dout: Any) -> Any:
    q, k, v, bias, out, lse, wanted = kept
    if isinstance(dout, SymbolicZero):
        return None, None, None, None
    results = [_like(x) for x in (q, k, v)]
    given = [q, k, v, dout, out, lse]
    if bias is not None:
        given.append(bias)
        results += [_like(bias)] if wanted is not None else []
    call = jax.ffi.ffi_call(_NAMES[True], results, vmap_method="broadcast_all")
    dq, dk, dv, *rest = call(*given, rules=rules.text(bias, wanted is not None))
    return dq, dk, dv, rest[0] if rest else None


_attention.defvjp(_remember, _differentiate, symbolic_zeros=True)


def _like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@functools.cache
def _register() -> list[Any]:
    """Tell XLA where our functions are; they stay for the life of the process."""
    from gpudeck.accel.jax import handlers
    from gpudeck.accel.jax.call_frame import handler

    kept = []
    for platform in ("cpu", "CUDA"):
        for name, run in ((_NAMES[False], handlers.forward), (_NAMES[True], handlers.backward)):
            made = handler(run, cuda=platform == "CUDA")
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(made), platform=platform)
            kept.append(made)
    return kept
