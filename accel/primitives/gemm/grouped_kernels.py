"""Find which rows of which expert each row of tiles of a product of experts computes, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rows_of_tiles(
    starts_ptr, table_ptr, experts, lines, TILE: tl.constexpr, EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write BLOCK lines of the table of `grouped.row_tiles`; EXPERTS is a power of two."""
    expert = tl.arange(0, EXPERTS)
    there = expert < experts
    begin = tl.load(starts_ptr + expert, mask=there, other=0).to(tl.int32)
    end = tl.load(starts_ptr + expert + 1, mask=there, other=0).to(tl.int32)
    tiles = (end - begin + TILE - 1) // TILE
    after = tl.cumsum(tiles, 0)
    line = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # the expert of a line is the number of experts whose lines all come before it
    of = tl.sum(((after[None, :] <= line[:, None]) & there[None, :]).to(tl.int32), 1)
    mine = expert[None, :] == of[:, None]
    number = line[:, None] - (after - tiles)[None, :]
    first = tl.sum(tl.where(mine, begin[None, :] + number * TILE, 0), 1)
    at, inside = table_ptr + line * 3, line < lines
    used = tl.sum(tiles, 0)
    tl.store(at, tl.where(line < used, of, 0), mask=inside)
    tl.store(at + 1, tl.where(line < used, first, 0), mask=inside)
    tl.store(at + 2, tl.sum(tl.where(mine, end[None, :], 0), 1), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(table_ptr + lines * 3, used)
