"""The operations of the transformer, computed by the kernels of the device they are on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accel.serving import cpu_kernels
from accel.serving.linear import Linear


def multiply(linear: Linear, x: Tensor) -> Tensor:
    """Return x [T, K] times the matrix, plus its bias: [T, N] in the dtype of x."""
    out = x.new_empty(len(x), linear.shape[0])
    rows, result = _array(x), _array(out)
    match linear.format:
        case "dense" if linear.values.dtype == torch.bfloat16:
            cpu_kernels.matmul_bfloat(_array(linear.values), rows, result)
        case "dense":
            cpu_kernels.matmul_float(_array(linear.values), rows, result)
        case "int8":
            assert linear.scales is not None
            cpu_kernels.matmul_int8(_array(linear.values), _array(linear.scales), rows, result)
        case "int4":
            assert linear.scales is not None and linear.zeros is not None
            scales, zeros = _array(linear.scales), _array(linear.zeros)
            cpu_kernels.matmul_int4(_array(linear.values), scales, zeros, rows, result)
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


def gated(x: Tensor, activation: str) -> Tensor:
    """Return act(gate) * up for rows [T, 2 I] of a gate and an up."""
    out = x.new_empty(len(x), x.shape[1] // 2)
    cpu_kernels.gated(_array(x), activation == "gelu_tanh", _array(out))
    return out


def _array(tensor: Tensor) -> npt.NDArray[np.generic]:
    """Return a tensor's memory as an array; bf16 as uint16."""
    if tensor.dtype == torch.bfloat16:
        bits: npt.NDArray[np.generic] = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(np.uint16)
    array: npt.NDArray[np.generic] = tensor.contiguous().numpy()
    return array
