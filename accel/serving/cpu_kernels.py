"""Compute the parts of a transformer on a CPU, each row by itself, with Numba.

A row's bits depend on nothing but the row: how many rows are computed at once, and what the others
are, changes nothing. That is why an answer is the same bit for bit whatever else is in the batch,
however its prompt was cut into chunks, and wherever its keys came from.
"""

from __future__ import annotations

import numpy as np

from gpudeck.accel.runtime.compiled import compile_entry

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_GELU, _CUBE, _HALF = np.float32(0.7978845608028654), np.float32(0.044715), np.float32(0.5)
_16 = np.uint32(16)


@compile_entry
def matmul_float(weights, x, out):
    """Compute out [T, N] = x [T, K] weights [N, K]^T in fp32."""
    for r in range(weights.shape[0]):
        row = weights[r]
        for t in range(x.shape[0]):
            values, total = x[t], _ZERO
            for i in range(row.size):
                total += row[i] * values[i]
            out[t, r] = total


@compile_entry
def matmul_bfloat(weights, x, out):
    """Compute the same with weights in bf16, given as uint16."""
    for r in range(weights.shape[0]):
        row = weights[r]
        for t in range(x.shape[0]):
            values, total = x[t], _ZERO
            for i in range(row.size):
                total += np.uint32(np.uint32(row[i]) << _16).view(np.float32) * values[i]
            out[t, r] = total


@compile_entry
def matmul_int4(weights, scales, zeros, x, out):
    """Compute the same with weights in int4.

    Two weights are in a byte [N, K / 2], the first in its low half; scales and zeros are
    [N, K / group].
    """
    group = x.shape[1] // scales.shape[1]
    for r in range(weights.shape[0]):
        row = weights[r]
        for t in range(x.shape[0]):
            total = _ZERO
            for g in range(scales.shape[1]):
                values, zero, part = (
                    x[t, g * group : (g + 1) * group],
                    np.float32(zeros[r, g]),
                    _ZERO,
                )
                packed = row[g * group // 2 : (g + 1) * group // 2]
                for i in range(packed.size):
                    part += (np.float32(packed[i] & 15) - zero) * values[2 * i]
                    part += (np.float32(packed[i] >> 4) - zero) * values[2 * i + 1]
                total += part * scales[r, g]
            out[t, r] = total


@compile_entry
def norm(x, weight, eps, out):
    """Divide each row of x [T, C] by its root mean square, times weight [C]."""
    n = x.shape[1]
    for t in range(x.shape[0]):
        row, total = x[t], _ZERO
        for i in range(n):
            total += row[i] * row[i]
        scale = _ONE / np.sqrt(total / np.float32(n) + eps)
        for i in range(n):
            out[t, i] = row[i] * scale * weight[i]


@compile_entry
def turn(x, count, cos, sin):
    """Rotate the first `count` heads of x [T, H, D] in place, by cosine and sine [T, dims / 2]."""
    half = cos.shape[1]
    for t in range(x.shape[0]):
        for h in range(count):
            vector = x[t, h]
            for i in range(half):
                first, second = vector[i], vector[half + i]
                vector[i] = first * cos[t, i] - second * sin[t, i]
                vector[half + i] = second * cos[t, i] + first * sin[t, i]


@compile_entry
def gated(x, gelu, out):
    """Compute act(gate) * up of x [T, 2 I], whose rows are a gate and an up."""
    n = out.shape[1]
    for t in range(x.shape[0]):
        for i in range(n):
            gate, up = x[t, i], x[t, n + i]
            if gelu:
                inner = _GELU * (gate + _CUBE * gate * gate * gate)
                out[t, i] = _HALF * gate * (_ONE + np.tanh(inner)) * up
            else:
                out[t, i] = gate / (_ONE + np.exp(-gate)) * up


@compile_entry
def attention(q, keys, values, tables, rows, positions, block, window, scale, softcap, scores, out):
    """Attend to the paged keys and values of each row's own sequence.

    Shapes: q and out [T, H, D]; keys and values [slots, Hkv, D]; tables [B, blocks] with the block
    of each part of a sequence; rows [T] with the sequence of each row, positions [T] with its
    position; scores [longest] is scratch. A window of 0 is none, and so is a softcap of 0.
    """
    group = q.shape[1] // keys.shape[1]
    for t in range(q.shape[0]):
        table, length = tables[rows[t]], positions[t] + 1
        first = max(0, length - window) if window > 0 else 0
        for h in range(q.shape[1]):
            of, query, highest = h // group, q[t, h], np.float32(-np.inf)
            for j in range(first, length):
                key = keys[table[j // block] * block + j % block, of]
                score = _ZERO
                for i in range(key.size):
                    score += query[i] * key[i]
                score *= scale
                if softcap > 0:
                    score = softcap * np.tanh(score / softcap)
                scores[j] = score
                highest = max(highest, score)
            total, result = _ZERO, out[t, h]
            for i in range(result.size):
                result[i] = _ZERO
            for j in range(first, length):
                share = np.exp(scores[j] - highest)
                total += share
                value = values[table[j // block] * block + j % block, of]
                for i in range(result.size):
                    result[i] += share * value[i]
            for i in range(result.size):
                result[i] /= total
