"""Run the two passes of a problem by chosen backends, for autograd and for torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accel.attention.backends import BACKENDS, Gradients, Run
from accel.attention.backends.base import like, side_by_side
from accel.attention.dispatch import choose
from accel.attention.inputs import Inputs, problem_of
from accel.attention.lessons import learn_backward, learn_forward, use_of
from accel.attention.problem import Problem
from accel.attention.ragged import Ragged


def forward(x: Inputs, problem: Problem, backend: str) -> tuple[Tensor, Tensor]:
    """Return the output [B,H,Sq,D] and lse, float32 [B,H,Sq]."""
    if problem.empty:
        return torch.zeros_like(x.q), x.q.new_full(x.q.shape[:3], -torch.inf, dtype=torch.float32)
    out, lse = BACKENDS[backend].forward(x, problem)
    # Kernels of one backend read the results of another, which must be contiguous.
    return like(out, x.q), lse.contiguous()


def prepared(x: Inputs, problem: Problem, backend: str) -> Run | None:
    """Return a forward pass for all inputs of this shape, or None if the backend has none.

    Not for inputs with a bias and not for ragged batches.
    """
    return None if problem.empty else BACKENDS[backend].prepared(x, problem)


def backward(
    dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem, backend: str
) -> Gradients:
    """Return the gradients from the gradient of the output."""
    if problem.empty:
        return Gradients(*(None if t is None else torch.zeros_like(t) for t in x[:4]))  # type: ignore[arg-type]
    return BACKENDS[backend].backward(dout, x, out, lse.contiguous(), problem)


def ready(x: Inputs, problem: Problem, backend: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return the forward pass of these inputs as a function."""
    run = prepared(x, problem, backend) if x.bias is None and x.ragged is None else None
    if run is not None:
        return partial(run, x.q, x.k, x.v)
    return partial(forward, x, problem, backend)


def automatic_forward(x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
    """Return what `forward` does by the best backend, which may be learned now."""
    use = use_of(problem)
    if use is not None:
        learn_forward(use, problem, choose(problem), partial(ready, x, problem))
    return forward(x, problem, choose(problem).backend)


def automatic_backward(
    dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem
) -> Gradients:
    """Return the gradients by the best backend, which may be learned now."""
    learn_backward(problem, partial(partial, backward, dout, x, out, lse, problem))
    chosen = choose(problem, direction="backward")
    return backward(dout, x, out, lse, problem, chosen.backend)


class Attention(torch.autograd.Function):
    """Compute attention outside torch.compile, with less host time than a registered operation.

    `backends` are those of the two passes and the one asked for, which may be `auto`; `run` is the
    prepared forward pass, if there is one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        ragged: Ragged | None,
        problem: Problem,
        backends: tuple[str, str, str],
        run: Run | None,
    ) -> tuple[Tensor, Tensor]:
        out, lse = (
            forward(Inputs(q, k, v, bias, ragged), problem, backends[0])
            if run is None
            else run(q, k, v)
        )
        ctx.save_for_backward(q, k, v, bias, out, lse)
        ctx.ragged, ctx.problem, ctx.backends = ragged, problem, backends
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        if dout is None:
            return (None,) * 8
        if torch.is_grad_enabled():
            raise RuntimeError(
                "attention has no gradients of its gradients (create_graph=True); compute it by"
                " torch's own operations where you need them"
            )
        q, k, v, bias, out, lse = ctx.saved_tensors
        x, problem = Inputs(q, k, v, bias, ctx.ragged), ctx.problem
        _, backend, asked = ctx.backends
        if asked == "auto":
            grads = automatic_backward(dout, x, out, lse, problem)
        else:
            grads = backward(dout, x, out, lse, problem, backend)
        return (*grads, None, None, None, None)


@torch.library.custom_op("gpudeck::attention_forward", mutates_args=())
def forward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest: list[int],
    window: list[int],
    scale: float,
    softcap: float,
    deterministic: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Run the forward pass as one operation of torch.

    Args:
        longest: (queries, keys) of the longest sequences of a ragged batch.
        window: (left, right), with -1 for no limit.
        backend: `auto` chooses at every call, so that a compiled program with changing shapes runs
            the best backend for each.
    """
    x, problem = _asked(
        q, k, v, bias, starts_q, starts_k, longest, window, scale, softcap, deterministic
    )
    return forward(x, problem, choose(problem, backend).backend)


@forward_op.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(side_by_side(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("gpudeck::attention_backward", mutates_args=())
def backward_op(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    lse: Tensor,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest: list[int],
    window: list[int],
    scale: float,
    softcap: float,
    deterministic: bool,
    bias_grad: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the backward pass as one operation; the bias's gradient is empty unless requested."""
    if bias is not None and bias_grad:
        bias = bias.detach().requires_grad_()
    with torch.enable_grad():  # the problem records whether the bias needs a gradient
        x, problem = _asked(
            q, k, v, bias, starts_q, starts_k, longest, window, scale, softcap, deterministic
        )
    with torch.no_grad():
        grads = backward(dout, x, out, lse, problem, choose(problem, backend, "backward").backend)
    dq, dk, dv = (like(g, t) for g, t in zip(grads[:3], (q, k, v), strict=True))
    return (
        dq,
        dk,
        dv,
        q.new_empty(0) if grads.bias is None or bias is None else like(grads.bias, bias),
    )


@backward_op.register_fake
def _(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bias_grad = rest[-2]
    dq, dk, dv = (torch.empty_like(side_by_side(t)) for t in (q, k, v))
    return dq, dk, dv, torch.empty_like(bias) if bias is not None and bias_grad else q.new_empty(0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, bias, starts_q, starts_k, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, bias, *output, starts_q, starts_k)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    none = (None,) * 8
    if dout is None:
        return (None, None, None, None, *none)
    *rules, backend = ctx.rest
    bias_grad = ctx.needs_input_grad[3]
    dq, dk, dv, dbias = torch.ops.gpudeck.attention_backward(
        dout, *ctx.saved_tensors, *rules, bias_grad, backend
    )
    return (dq, dk, dv, dbias if bias_grad else None, *none)


forward_op.register_autograd(_differentiate, setup_context=_setup)


def _asked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest: list[int],
    window: list[int],
    scale: float,
    softcap: float,
    deterministic: bool,
) -> tuple[Inputs, Problem]:
    ragged = (
        None
        if starts_q is None or starts_k is None
        else Ragged(starts_q, starts_k, longest[0], longest[1])
    )
    x = Inputs(q, k, v, bias, ragged)
    left, right = (None if side < 0 else side for side in window)
    return x, problem_of(
        x,
        causal=False,
        window=(left, right),
        scale=scale,
        softcap=softcap,
        deterministic=deterministic,
    )
