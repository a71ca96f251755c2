"""Send keys and values round all ranks, one hop at a time (arXiv 2310.01889).

It is the mesh with one row. A rank holds two shards of keys at a time, however many
ranks there are.
"""

from __future__ import annotations

from gpudeck.accel.distributed.exchange import Exchange
from gpudeck.accel.distributed.local import Answer
from gpudeck.accel.distributed.problem import Problem
from gpudeck.accel.distributed.strategies import mesh
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream

refusal = mesh.refusal


def forward(problem: Problem, x: Shard, exchange: Exchange, answer: Answer) -> None:
    """Write the answer of this rank's queries."""
    mesh.forward_on(problem, x, exchange, answer, (1, problem.size))


def backward(
    problem: Problem, x: Shard, up: Upstream, exchange: Exchange, grads: Gradients
) -> None:
    """Write the gradients of this rank's tensors."""
    mesh.backward_on(problem, x, up, exchange, grads, (1, problem.size))
