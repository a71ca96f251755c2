"""Run tiles by the attention of one device, by its own dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention import passes
from gpudeck.accel.attention.backends import Gradients
from gpudeck.accel.attention.dispatch import choose
from gpudeck.accel.attention.inputs import Inputs, problem_of
from gpudeck.accel.attention.problem import Problem as LocalProblem
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.distributed.problem import Rules
from gpudeck.accel.distributed.tiles import Tile, unseen

OWN_WEIGHTS = "math"
"""The backend whose backward pass does not take weights from lse."""


class Answer(NamedTuple):
    """Hold the output [B,H,S,Dv] and the logarithms of the sums, float32 [B,H,S]."""

    out: Tensor
    lse: Tensor


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: list[Tile],
    rules: Rules,
    answer: Answer,
    sink: Tensor | None = None,
) -> None:
    """Compute tiles that have no query in common, and write their rows of `answer`.

    Shapes: q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv]; the answer has the rows of q.
    """
    for rows in unseen(tiles, q.shape[2]):
        blind(answer, rows, sink)
    for tile in tiles:
        for x, at in _inputs(q, k, v, tile, sink):
            problem = _problem(x, tile, rules)
            backend = choose(problem, rules.backend).backend
            out, lse = answer.out[at], answer.lse[at]
            if not _attend_into(x, problem, backend, out, lse):
                found = passes.forward(x, problem, backend)
                out.copy_(found[0])
                lse.copy_(found[1])


def attend_one(q: Tensor, k: Tensor, v: Tensor, tile: Tile, rules: Rules) -> Answer:
    """Return the answer of the rows of one tile alone."""
    parts = []
    for x, _ in _inputs(q, k, v, tile, None):
        problem = _problem(x, tile, rules)
        parts.append(passes.forward(x, problem, choose(problem, rules.backend).backend))
    return Answer(*(torch.cat(part) for part in zip(*parts, strict=True)))


def differentiate(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    answer: Answer,
    dlse: Tensor | None,
    tile: Tile,
    rules: Rules,
) -> Gradients:
    """Return the gradients of the rows of one tile.

    `answer` has the outputs and logarithms over all keys, of which the tile may be a part: weights
    are computed again as exp(score - lse).
    """
    parts = []
    for x, at in _inputs(q, k, v, tile, None):
        problem = replace(_problem(x, tile, rules), grad=True)
        lse = answer.lse[at]
        if dlse is not None:
            problem = replace(problem, lse_grad=True)
        of_out, of_lse = dout[at], passes.of_rows_with_keys(None if dlse is None else dlse[at], lse)
        backend = choose(problem, rules.backend, "backward").backend
        if backend == OWN_WEIGHTS:
            of_out, of_lse = _shares(x, problem, lse, of_out, of_lse)
        parts.append(passes.backward(of_out, x, answer.out[at], lse, problem, backend, of_lse)[:3])
    return Gradients(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _shares(
    x: Inputs, problem: LocalProblem, lse: Tensor, dout: Tensor, dlse: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return gradients that are multiplied by the share that these keys have in the sums of rows.

    A backend that computes weights by a softmax of its own needs them, as weights over all keys are
    that share of its weights.
    """
    here = passes.forward(x, problem, OWN_WEIGHTS)[1]
    share = torch.exp(here - lse).masked_fill(torch.isneginf(here), 0.0)
    return dout * share[..., None].to(dout.dtype), None if dlse is None else dlse * share


def blind(answer: Answer, rows: slice, sink: Tensor | None) -> None:
    """Write the rows of queries that see no key."""
    answer.out[:, :, rows] = 0
    answer.lse[:, :, rows] = -torch.inf if sink is None else sink.float()[:, None]


def _inputs(
    q: Tensor, k: Tensor, v: Tensor, tile: Tile, sink: Tensor | None
) -> Iterable[tuple[Inputs, tuple[slice, slice, slice]]]:
    """Yield the inputs of a tile, and where their rows lie in tensors like q: documents of each
    batch for themselves."""
    every = slice(None)
    ragged = _ragged(tile.lengths, q.device) if tile.lengths else None
    batches = [every] if ragged is None else [slice(b, b + 1) for b in range(q.shape[0])]
    for batch in batches:
        x = Inputs(
            q[batch, :, tile.q], k[batch, :, tile.k], v[batch, :, tile.k], ragged=ragged, sink=sink
        )
        yield x, (batch, every, tile.q)


def _problem(x: Inputs, tile: Tile, rules: Rules) -> LocalProblem:
    return problem_of(
        x,
        causal=False,
        window=(tile.left, tile.right),
        scale=rules.scale,
        softcap=rules.softcap,
        deterministic=rules.deterministic,
    )


@lru_cache(maxsize=256)
def _ragged(lengths: tuple[tuple[int, int], ...], device: torch.device) -> Ragged:
    of_q, of_k = zip(*lengths, strict=True)
    return Ragged.of(of_q, of_k, device=device)


def _attend_into(x: Inputs, problem: LocalProblem, backend: str, out: Tensor, lse: Tensor) -> bool:
    """Let the kernel write its answer where it belongs, if it can; return False if not."""
    if backend != "hopper" or problem.head_dim % 8 or problem.out_dim % 8:
        return False
    from gpudeck.accel.attention.kernels.hopper import placed

    if placed.misfit(x.q, x.k, x.v, out, lse):
        return False
    placed.forward_into(
        *x[:3], out, lse, left=problem.left, right=problem.right, scale=problem.scale,
        softcap=problem.softcap, ragged=x.ragged, sink=x.sink,
    )  # fmt: skip
    return True
