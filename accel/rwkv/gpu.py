"""Compute one token of each sequence of a batch on a GPU.

The launches are planned once, with buffers of their own, and run as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.graphs import Replay
from gpudeck.accel.runtime.launch import prepare
from gpudeck.accel.rwkv import gpu_kernels as kernels
from gpudeck.accel.rwkv.parameters import Layer, Norm, Parameters, Rank
from gpudeck.accel.rwkv.state import State
from gpudeck.accel.rwkv.storage import Matrix
from gpudeck.accel.rwkv.weights import HEAD

_SPLITS = 16
"""The parts in which the channel mix's second matrix is summed, so that all processors
have work.
"""
COMPUTE = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


class Tile(NamedTuple):
    """Describe the block that one program of `project` or `multiply` computes at once."""

    rows: int
    depth: int
    warps: int
    groups: int = 1
    """Blocks of rows that a program of `multiply` computes one after another."""


AT_ONCE = 4
"""Programs of `multiply` for each processor: their registers allow no more at a time."""
_WIDE = 16
"""Elements: what lies at a multiple of it is loaded 16 bytes at a time."""


def row_tile(depth: int) -> Tile:
    """Return the tile of `multiply`: whole rows, 64 elements a thread."""
    wide = 1 << (depth - 1).bit_length()
    return Tile(max(1, min(16, 8192 // wide)), wide, 4)


def tile_of(batch: int) -> Tile:
    """Return the tile of `project`: the fastest one measured with 1.5B parameters on an H200.

    Source: results/rwkv_tiles.csv.
    """
    if batch == 1:
        return Tile(64, 128, 4)
    return Tile(32, 128 if batch <= 64 else 64, 4)


def overlaps(device: torch.device) -> bool:
    """Return True if a kernel may begin before the one before it has ended (compute capability
    9.0).
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


class Product(NamedTuple):
    """Describe a matrix in an arena times a vector of activations: one row of `project`'s table."""

    weights: Tensor
    scales: Tensor | None
    x: Tensor
    """[B, depth]"""
    out: Tensor
    """[B, rows]; with splits [splits, B, rows]."""
    activation: int = 0
    turned: bool = False
    splits: int = 1


