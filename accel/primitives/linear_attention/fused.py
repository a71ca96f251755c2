"""Run the Triton kernels of the forward and backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.runtime.interpreter import InterpretedFunction

from gpudeck.accel.primitives.linear_attention import (
    chunk_kernels,
    gradient_kernels,
    part_kernels,
    scan_kernels,
)
from gpudeck.accel.primitives.linear_attention.plan import (
    CHUNK,
    ROWS,
    Bounds,
    Shape,
    Tables,
    Tensors,
    capability_of,
    cut,
    parts_of,
    passing,
    processors_of,
    shape_of,
    tables,
    wide,
)
from gpudeck.accel.primitives.linear_attention.problem import Operands, Rule
from gpudeck.accel.primitives.linear_attention.single_pass import single_pass, suffices
from gpudeck.accel.runtime import named
from gpudeck.accel.runtime.refusals import refuse_older
from gpudeck.language.text import Text

_OLDEST = (8, 0)
_JOINED, _STEP = 16, 32
"""The columns of states that a program joins, and the channels of keys that a product takes."""


def refuse(device: torch.device) -> Text | None:
    """Return why the kernels cannot run on a device, or None."""
    if isinstance(chunk_kernels.scores, InterpretedFunction):
        return None
    return refuse_older(device, _OLDEST)


def fused(x: Operands) -> tuple[Tensor, Tensor]:
    """Return the output [B,T,H,Dv] in the dtype of v and the final states [N,H,Dk,Dv] float32."""
    tensors = (x.q, x.k, x.v, x.a, x.b, x.beta, x.decay, x.state)
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if suffices(x, trained):
        return single_pass(x, trained)
    if trained:
        out, last = _Recurrence.apply(*tensors, x.rule, x.scale, x.bounds)  # type: ignore[no-untyped-call]
        return out, last
    launch, inputs = _pose(*tensors, x.rule, x.scale, x.bounds)
    if (
        not x.rule.erases
    ):  # so short a pass that joining parts costs the host more: 0.62, not 0.45 ms
        launch.parts = 1
    prepared = _prepare(launch, inputs, kept=False)
    found = _scan(launch, prepared | _part(launch, prepared), outputs=True)
    return cast(Tensor, found["out"]), cast(Tensor, found["last"])


class _Launcher:
    """Launch kernels on the tensors of one problem by the names of their arguments."""

    def __init__(self, shape: Shape, bounds: Bounds, device: torch.device, scale: float) -> None:
        self.shape, self.bounds, self.at = shape, bounds, tables(bounds, device)
        self._numbers = {"heads": shape.heads, "scale": float(scale), "sequences": len(bounds)}
        self.parts = parts_of(
            shape, capability_of(device), len(bounds), self.at.longest, processors_of(device)
        )

    def passing(self, sequences: int) -> tuple[int, Mapping[str, int]]:
        """Return `plan.passing` for so many sequences, or parts of them."""
        device = self.at.chunks.device
        return passing(self.shape, capability_of(device), sequences, parted=self.parts > 1)

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        blocks: dict[str, int],
        tensors: Tensors,
        options: Mapping[str, int] = named.USUAL,
    ) -> None:
        """Launch a kernel; `blocks` are constants besides those of the shape."""
        tensors = {"chunks": self.at.chunks, "sequences": self.at.sequences, **tensors}
        pointers = {f"{name}_ptr": x for name, x in tensors.items()}
        constants = {**self.shape.constants, **blocks}
        named.launch(kernel, grid, pointers, self._numbers, constants, options)


class _Recurrence(torch.autograd.Function):
    """Give the kernels gradients."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """Compute the output and the final states; the arguments are those of `_pose`."""
        launch, inputs = _pose(*given)
        saved = _prepare(launch, inputs, kept=True)
        saved |= _part(launch, saved)
        found = _scan(launch, saved, outputs=True)
        ctx.names = tuple(saved)
        ctx.save_for_backward(*saved.values())
        ctx.launch = launch
        return cast(Tensor, found["out"]), cast(Tensor, found["last"])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor, dlast: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of all tensors."""
        x: Tensors = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        x |= {"dout": dout.contiguous(), "dlast": dlast.float().contiguous()}
        found = _gradients(ctx.launch, x)
        names = ("q", "k", "v", "a", "b", "beta", "decay", "start")
        return (*(found[f"d{name}"] for name in names), None, None, None)


