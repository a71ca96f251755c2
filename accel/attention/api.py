"""Validate the inputs of attention, choose a backend and run it.

The backend that runs is named in the result and is never another than the requested one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from gpudeck.accel.attention.backends import Run
from gpudeck.accel.attention.dispatch import Choice, choose
from gpudeck.accel.attention.documents import attend_documents
from gpudeck.accel.attention.foreign import refuse_arguments
from gpudeck.accel.attention.fp8 import check_precision, error_of, fp8_attention
from gpudeck.accel.attention.inputs import (
    ALIGNMENT,
    Inputs,
    Window,
    arrange,
    as_given,
    cast_as_autocast,
    check_types,
    check_window,
    describe,
    is_autocast,
    pad_heads,
    problem_of,
    rules_of,
)
from gpudeck.accel.attention.lessons import Use, use_of
from gpudeck.accel.attention.passes import (
    compute,
    learn_forward,
    prepare_chosen,
    trace,
)
from gpudeck.accel.attention.problem import Problem, default_scale
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.lessons.store import on_change

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

NO_WINDOW: Window = (None, None)
_MOST_PLANS = 4096


@dataclass(frozen=True)
class Plan:
    """Everything that was decided for one shape."""

    problem: Problem
    forward: Choice
    backward: Choice | None
    """The backend of the backward pass; None if no gradient is requested."""
    run: Run | None
    """The prepared forward pass, if it depends on nothing but the shape of the inputs."""
    use: Use | None
    """The count of calls at the problem's spot, if `auto` may learn there."""


_PLANS: dict[object, Plan] = {}
on_change(_PLANS.clear)


class ProblemOptions(TypedDict, total=False):
    """The arguments of `attention` that describe the problem."""

    causal: bool
    window: Window
    scale: float | None
    softcap: float
    bias: Tensor | None
    seqlens: Ragged | None
    layout: str
    deterministic: bool
    sink: Tensor | None
    alibi: Tensor | None
    block_mask: BlockMask | None


