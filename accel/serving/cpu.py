"""Compute the parts of a transformer on a CPU, by the kernels of `cpu_kernels`; see `backend`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpudeck.accel.rwkv.cpu_kernels import matmul_int8
from gpudeck.accel.serving import cpu_kernels
from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.families import Config
from gpudeck.accel.serving.linear import Heads, Linear, Norm
from gpudeck.accel.serving.memory import BLOCK


def multiply(
    linear: Linear,
    x: Tensor,
    norm: Norm | None = None,
    add: Tensor | None = None,
    precise: bool = False,
) -> Tensor:
    """Return x [T, K], normalized if asked, times the matrix, plus bias and `add`: [T, N], fp32."""
    if norm is not None:
        x = normalized(x, norm)
    out = x.new_empty(len(x), linear.shape[0])
    rows, result = _array(x), _array(out)
    match linear.format:
        case "dense" if linear.values.dtype == torch.bfloat16:
            cpu_kernels.matmul_bfloat(linear.array, rows, result)
        case "dense":
            cpu_kernels.matmul_float(linear.array, rows, result)
        case "int8":
            assert linear.scales is not None
            matmul_int8(linear.array, _array(linear.scales), rows, result)
        case "int4":
            assert linear.scales is not None and linear.zeros is not None
            scales, zeros = _array(linear.scales), _array(linear.zeros)
            cpu_kernels.matmul_int4(linear.array, scales, zeros, rows, result)
        case "fp8":
            raise ValueError(
                "FP8 weights are multiplied on a GPU; on a CPU they are loaded as fp32"
            )
    if linear.bias is not None:
        out += linear.bias
    return out if add is None else out.add_(add)


def normalized(x: Tensor, norm: Norm) -> Tensor:
    """Return the rows of x [..., C] normalized, in fp32."""
    out = torch.empty(x.shape, dtype=torch.float32)
    rows, made = _array(x.reshape(-1, x.shape[-1])), _array(out.view(-1, x.shape[-1]))
    cpu_kernels.norm(rows, _array(norm.weight), np.float32(norm.eps), made)
    return out


def gated(linear: Linear, x: Tensor, norm: Norm | None, activation: str) -> Tensor:
    """Return act(gate) * up for x [T, K], normalized if asked, of a gate and an up."""
    both, out = multiply(linear, x, norm), x.new_empty(len(x), linear.shape[0] // 2)
    cpu_kernels.gated(_array(both), activation == "gelu_tanh", _array(out))
    return out


def queries(linear: Linear, x: Tensor, norm: Norm | None, heads: Heads, place: Place) -> Tensor:
    """Return the queries, and store keys and values; see `Backend.queries`."""
    qkv = multiply(linear, x, norm).view(len(x), heads.every, -1)
    parts = [heads.queries, heads.keys, heads.keys]
    if heads.norms is not None:
        q, k, v = torch.split(qkv, parts, dim=1)
        if heads.value_norm is not None:
            v = normalized(v, heads.value_norm)
        qkv = torch.cat((normalized(q, heads.norms[0]), normalized(k, heads.norms[1]), v), dim=1)
    if place.turn is not None:
        cos, sin = place.turn
        cpu_kernels.turn(qkv.numpy(), sum(parts[:2]), cos.numpy(), sin.numpy())
    q, k, v = torch.split(qkv, parts, dim=1)
    if heads.keys:
        place.cache.write(place.layer, place.slots, k, v)
    return q


def attend(q: Tensor, layer: int, batch: Batch, cache: PagedCache, config: Config) -> Tensor:
    """Return what the queries [T, H, D] find in the paged keys and values of their sequences."""
    window = config.windows[layer]
    keys, values, tables = *cache.values[layer], batch.tables
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
