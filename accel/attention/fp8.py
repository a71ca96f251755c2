"""Compute attention in FP8 where that is asked for by name, and measure what it costs in error.

`auto` of `accel.attention` never chooses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpudeck.accel.attention import emulation
from gpudeck.accel.attention.backends.base import (
    half_precision_on_ampere,
    head_size_up_to,
    needs_hopper,
    no_bias,
    on_cuda,
    own_key_visible,
)
from gpudeck.accel.attention.dispatch import Candidate, Choice
from gpudeck.accel.attention.inputs import Inputs, Window, arrange, as_given, problem_of, rules_of
from gpudeck.accel.attention.kernels.quantised import pad_head
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.attention.sinks import add_sink
from gpudeck.accel.runtime.refusals import NAMED
from gpudeck.language.text import Text, join_texts, phrase

P = ParamSpec("P")
R = TypeVar("R")
KERNEL, EMULATION = "hopper fp8", "emulation fp8"
_WORDS = {KERNEL: "kernel for Hopper", EMULATION: "emulation"}
BACKENDS = {"auto": KERNEL, "hopper": KERNEL, "emulation": EMULATION}
"""What a caller may name, and the name in the Choice."""
PRECISIONS = ("fp8",)
EVEN = 16
"""Elements that the steps between rows, heads and sequences are multiples of."""


@dataclass(frozen=True)
class Error:
    """Hold how far an output is from the same attention in float64."""

    precision: str
    backend: str
    """What computed the output."""
    rmse: float
    """The root of the mean squared difference."""
    relative: float
    """The norm of the difference over that of the float64 output."""
    largest: float
    """The largest difference of one element."""
    own_rmse: float
    """The rmse of rounding the float64 output to the dtype of q, without any other error."""

    def __str__(self) -> str:
        return (
            f"{self.precision} ({self.backend}): RMSE {self.rmse:.2e}, relative"
            f" {self.relative:.2e}, at most {self.largest:.2e}; rounding alone has RMSE"
            f" {self.own_rmse:.2e}"
        )


def _skip_compiler(function: Callable[P, R]) -> Callable[P, R]:
    """Let torch.compile call a function instead of tracing it.

    `torch.compiler.disable` imports all of torch._dynamo, which takes a second: it is called only
    by compiled programs, which have imported that.
    """
    disabled: list[Callable[P, R]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return disabled[0](*args, **kwargs)

    return call


@_skip_compiler
def fp8_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: Window = (None, None),
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Tensor | None = None,
    seqlens: Ragged | None = None,
    sink: Tensor | None = None,
    layout: str = "bhsd",
    backend: str = "auto",
    return_lse: bool = False,
    return_choice: bool = False,
) -> Any:
    """Compute attention with products in E4M3; the output has the dtype of q.

    q and k are rotated by a Hadamard matrix with random signs, which spreads outliers. Each 64
    queries, 128 keys and 128 values have a scale. There are no gradients.

    Args:
        backend: `auto` and `hopper` are the kernel for compute capability 9.0; `emulation` computes
            the same roundings in float32 on any device, slowly.

    The other arguments, shapes and results are those of `accel.attention.attention`; q, k and v are
    float16 or bfloat16 with heads of up to 256.

    Raises:
        ValueError: if the backend cannot compute this, or a gradient is required.
    """
    x = arrange(q, k, v, bias, seqlens, layout, sink)
    problem = problem_of(x, rules_of(x.q, causal, window, scale, softcap))
    choice = choose(problem, backend)
    out, lse = compute(x, problem, choice.backend)
    out = as_given(out, seqlens, layout)
    if return_choice:
        return out, choice
    return (out, lse if seqlens is None else lse.squeeze(0)) if return_lse else out


def compute(x: Inputs, problem: Problem, name: str) -> tuple[Tensor, Tensor]:
    """Return the output [B,H,Sq,D] and lse, float32 [B,H,Sq], by KERNEL or EMULATION."""
    if problem.empty:
        out = torch.zeros_like(x.q)
        lse = x.q.new_full(x.q.shape[:3], -torch.inf, dtype=torch.float32)
    else:
        with torch.no_grad():
            out, lse = (emulation.forward if name == EMULATION else _kernel)(x, problem)
    return (out, lse) if x.sink is None else add_sink(out, lse, x.sink.detach())


def choose(problem: Problem, backend: str = "auto") -> Choice:
    """Choose what computes attention in FP8.

    Raises:
        ValueError: if it cannot, or no backend has this name.
    """
    if backend not in BACKENDS:
        raise ValueError(
            f"no backend for FP8 is called {backend!r}. There are: {', '.join(BACKENDS)}"
        )
    refusals = {name: refusal(problem, name) for name in (KERNEL, EMULATION)}
    name = BACKENDS[backend]
    if why := refusals[name]:
        other = (
            "With backend='emulation' the same is computed on any device, slowly"
            if refusals[EMULATION] is None
            else "Without precision='fp8' other backends may do it"
        )
        raise ValueError(f"attention in FP8 cannot do this: the {_WORDS[name]} {why}. {other}")
    reason = phrase("the kernel for FP8") if backend == "auto" else NAMED
    candidates = tuple(Candidate(n, why) for n, why in refusals.items())
    return Choice(name, lambda: (reason, candidates))


def refusal(problem: Problem, name: str = KERNEL) -> Text | None:
    """Return why KERNEL or EMULATION cannot compute a problem, or None."""
    kernel = _kernel_rules(problem) if name == KERNEL else ()
    refused = (*kernel, *_rules(problem))
    return join_texts(refused) if refused else None


def error_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    precision: str = "fp8",
    seqlens: Ragged | None = None,
    sink: Tensor | None = None,
    layout: str = "bhsd",
    backend: str = "auto",
    **rules: Any,
) -> Error:
    """Measure what a precision costs in error on the caller's own tensors.

    Args:
        precision: "fp8".
        seqlens, sink, layout: as for `fp8_attention`.
        backend: as for `fp8_attention`; `auto` is the emulation where there is no kernel.
        rules: causal, window, scale and softcap; see `accel.attention.attention`.

    The attention in float64 beside it takes about a hundred times as long.

    Raises:
        ValueError: if the precision is another one, or the inputs do not fit together.
    """
    check_precision(precision)
    with torch.no_grad():
        x = arrange(q, k, v, None, seqlens, layout)
        if backend == "auto":
            problem = problem_of(x, rules_of(x.q, **rules))
            backend = "emulation" if any(_kernel_rules(problem)) else "hopper"
        given: dict[str, Any] = {"seqlens": seqlens, "sink": sink, "layout": layout, **rules}
        out, choice = fp8_attention(q, k, v, backend=backend, return_choice=True, **given)
        exact = reference(x.q, x.k, x.v, ragged=seqlens, sink=sink, **rules)
        truth = as_given(exact, seqlens, layout)
        away = out.double() - truth
        rounding = truth.to(q.dtype).double() - truth
    return Error(
        precision,
        choice.backend,
        float(away.square().mean().sqrt()),
        float(away.norm() / truth.norm()),
        float(away.abs().max()),
        float(rounding.square().mean().sqrt()),
    )


def check_precision(precision: str) -> None:
    """Raise ValueError unless this is a precision that can be asked for."""
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision is None, for that of the tensors, or {', '.join(PRECISIONS)}; got"
            f" {precision!r}"
        )


def pad_even(x: Tensor) -> Tensor:
    """Return x [B,H,S,D] with a head size of the kernel, and rows at multiples of 16 elements.

    Only with these was the pre-pass found to be right on a GPU; others are copied.
    """
    if missing := pad_head(x.shape[3]) - x.shape[3]:
        return pad(x, (0, missing))
    apart = (x.data_ptr() // x.element_size(), *x.stride()[:3])
    if x.stride(3) == 1 and all(step % EVEN == 0 for step in apart):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _rules(p: Problem) -> Iterator[Text]:
    yield from half_precision_on_ampere(p)
    yield from head_size_up_to(256, p)
    yield from no_bias(p)
    yield from own_key_visible(p)
    if p.grad:
        yield phrase("has no gradients: call it under torch.no_grad()")


def _kernel_rules(p: Problem) -> Iterator[Text]:
    yield from on_cuda(p)
    if p.capability is not None and p.capability != (9, 0):
        yield needs_hopper(p)


def _kernel(x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
    from gpudeck.accel.attention.kernels.hopper.forward_fp8 import forward
    from gpudeck.accel.attention.kernels.portable.quantise import quantise

    q, k, v = (pad_even(t) for t in x[:3])
    made, claims = quantise(q, k, v, x.ragged)
    out, lse = forward(made, claims, q, k, v, problem.rules, x.ragged)
    return out[..., : problem.head_dim], lse
