"""Prepare the sums of every row that the backward kernels need."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _rows(starts_q, seq_q, heads, tiles, BM: tl.constexpr, RAGGED: tl.constexpr):
    """Return the first row of the program in the tensors and in its sequence, the sequence's
    length, and the scratch tile.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    if RAGGED:
        start = tl.load(starts_q + sequence)
        seq_q = tl.load(starts_q + sequence + 1) - start
        return start + tile * BM, tile * BM, seq_q, head * tiles + start // BM + sequence + tile
    else:
        return tile * BM, tile * BM, seq_q, (sequence * heads + head) * tiles + tile


@triton.jit(do_not_specialize=["heads", "seq_q", "tiles", "slopes_batch"])
def prepare_rows(
    out, dout, lse, rows, dq, starts_q, slopes, dlse, claims,
    out_batch, out_head, out_row, dout_batch, dout_head, dout_row, lse_batch, lse_head,
    heads, seq_q, tiles, lse_scale, slopes_batch,
    BM: tl.constexpr, D: tl.constexpr, DIM: tl.constexpr, DQ: tl.constexpr, RAGGED: tl.constexpr,
    ALIBI: tl.constexpr, DLSE: tl.constexpr, CLAIMS: tl.constexpr,
):  # fmt: skip
    """Write -lse * lse_scale and dlse - sum(out * dout) of each row, and zeros for the first dq.

    With ALIBI, lse is increased by slope x (row within the tile), so that the rows of a tile need
    no slope of their own. dlse has the layout of lse.

    The grid is [tiles, heads, sequences]; rows is float32 [heads * tiles, 2, BM], dq float32
    [heads * tiles, BM * D]. Queries that see no key, and rows past the end, get -inf (times the
    sign of lse_scale), so that their weights are 0. With CLAIMS, the two counters of `claims.py`
    are set to 0.
    """
    if CLAIMS and tl.program_id(0) + tl.program_id(1) + tl.program_id(2) == 0:
        tl.store(claims + tl.arange(0, 2), 0)
    head = tl.program_id(1)
    at, row, seq_q, tile = _rows(starts_q, seq_q, heads, tiles, BM, RAGGED)
    if row < seq_q:
        r = tl.arange(0, BM)
        d = tl.arange(0, D)
        real = row + r < seq_q
        place = (at + r).to(tl.int64)
        seen = real[:, None] & (d < DIM)[None, :]
        out += head.to(tl.int64) * out_head
        dout += head.to(tl.int64) * dout_head
        lse += head.to(tl.int64) * lse_head
        if not RAGGED:
            batch = tl.program_id(2).to(tl.int64)
            out += batch * out_batch
            dout += batch * dout_batch
            lse += batch * lse_batch
            if ALIBI:
                slopes += batch * slopes_batch
            if DLSE:
                dlse += batch * lse_batch
        o = tl.load(out + place[:, None] * out_row + d[None, :], mask=seen, other=0.0).to(
            tl.float32
        )
        do = tl.load(dout + place[:, None] * dout_row + d[None, :], mask=seen, other=0.0).to(
            tl.float32
        )
        value = tl.load(lse + place, mask=real, other=-float("inf"))
        value = tl.where(value == -float("inf"), float("inf"), value)
        if ALIBI:
            value += tl.load(slopes + head) * r.to(tl.float32)
        delta = tl.sum(o * do, 1)
        if DLSE:
            delta -= tl.load(dlse + head.to(tl.int64) * lse_head + place, mask=real, other=0.0)
        rows += tile.to(tl.int64) * (2 * BM)
        tl.store(rows + r, -value * lse_scale)
        tl.store(rows + BM + r, -delta)
        if DQ:
            tl.store(
                dq + tile.to(tl.int64) * (BM * D) + tl.arange(0, BM * D),
                tl.zeros([BM * D], tl.float32),
            )
