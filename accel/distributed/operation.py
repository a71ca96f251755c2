"""Run the two passes as operations of torch, for autograd and for torch.compile.

A plan holds everything that was decided for one request; the ranks agree on it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention import fp8
from gpudeck.accel.attention.problem import Problem as LocalProblem
from gpudeck.accel.attention.problem import dtype_name
from gpudeck.accel.attention.sinks import sink_gradient
from gpudeck.accel.distributed.choice import STRATEGIES, Choice, choose
from gpudeck.accel.distributed.cost import Links, Sizes
from gpudeck.accel.distributed.exchange import Exchange
from gpudeck.accel.distributed.local import Answer
from gpudeck.accel.distributed.problem import Problem, Rules
from gpudeck.accel.distributed.sharding import Span, Spans, size_of, spans_of
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.tiles import Sight
from gpudeck.accel.distributed.world import World, resolved, world_of


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that was decided for one request; plans are compared by identity."""

    problem: Problem
    forward: Choice
    backward: Choice
    world: World
    asked: str
    """The request in words, about which the ranks agree."""


_TENSORS = "Tensor q, Tensor k, Tensor v, Tensor? sink"
_SETTINGS = (
    "str group, str layout, SymInt[] spans, SymInt tokens, SymInt[] documents, SymInt[] window, "
    "float scale, float softcap, bool deterministic, str strategies, str backend, str precision"
)
"""The arguments of both operations, in the types of torch; `plan_of` says what each one is."""


@torch.library.custom_op(
    "gpudeck::distributed_attention_forward",
    mutates_args=(),
    schema=f"({_TENSORS}, {_SETTINGS}) -> (Tensor, Tensor)",
)
def forward_op(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, *settings: Any
) -> tuple[Tensor, Tensor]:
    """Run the forward pass of this rank; the arguments are those of `plan_of`."""
    plan = plan_of(q, k, v, sink, *settings)
    strategy, x = STRATEGIES[plan.forward.strategy], Shard(q, k, v, sink)
    answer = x.new_answer()

    def work(exchange: Exchange) -> None:
        strategy.forward(plan.problem, x, exchange, answer)

    _run(plan, plan.forward, [*x, *answer], work)
    return answer.out, answer.lse


@forward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op(
    "gpudeck::distributed_attention_backward",
    mutates_args=(),
    schema=f"(Tensor dout, Tensor? dlse, Tensor out, Tensor lse, {_TENSORS}, {_SETTINGS})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def backward_op(
    dout: Tensor,
    dlse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the backward pass of this rank; the sink's gradient is empty without a sink."""
    plan = plan_of(q, k, v, sink, *settings)
    strategy, x = STRATEGIES[plan.backward.strategy], Shard(q, k, v, sink)
    up, grads = Upstream(Answer(out, lse), dout, dlse), Gradients.room(x)

    def work(exchange: Exchange) -> None:
        strategy.backward(plan.problem, x, up, exchange, grads)

    _run(plan, plan.backward, [*x, out, lse, dout, dlse, *grads], work)
    return (*grads, sink_gradient(dout, out, lse, dlse, sink))


@backward_op.register_fake
def _(
    dout: Tensor,
    dlse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_sink = q.new_empty(0) if sink is None else torch.empty_like(sink)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), of_sink


def _run(
    plan: Plan, choice: Choice, tensors: list[Tensor | None], work: Callable[[Exchange], None]
) -> None:
    """Run one pass, or replay it as a graph if it is short."""
    there = [t for t in tensors if t is not None]
    exchange, graphs = plan.world.ways(there[0].device, plan.problem, choice)
    if graphs is None:
        work(exchange)
    else:
        graphs.run((plan, choice.direction, len(there)), there, exchange, lambda: work(exchange))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, sink, *ctx.settings = inputs
    ctx.save_for_backward(*output, q, k, v, sink)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    out, lse, q, k, v, sink = ctx.saved_tensors
    # every rank takes part, also one whose answer nobody needs
    dout = torch.zeros_like(out) if dout is None else dout
    dq, dk, dv, of_sink = torch.ops.gpudeck.distributed_attention_backward(
        dout, dlse, out, lse, q, k, v, sink, *ctx.settings
    )
    return dq, dk, dv, (None if sink is None else of_sink), *(None,) * len(ctx.settings)


forward_op.register_autograd(_differentiate, setup_context=_setup)


def plan_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    group: str,
    layout: str,
    spans: list[int],
    tokens: int,
    documents: list[int],
    window: list[int],
    scale: float,
    softcap: float,
    deterministic: bool,
    strategies: str,
    backend: str,
    precision: str,
) -> Plan:
    """Return the plan of a request.

    Args:
        q: [B,H,S,D], with k and v like it.
        k: keys.
        v: values.
        sink: [H].
        group: the name of the group of ranks.
        layout: `zigzag`, `striped` or `contiguous`, or empty: the positions are in `spans`.
        spans: for each span its rank, start, stop and step.
        tokens: of all ranks; -1: as many on each rank as here.
        documents: the lengths of documents, or empty.
        window: (left, right), with -1 for no limit.
        scale: the factor of the scores.
        softcap: see `gpudeck.accel.attention.attention`.
        deterministic: for the backward pass.
        strategies: the names of those of the forward and the backward pass, with a comma.
        backend: of the local attention.
        precision: `fp8`, or empty.

    Raises:
        ValueError: on every rank, if the request of one is wrong or differs from the others'.
    """
    world = world_of(resolved(group))
    every_time = q.device.type == "cpu"
    try:
        plan = _plan(
            world, world.links(q.device),
            tuple(q.shape), tuple(k.shape), tuple(v.shape), (q.dtype, k.dtype, v.dtype), q.device,
            None if sink is None else tuple(sink.shape),
            layout, tuple(spans), tokens, tuple(documents), (window[0], window[1]),
            Rules(scale, softcap, deterministic, backend, precision), strategies,
        )  # fmt: skip
    except ValueError as e:
        world.agree(str(e), every_time=True)
        raise
    world.agree(plan.asked, every_time=every_time)
    return plan


