"""Write torch's element-wise operators and operators on rows as Triton expressions.

Functions that cancel for small arguments are written so that they do not; see the sources.
"""

from __future__ import annotations

from collections.abc import Callable

_EXP = "tl.exp({0})"


def _clamp(x: str, low: str = "None", high: str = "None") -> str:
    x = x if low == "None" else f"tl.maximum({x}, {low})"
    return x if high == "None" else f"tl.minimum({x}, {high})"


def _sum(x: str, y: str, alpha: str = "1") -> str:
    return f"({x} + {y})" if alpha == "1" else f"({x} + {alpha} * {y})"


def _difference(x: str, y: str, alpha: str = "1") -> str:
    return f"({x} - {y})" if alpha == "1" else f"({x} - {alpha} * {y})"


def _power(x: str, exponent: str) -> str:
    known = {"2": f"({x} * {x})", "3": f"({x} * {x} * {x})", "0.5": f"tl.sqrt({x})"}
    found = known.get(exponent.removesuffix(".0"))
    if found is None:
        raise ValueError(f"no template for the power {exponent}")
    return found


def _gelu(x: str, approximate: str = "'none'") -> str:
    if approximate == "'none'":
        return f"(0.5 * {x} * (1.0 + tl.erf({x} * 0.7071067811865476)))"
    return f"(0.5 * {x} * (1.0 + tanh(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x}))))"


def _elu(x: str, alpha: str = "1.0", scale: str = "1.0", input_scale: str = "1.0") -> str:
    return f"({scale} * tl.where({x} > 0, {x}, {alpha} * expm1({x} * {input_scale})))"


def _selu(x: str) -> str:
    return _elu(x, "1.6732632423543772", "1.0507009873554805")


def _leaky(x: str, slope: str = "0.01") -> str:
    return f"tl.where({x} > 0, {x}, {x} * {slope})"


def _triangle(sign: str) -> Callable[..., str]:
    def write(x: str, diagonal: str = "0") -> str:
        return f"tl.where(column[None, :] - row[:, None] {sign} {diagonal}, {x}, 0.0)"

    return write


ELEMENTWISE: dict[str, Callable[..., str]] = {
    "abs.default": lambda x: f"tl.abs({x})",
    "add.Tensor": _sum,
    "clamp.default": _clamp,
    "clone.default": lambda x: x,
    "detach.default": lambda x: x,
    "div.Tensor": lambda x, y: f"({x} / {y})",
    "elu.default": _elu,
    "exp.default": lambda x: f"tl.exp({x})",
    "gelu.default": _gelu,
    "hardsigmoid.default": lambda x: f"tl.minimum(tl.maximum({x} + 3.0, 0.0), 6.0) / 6.0",
    "hardswish.default": lambda x: f"({x} * tl.minimum(tl.maximum({x} + 3.0, 0.0), 6.0) / 6.0)",
    "hardtanh.default": lambda x, low="-1.0", high="1.0": _clamp(x, low, high),
    "leaky_relu.default": _leaky,
    "log.default": lambda x: f"tl.log({x})",
    "max.other": lambda x, y: f"tl.maximum({x}, {y})",
    "maximum.default": lambda x, y: f"tl.maximum({x}, {y})",
    "min.other": lambda x, y: f"tl.minimum({x}, {y})",
    "minimum.default": lambda x, y: f"tl.minimum({x}, {y})",
    "mish.default": lambda x: f"mish({x})",
    "mul.Tensor": lambda x, y: f"({x} * {y})",
    "neg.default": lambda x: f"(-{x})",
    "pow.Tensor_Scalar": _power,
    "reciprocal.default": lambda x: f"(1.0 / {x})",
    "relu.default": lambda x: f"tl.maximum({x}, 0.0)",
    "rsqrt.default": lambda x: f"tl.rsqrt({x})",
    "rsub.Scalar": lambda x, y: f"({y} - {x})",
    "selu.default": _selu,
    "sigmoid.default": lambda x: f"(1.0 / (1.0 + tl.exp(-{x})))",
    "silu.default": lambda x: f"({x} / (1.0 + tl.exp(-{x})))",
    "softplus.default": lambda x: f"softplus({x})",
    "sqrt.default": lambda x: f"tl.sqrt({x})",
    "sub.Tensor": _difference,
    "tanh.default": lambda x: f"tanh({x})",
}
"""By the operator's name, what computes an element from the texts of the arguments."""

PLACED: dict[str, Callable[..., str]] = {
    "tril.default": _triangle("<="),
    "triu.default": _triangle(">="),
}
"""Those that need to know where in a matrix an element lies."""

_INSIDE = "tl.where(inside, {0}, {1})"
_TOTAL = "tl.sum(" + _INSIDE.format("{0}", "0.0") + ", 1)[:, None]"
_TOP = "tl.max(" + _INSIDE.format("{0}", "float('-inf')") + ", 1)[:, None]"

ROW_OPERATORS: dict[str, tuple[str, ...]] = {
    "linalg_vector_norm.default": ("tl.sqrt(" + _TOTAL.format("{x} * {x}") + ")",),
    "log_softmax.int": (
        "{x} - " + _TOP.format("{x}"),
        "{y} - tl.log(" + _TOTAL.format("tl.exp({y})") + ")",
    ),
    "logsumexp.default": (
        _TOP.format("{x}"),
        "{y} + tl.log(" + _TOTAL.format("tl.exp({x} - {y})") + ")",
    ),
    "mean.dim": (_TOTAL.format("{x}") + " / columns",),
    "softmax.int": (
        "tl.exp({x} - " + _TOP.format("{x}") + ")",
        "{y} / " + _TOTAL.format("{y}"),
    ),
    "sum.dim_IntList": (_TOTAL.format("{x}"),),
    "amax.default": (_TOP.format("{x}"),),
    "layer_norm.default": (
        "{x} - " + _TOTAL.format("{x}") + " / columns",
        "{y} * tl.rsqrt(" + _TOTAL.format("{y} * {y}") + " / columns + {eps})",
        "{y} * {weight} + {bias}",
    ),
}
"""What computes an operator along the rows of a tile, in lines: {x} is the argument, and {y} the
line before."""

HELPERS = '''
@triton.jit
def expm1(x):
    """Compute exp(x) - 1. Source: Higham, Accuracy and Stability of Algorithms, 1.14.1."""
    u = tl.exp(x)
    return tl.where(u == 1.0, x, tl.where(u - 1.0 == -1.0, -1.0, (u - 1.0) * x / tl.log(u)))


@triton.jit
def log1p(x):
    """Compute log(1 + x). Source: the same, problem 1.5."""
    u = 1.0 + x
    return tl.where(u == 1.0, x, tl.log(u) * x / (u - 1.0))


@triton.jit
def softplus(x):
    """Compute log(1 + exp(x))."""
    return tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def mish(x):
    """Compute x tanh(log(1 + exp(x))) without a logarithm."""
    e = tl.exp(tl.minimum(x, 20.0))
    return x * (e * (e + 2.0) / (e * (e + 2.0) + 2.0))


@triton.jit
def tanh(x):
    """Compute tanh: near 0 by a polynomial, which does not cancel. Source: Cephes, tanhf."""
    z = x * x
    p = ((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z
    near = x + x * z * ((p + 1.33314422036e-1) * z - 3.33332819422e-1)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))
'''