class Options(ProblemOptions, total=False):
    """The arguments of `attention` that do not change what it returns."""

    backend: str
    precision: str | None
    dropout: float


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: Literal[False] = ...,
    return_choice: Literal[False] = ...,
    **options: Unpack[Options],
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: Literal[True],
    return_choice: Literal[False] = ...,
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: Literal[False] = ...,
    return_choice: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Choice]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: Window = NO_WINDOW,
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Tensor | None = None,
    seqlens: Ragged | None = None,
    layout: str = "bhsd",
    deterministic: bool = False,
    backend: str = "auto",
    precision: str | None = None,
    sink: Tensor | None = None,
    alibi: Tensor | None = None,
    block_mask: BlockMask | None = None,
    dropout: float = 0.0,
    return_lse: bool = False,
    return_choice: bool = False,
    **unknown: object,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Choice]:
    """Compute softmax(cap(q kᵀ · scale) + bias) v over the visible keys, exactly and with
    gradients.

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D]; with layout `bshd` they are [B,Sq,H,D] and
    [B,Sk,Hkv,D]; with `seqlens` (see `Ragged`) all sequences lie end to end in [T,H,D]. Hkv divides
    H (grouped or multi-query heads). With `seqlens` and four dimensions, documents lie end to end
    in the rows: those of one row if they add up to S (all rows then have the same), or of all rows
    one after the other. v may have another head size than q and k (MLA), which is that of the
    output: the smaller ones are padded with zeros where a backend needs it. All tensors are
    float16, bfloat16 or float32 on one CPU or CUDA device (float64 with backends `math` and
    `reference`). Any strides are allowed: a tensor that the kernels cannot load is copied once,
    because the elements of a head are not contiguous or addresses are not multiples of 16 bytes.

    Args:
        causal: a query sees no key after its own position. Positions are aligned bottom-right: the
            last query stands at the last key.
        window: (left, right), the number of keys that a query sees before and after its own
            position; None means no limit. A negative side begins beyond that position, as in
            flash-attention: (None, -3) hides the query's own key and the two before it.
        scale: the factor of the scores, 1/sqrt(D) by default.
        softcap: c > 0 turns each score s into c tanh(s/c).
        bias: broadcastable to [B,H,Sq,Sk]; bool (True: the key is visible) or of the dtype of q,
            added to the scores, with gradients.
        deterministic: gradients are bit-identical when they are computed again, which is slower.
            torch.use_deterministic_algorithms(True) has the same effect.
        backend: `auto` or a name in BACKENDS.
        precision: "fp8" computes the products in E4M3, without gradients: faster and less exact.
            See `gpudeck.accel.attention.fp8.fp8_attention`, also for its backends, and `error_of`.
        sink: [H], a learned score of each head that enters the denominator of every softmax and has
            no value (attention sinks, as in gpt-oss), with a gradient.
        alibi: float32 [H] or [B,H], the slopes of ALiBi: slope x (position of the key - position of
            the query) is added to each score. They get no gradient.
        block_mask: a BlockMask of torch.nn.attention.flex_attention instead of causal, window, bias
            and seqlens. Its function is evaluated once for the blocks that are visible in part; the
            tensors that it reads must not change afterwards.
        dropout: must be 0; weights are not dropped out.
        return_lse: also return the natural logarithm of each row's sum of exponentials, the sink's
            included, float32 [B,H,Sq] (ragged: [H,T]), with gradients.
        return_choice: also return the Choice of the forward pass.

    Returns:
        The output in the layout and dtype of q, and in its shape but for the heads of v. A query
        that sees no key gives 0, and -inf as its logarithm. A NaN in q affects its own row only;
        one in k or v may affect every row of the same sequence and head (or group of heads), and
        nothing else.

    Memory beyond inputs and outputs grows with the number of tokens, not with its square, except
    for `math`, the gradients of `reference`, and `flash` on a CPU for causal sequences with
    different numbers of queries and keys. Under torch.autocast q, k, v and the bias are cast as
    scaled_dot_product_attention casts them, and the output has autocast's dtype. torch.func's
    transforms are not supported.

    Raises:
        ValueError: if the inputs do not fit together, or a named backend cannot compute them.
        TypeError: if what must be a tensor is none, or an argument is not one of these.
    """
    if unknown or not (
        isinstance(q, Tensor)
        and isinstance(k, Tensor)
        and isinstance(v, Tensor)
        and (bias is None and seqlens is None and sink is None and alibi is None)
    ):
        refuse_arguments(unknown)
        check_types(q, k, v, bias, seqlens, sink, alibi)
    if is_autocast(q):
        q, k, v, bias = cast_as_autocast(q, k, v, bias)
    if (
        q.shape[-1] < v.shape[-1]
        or precision is not None
        or (seqlens is not None and q.dim() == 4)
        or dropout
        or (return_lse and return_choice)
    ):
        _check_options(dropout, return_lse and return_choice)
        options: dict[str, Any] = {
            "causal": causal, "window": window, "scale": scale, "softcap": softcap, "bias": bias,
            "seqlens": seqlens, "layout": layout, "deterministic": deterministic,
            "backend": backend, "precision": precision, "sink": sink, "alibi": alibi,
            "block_mask": block_mask, "return_lse": return_lse, "return_choice": return_choice,
        }  # fmt: skip
        special: Tensor | None = _attend_specially(q, k, v, options)
        if special is not None:
            return special
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if window is not NO_WINDOW:
        window = check_window(window)
    if torch.compiler.is_compiling() or (
        type(q) is not Tensor and type(q) is not torch.nn.Parameter
    ):
        _refuse_traced(return_choice, block_mask)
        x = arrange(q, k, v, bias, seqlens, layout, sink, alibi)
        rules = rules_of(q, causal, window, scale, softcap)
        out, lse = trace(x, rules, deterministic, backend)
        return _results(out, lse if return_lse else None, seqlens, layout)
    _refuse_transforms()
    grad = torch.is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (bias is not None and bias.requires_grad)
        or (sink is not None and sink.requires_grad)
    )
    plan = key = None
    if bias is None and seqlens is None and alibi is None and block_mask is None:
        # The key holds everything that arrange() and the kernels would check, so that known inputs
        # are not checked again.
        try:
            key = (
                q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(),
                q.dtype, k.dtype, v.dtype, q.device, k.device, v.device,
                (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT,
                k.data_ptr() == v.data_ptr(),
                causal, window, scale, softcap, deterministic, layout, backend, grad, return_lse,
                None if sink is None else (sink.shape, sink.dtype, sink.device),
            )  # fmt: skip
            plan = _PLANS.get(key)
        except RuntimeError:  # a tensor that is not dense: arrange() reports it
            key = None
    if plan is None:
        x = arrange(q, k, v, bias, seqlens, layout, sink, alibi, block_mask)
        problem = problem_of(x, rules_of(q, causal, window, scale, softcap), deterministic)
        problem = replace(problem, wants_lse=grad or return_lse or sink is not None)
        plan = _plan(key, x, problem, backend, grad)
    elif layout == "bshd":
        x = Inputs(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), sink=sink)
    else:
        x = Inputs(q, k, v, sink=sink)
    plan = plan if plan.use is None else _learn(plan, plan.use, x)
    ran, (out, lse) = compute(x, plan.problem, plan.forward, plan.backward, plan.run, backend)
    more = ran if return_choice else lse if return_lse else None
    return _results(out, more, seqlens, layout)


