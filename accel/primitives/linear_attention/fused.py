"""Run the Triton kernels of the forward and backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from accel.primitives.linear_attention import gradient_kernels, kernels
from accel.primitives.linear_attention.problem import Operands, Rule
from accel.runtime import named

Tensors = dict[str, Tensor | None]
"""Tensors by the names of the kernels' arguments, without `_ptr`; None if a rule lacks one."""

CHUNK = 64
ROWS = 16
"""The block of tokens within which factors of a decay for each channel fit in float32."""
_OLDEST = (8, 0)
_SHARED_KIB = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227}
"""The shared memory of a program by compute capability; 99 elsewhere."""
_SCRATCH = 20 * 1024
"""Its bytes that are not for what is loaded."""
_PASSING = {64: (64, 4, 3), 128: (64, 4, 3), 256: (32, 8, 2)}
"""By the width of the keys: columns of a state, warps and chunks in flight of a program that passes
states on, as measured on an H200."""
_ALL, MANY = (128, 8, 3), 90
"""The same for keys of 128 with so many heads of all sequences that they fill a GPU."""


def unusable(device: torch.device) -> str | None:
    """Return why the kernels cannot run on a device, or None."""
    if isinstance(kernels.scores, InterpretedFunction):
        return None
    if device.type != "cuda":
        return "runs on CUDA devices"
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        return f"needs compute capability 8.0; this GPU has {capability[0]}.{capability[1]}"
    return None


def fused(x: Operands) -> tuple[Tensor, Tensor]:
    """Return the output [B,T,H,Dv] in the dtype of v and the final states [N,H,Dk,Dv] float32."""
    tensors = (x.q, x.k, x.v, x.a, x.b, x.beta, x.decay, x.state)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        out, last = _Recurrence.apply(*tensors, x.rule, x.scale, x.bounds)  # type: ignore[no-untyped-call]
        return out, last
    launch, inputs = _posed(*tensors, x.rule, x.scale, x.bounds)
    found = _scan(launch, _prepared(launch, inputs, kept=False), outputs=True)
    return cast(Tensor, found["out"]), cast(Tensor, found["last"])