def _pose(
    q: Tensor,
    k: Tensor | None,
    v: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    beta: Tensor | None,
    decay: Tensor,
    state: Tensor | None,
    rule: Rule,
    scale: float,
    bounds: Bounds,
) -> tuple[_Launcher, Tensors]:
    """Return what launches the kernels of a problem, and its contiguous tensors."""
    group = v.shape[2] // q.shape[2]
    shape = shape_of(q.shape[3], v.shape[3], v.shape[2], group, decay.dim() == 4, rule, q.dtype)
    given = {"q": q, "k": k, "v": v, "a": a, "b": b, "beta": beta}
    inputs: Tensors = {n: None if x is None else x.contiguous() for n, x in given.items()}
    inputs["decay"] = decay.float().contiguous()
    inputs["start"] = None if state is None else state.float().contiguous()
    return _Launcher(shape, bounds, q.device, scale), inputs


def _prepare(launch: _Launcher, inputs: Tensors, *, kept: bool) -> Tensors:
    """Return the inputs with what `prepare` finds of every chunk.

    kept: gradients will be wanted. Those of decays are small differences, for which scores with a
        decay for each channel are computed finely.
    """
    s, chunks = launch.shape, len(launch.at.chunks)
    q, v = cast(Tensor, inputs["q"]), cast(Tensor, inputs["v"])
    plain, erases, cut = s.rule.plain, s.rule.erases, s.blocks_of_rows > 1
    square, keys = (chunks, s.heads, CHUNK, CHUNK), (*v.shape[:3], s.keys)
    # those of a chunk are loaded even if there is none
    factors = (max(1, chunks), s.heads, s.keys if s.channel else 2 * CHUNK)
    found = _empty(
        q,
        {
            "qk": (plain, square, s.kept),
            "qb": (erases, square, s.kept),
            "sums": (cut, keys, torch.float32),
            "mild": (cut, (chunks, s.heads), torch.int32),
            "ak": (plain and erases and (kept or cut), square, s.kept),
            "ab": (erases and cut, square, torch.float32),
            "solved": (erases, square, s.kept),
            "constants": (plain and erases, v.shape, s.kept),
            "reads": (s.channel, keys, s.kept),
            "keys": (s.channel and plain, keys, s.kept),
            "erases": (s.channel and erases, keys, s.kept),
            "gains": (s.channel and erases, keys, s.kept),
            "factors": (True, factors, torch.float32),
        },
    )
    x = inputs | found
    # where no products of whole chunks are wanted, few registers let more programs run at once
    options = {"num_warps": 4, "num_stages": 1}
    if chunks and cut:
        launch(chunk_kernels.local_sums, (chunks, s.heads, 1), {"BLOCK": s.key_block}, x)
        grid, blocks = (chunks * s.blocks_of_rows, s.heads, 1), {"BLOCK": min(32, s.key_block)}
        launch(chunk_kernels.scores, grid, blocks, x, options)
    if chunks:
        block = s.key_block if s.channel else min(128, wide(s.keys))
        blocks = {"BLOCK": block, "FINE": kept and s.channel}
        launch(chunk_kernels.prepare, (chunks, s.heads, 1), blocks, x, options)
    if not s.channel:
        x |= {"reads": x["q"], "keys": x["k"], "erases": x["a"]}
    if not plain:
        x["constants"] = x["v"]
    del x["ab"]
    return x


def _scan(launch: _Launcher, x: Tensors, *, outputs: bool) -> Tensors:
    """Return the last states with the outputs, or with all states and the corrections u."""
    s, v, at = launch.shape, cast(Tensor, x["v"]), launch.at
    states = (at.places, s.heads, s.keys, s.values)
    found = _empty(
        v,
        {
            "out": (outputs, v.shape, s.dtype),
            "states": (not outputs, states, s.kept),
            "u": (not outputs and s.rule.erases, v.shape, s.kept),
        },
    )
    last = _pass_on(launch, x | found | dict.fromkeys(("turns", "reaches")))
    return found | {"last": last[-len(launch.bounds) :]}


