"""Run tiles by the attention of one device, by its own dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention import fp8, passes
from gpudeck.accel.attention.backends import Gradients
from gpudeck.accel.attention.dispatch import choose, refuse
from gpudeck.accel.attention.inputs import Inputs, problem_of
from gpudeck.accel.attention.problem import Problem as LocalProblem
from gpudeck.accel.attention.problem import Rules as ScoreRules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.distributed.problem import Rules
from gpudeck.accel.distributed.tiles import Tile
from gpudeck.accel.lessons.store import on_change
from gpudeck.accel.result import Direction

OWN_WEIGHTS = "math"
"""The backend whose backward pass does not take weights from lse."""


OURS = "hopper"
"""The backend that all tiles have on a Hopper GPU."""


class Answer(NamedTuple):
    """Hold the output [B,H,S,Dv] and the logarithms of the sums, float32 [B,H,S]."""

    out: Tensor
    lse: Tensor


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tile: Tile,
    rules: Rules,
    answer: Answer,
    sink: Tensor | None = None,
) -> None:
    """Compute one tile, and write its rows of `answer`, which has the rows of q.

    Shapes: q [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv].
    """
    for x, at in _inputs(q, k, v, tile, sink):
        problem, backend = _chosen(x, tile, rules, "forward")
        out, lse = answer.out[at], answer.lse[at]
        if not _attend_into(x, problem, backend, out, lse):
            found = _forward(x, problem, backend)
            out.copy_(found[0])
            lse.copy_(found[1])


def attend_one(q: Tensor, k: Tensor, v: Tensor, tile: Tile, rules: Rules) -> Answer:
    """Return the answer of the rows of one tile alone."""
    parts = []
    for x, _ in _inputs(q, k, v, tile, None):
        parts.append(_forward(x, *_chosen(x, tile, rules, "forward")))
    return Answer(*map(_joined, zip(*parts, strict=True)))


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
        problem, backend = _chosen(x, tile, rules, "backward", dlse is not None)
        lse = answer.lse[at]
        of_out, of_lse = dout[at], passes.mask_blind(None if dlse is None else dlse[at], lse)
        if backend == OWN_WEIGHTS:
            of_out, of_lse = _shares(x, problem, lse, of_out, of_lse)
        parts.append(passes.backward(of_out, x, answer.out[at], lse, problem, backend, of_lse)[:3])
    return Gradients(*map(_joined, zip(*parts, strict=True)))


def _forward(x: Inputs, problem: LocalProblem, backend: str) -> tuple[Tensor, Tensor]:
    run = fp8.compute if backend in fp8.BACKENDS.values() else passes.forward
    return run(x, problem, backend)


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    """Return the batches of all parts."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


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


def blind(answer: Answer, sink: Tensor | None) -> None:
    """Write the answer of queries that see no key."""
    answer.out.zero_()
    answer.lse[:] = -torch.inf if sink is None else sink.float()[:, None]


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


def _chosen(
    x: Inputs, tile: Tile, rules: Rules, direction: Direction, lse_grad: bool = False
) -> tuple[LocalProblem, str]:
    """Return the problem of a tile and the backend for it, which are found once for each shape."""
    in_keys = x.v.data_ptr() == x.k.data_ptr()  # MLA's absorbed form
    key = (
        x.q.shape, x.k.shape, x.v.shape, in_keys, x.q.dtype, x.q.device, tile.left, tile.right,
        tile.lengths, rules, direction, lse_grad, x.sink is not None,
    )  # fmt: skip
    if (found := _CHOSEN.get(key)) is None:
        asked = ScoreRules(tile.left, tile.right, rules.scale, rules.softcap)
        problem = problem_of(x, asked, rules.deterministic)
        problem = replace(problem, grad=direction == "backward", lse_grad=lse_grad)
        found = problem, _backend(problem, rules, direction)
        if len(_CHOSEN) >= _MOST_CHOSEN:
            _CHOSEN.clear()
        _CHOSEN[key] = found
    return found


def _backend(problem: LocalProblem, rules: Rules, direction: Direction) -> str:
    """Return the backend of a tile: with `auto` our kernel for Hopper GPUs, wherever it can.

    All tiles of an answer must have one kernel, or it would depend on how the work is divided. Ours
    writes answers in their places, which spares a copy. `choose` would judge each tile by itself,
    from measurements that have no queries which begin in the middle of the keys.
    """
    if rules.precision:
        return fp8.choose(problem, rules.backend).backend
    if (
        rules.backend == "auto"
        and problem.capability == (9, 0)
        and refuse(problem, OURS, direction) is None
    ):
        return OURS
    return choose(problem, rules.backend, direction).backend


_CHOSEN: dict[object, tuple[LocalProblem, str]] = {}
_MOST_CHOSEN = 4096
on_change(_CHOSEN.clear)


@lru_cache(maxsize=256)
def _ragged(lengths: tuple[tuple[int, int], ...], device: torch.device) -> Ragged:
    of_q, of_k = zip(*lengths, strict=True)
    return Ragged.of(of_q, of_k, device=device)


def _attend_into(x: Inputs, problem: LocalProblem, backend: str, out: Tensor, lse: Tensor) -> bool:
    """Let the kernel write its answer where it belongs, if it can; return False if not."""
    if backend != OURS or problem.head_dim % 8 or problem.out_dim % 8:
        return False
    from gpudeck.accel.attention.kernels.hopper import placed

    if not placed.fits_into(x.q, x.k, x.v, out, lse):
        return False
    rules = ScoreRules(problem.left, problem.right, problem.scale, problem.softcap)
    placed.forward_into(*x[:3], out, lse, rules, x.ragged, x.sink)
    return True
