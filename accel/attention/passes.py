"""Run the two passes of a problem by chosen backends, for autograd and for torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpudeck.accel.attention.backends import BACKENDS, Gradients, Run
from gpudeck.accel.attention.backends.base import like, side_by_side
from gpudeck.accel.attention.dispatch import Choice, choose, contenders, is_able, pass_over
from gpudeck.accel.attention.inputs import Inputs, problem_of
from gpudeck.accel.attention.lessons import STORE, USAGE, Use, measure, use_of
from gpudeck.accel.attention.problem import NO_LIMIT, Problem, Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.attention.sinks import add_sink, sink_gradient
from gpudeck.accel.lessons.measuring import Passes
from gpudeck.accel.lessons.usage import rivals

Result = TypeVar("Result")


class Decided(NamedTuple):
    """Name the backends of the two passes, and what the caller asked for."""

    forward: str
    backward: str
    asked: str


def forward(x: Inputs, problem: Problem, backend: str) -> tuple[Tensor, Tensor]:
    """Return the output [B,H,Sq,D], with the heads of v, and lse, float32 [B,H,Sq]."""
    if problem.empty:
        out = torch.zeros_like(x.like_out)
        lse = x.q.new_full(x.q.shape[:3], -torch.inf, dtype=torch.float32)
        return finish(out, lse, x, adds_sink=False)
    if _is_padded(problem, backend):
        out, lse = BACKENDS[backend].forward(_pad_values(x), replace(problem, value_dim=0))
        out = out[..., : problem.value_dim]
    else:
        out, lse = BACKENDS[backend].forward(x, problem)
    # Kernels of one backend read the results of another, which must be contiguous.
    return finish(like(out, x.like_out), lse.contiguous(), x, BACKENDS[backend].adds_sink)


def _is_padded(problem: Problem, backend: str) -> bool:
    return problem.value_dim > 0 and not BACKENDS[backend].takes_narrow(problem)


def _pad_values(x: Inputs) -> Inputs:
    """Return the problem with values as wide as keys."""
    return x._replace(v=_with_zeros(x.v, x.k))


def _with_zeros(t: Tensor, wide: Tensor) -> Tensor:
    return pad(t, (0, wide.shape[-1] - t.shape[-1]))


def finish(out: Tensor, lse: Tensor, x: Inputs, adds_sink: bool) -> tuple[Tensor, Tensor]:
    """Return the results of a forward pass with the sink, if there is one."""
    return (out, lse) if x.sink is None or adds_sink else add_sink(out, lse, x.sink)


def prepare(x: Inputs, problem: Problem, backend: str) -> Run | None:
    """Return a forward pass for all inputs of this shape, or None if the backend has none.

    Not for inputs with a bias and not for ragged batches.
    """
    if problem.empty or _is_padded(problem, backend):
        return None
    return BACKENDS[backend].prepare(x, problem)


def backward(
    dout: Tensor,
    x: Inputs,
    out: Tensor,
    lse: Tensor,
    problem: Problem,
    backend: str,
    dlse: Tensor | None = None,
) -> Gradients:
    """Return the gradients from those of the output and, if it has one, of lse."""
    if problem.empty:
        return Gradients(*(None if t is None else torch.zeros_like(t) for t in x[:4]))  # type: ignore[arg-type]
    if _is_padded(problem, backend):
        dout, out = _with_zeros(dout, x.q), _with_zeros(out, x.q)
        given = _pad_values(x), out, lse.contiguous(), replace(problem, value_dim=0), dlse
        grads = BACKENDS[backend].backward(dout, *given)
        return grads._replace(v=grads.v[..., : problem.value_dim])
    return BACKENDS[backend].backward(dout, x, out, lse.contiguous(), problem, dlse)


def mask_blind(dlse: Tensor | None, lse: Tensor) -> Tensor | None:
    """Return the gradient of lse, contiguous, and 0 where lse is -inf whatever is returned."""
    return None if dlse is None else dlse.masked_fill(torch.isneginf(lse), 0.0).contiguous()


def bind(x: Inputs, problem: Problem, backend: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return the forward pass of these inputs as a function."""
    plain = all(t is None for t in (x.bias, x.ragged, x.slopes, x.blocks))
    return partial(attend, x, problem, backend, prepare(x, problem, backend) if plain else None)


def learn(use: Use, problem: Problem, choice: Choice, passes: Passes) -> Choice:
    """Return the choice of `auto` for the pass that was counted last, which may be measured now."""
    if problem.deterministic:
        return choice
    candidates = partial(contenders, problem, choice.direction)
    names = rivals(use, choice.direction, problem.device, choice.is_measured, STORE, candidates)
    if not names:
        return choice
    measure(problem, choice.direction, choice.backend, passes, names)
    return choose(problem, direction=choice.direction)


def learn_forward(use: Use, choice: Choice, x: Inputs, problem: Problem) -> Choice:
    """Count a call; return its choice, or another one if the forward pass was measured now."""
    USAGE.count_call(use)
    return learn(use, problem, choice, partial(bind, x, problem))