@dataclass(frozen=True)
class Shape:
    """Hold what the kernels are specialised to and how they are cut into programs."""

    keys: int
    values: int
    heads: int
    group: int
    channel: bool
    rule: Rule
    dtype: torch.dtype

    @property
    def kept(self) -> torch.dtype:
        """Return the dtype of intermediate results: products of float16 vectors may exceed it."""
        return torch.bfloat16 if self.dtype == torch.bfloat16 else torch.float32

    @property
    def key_block(self) -> int:
        """Return the channels of the keys that a program holds at once."""
        return min(64, _wide(self.keys))

    @property
    def value_block(self) -> int:
        """Return the channels of the values that a program holds at once."""
        return min(64, _wide(self.values))

    @property
    def blocks_of_keys(self) -> int:
        """Return into how many blocks the channels of the keys are cut."""
        return -(-self.keys // self.key_block)

    @property
    def blocks_of_rows(self) -> int:
        """Return into how many blocks the tokens of a chunk are cut."""
        return CHUNK // ROWS if self.channel and not self.rule.gentle else 1

    @cached_property
    def constants(self) -> dict[str, object]:
        """Return the constants that kernels take by these names."""
        half = self.dtype == torch.bfloat16
        precise = self.dtype == torch.float32
        return {
            "KEYS": self.keys,
            "WIDTH": _wide(self.keys),
            "VALUES": self.values,
            "GROUP": self.group,
            "SHARED": 1 if self.channel else self.group,
            "CHUNK": CHUNK,
            "ROWS": CHUNK // self.blocks_of_rows,
            "CHANNEL": self.channel,
            "STRONGEST": self.rule.strongest,
            "PLAIN": self.rule.plain,
            "ERASES": self.rule.erases,
            "EXCLUSIVE": self.rule.exclusive,
            "SIGN": self.rule.sign,
            "COMPUTE": tl.bfloat16 if half else tl.float32,
            "PRECISION": "tf32x3" if precise else "tf32",
        }


@lru_cache(maxsize=256)
def _shape(*given: Any) -> Shape:
    """Return the shape whose constants are known already, as calls repeat."""
    return Shape(*given)


@dataclass(frozen=True)
class Tables:
    """Hold where chunks and sequences lie; see `kernels`."""

    chunks: Tensor
    sequences: Tensor
    places: int
    """The number of states that are kept: one before each chunk and one after each sequence."""


@lru_cache(maxsize=256)
def tables(bounds: tuple[tuple[int, int], ...], device: torch.device) -> Tables:
    """Return the tables of sequences that lie at `bounds`."""
    chunks: list[tuple[int, int, int]] = []
    sequences = []
    for n, (begin, end) in enumerate(bounds):
        first = len(chunks)
        chunks += [
            (at, min(CHUNK, end - at), first + i + n)
            for i, at in enumerate(range(begin, end, CHUNK))
        ]
        sequences.append((first, len(chunks) - first))
    table, lines = (
        torch.tensor(rows, dtype=torch.int32).reshape(-1, width).to(device)
        for rows, width in ((chunks, 3), (sequences, 2))
    )
    return Tables(table, lines, len(chunks) + len(bounds))


class _Launcher:
    """Launch kernels on the tensors of one problem by the names of their arguments."""

    def __init__(self, shape: Shape, at: Tables, scale: float) -> None:
        self.shape, self.at = shape, at
        self._numbers = {"heads": shape.heads, "scale": float(scale)}

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        blocks: dict[str, int],
        tensors: Tensors,
        options: Mapping[str, int] = named.USUAL,
    ) -> None:
        """Launch a kernel; `blocks` are constants besides those of the shape."""
        tensors = {**tensors, "chunks": self.at.chunks, "sequences": self.at.sequences}
        pointers = {f"{name}_ptr": x for name, x in tensors.items()}
        constants = {**self.shape.constants, **blocks}
        device = self.at.chunks.device
        named.launch(kernel, grid, pointers, self._numbers, constants, device, options)


class _Recurrence(torch.autograd.Function):
    """Give the kernels gradients."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """Compute the output and the final states; the arguments are those of `_posed`."""
        launch, inputs = _posed(*given)
        saved = _prepared(launch, inputs, kept=True)
        found = _scan(launch, saved, outputs=True)
        ctx.names = tuple(saved)
        ctx.save_for_backward(*saved.values())
        ctx.launch = launch
        return cast(Tensor, found["out"]), cast(Tensor, found["last"])

    @staticmethod
    def backward(ctx: Any, dout: Tensor, dlast: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of all tensors."""
        x: Tensors = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        x |= {"dout": dout.contiguous(), "dlast": dlast.float().contiguous()}
        found = _gradients(ctx.launch, x)
        names = ("q", "k", "v", "a", "b", "beta", "decay", "start")
        return (*(found[f"d{name}"] for name in names), None, None, None)


def _posed(
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
    bounds: tuple[tuple[int, int], ...],
) -> tuple[_Launcher, Tensors]:
    """Return what launches the kernels of a problem, and its contiguous tensors."""
    group = v.shape[2] // q.shape[2]
    shape = _shape(q.shape[3], v.shape[3], v.shape[2], group, decay.dim() == 4, rule, q.dtype)
    given = {"q": q, "k": k, "v": v, "a": a, "b": b, "beta": beta}
    inputs: Tensors = {n: None if x is None else x.contiguous() for n, x in given.items()}
    inputs["decay"] = decay.float().contiguous()
    inputs["start"] = None if state is None else state.float().contiguous()
    return _Launcher(shape, tables(bounds, q.device), scale), inputs


