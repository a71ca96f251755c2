"""Compile the recurrence, and the whole step of one token, for this CPU with Numba.

A step is one call a token, without allocation and without Python inside: at 10 to 20 million
parameters, Python and torch overhead costs as much as the arithmetic. Each weight is read once a
token, so memory bandwidth sets the speed; int8 needs a quarter of the bytes.

`gpudeck.accel.rwkv.layers` computes the same in torch and is the reference of the
tests.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gpudeck.accel.runtime.compiled import OPTIONS, compile_entry
from gpudeck.accel.rwkv.layers import DECAY, GROUP_EPS
from gpudeck.accel.rwkv.weights import HEAD

_part = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)
"""Compile a function that only compiled code calls, without wrappers for Python."""


_LAYER_EPS = np.float32(1e-5)
_GROUP_EPS = np.float32(GROUP_EPS)
_DECAY = np.float32(DECAY)
_TINY = np.float32(1e-12)
_ZERO, _ONE = np.float32(0), np.float32(1)

FIELDS = (
    "norm_att", "norm_att_bias", "norm_wkv", "norm_wkv_bias", "norm_ffn", "norm_ffn_bias", "mixes",
    "mix_ffn", "k_k", "k_a", "r_k",
    "decay", "rate", "gate", "residual",
    "decay_down", "rate_down", "gate_down", "residual_down",
    "decay_up", "rate_up", "gate_up", "residual_up",
    "decay_rank", "rate_rank", "gate_rank", "residual_rank", "hidden",
    "receptance", "key", "value", "output", "ffn_key", "ffn_value",
    "receptance_scale", "key_scale", "value_scale", "output_scale", "ffn_key_scale",
    "ffn_value_scale",
)  # fmt: skip
"""Columns of the table of layers: offsets in the arenas, and sizes. A missing bias is at -1."""
(
    _NORM_ATT, _NORM_ATT_BIAS, _NORM_WKV, _NORM_WKV_BIAS, _NORM_FFN, _NORM_FFN_BIAS, _MIXES,
    _MIX_FFN, _K_K, _K_A, _R_K,
    _BIAS, _DOWN, _UP, _RANK,
) = (*range(12), 15, 19, 23)  # fmt: skip
_HIDDEN, _PROJECTION, _OUTPUT, _FFN_KEY, _FFN_VALUE = 27, 28, 31, 32, 33
_SCALE = 6
"""The distance from a matrix's column to its scale's column."""
ROOM = 13
"""Vectors of scratch memory."""


@_part
def _layer_norm(x, weight, bias, out):
    n = x.size
    mean = _ZERO
    for i in range(n):
        mean += x[i]
    mean /= np.float32(n)
    variance = _ZERO
    for i in range(n):
        variance += (x[i] - mean) * (x[i] - mean)
    scale = _ONE / np.sqrt(variance / np.float32(n) + _LAYER_EPS)
    for i in range(n):
        out[i] = (x[i] - mean) * scale * weight[i] + bias[i]


@_part
def _shift(x, last, mix, out):
    for i in range(x.size):
        out[i] = x[i] + (last[i] - x[i]) * mix[i]


@_part
def _rows(matrix, at, scales, scale_at, x, out):
    """Compute out = matrix x, for a matrix [out, x] at offset `at`, with its row scales if it has
    any.
    """
    n = x.size
    for row in range(out.size):
        weights = matrix[at + row * n : at + (row + 1) * n]
        total = _ZERO
        for i in range(n):
            total += np.float32(weights[i]) * x[i]
        out[row] = total * scales[scale_at + row] if scales.size else total


@_part
def _columns(matrix, at, x, used, out):
    """Add matrix^T x to out, for a matrix [x, out] at offset `at`; rows where x is 0 are not read.

    `used` has room for as many numbers as x.
    """
    n, count = out.size, 0
    for i in range(x.size):
        if x[i] != _ZERO:
            used[count] = i
            count += 1
    whole = count // 4 * 4
    for j in range(0, whole, 4):
        a, b, c, d = used[j], used[j + 1], used[j + 2], used[j + 3]
        row_a, row_b = matrix[at + a * n : at + (a + 1) * n], matrix[at + b * n : at + (b + 1) * n]
        row_c, row_d = matrix[at + c * n : at + (c + 1) * n], matrix[at + d * n : at + (d + 1) * n]
        for i in range(n):
            ab = x[a] * np.float32(row_a[i]) + x[b] * np.float32(row_b[i])
            out[i] += ab + x[c] * np.float32(row_c[i]) + x[d] * np.float32(row_d[i])
    for j in range(whole, count):
        row = matrix[at + used[j] * n : at + (used[j] + 1) * n]
        for i in range(n):
            out[i] += x[used[j]] * np.float32(row[i])


@_part
def _sigmoid(x):
    return _ONE / (_ONE + np.exp(-x))


@_part
def _head_step(r, w, k, v, a, b, state, y):
    """Advance one head by one token: vectors [64], the state [64, 64] in place.

    All arrays are separate arguments, which lets the compiler vectorise the loops.
    """
    for i in range(HEAD):
        row = state[i]
        erased = _ZERO
        for j in range(HEAD):
            erased += row[j] * a[j]
        value, read = v[i], _ZERO
        for j in range(HEAD):
            new = row[j] * w[j] + erased * b[j] + value * k[j]
            row[j] = new
            read += new * r[j]
        y[i] = read


@compile_entry
def recurrence(r, w, k, v, a, b, state, y):
    """Compute `gpudeck.accel.rwkv.wkv.sequential`: vectors and y [B, T, H, 64], states [B, H, 64,
    64] in place.
    """
    batch, length, heads = r.shape[0], r.shape[1], r.shape[2]
    for n in range(batch):
        for h in range(heads):
            for t in range(length):
                _head_step(
                    r[n, t, h],
                    w[n, t, h],
                    k[n, t, h],
                    v[n, t, h],
                    a[n, t, h],
                    b[n, t, h],
                    state[n, h],
                    y[n, t, h],
                )


@_part
def _low_rank(t, which, vectors, x, inner, used, out):
    """Compute out = bias + up^T f(down x) of decay (0, tanh), rate (1), gate (2, sigmoid) or
    residual (3).
    """
    n, bias = x.size, t[_BIAS + which]
    for i in range(n):
        out[i] = vectors[bias + i] if bias >= 0 else _ZERO
    hidden = inner[: t[_RANK + which]]
    _rows(vectors, t[_DOWN + which], vectors[:0], 0, x, hidden)
    if which == 0 or which == 2:
        for i in range(hidden.size):
            hidden[i] = np.tanh(hidden[i]) if which == 0 else _sigmoid(hidden[i])
    _columns(vectors, t[_UP + which], hidden, used, out)


@_part
def _time_mix(t, first, vectors, matrices, scales, x, last, state, room, used, out):
    """Mix over time: normed x [C] and last [C] -> out [C]; the state [H, 64, 64] changes in place.

    room[0] keeps the first layer's values.
    """
    n = x.size
    v_first, mixed, r, k, v = room[0, :n], room[1, :n], room[2, :n], room[3, :n], room[4, :n]
    w, rate, gate, residual = room[5, :n], room[6, :n], room[7, :n], room[8, :n]
    kk, gained, y, inner = room[9, :n], room[10, :n], room[11, :n], room[12]
    # the projections r, k, v, then the low-rank maps of decay, rate, gate and residual
    for j in range(7):
        mix = t[_MIXES] + (j if j < 6 else 2) * n
        _shift(x, last, vectors[mix : mix + n], mixed)
        if j < 3:
            at = t[_PROJECTION + j]
            _rows(matrices, at, scales, t[_PROJECTION + j + _SCALE], mixed, room[2 + j, :n])
        elif j < 6 or not first:
            _low_rank(t, j - 3, vectors, mixed, inner, used, room[2 + j, :n])
    for i in range(n):
        if first:
            v_first[i] = v[i]
        else:
            v[i] += (v_first[i] - v[i]) * _sigmoid(residual[i])
        w[i] = np.exp(-_DECAY * _sigmoid(w[i]))
        rate[i] = _sigmoid(rate[i])
        kk[i] = k[i] * vectors[t[_K_K] + i]
        k[i] *= _ONE + (rate[i] - _ONE) * vectors[t[_K_A] + i]
    for h in range(n // HEAD):
        at, end = h * HEAD, (h + 1) * HEAD
        length = _ZERO
        for i in range(at, end):
            length += kk[i] * kk[i]
        scale = _ONE / max(np.sqrt(length), _TINY)
        for i in range(at, end):
            kk[i] *= -scale
            gained[i] = -kk[i] * rate[i]
        _head_step(
            r[at:end],
            w[at:end],
            k[at:end],
            v[at:end],
            kk[at:end],
            gained[at:end],
            state[h],
            y[at:end],
        )
        _finish_head(t, vectors, at, r, k, v, gate, y)
    _rows(matrices, t[_OUTPUT], scales, t[_OUTPUT + _SCALE], y, out)


@_part
def _finish_head(t, vectors, at, r, k, v, gate, y):
    """Apply group norm, the current token's bonus and the gate to y from `at` on, in place."""
    mean, variance, bonus = _ZERO, _ZERO, _ZERO
    for i in range(at, at + HEAD):
        mean += y[i]
        bonus += r[i] * k[i] * vectors[t[_R_K] + i]
    mean /= np.float32(HEAD)
    for i in range(at, at + HEAD):
        variance += (y[i] - mean) * (y[i] - mean)
    scale = _ONE / np.sqrt(variance / np.float32(HEAD) + _GROUP_EPS)
    for i in range(at, at + HEAD):
        normed = (y[i] - mean) * scale * vectors[t[_NORM_WKV] + i] + vectors[t[_NORM_WKV_BIAS] + i]
        y[i] = (normed + bonus * v[i]) * gate[i]