def _results(
    out: Tensor, more: Tensor | Choice | None, seqlens: Ragged | None, layout: str
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Choice]:
    """Return the output in the caller's layout, with lse or the choice if it was requested."""
    out = as_given(out, seqlens, layout)
    if more is None:
        return out
    if isinstance(more, Choice):
        return out, more
    return out, more if seqlens is None else more.squeeze(0)


def _check_options(dropout: float, two_answers: bool) -> None:
    if two_answers:
        raise ValueError(
            "return_lse and return_choice cannot be had in one call; see accel.attention.explain"
            " for the choice"
        )
    if dropout:
        raise ValueError(
            f"attention has no dropout of weights; got dropout={dropout}. Pass 0, or drop out"
            " elsewhere in the model"
        )


def _attend_specially(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Any:
    """Attend in fp8, in documents within rows, or with wider values than keys; else None."""
    wider = q.shape[-1] < v.shape[-1]
    if wider or (options["precision"] is not None and q.shape[-1] != v.shape[-1]):
        if q.shape[-1] != k.shape[-1]:
            return None  # arrange() reports it
        size = v.shape[-1]
        options["scale"] = (
            default_scale(q.shape[-1]) if options["scale"] is None else options["scale"]
        )
        found: Any = attention(*pad_heads(q, k, v), **options)
        return (found[0][..., :size], found[1]) if isinstance(found, tuple) else found[..., :size]
    if options["seqlens"] is not None and q.dim() == 4:
        return attend_documents(attention, q, k, v, options)
    if options["precision"] is None:
        return None
    check_precision(options.pop("precision"))
    if any(options.pop(name) is not None for name in ("alibi", "block_mask")):
        raise ValueError("attention in fp8 takes no ALiBi and no block mask; leave precision out")
    del options["deterministic"]
    return fp8_attention(q, k, v, **options)


def _refuse_transforms() -> None:
    """Raise ValueError within torch.func's transforms, whose tensors kernels cannot read."""
    if torch._C._functorch.maybe_current_level() is not None:
        raise ValueError(
            "attention cannot be used within torch.func's transforms, such as vmap and grad; give"
            " the mapped axis to attention as a part of the batch, and differentiate by autograd"
        )


def explain(
    q: Tensor, k: Tensor, v: Tensor, *, backend: str = "auto", **options: Unpack[ProblemOptions]
) -> tuple[Choice, Choice]:
    """Return what `attention` would run on these tensors, forward and backward.

    Each Choice says why, and prints all candidates. Raises what `attention` with gradients would
    raise.
    """
    if torch.are_deterministic_algorithms_enabled():
        options["deterministic"] = True
    problem = describe(q, k, v, **options)
    return choose(problem, backend, "forward"), choose(problem, backend, "backward")


def _plan(key: object, x: Inputs, problem: Problem, backend: str, grad: bool) -> Plan:
    """Make a plan, and keep it for inputs of the same shape unless `key` is None.

    `key` is None for inputs with a bias, ALiBi or a block mask and for ragged batches. The oldest
    plan is dropped first, because a decoding program has a new length at every step.
    """
    chosen = choose(problem, backend, "forward")
    back = choose(problem, backend, "backward") if grad else None
    use = use_of(problem) if backend == "auto" else None
    if key is None:
        return Plan(problem, chosen, back, None, use)
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.pop(next(iter(_PLANS), None), None)
    chosen, run = prepare_chosen(x, problem, chosen)
    return _PLANS.setdefault(key, Plan(problem, chosen, back, run, use))


def _learn(plan: Plan, use: Use, x: Inputs) -> Plan:
    """Count a call; return the plan, or another one if its forward pass was measured now."""
    chosen = learn_forward(use, plan.forward, x, plan.problem)
    if chosen is plan.forward:
        return plan
    if plan.run is None:
        return replace(plan, forward=chosen)
    chosen, run = prepare_chosen(x, plan.problem, chosen)
    return replace(plan, forward=chosen, run=run)


def _refuse_traced(return_choice: bool, block_mask: BlockMask | None) -> None:
    """Raise ValueError for what no operation of torch can take or return."""
    if return_choice:
        raise ValueError(
            "return_choice cannot be traced: the backend is chosen when the program runs. See"
            " accel.attention.explain"
        )
    if block_mask is not None:
        raise ValueError(
            "block_mask cannot be traced by torch.compile; call attention outside of it, or"
            " FlexAttention within"
        )


attention.error_of = error_of  # type: ignore[attr-defined]