def _prepared(launch: _Launcher, inputs: Tensors, *, kept: bool) -> Tensors:
    """Return the inputs with what `prepare` finds of every chunk.

    kept: what only gradients need is written, too.
    """
    s, chunks = launch.shape, len(launch.at.chunks)
    q, v = cast(Tensor, inputs["q"]), cast(Tensor, inputs["v"])
    plain, erases, cut = s.rule.plain, s.rule.erases, s.blocks_of_rows > 1
    square, keys = (chunks, s.heads, CHUNK, CHUNK), (*v.shape[:3], s.keys)
    factors = (chunks, s.heads, s.keys if s.channel else 2 * CHUNK)
    found = _empty(
        q,
        {
            "qk": (plain, square, s.kept),
            "qb": (erases, square, s.kept),
            "ak": (plain and erases and (kept or cut), square, s.kept),
            "ab": (erases and cut, square, torch.float32),
            "solved": (erases and kept, square, s.kept),
            "erases": (erases, keys, s.kept),
            "constants": (erases, v.shape, s.kept),
            "reads": (s.channel, keys, s.kept),
            "keys": (s.channel and plain, keys, s.kept),
            "gains": (s.channel and erases, keys, s.kept),
            "factors": (True, factors, torch.float32),
        },
    )
    x = inputs | found
    if chunks and cut:
        block = {"BLOCK": s.key_block}
        launch(kernels.scores, (chunks * s.blocks_of_rows, s.heads, 1), block, x)
    if chunks:
        options = {"num_warps": 4, "num_stages": 1}
        block = {"BLOCK": min(128, _wide(s.keys))}
        launch(kernels.prepare, (chunks, s.heads, 1), block, x, options)
    if not s.channel:
        x |= {"reads": x["q"], "keys": x["k"], "gains": x["a"]}
    del x["ab"]
    return x