def table(products: Sequence[Product], tile: Tile) -> Tensor:
    """Return the table [programs, COLUMNS] int64 of every block of rows, and of depth if split."""
    lines = []
    for weights, scales, x, out, activation, turned, splits in products:
        depth, rows = weights.shape if turned else weights.shape[::-1]
        part = -(-depth // (splits * _WIDE)) * _WIDE
        for split in range(splits):
            for row in range(0, rows, tile.rows * tile.groups):
                begin = split * part
                at = int(weights.storage_offset()) + (
                    begin * rows + row if turned else row * depth + begin
                )
                scale = (
                    0
                    if scales is None
                    else int(scales.storage_offset()) + (begin if turned else row)
                )
                read = int(x.storage_offset()) + begin
                to = int(out.storage_offset()) + (split * out.stride(0) if splits > 1 else 0) + row
                sizes = (min(tile.rows * tile.groups, rows - row), max(0, min(part, depth - begin)))
                strides = (x.stride(0), out.stride(-2), rows if turned else depth)
                assert not any(n % _WIDE for n in (at, read, strides[0], strides[2])), (
                    "the kernels rely on it"
                )
                lines.append((at, scale, read, to, *sizes, *strides, activation))
    return torch.tensor(lines, dtype=torch.int64)


class Step:
    """Compute one token for each of B sequences. Two threads must not share a Step."""

    def __init__(self, parameters: Parameters, batch: int) -> None:
        """Plan and compile. Kernels defined under TRITON_INTERPRET=1 run on any device, without a
        graph.
        """
        self._parameters, self._batch = parameters, batch
        device, channels = parameters.device, parameters.embeddings.shape[1]
        self._state = State.fresh(len(parameters.layers), channels, device, parameters.dtype, batch)
        self._given: State | None = None
        hidden = max(layer.ffn_key.values.shape[0] for layer in parameters.layers)
        rank = max(
            len(r.down)
            for layer in parameters.layers
            for r in (layer.decay, layer.rate, layer.gate, layer.residual)
        )
        sizes = {
            "x": 1,
            "first": 1,
            "y": 1,
            "out": 1,
            "mixed": 6,
            "projected": 3,
            "ranks": 4,
            "parts": _SPLITS,
        }
        shapes = {name: (count, batch, channels) for name, count in sizes.items()}
        shapes |= {"hidden": (1, batch, hidden), "inner": (4, batch, -(-rank // _WIDE) * _WIDE)}
        room = torch.zeros(sum(a * b * c for a, b, c in shapes.values()), device=device)
        self._room, at = {}, 0
        for name, shape in shapes.items():
            size = shape[0] * shape[1] * shape[2]
            self._room[name] = room[at : at + size].view(shape)
            at += size
        self._logits = torch.zeros(batch, len(parameters.embeddings), device=device)
        self._work: list[Callable[[], None]] = []
        self._early = overlaps(device)
        self._programs = AT_ONCE * (
            torch.cuda.get_device_properties(device).multi_processor_count
            if device.type == "cuda"
            else 2
        )
        self.calls: list[KernelCall] = []
        """Every kernel, as planned."""
        self._plan()
        self._replay: Replay[Tensor] | None = None

    def __call__(self, tokens: Sequence[int], state: State) -> tuple[Tensor, State]:
        """Return logits [B, V] fp32 and the new state.

        Args:
            tokens: Tokens of the model, one for each sequence.
            state: A state of B sequences.
        """
        if state is not self._given:
            self._state.shift.copy_(state.shift)
            self._state.wkv.copy_(state.wkv)
        ids = torch.tensor(tokens, device=self._parameters.device)
        logits = (self._captured(ids)(ids) if ids.is_cuda else self._run(ids)).clone()
        self._given = self._state.clone()
        return logits, self._given

    def _captured(self, tokens: Tensor) -> Replay[Tensor]:
        if self._replay is None:
            kept = self._state.clone()
            self._replay = Replay(self._run, tokens)
            self._state.shift.copy_(kept.shift)
            self._state.wkv.copy_(kept.wkv)
        return self._replay

    def _run(self, tokens: Tensor) -> Tensor:
        self._room["x"][0].copy_(self._parameters.embeddings[tokens])
        for launch in self._work:
            launch()
        return self._logits

    def _plan(self) -> None:
        w, room = self._parameters, self._room
        before = room["parts"][:0]
        for i, layer in enumerate(w.layers):
            self._mix(
                before, layer.norm_att, layer.mixes, self._state.shift[i, :, 0], room["mixed"]
            )
            mixed, projected, inner = room["mixed"], room["projected"], room["inner"]
            matrices = [
                _product(m, mixed[j], projected[j])
                for j, m in enumerate((layer.receptance, layer.key, layer.value))
            ]
            ranks = [
                (layer.decay, 3, kernels.TANH),
                (layer.rate, 4, 0),
                (layer.gate, 5, kernels.SIGMOID),
                (layer.residual, 2, 0),
            ]
            used = [
                (j, rank, mix, squash)
                for j, (rank, mix, squash) in enumerate(ranks)
                if len(rank.down)
            ]
            down = [Product(r.down, None, mixed[m], inner[j], squash) for j, r, m, squash in used]
            if w.values is w.vectors:
                self._project(w.values, matrices + down)
            else:
                self._project(w.values, matrices)
                self._project(w.vectors, down)
            if self._batch > 1:  # `recur` does this for a single sequence.
                self._project(
                    w.vectors,
                    [
                        Product(r.up, None, inner[j], room["ranks"][j], turned=True)
                        for j, r, _, _ in used
                    ],
                )
            self._recur(layer, i)
            self._project(w.values, [_product(layer.output, room["y"][0], room["parts"][0])])
            self._mix(
                room["parts"][:1],
                layer.norm_ffn,
                layer.mix_ffn,
                self._state.shift[i, :, 1],
                room["mixed"][:1],
            )
            hidden = room["hidden"][0]
            self._project(
                w.values, [_product(layer.ffn_key, mixed[0], hidden, kernels.SQUARED_RELU)]
            )
            value = layer.ffn_value
            self._project(
                w.values,
                [
                    Product(
                        value.values,
                        value.scales,
                        hidden,
                        room["parts"],
                        turned=True,
                        splits=_SPLITS,
                    )
                ],
            )
            before = room["parts"]
        self._mix(before, w.norm, None, None, room["out"])
        self._project(w.values, [_product(w.head, room["out"][0], self._logits)])

    def _launch(
        self,
        kernel: object,
        grid: int,
        arguments: Mapping[str, Pointer | int],
        constants: Mapping[str, object],
        options: Mapping[str, int],
        *tensors: Tensor,
    ) -> None:
        """Plan a launch.

        Each kernel but the first begins early; the first follows copies of torch's. Each waits for
        the one before it, and so for all before.
        """
        early = bool(self._work) and self._early
        call = KernelCall(
            kernel,
            grid,
            arguments,
            {**constants, "EARLY": early},
            {**options, "launch_pdl": int(early)},
        )
        self.calls.append(call)
        self._work.append(partial(prepare(call, self._parameters.device), *tensors))

    def _mix(
        self, delta: Tensor, by: Norm, mixes: Tensor | None, shift: Tensor | None, out: Tensor
    ) -> None:
        x, channels = self._room["x"], self._room["x"].shape[2]
        mixes, shift = by.weight if mixes is None else mixes, x[0] if shift is None else shift
        count = 0 if shift.data_ptr() == x.data_ptr() else len(out)
        tensors = (x, delta, *by, mixes, shift, out)
        names = (
            "x_ptr",
            "delta_ptr",
            "weight_ptr",
            "bias_ptr",
            "mixes_ptr",
            "shift_ptr",
            "out_ptr",
        )
        arguments = _pointers(names, tensors) | {
            "channels": channels,
            "shift_stride": shift.stride(0),
        }
        block = 1 << (channels - 1).bit_length()
        constants = {"BATCH": self._batch, "MIXES": count, "SPLITS": len(delta), "BLOCK": block}
        self._launch(
            kernels.mix,
            self._batch,
            arguments,
            constants,
            {"num_warps": 8, "num_stages": 1},
            *tensors,
        )

    def _project(self, arena: Tensor, products: list[Product]) -> None:
        """Plan products whose x and out share one tensor's memory each; the weights are
        in `arena`.
        """
        first = products[0]
        one_by_one = self._batch == 1 and not first.turned
        tile = self._multiplied(products) if one_by_one else tile_of(self._batch)
        plan = table(products, tile).to(arena.device)
        scales = self._parameters.scales if first.scales is not None else self._room["x"]
        tensors = (_base(first.x), arena, scales, _base(first.out), plan)
        arguments = _pointers(
            ("x_ptr", "weights_ptr", "scales_ptr", "out_ptr", "table_ptr"), tensors
        )
        constants: dict[str, object] = {
            "ROWS": tile.rows,
            "DEPTH": tile.depth,
            "SCALED": first.scales is not None,
        }
        options = {"num_warps": tile.warps, "num_stages": 3}
        if one_by_one:
            self._launch(kernels.multiply, len(plan), arguments, constants, options, *tensors)
            return
        constants |= {
            "BATCH": self._batch,
            "BLOCK_B": max(16, 1 << (self._batch - 1).bit_length()) if self._batch > 1 else 1,
            "TURNED": first.turned,
            "LANES": 32 * tile.warps * (16 // arena.element_size()) // tile.rows,
            "COMPUTE": COMPUTE[self._parameters.dtype],
        }
        self._launch(kernels.project, len(plan), arguments, constants, options, *tensors)

    def _multiplied(self, products: list[Product]) -> Tile:
        """Share the rows of all products out among programs, several for each processor."""
        rows, depth = sum(len(p.weights) for p in products), products[0].weights.shape[1]
        tile = row_tile(depth)
        return tile._replace(groups=max(1, -(-rows // (tile.rows * self._programs))))

    def _recur(self, layer: Layer, number: int) -> None:
        room, channels = self._room, self._room["x"].shape[2]
        first, alone = number == 0, self._batch == 1
        ranks = (
            layer.decay,
            layer.rate,
            layer.gate,
            layer.decay if first else layer.residual,
        )  # The first layer has none, and reads none.
        biases = (
            _bias(ranks[0]),
            _bias(ranks[1]),
            _bias(ranks[3]),
            layer.k_k,
            layer.k_a,
            layer.r_k,
            *layer.norm_wkv,
        )
        low = room["inner"] if alone else room["ranks"]
        tensors = (
            room["projected"],
            low,
            room["first"],
            self._state.wkv[number],
            room["y"],
            *(rank.up for rank in ranks),
            *biases,
        )
        names = [
            "projected",
            "low",
            "first",
            "state",
            "out",
            "decay_up",
            "rate_up",
            "gate_up",
            "residual_up",
        ]
        names += ["decay", "rate", "residual", "k_k", "k_a", "r_k", "weight", "bias"]
        arguments = _pointers([f"{name}_ptr" for name in names], tensors) | {"channels": channels}
        constants = {
            "BATCH": self._batch,
            "FIRST": first,
            "HEAD": HEAD,
            "RANKS": tuple(len(r.up) for r in ranks),
            "INNER": low.shape[2],
        }
        options = {"num_warps": 8 if alone else 4, "num_stages": 1}
        self._launch(
            kernels.recur, self._batch * channels // HEAD, arguments, constants, options, *tensors
        )


def _product(matrix: Matrix, x: Tensor, out: Tensor, activation: int = 0) -> Product:
    return Product(matrix.values, matrix.scales, x, out, activation)


def _bias(rank: Rank) -> Tensor:
    assert rank.bias is not None
    return rank.bias


def _base(tensor: Tensor) -> Tensor:
    """Return all of the memory that `tensor` is a part of: offsets in a table count from its
    beginning.
    """
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


def _pointers(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Pointer | int]:
    return {
        name: Pointer(t.dtype, t.data_ptr() % 16 == 0)
        for name, t in zip(names, tensors, strict=True)
    }