def _part(launch: _Launcher, x: Tensors) -> Tensors:
    """Return sequences that are cut into parts, the states before them, `turns` and `reaches`.

    A part turns the state S before it into M S + L: L is the last state after none, and M, its
    turn, that after the identity where nothing but corrections is written; if M is zero the part
    does not reach back. Most chunks of a part need not be computed for this, as their states have
    decayed by its end.
    """
    s, parts, device = launch.shape, launch.parts, launch.at.chunks.device
    if parts == 1:
        whole = {"sequences": launch.at.sequences, "starts": x["start"]}
        return whole | dict.fromkeys(("turns", "reaches"))
    lines = cut(launch.bounds, parts, device)
    found: Tensors = {
        "sequences": lines,
        "turns": torch.empty(len(lines), s.heads, s.keys, s.keys, device=device),
        "reaches": torch.empty(len(lines), s.heads, dtype=torch.int32, device=device),
    }
    added = _pass_on(launch, x | dict.fromkeys(("out", "states", "u", "starts")) | found)
    return found | {"starts": _join(launch, x["start"], found, added, back=False)}


def _join(
    launch: _Launcher, first: Tensor | None, found: Tensors, added: Tensor, *, back: bool
) -> Tensor:
    """Return the states before all parts, or, from the last part back, the gradients after them."""
    s = launch.shape
    columns = min(_JOINED, wide(s.values))
    joined = torch.empty_like(added)
    launch(
        part_kernels.join,
        (-(-s.values // columns), s.heads, len(added)),
        {"BLOCK": columns, "STEP": min(_STEP, wide(s.keys)), "BACK": back},
        {"first": first, "added": added, "joined": joined}
        | {name: found[name] for name in ("turns", "reaches")},
    )
    return joined


def _pass_on(launch: _Launcher, x: Tensors) -> Tensor:
    """Pass states on from chunk to chunk; return those after each sequence."""
    s, device = launch.shape, launch.at.chunks.device
    sequences = len(cast(Tensor, x["sequences"]))
    columns, options = launch.passing(sequences)
    last = torch.empty(sequences, s.heads, s.keys, s.values, device=device)
    programs = -(-s.values // columns) + (0 if x["turns"] is None else -(-s.keys // columns))
    grid = (programs, s.heads, sequences)
    launch(scan_kernels.scan, grid, {"BLOCK": columns}, x | {"last": last}, options)
    return last


def _empty(like: Tensor, wanted: Mapping[str, tuple[bool, Sequence[int], torch.dtype]]) -> Tensors:
    """Return new tensors of the sizes and dtypes, or None for those that are not wanted."""
    return {
        name: like.new_empty(size, dtype=dtype) if want else None
        for name, (want, size, dtype) in wanted.items()
    }


def _gradients(launch: _Launcher, x: Tensors) -> Tensors:
    """Return the gradients of the inputs, by the names of the inputs after a d."""
    s, at = launch.shape, launch.at
    x = x | _scan(launch, x, outputs=False)
    v = cast(Tensor, x["v"])
    ends = _ends(launch, x)
    x["dstates"] = torch.empty_like(cast(Tensor, x["states"]))
    x["dx"] = torch.empty_like(v, dtype=s.kept) if s.rule.erases else None
    starts = _pass_back(launch, x | {"dlast": ends})
    x["dstart"] = None if x["start"] is None else starts[: len(launch.bounds)]
    x |= _empty_gradients(s, at, x)
    if len(at.chunks):
        _chunk_gradients(launch, x)
    for name in ("dq", "dk", "da"):
        x[name] = _shared(x[name], s.group, s.dtype)
    if (dbeta := x["dbeta"]) is not None:
        x["dbeta"] = dbeta.sum(3).to(cast(Tensor, x["beta"]).dtype)
    return x


def _ends(launch: _Launcher, x: Tensors) -> Tensor:
    """Return the gradients of the states after all parts of sequences."""
    dlast = cast(Tensor, x["dlast"])
    if launch.parts == 1:
        return dlast
    added = _pass_back(launch, x | dict.fromkeys(("dlast", "dstates", "dx")))
    return _join(launch, dlast, x, added, back=True)


def _pass_back(launch: _Launcher, x: Tensors) -> Tensor:
    """Pass gradients of states back from chunk to chunk; return those before each sequence."""
    s, device = launch.shape, launch.at.chunks.device
    sequences = len(cast(Tensor, x["sequences"]))
    columns, options = launch.passing(sequences)
    dstart = torch.empty(sequences, s.heads, s.keys, s.values, device=device)
    grid = (-(-s.values // columns), s.heads, sequences)
    blocks = {"BLOCK": columns}
    launch(gradient_kernels.state_gradients, grid, blocks, x | {"dstart": dstart}, options)
    return dstart


def _empty_gradients(s: Shape, at: Tables, x: Tensors) -> Tensors:
    """Return tensors for the gradients of scores, inputs and sums of decays."""
    q, v, decay = (cast(Tensor, x[name]) for name in ("q", "v", "decay"))
    plain, erases, corrects = s.rule.plain, s.rule.erases, x["beta"] is not None
    chunks, tokens = len(at.chunks), v.shape[0] * v.shape[1]
    square, keys = (chunks, s.heads, CHUNK, CHUNK), (*v.shape[:3], s.keys)
    own = s.dtype if s.group == 1 else s.kept
    sums = s.keys if s.channel else s.blocks_of_gradients
    found = _empty(
        q,
        {
            "dqk": (plain, square, s.kept),
            "dqb": (erases, square, s.kept),
            "dak": (plain and erases, square, s.kept),
            "dab": (erases, square, s.kept),
            "dq": (True, keys, own),
            "dk": (plain, keys, own),
            "da": (erases, keys, own),
            "db": (erases and not corrects, keys, s.dtype),
            "dbeta": (corrects, (*v.shape[:3], s.blocks_of_gradients), torch.float32),
            "dsums": (True, (tokens, s.heads, sums), torch.float32),
            "dpast": (s.rule.exclusive, (tokens, s.heads, sums), torch.float32),
            "dend": (True, (chunks, s.heads, sums), torch.float32),
        },
    )
    dv = torch.empty_like(v) if plain else cast(Tensor, x["dx"]).to(v.dtype)
    return found | {"dv": dv, "ddecay": torch.empty_like(decay)}


def _chunk_gradients(launch: _Launcher, x: Tensors) -> None:
    """Compute the gradients that are found in each chunk alone."""
    s, chunks = launch.shape, len(launch.at.chunks)
    blocks = {"KEY_BLOCK": s.key_block, "BLOCK": s.value_block}
    launch(gradient_kernels.score_gradients, (chunks, s.heads, 1), blocks, x)
    blocks = {"KEY_BLOCK": s.gradient_block, "BLOCK": s.value_block}
    grid = (chunks, s.blocks_of_gradients, s.heads)
    for rows in (CHUNK, ROWS) if s.blocks_of_rows > 1 else (CHUNK,):
        launch(gradient_kernels.input_gradients, grid, {**blocks, "ROWS": rows}, x)
    if s.channel:
        grid, blocks = (chunks, s.heads, s.blocks_of_keys), {"SIZE": s.keys, "BLOCK": s.key_block}
    else:
        parts = s.blocks_of_gradients
        grid, blocks = (chunks, s.heads, 1), {"SIZE": parts, "BLOCK": wide(parts, 1)}
    launch(gradient_kernels.decay_gradients, grid, blocks, x)


def _shared(x: Tensor | None, group: int, dtype: torch.dtype) -> Tensor | None:
    """Return the gradient of heads that are shared: the sum over those who share them."""
    if x is None or group == 1:
        return x
    batch, length, heads, size = x.shape
    return x.reshape(batch, length, heads // group, group, size).sum(3).to(dtype)