def _scan(launch: _Launcher, x: Tensors, *, outputs: bool) -> Tensors:
    """Return the last states with the outputs, or with all states and the corrections u."""
    s, v, sequences = launch.shape, cast(Tensor, x["v"]), len(launch.at.sequences)
    states = (launch.at.places, s.heads, s.keys, s.values)
    found = _empty(
        v,
        {
            "out": (outputs, v.shape, s.dtype),
            "states": (not outputs, states, s.kept),
            "u": (not outputs and s.rule.erases, v.shape, s.kept),
            "last": (True, (sequences, *states[1:]), torch.float32),
        },
    )
    columns, options = passing(s, _capability(v.device), sequences)
    grid = (-(-s.values // columns), s.heads, sequences)
    launch(kernels.scan, grid, {"BLOCK": columns}, x | found, options)
    return found


def _empty(like: Tensor, wanted: Mapping[str, tuple[bool, Sequence[int], torch.dtype]]) -> Tensors:
    """Return new tensors of the sizes and dtypes, or None for those that are not wanted."""
    return {
        name: like.new_empty(size, dtype=dtype) if want else None
        for name, (want, size, dtype) in wanted.items()
    }


def passing(
    s: Shape, capability: tuple[int, int] | None, sequences: int
) -> tuple[int, dict[str, int]]:
    """Return the columns of a state that a program passes on, and its compiler options.

    As many chunks are in flight as the shared memory of a GPU has room for.
    """
    width = _wide(s.keys, 64)
    columns, warps, stages = _PASSING[width]
    if width == 128 and s.values == 128 and s.heads * sequences >= MANY:
        columns, warps, stages = _ALL
    columns = min(columns, _wide(s.values))
    vectors = 1 + (1 if s.rule.plain else 0) + (2 if s.rule.erases else 0)
    squares = (1 if s.rule.plain else 0) + (1 if s.rule.erases else 0)
    of_a_chunk = CHUNK * (vectors * _wide(s.keys) + squares * CHUNK + columns) * s.kept.itemsize
    where = capability or (9, 0)
    room = _SHARED_KIB.get(where, 99) * 1024 - _SCRATCH
    # a warpgroup reads factors from shared memory until its product is done; others load them first
    copied = 0 if where[0] in (9, 10) and columns >= 64 else 1
    return columns, {
        "num_warps": warps,
        "num_stages": max(1, min(stages, room // of_a_chunk + copied)),
    }


def _capability(device: torch.device) -> tuple[int, int] | None:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def _gradients(launch: _Launcher, x: Tensors) -> Tensors:
    """Return the gradients of the inputs, by the names of the inputs after a d."""
    s, at = launch.shape, launch.at
    x = x | _scan(launch, x, outputs=False)
    start, v = x["start"], cast(Tensor, x["v"])
    x["dstates"] = torch.empty_like(cast(Tensor, x["states"]))
    x["dstart"] = None if start is None else torch.empty_like(start)
    x |= _empty(v, dict.fromkeys(("du", "dx"), (s.rule.erases, v.shape, s.kept)))
    columns, options = passing(s, _capability(v.device), len(at.sequences))
    grid = (-(-s.values // columns), s.heads, len(at.sequences))
    launch(gradient_kernels.state_gradients, grid, {"BLOCK": columns}, x, options)
    x |= _empty_gradients(s, at, x)
    if len(at.chunks):
        _chunk_gradients(launch, x)
    for name in ("dq", "dk", "da"):
        x[name] = _shared(x[name], s.group, s.dtype)
    if (dbeta := x["dbeta"]) is not None:
        x["dbeta"] = dbeta.sum(3).to(cast(Tensor, x["beta"]).dtype)
    return x


def _empty_gradients(s: Shape, at: Tables, x: Tensors) -> Tensors:
    """Return tensors for the gradients of scores, inputs and sums of decays."""
    q, v, decay = (cast(Tensor, x[name]) for name in ("q", "v", "decay"))
    plain, erases, corrects = s.rule.plain, s.rule.erases, x["beta"] is not None
    chunks, tokens = len(at.chunks), v.shape[0] * v.shape[1]
    square, keys = (chunks, s.heads, CHUNK, CHUNK), (*v.shape[:3], s.keys)
    own = s.dtype if s.group == 1 else torch.float32
    sums = s.keys if s.channel else s.blocks_of_keys
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
            "dbeta": (corrects, (*v.shape[:3], s.blocks_of_keys), torch.float32),
            "dsums": (True, (tokens, s.heads, sums), torch.float32),
            "dpast": (s.rule.exclusive, (tokens, s.heads, sums), torch.float32),
            "dend": (True, (chunks * s.blocks_of_rows, s.heads, sums), torch.float32),
        },
    )
    return found | {"dv": torch.empty_like(v), "ddecay": torch.empty_like(decay)}


def _chunk_gradients(launch: _Launcher, x: Tensors) -> None:
    """Compute the gradients that are found in each chunk alone."""
    s, chunks = launch.shape, len(launch.at.chunks)
    blocks = {"KEY_BLOCK": s.key_block, "BLOCK": s.value_block}
    launch(gradient_kernels.score_gradients, (chunks, s.heads, 1), blocks, x)
    grid = (chunks * s.blocks_of_rows, s.blocks_of_keys, s.heads)
    launch(gradient_kernels.input_gradients, grid, blocks, x)
    if s.channel:
        grid, blocks = (chunks, s.heads, s.blocks_of_keys), {"SIZE": s.keys, "BLOCK": s.key_block}
    else:
        parts = s.blocks_of_keys
        grid, blocks = (chunks, s.heads, 1), {"SIZE": parts, "BLOCK": _wide(parts, 1)}
    launch(gradient_kernels.decay_gradients, grid, blocks, x)


def _shared(x: Tensor | None, group: int, dtype: torch.dtype) -> Tensor | None:
    """Return the gradient of heads that are shared: the sum over those who share them."""
    if x is None or group == 1:
        return x
    batch, length, heads, size = x.shape
    return x.reshape(batch, length, heads // group, group, size).sum(3).to(dtype)


def _wide(size: int, least: int = 16) -> int:
    """Return the power of two that holds `size`; products need 16."""
    return max(least, 1 << (size - 1).bit_length())