def run_chosen(
    problem: Problem, choice: Choice, run: Callable[[Choice], Result]
) -> tuple[Choice, Result]:
    """Return what a pass gives by the chosen backend, or by the next one if `auto` chose one that
    fails, and the choice that gave it.

    A backend that fails is passed over from then on; see `pass_over`. The error is raised if no
    other can do it, in CUDA graphs, and where memory is lacking, which is not the backend's fault.
    """
    while True:
        try:
            return choice, run(choice)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if choice.basis == "named" or _is_capturing(problem):
                raise
            pass_over(problem, choice.backend, choice.direction, error)
            if not is_able(problem, choice.direction):
                raise
            choice = choose(problem, direction=choice.direction)


def _is_capturing(problem: Problem) -> bool:
    return problem.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def automatic_forward(x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
    """Return what `forward` does by the best backend, which may be learned now."""
    choice = choose(problem)
    if (use := use_of(problem)) is not None:
        choice = learn_forward(use, choice, x, problem)
    return run_chosen(problem, choice, lambda chosen: forward(x, problem, chosen.backend))[1]


def automatic_backward(
    dout: Tensor,
    x: Inputs,
    out: Tensor,
    lse: Tensor,
    problem: Problem,
    dlse: Tensor | None = None,
) -> Gradients:
    """Return the gradients by the best backend, which may be learned now."""

    def passes(backend: str) -> Callable[[], Gradients]:
        return partial(backward, dout, x, out, lse, problem, backend, dlse)

    choice = choose(problem, direction="backward")
    if (use := use_of(problem)) is not None:
        use.backward += 1
        choice = learn(use, problem, choice, passes)
    return run_chosen(problem, choice, lambda chosen: passes(chosen.backend)())[1]


class Attention(torch.autograd.Function):
    """Compute attention outside torch.compile, with less host time than a registered operation.

    `run` is the prepared forward pass, if there is one. If lse has a gradient, which shows in the
    backward pass only, a backend is chosen there among those that take it.
    """

    @staticmethod
    def forward(
        ctx: Any, problem: Problem, backends: Decided, run: Run | None, *inputs: Any
    ) -> tuple[Tensor, Tensor]:
        x = Inputs(*inputs)
        out, lse = attend(x, problem, backends.forward, run)
        ctx.save_for_backward(out, lse, *x[:_TENSORS])
        ctx.problem, ctx.backends, ctx.more = problem, backends, x[_TENSORS:]
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
        if dout is None and dlse is None:
            return (None, None, None, *_NO_GRADIENTS)
        if torch.is_grad_enabled():
            raise RuntimeError(
                "attention has no gradients of its gradients (create_graph=True); compute it by"
                " torch's own operations where you need them"
            )
        out, lse, *tensors = ctx.saved_tensors
        x, needed = Inputs(*tensors, *ctx.more), Inputs(*ctx.needs_input_grad[3:])
        dout = torch.zeros_like(out) if dout is None else dout
        dlse = mask_blind(dlse, lse)
        problem = ctx.problem if dlse is None else replace(ctx.problem, lse_grad=True)
        decided: Decided = ctx.backends
        if decided.asked == "auto":
            grads = automatic_backward(dout, x, out, lse, problem, dlse)
        else:
            backend = choose(problem, decided.asked, "backward").backend
            grads = backward(dout, x, out, lse, problem, backend, dlse)
        of_sink = None
        if x.sink is not None and needed.sink:
            of_sink = sink_gradient(dout, out, lse, dlse, x.sink)
        return (None, None, None, *_NO_GRADIENTS._replace(**grads._asdict(), sink=of_sink))


_TENSORS = Inputs._fields.index("ragged")
"""The number of fields of Inputs that are tensors, which come first."""
_NO_GRADIENTS: Any = Inputs(*[None] * len(Inputs._fields))  # type: ignore[arg-type]


def attend(x: Inputs, problem: Problem, backend: str, run: Run | None) -> tuple[Tensor, Tensor]:
    """Return the results of the prepared forward pass, or of an unprepared one."""
    if run is None:
        return forward(x, problem, backend)
    return finish(*run(x.q, x.k, x.v), x, BACKENDS[backend].adds_sink)


def compute(
    x: Inputs,
    problem: Problem,
    planned: Choice,
    back: Choice | None,
    run: Run | None,
    asked: str,
) -> tuple[Choice, tuple[Tensor, Tensor]]:
    """Run a forward pass as planned, or by the next backend; see `run_chosen`.

    Args:
        planned: the choice of the forward pass.
        back: that of the backward pass, if gradients will be requested.
        run: the prepared forward pass of `planned`, if there is one.
        asked: the backend that the caller asked for.
    """

    def by(chosen: Choice) -> tuple[Tensor, Tensor]:
        prepared = run if chosen is planned else None
        if back is None:
            return attend(x, problem, chosen.backend, prepared)
        backends = Decided(chosen.backend, back.backend, asked)
        out, lse = Attention.apply(problem, backends, prepared, *x)  # type: ignore[no-untyped-call]
        return out, lse

    return run_chosen(problem, planned, by)


def prepare_chosen(x: Inputs, problem: Problem, choice: Choice) -> tuple[Choice, Run | None]:
    """Prepare the forward pass of a choice, or of the next one if that fails."""
    return run_chosen(problem, choice, lambda chosen: prepare(x, problem, chosen.backend))


def trace(x: Inputs, rules: Rules, deterministic: bool, backend: str) -> tuple[Tensor, Tensor]:
    """Return out and lse by one operation of torch, which torch.compile can trace."""
    left, right, *scores = rules
    limits = [NO_LIMIT if side is None else side for side in (left, right)]
    ragged = x.ragged
    starts = (None, None) if ragged is None else (ragged.starts_q, ragged.starts_k)
    limits += [0, 0] if ragged is None else [ragged.longest_q, ragged.longest_k]
    found = forward_op(*x[:_TENSORS], *starts, limits, scores, deterministic, backend)
    return found[0], found[1]


@torch.library.custom_op("gpudeck::attention_forward", mutates_args=())
def forward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    sink: Tensor | None,
    slopes: Tensor | None,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    limits: list[int],
    scores: list[float],
    deterministic: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Run the forward pass as one operation of torch.

    Args:
        limits: the window (left, right), with NO_LIMIT where there is none, and the queries and
            keys of the longest sequences of a ragged batch.
        scores: the scale and the softcap.
        backend: `auto` chooses at every call, so that a compiled program with changing shapes runs
            the best backend for each.
    """
    x = _gather((q, k, v, bias, sink, slopes), starts_q, starts_k, limits)
    problem = problem_of(x, _rules(limits, scores), deterministic)
    choice = choose(problem, backend)
    return run_chosen(problem, choice, lambda chosen: forward(x, problem, chosen.backend))[1]


@forward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(side_by_side(Inputs(q, k, v).like_out))
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("gpudeck::attention_backward", mutates_args=())
def backward_op(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    sink: Tensor | None,
    slopes: Tensor | None,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    limits: list[int],
    scores: list[float],
    deterministic: bool,
    backend: str,
    bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the backward pass as one operation.

    The bias's gradient is empty unless requested, and the sink's without a sink.
    """
    if bias is not None and bias_grad:
        bias = bias.detach().requires_grad_()
    x = _gather((q, k, v, bias, sink, slopes), starts_q, starts_k, limits)
    with torch.enable_grad():  # the problem records whether the bias needs a gradient
        problem = problem_of(x, _rules(limits, scores), deterministic)
    problem = replace(problem, lse_grad=dlse is not None)
    dlse = mask_blind(dlse, lse)
    with torch.no_grad():
        _, grads = run_chosen(
            problem,
            choose(problem, backend, "backward"),
            lambda chosen: backward(dout, x, out, lse, problem, chosen.backend, dlse),
        )
        of_sink = sink_gradient(dout, out, lse, dlse, sink)
    dq, dk, dv = (like(g, t) for g, t in zip(grads[:3], (q, k, v), strict=True))
    of_bias = q.new_empty(0) if grads.bias is None or bias is None else like(grads.bias, bias)
    return dq, dk, dv, of_bias, of_sink


@backward_op.register_fake
def _(
    dout: Tensor, out: Tensor, lse: Tensor, dlse: Tensor | None, *inputs: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x, bias_grad = Inputs(*inputs[:_TENSORS]), inputs[-1]
    dq, dk, dv = (torch.empty_like(side_by_side(t)) for t in x[:3])
    dbias = x.q.new_empty(0) if x.bias is None or not bias_grad else torch.empty_like(x.bias)
    return dq, dk, dv, dbias, x.q.new_empty(0) if x.sink is None else torch.empty_like(x.sink)


_ARGUMENTS = [a.name for a in torch.ops.gpudeck.attention_forward.default._schema.arguments]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors = _ARGUMENTS.index("limits")
    ctx.save_for_backward(*output, *inputs[:tensors])
    ctx.more = inputs[tensors:]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
    if dout is None and dlse is None:
        return (None,) * len(_ARGUMENTS)
    out, lse, *tensors = ctx.saved_tensors
    needed = dict(zip(_ARGUMENTS, ctx.needs_input_grad, strict=True))
    dout = torch.zeros_like(out) if dout is None else dout
    found = torch.ops.gpudeck.attention_backward(
        dout, out, lse, dlse, *tensors, *ctx.more, needed["bias"]
    )
    grads = dict(zip(("q", "k", "v", "bias", "sink"), found, strict=True))
    empty = {name for name in ("bias", "sink") if not needed[name]}
    return tuple(None if name in empty else grads.get(name) for name in _ARGUMENTS)


forward_op.register_autograd(_differentiate, setup_context=_keep)


def _gather(
    tensors: tuple[Any, ...],
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    limits: list[int],
) -> Inputs:
    """Return the inputs of an operation, whose tensors are in the order of Inputs."""
    if starts_q is None or starts_k is None:
        return Inputs(*tensors)
    return Inputs(*tensors)._replace(ragged=Ragged(starts_q, starts_k, *limits[2:]))


def _rules(limits: list[int], scores: list[float]) -> Rules:
    left, right = (None if side == NO_LIMIT else side for side in limits[:2])
    return Rules(left, right, *scores)
