"""Multiply by matrices in int8 on a CPU, with Numba: torch would widen all of a matrix each time.

Source: `gpudeck.accel.rwkv.storage.Matrix` says what scales are.
"""

from __future__ import annotations

import numpy as np

from gpudeck.accel.runtime.compiled import compile_entry

_ZERO = np.float32(0)


@compile_entry
def matmul_int8(weights, scales, x, out):
    """Compute out [T, N] = x [T, K] weights [N, K]^T with weights in int8 and a scale [N] a row."""
    for r in range(weights.shape[0]):
        row, scale = weights[r], scales[r]
        for t in range(x.shape[0]):
            values, total = x[t], _ZERO
            for i in range(row.size):
                total += np.float32(row[i]) * values[i]
            out[t, r] = total * scale


@compile_entry
def spread_int8(weights, scales, x, out):
    """Add x [T, K] weights [K, N] to out [T, N], with a scale [K] a row; skip zeros of x."""
    for t in range(x.shape[0]):
        total, factors, used = out[t], x[t] * scales, np.flatnonzero(x[t])
        whole = used.size // 4 * 4
        for j in range(0, whole, 4):  # each sum is read and written once for four rows
            a, b, c, d = used[j], used[j + 1], used[j + 2], used[j + 3]
            row_a, row_b, row_c, row_d = weights[a], weights[b], weights[c], weights[d]
            for i in range(total.size):
                ab = factors[a] * np.float32(row_a[i]) + factors[b] * np.float32(row_b[i])
                total[i] += (
                    ab + factors[c] * np.float32(row_c[i]) + factors[d] * np.float32(row_d[i])
                )
        for j in range(whole, used.size):
            row = weights[used[j]]
            for i in range(total.size):
                total[i] += factors[used[j]] * np.float32(row[i])