@_part
def _channel_mix(t, vectors, matrices, scales, x, last, room, used, out):
    """Mix over channels: normed x [C] and last [C] -> out [C], which may be room[1]."""
    n, hidden_size = x.size, t[_HIDDEN]
    mixed, hidden = room[1, :n], room[2, :hidden_size]
    _shift(x, last, vectors[t[_MIX_FFN] : t[_MIX_FFN] + n], mixed)
    _rows(matrices, t[_FFN_KEY], scales, t[_FFN_KEY + _SCALE], mixed, hidden)
    for i in range(hidden_size):
        active = max(hidden[i], _ZERO)
        hidden[i] = (
            active * active * scales[t[_FFN_VALUE + _SCALE] + i] if scales.size else active * active
        )
    for i in range(n):
        out[i] = _ZERO
    _columns(matrices, t[_FFN_VALUE], hidden, used, out)


@compile_entry
def step(
    table,
    vectors,
    matrices,
    scales,
    x,
    shift,
    new_shift,
    wkv,
    room,
    used,
    head,
    head_scale,
    norm,
    norm_bias,
    logits,
):
    """Compute the whole model for one token.

    Shapes:
        x: [C], its embedding; overwritten.
        shift, new_shift: [layers, 2, C].
        wkv: [layers, H, 64, 64], in place.
        logits: [V].
        room: [ROOM, widest], used: [widest]: scratch memory.

    head, head_scale, norm and norm_bias are offsets in the arenas.
    """
    n = x.size
    out = room[1, :n]
    for i in range(table.shape[0]):
        t = table[i]
        normed = new_shift[i, 0]
        _layer_norm(
            x,
            vectors[t[_NORM_ATT] : t[_NORM_ATT] + n],
            vectors[t[_NORM_ATT_BIAS] : t[_NORM_ATT_BIAS] + n],
            normed,
        )
        _time_mix(
            t, i == 0, vectors, matrices, scales, normed, shift[i, 0], wkv[i], room, used, out
        )
        for j in range(n):
            x[j] += out[j]
        normed = new_shift[i, 1]
        _layer_norm(
            x,
            vectors[t[_NORM_FFN] : t[_NORM_FFN] + n],
            vectors[t[_NORM_FFN_BIAS] : t[_NORM_FFN_BIAS] + n],
            normed,
        )
        _channel_mix(t, vectors, matrices, scales, normed, shift[i, 1], room, used, out)
        for j in range(n):
            x[j] += out[j]
    _layer_norm(x, vectors[norm : norm + n], vectors[norm_bias : norm_bias + n], out)
    _rows(matrices, head, scales, head_scale, out, logits)
