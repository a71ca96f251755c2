"""Run the Triton kernels of the forward and backward pass."""

from __future__ import annotations

from collections.abc import Mapping
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
_FACTOR, _CHANNEL_FACTOR = 480, 680
"""The bytes of shared memory for each byte of a key, as compiled, where a loop over states with
corrections has two chunks in flight."""
_ENOUGH_PROGRAMS = 2
"""Programs for each multiprocessor from which a program passes on more columns of a state."""


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
    tensors = (x.q, x.k, x.v, x.a, x.b, x.decay, x.state)
    out, last = _Recurrence.apply(*tensors, x.rule, x.scale, x.bounds)  # type: ignore[no-untyped-call]
    return out, last


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

    @property
    def state_block(self) -> int:
        """Return the columns of a state that one program passes on.

        Fewer columns make more programs, which is what the recurrence lacks.
        """
        return min(32, _wide(self.values))

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
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor | None,
        v: Tensor,
        a: Tensor | None,
        b: Tensor | None,
        decay: Tensor,
        state: Tensor | None,
        rule: Rule,
        scale: float,
        bounds: tuple[tuple[int, int], ...],
    ) -> tuple[Tensor, Tensor]:
        """Compute the output and the final states; see `fused`."""
        group = v.shape[2] // q.shape[2]
        shape = Shape(q.shape[3], v.shape[3], v.shape[2], group, decay.dim() == 4, rule, q.dtype)
        launch = _Launcher(shape, tables(bounds, q.device), scale)
        given = {"q": q, "k": k, "v": v, "a": a, "b": b}
        inputs: Tensors = {n: None if x is None else x.contiguous() for n, x in given.items()}
        inputs["decay"] = decay.float().contiguous()
        inputs["start"] = None if state is None else state.float().contiguous()
        saved = _corrections(launch, inputs)
        states = _states(launch, saved)
        out = torch.empty_like(v, memory_format=torch.contiguous_format)
        _outputs(launch, saved | states | {"out": out})
        ctx.names = tuple(saved)
        ctx.save_for_backward(*saved.values())
        ctx.launch = launch
        return out, cast(Tensor, states["last"])

    @staticmethod
    def backward(ctx: Any, dout: Tensor, dlast: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of all tensors."""
        x: Tensors = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        x |= {"dout": dout.contiguous(), "dlast": dlast.float().contiguous()}
        found = _gradients(ctx.launch, x)
        names = ("q", "k", "v", "a", "b", "decay", "start")
        return (*(found[f"d{name}"] for name in names), None, None, None)


def _corrections(launch: _Launcher, inputs: Tensors) -> Tensors:
    """Return the inputs with what each chunk's scores and its triangular system give."""
    s, chunks = launch.shape, len(launch.at.chunks)
    q, v = cast(Tensor, inputs["q"]), cast(Tensor, inputs["v"])
    plain, erases = s.rule.plain, s.rule.erases
    written = {"qk": plain, "qb": erases, "ak": plain and erases, "solved": erases}
    square = (chunks, s.heads, CHUNK, CHUNK)
    found: Tensors = {
        name: q.new_empty(square, dtype=s.kept) if wanted else None
        for name, wanted in written.items()
    }
    ab = q.new_empty(square, dtype=torch.float32) if erases else None
    for name in ("erases", "gains"):
        found[name] = q.new_empty(*v.shape[:3], s.keys, dtype=s.kept) if erases else None
    found["constants"] = torch.empty_like(v, dtype=s.kept) if erases else None
    x = inputs | found
    if chunks:
        block, programs = {"BLOCK": s.key_block}, chunks * s.blocks_of_rows
        launch(kernels.scores, (programs, s.heads, 1), block, x | {"ab": ab})
    if chunks and erases:
        launch(kernels.solve, (chunks, s.heads, 1), block, x | {"ab": ab})
    return x


def _states(launch: _Launcher, x: Tensors) -> Tensors:
    """Return the states before and after each chunk, the last ones, and the corrections u."""
    s, v, sequences = launch.shape, cast(Tensor, x["v"]), len(launch.at.sequences)
    found: Tensors = {
        "states": v.new_empty(launch.at.places, s.heads, s.keys, s.values, dtype=s.kept),
        "last": v.new_empty(sequences, s.heads, s.keys, s.values, dtype=torch.float32),
        "u": torch.empty_like(v, dtype=s.kept) if s.rule.erases else None,
    }
    columns, options = _passing(s, sequences, v.device)
    grid = (-(-s.values // columns), s.heads, sequences)
    launch(kernels.states, grid, {"BLOCK": columns}, x | found, options)
    return found


@lru_cache(maxsize=64)
def _passing(s: Shape, sequences: int, device: torch.device) -> tuple[int, dict[str, int]]:
    """Return the columns that a program passes on, and the compiler options, as measured on Hopper.

    Without corrections there is room to load three chunks ahead.
    """
    columns, options = s.state_block, in_flight(s, _capability(device))
    if _capability(device) != (9, 0):
        return columns, options
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    if s.heads * sequences * (s.values // 64) >= _ENOUGH_PROGRAMS * processors:
        columns = 64
    if not s.rule.erases and s.keys <= 128:
        options["num_stages"] = 3
    return columns, options


def in_flight(s: Shape, capability: tuple[int, int] | None) -> dict[str, int]:
    """Return compiler options that hold two chunks at once in a loop over states, or one if the
    shared memory of a GPU has no room for two.
    """
    wide = s.channel or s.rule.plain
    needed = (_CHANNEL_FACTOR if wide else _FACTOR) * _wide(s.keys) * s.kept.itemsize
    room = _SHARED_KIB.get(capability or (9, 0), 99) * 1024
    fits = not s.rule.erases or needed <= room
    return {**named.USUAL, "num_stages": 2 if fits else 1}


def _capability(device: torch.device) -> tuple[int, int] | None:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def _outputs(launch: _Launcher, x: Tensors) -> None:
    s, chunks = launch.shape, len(launch.at.chunks)
    if chunks:
        grid = (chunks, s.heads, -(-s.values // s.value_block))
        launch(kernels.outputs, grid, {"KEY_BLOCK": s.key_block, "BLOCK": s.value_block}, x)


def _gradients(launch: _Launcher, x: Tensors) -> Tensors:
    """Return the gradients of the inputs, by the names of the inputs after a d."""
    s, at = launch.shape, launch.at
    x = x | _states(launch, x)
    start = x["start"]
    x["dstates"] = torch.empty_like(cast(Tensor, x["states"]))
    x["dstart"] = None if start is None else torch.empty_like(start)
    for name in ("du", "dx"):
        v = cast(Tensor, x["v"])
        x[name] = torch.empty_like(v, dtype=s.kept) if s.rule.erases else None
    grid = (-(-s.values // s.state_block), s.heads, len(at.sequences))
    options = in_flight(s, _capability(at.chunks.device))
    launch(gradient_kernels.state_gradients, grid, {"BLOCK": s.state_block}, x, options)
    x |= _empty_gradients(s, at, x)
    if len(at.chunks):
        _chunk_gradients(launch, x)
    for name in ("dq", "dk", "da"):
        x[name] = _shared(x[name], s.group, s.dtype)
    return x


def _empty_gradients(s: Shape, at: Tables, x: Tensors) -> Tensors:
    """Return tensors for the gradients of scores, inputs and sums of decays."""
    q, v, decay = (cast(Tensor, x[name]) for name in ("q", "v", "decay"))
    plain, erases = s.rule.plain, s.rule.erases
    chunks, tokens = len(at.chunks), v.shape[0] * v.shape[1]
    square, keys = (chunks, s.heads, CHUNK, CHUNK), (*v.shape[:3], s.keys)
    own = s.dtype if s.group == 1 else torch.float32
    sums = s.keys if s.channel else s.blocks_of_keys
    sizes: dict[str, tuple[bool, tuple[int, ...], torch.dtype]] = {
        "dqk": (plain, square, s.kept),
        "dqb": (erases, square, s.kept),
        "dak": (plain and erases, square, s.kept),
        "dab": (erases, square, s.kept),
        "dq": (True, keys, own),
        "dk": (plain, keys, own),
        "da": (erases, keys, own),
        "db": (erases, keys, s.dtype),
        "dsums": (True, (tokens, s.heads, sums), torch.float32),
        "dpast": (s.rule.exclusive, (tokens, s.heads, sums), torch.float32),
        "dend": (True, (chunks, s.heads, sums), torch.float32),
    }
    found: Tensors = {
        name: q.new_empty(size, dtype=dtype) if wanted else None
        for name, (wanted, size, dtype) in sizes.items()
    }
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
