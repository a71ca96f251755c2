"""The operation: validate, choose a backend, run it. What ran is named, and is never another than was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor

from accel.attention.backends import Run
from accel.attention.dispatch import Choice, choose
from accel.attention.inputs import (
    ALIGNMENT,
    Inputs,
    Window,
    arrange,
    as_given,
    checked,
    describe,
    problem_of,
)
from accel.attention.passes import Attention, forward, forward_op, prepared
from accel.attention.problem import Problem
from accel.attention.ragged import Ragged

NO_WINDOW: Window = (None, None)
_MOST_PLANS = 4096


@dataclass(frozen=True)
class Plan:
    """All that was decided for one shape."""

    problem: Problem
    forward: Choice
    backward: Choice | None
    """None where no gradient is asked for."""
    run: Run | None
    """The forward pass, where all that it needs to know is the same for all inputs like these."""


_PLANS: dict[object, Plan] = {}


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    window: Window = ...,
    scale: float | None = ...,
    softcap: float = ...,
    bias: Tensor | None = ...,
    seqlens: Ragged | None = ...,
    layout: str = ...,
    deterministic: bool = ...,
    backend: str = ...,
    return_lse: Literal[False] = ...,
    return_choice: Literal[False] = ...,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    window: Window = ...,
    scale: float | None = ...,
    softcap: float = ...,
    bias: Tensor | None = ...,
    seqlens: Ragged | None = ...,
    layout: str = ...,
    deterministic: bool = ...,
    backend: str = ...,
    return_lse: Literal[True],
    return_choice: Literal[False] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    window: Window = ...,
    scale: float | None = ...,
    softcap: float = ...,
    bias: Tensor | None = ...,
    seqlens: Ragged | None = ...,
    layout: str = ...,
    deterministic: bool = ...,
    backend: str = ...,
    return_lse: Literal[False] = ...,
    return_choice: Literal[True],
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
    return_lse: bool = False,
    return_choice: bool = False,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Choice]:
    """softmax(cap(q kᵀ · scale) + bias, over the keys seen) v, exactly, with gradients.

    q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D], or with layout `bshd` [B,Sq,H,D] and [B,Sk,Hkv,D]; with `seqlens` (see `Ragged`) all
    sequences lie end to end in [T,H,D]. All are float16, bfloat16 or float32 on one CPU or CUDA device (float64 by backends `math` and
    `reference`); Hkv divides H (grouped or multi-query heads). Strides are free: what kernels cannot load as it is, because the elements
    of a head do not lie side by side or addresses are no multiples of 16 bytes, is copied once.

    - `causal`: no query sees a key after its own place. Places are aligned bottom-right: the last query stands at the last key.
    - `window` (left, right): how many keys before and after its own place a query sees; None is no limit.
    - `scale` is 1/sqrt(D) unless given; `softcap` c > 0 turns each score s into c tanh(s/c).
    - `bias`, broadcastable to [B,H,Sq,Sk]: bool (True: may be seen) or of the dtype of q, added to the scores, with gradients.
    - `deterministic`: gradients are the same bit for bit whenever they are computed again; slower. Also under
      torch.use_deterministic_algorithms(True).
    - `backend` is `auto` or a name in BACKENDS.

    Returns the answer in the shape, layout and dtype of q; with `return_lse` also the natural logarithm of each row's sum of exponentials,
    float32 [B,H,Sq] (ragged: [H,T]), through which no gradient flows; with `return_choice` the Choice of the forward pass.

    A query that sees no key gives 0, and -inf. A NaN in q spoils its own row; one in k or v may spoil every row of the same sequence
    and head (its group of heads, for shared keys), and nothing else. Memory beyond inputs and outputs grows with the number of tokens, not
    with its square, except for `math`, the gradients of `reference`, and `flash` on a CPU with causal sequences of two lengths. Autocast
    changes nothing: what is computed is computed in the dtype given. Not for torch.func's transforms. Raises ValueError for inputs that do
    not fit together, and for a named backend that cannot do it.
    """
    if return_lse and return_choice:
        raise ValueError(
            "return_lse and return_choice cannot be had in one call; see accel.attention.explain for the choice"
        )
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if window is not NO_WINDOW:
        window = checked(window)
    if torch.compiler.is_compiling() or (
        type(q) is not Tensor and type(q) is not torch.nn.Parameter
    ):
        return _compiled(
            q,
            k,
            v,
            causal,
            window,
            scale,
            softcap,
            bias,
            seqlens,
            layout,
            deterministic,
            backend,
            return_lse,
            return_choice,
        )
    grad = torch.is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (bias is not None and bias.requires_grad)
    )
    plan = key = None
    if bias is None and seqlens is None:
        # All that arrange() and the kernels would look at: what was seen before needs no second look.
        try:
            key = (
                q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device,
                (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT,
                causal, window, scale, softcap, deterministic, layout, backend, grad,
            )  # fmt: skip
            plan = _PLANS.get(key)
        except RuntimeError:  # no dense tensors: arrange() says so
            key = None
    if plan is None:
        x = arrange(q, k, v, bias, seqlens, layout)
        plan = _plan(key, x, causal, window, scale, softcap, deterministic, backend, grad)
    elif layout == "bshd":
        x = Inputs(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    else:
        x = Inputs(q, k, v)
    if plan.backward is not None:
        backends = (plan.forward.backend, plan.backward.backend)
        out, lse = Attention.apply(*x, plan.problem, backends, plan.run)  # type: ignore[no-untyped-call]
    elif plan.run is not None:
        out, lse = plan.run(x.q, x.k, x.v)
    else:
        out, lse = forward(x, plan.problem, plan.forward.backend)
    out = as_given(out, seqlens, layout)
    if return_choice:
        return out, plan.forward
    return (out, lse if seqlens is None else lse.squeeze(0)) if return_lse else out


def explain(
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
) -> tuple[Choice, Choice]:
    """What `attention` would run on these tensors, forward and backward: each Choice says why, and prints all candidates.

    Raises what `attention` with gradients would raise.
    """
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    problem = describe(
        q, k, v, causal=causal, window=window, scale=scale, softcap=softcap, bias=bias, seqlens=seqlens, layout=layout,
        deterministic=deterministic,
    )  # fmt: skip
    return choose(problem, backend, "forward"), choose(problem, backend, "backward")


def _plan(
    key: object,
    x: Inputs,
    causal: bool,
    window: Window,
    scale: float | None,
    softcap: float,
    deterministic: bool,
    backend: str,
    grad: bool,
) -> Plan:
    """Made, and kept for the next inputs like these unless `key` is None: they have a bias then, or are ragged.

    The oldest is forgotten first: a decoding program has a new length at every step.
    """
    problem = problem_of(
        x, causal=causal, window=window, scale=scale, softcap=softcap, deterministic=deterministic
    )
    chosen, back = (
        choose(problem, backend, "forward"),
        choose(problem, backend, "backward") if grad else None,
    )
    if key is None:
        return Plan(problem, chosen, back, None)
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.pop(next(iter(_PLANS), None), None)
    return _PLANS.setdefault(key, Plan(problem, chosen, back, prepared(x, problem, chosen.backend)))


def _compiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    window: Window,
    scale: float | None,
    softcap: float,
    bias: Tensor | None,
    seqlens: Ragged | None,
    layout: str,
    deterministic: bool,
    backend: str,
    return_lse: bool,
    return_choice: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    """As operations that torch.compile and tensor subclasses see whole. The backend is chosen when they run."""
    if return_choice:
        raise ValueError(
            "return_choice cannot be traced: the backend is chosen when the program runs. See accel.attention.explain"
        )
    x = arrange(q, k, v, bias, seqlens, layout)
    left, right = window
    limits = [-1 if left is None else left, 0 if causal else -1 if right is None else right]
    ragged = (
        (None, None, [0, 0])
        if seqlens is None
        else (seqlens.starts_q, seqlens.starts_k, [seqlens.longest_q, seqlens.longest_k])
    )
    scale = x.q.shape[3] ** -0.5 if scale is None else scale
    out, lse = forward_op(
        x.q, x.k, x.v, x.bias, *ragged, limits, scale, softcap, deterministic, backend
    )
    out = as_given(out, seqlens, layout)
    return (out, lse if seqlens is None else lse.squeeze(0)) if return_lse else out