@lru_cache(maxsize=1024)
def _plan(
    world: World,
    links: Links,
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
    sink: tuple[int, ...] | None,
    layout: str,
    spans: tuple[int, ...],
    tokens: int,
    documents: tuple[int, ...],
    window: tuple[int, int],
    rules: Rules,
    strategies: str,
) -> Plan:
    _check(q, k, v, dtypes, sink)
    if rules.precision:
        _check_fp8(q, k, v, dtypes[0], device, rules)
    problem = problem_over(
        world.size, world.me, q[2], layout, spans, tokens, documents, window, rules
    )
    total, visible = problem.tokens, _visible(problem.sight, problem.tokens)
    sizes = Sizes(q[0], q[1], k[1], q[3], v[3], dtypes[0].itemsize, visible)
    forward, _, backward = strategies.partition(",")
    choices = (
        choose(problem, sizes, links, forward, "forward"),
        choose(problem, sizes, links, backward, "backward"),
    )
    asked = (
        f"batch {q[0]}, heads {q[1]} over {k[1]}, {total} tokens, head size {q[3]} (values {v[3]}),"
        f" {dtype_name(dtypes[0])} on {device.type}, layout {layout or spans}, window {window},"
        f" documents {documents or 'none'}, {'a' if sink else 'no'} sink, {rules}, {strategies}"
    )
    return Plan(problem, *choices, world, asked)


def _check_fp8(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    rules: Rules,
) -> None:
    if q[3] != v[3]:
        raise ValueError(
            f"attention in FP8 over several ranks needs values with the head size of the keys,"
            f" {q[3]}; got {v[3]}"
        )
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    local = LocalProblem(q[0], q[1], k[1], q[2], k[2], q[3], dtype, device, capability, rules.scale)
    fp8.choose(local, rules.backend)


def problem_over(
    ranks: int,
    me: int,
    given: int,
    layout: str,
    spans: tuple[int, ...],
    tokens: int,
    documents: tuple[int, ...],
    window: tuple[int, int],
    rules: Rules,
) -> Problem:
    """Return the problem of a request as one rank sees it, which has so many tokens.

    Raises:
        ValueError: if the layout is none, or gives the rank another number of tokens.
    """
    total = sum(documents) if documents else given * ranks if tokens < 0 else tokens
    placed = _placed(spans, ranks) if spans else spans_of(layout, total, ranks)
    _check_shard(placed, me, total, given)
    left, right = (None if side < 0 else side for side in window)
    sight = Sight(left, right, documents if len(documents) > 1 else ())
    return Problem(placed, tuple(range(ranks)), me, sight, rules)


def _check(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    sink: tuple[int, ...] | None,
) -> None:
    if any(len(x) != 4 for x in (q, k, v)) or not (
        q[0] == k[0] == v[0] and q[2] == k[2] == v[2] and k[1] == v[1] and q[3] == k[3] >= v[3]
    ):
        raise ValueError(
            "q must be [batch, heads, tokens, head size], k and v the same with fewer heads, and v"
            f" with no larger head size; got {list(q)}, {list(k)} and {list(v)}"
        )
    if q[1] % max(1, k[1]) or not k[1]:
        raise ValueError(f"the key heads must divide the query heads; got {k[1]} for {q[1]}")
    if len(set(dtypes)) > 1:
        raise ValueError(
            f"q, k and v must have one dtype; got {', '.join(map(dtype_name, dtypes))}"
        )
    if sink is not None and sink != (q[1],):
        raise ValueError(f"sink must be [{q[1]}], a number for each head; got {list(sink)}")


def _check_shard(placed: tuple[Spans, ...], me: int, tokens: int, given: int) -> None:
    if sum(map(size_of, placed)) != tokens:
        raise ValueError(f"the spans hold {sum(map(size_of, placed))} positions of {tokens} tokens")
    if size_of(placed[me]) != given:
        raise ValueError(
            f"rank {me} holds {size_of(placed[me])} of {tokens} tokens by this layout, and got"
            f" {given}; give `tokens`, the length of the whole sequence, if shards differ"
        )


def _placed(spans: tuple[int, ...], ranks: int) -> tuple[Spans, ...]:
    every: list[list[Span]] = [[] for _ in range(ranks)]
    for at in range(0, len(spans), 4):
        rank, start, stop, step = spans[at : at + 4]
        if not 0 <= rank < ranks:
            raise ValueError(f"the layout has spans of rank {rank}, and there are {ranks} ranks")
        every[rank].append(Span(start, stop, step))
    positions = sorted(p for mine in every for s in mine for p in (s.start, s.stop) if s.step == 1)
    if positions and (positions[0] != 0 or positions[1:-1:2] != positions[2::2]):
        raise ValueError("the spans of a layout must cover every position once, from 0 on")
    return tuple(map(tuple, every))


def _visible(sight: Sight, tokens: int) -> float:
    """Return about which share of all pairs is visible."""
    if not tokens:
        return 1.0
    lengths = sight.documents or (tokens,)
    before, after = (
        1.0 if side is None else min(1.0, side / max(lengths)) for side in (sight.left, sight.right)
    )
    return (before + after) / 2 * sum(n * n for n in lengths) / tokens**2
