"""Compute the parts of a transformer on a CPU, by the kernels of `cpu_kernels`; see `backend`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accel.serving import cpu_kernels
from accel.serving.batch import Batch
from accel.serving.cache import PagedCache
from accel.serving.families import Config
from accel.serving.linear import Linear
from accel.serving.memory import BLOCK


def multiply(linear: Linear, x: Tensor) -> Tensor:
    """Return x [T, K] times the matrix, plus its bias: [T, N] in the dtype of x."""
    out = x.new_empty(len(x), linear.shape[0])
    rows, result = _array(x), _array(out)
    match linear.format:
        case "dense" if linear.values.dtype == torch.bfloat16:
            cpu_kernels.matmul_bfloat(linear.array, rows, result)
        case "dense":
            cpu_kernels.matmul_float(linear.array, rows, result)
        case "int8":
            assert linear.scales is not None
            cpu_kernels.matmul_int8(linear.array, _array(linear.scales), rows, result)
        case "int4":
            assert linear.scales is not None and linear.zeros is not None
            scales, zeros = _array(linear.scales), _array(linear.zeros)
            cpu_kernels.matmul_int4(linear.array, scales, zeros, rows, result)
        case "fp8":
            raise ValueError(
                "FP8 weights are multiplied on a GPU; on a CPU they are loaded as fp32"
            )
    return out if linear.bias is None else out.add_(linear.bias)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the rows of x [..., C] divided by their root mean square, times weight [C], fp32."""
    out = torch.empty(x.shape, dtype=torch.float32)
    flat = x.reshape(-1, x.shape[-1])
    cpu_kernels.norm(_array(flat), _array(weight), np.float32(eps), _array(out.view(flat.shape)))
    return out


def add_norm(x: Tensor, part: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x + part [T, C], and its rows normalized."""
    total = x + part
    return total, norm(total, weight, eps)


def gated(linear: Linear, x: Tensor, activation: str) -> Tensor:
    """Return act(gate) * up for x [T, K], of a matrix that is a gate and an up."""
    both, out = multiply(linear, x), x.new_empty(len(x), linear.shape[0] // 2)
    cpu_kernels.gated(_array(both), activation == "gelu_tanh", _array(out))
    return out


def turn_and_store(
    qkv: Tensor,
    heads: int,
    turn: tuple[Tensor, Tensor] | None,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    slots: Tensor,
    cache: PagedCache,
    layer: int,
) -> Tensor:
    """Return the queries, and store keys and values; see `Backend.turn_and_store`."""
    kv_heads = (qkv.shape[1] - heads) // 2
    if norms is not None:
        q, k, v = torch.split(qkv, [heads, kv_heads, kv_heads], dim=1)
        qkv = torch.cat((norm(q, norms[0], eps), norm(k, norms[1], eps), v), dim=1)
    if turn is not None:
        cpu_kernels.turn(qkv.numpy(), heads + kv_heads, turn[0].numpy(), turn[1].numpy())
    q, k, v = torch.split(qkv, [heads, kv_heads, kv_heads], dim=1)
    cache.write(layer, slots, k, v)
    return q


def attend(q: Tensor, layer: int, batch: Batch, cache: PagedCache, config: Config) -> Tensor:
    """Return what the queries [T, H, D] find in the paged keys and values of their sequences."""
    window = config.windows[layer]
    keys, values, tables = cache.values[layer, 0], cache.values[layer, 1], batch.tables
    if keys.dtype != torch.float32:
        used, places = np.unique(tables.numpy(), return_inverse=True)
        keys, values = cache.dense(layer, torch.from_numpy(used).long())
        tables = torch.from_numpy(places.astype(np.int32)).view(tables.shape)
    out, scores = torch.empty(q.shape), torch.empty(batch.longest)
    cpu_kernels.attention(
        q.contiguous().numpy(), keys.numpy(), values.numpy(), tables.contiguous().numpy(),
        batch.rows.numpy(), batch.positions.numpy(), BLOCK, window,
        np.float32(config.attention_scale), np.float32(config.attention_softcap),
        scores.numpy(), out.numpy(),
    )  # fmt: skip
    return out


def _array(tensor: Tensor) -> npt.NDArray[np.generic]:
    """Return a tensor's memory as an array."""
    array: npt.NDArray[np.generic] = tensor.contiguous().numpy()
    return array
