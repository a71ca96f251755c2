"""Load and store what the kernels pass on to each other, in Triton.

Tokens of all sequences lie end to end. A row of `chunks` [chunks, 3] int32 holds a chunk's first
token, its number of tokens and the place of the state before it; the state after it follows. A row
of `sequences` [N, 2] holds a sequence's first chunk and its number of chunks.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rows_at(ptr, first, rows, head, heads, dims, SIZE: tl.constexpr):
    """Return the addresses of rows of a head of [tokens, heads, SIZE]."""
    begin = (first.to(tl.int64) * heads + head) * SIZE
    return ptr + begin + rows[:, None] * (heads * SIZE) + dims[None, :]


@triton.jit
def store(ptr, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Load rows of a head of [tokens, heads, SIZE] as they are; what does not exist is 0.

    What goes into a product unchanged is copied to shared memory ahead of its use.
    """
    mask = (rows < length)[:, None] & (dims < SIZE)[None, :]
    return tl.load(rows_at(ptr, first, rows, head, heads, dims, SIZE), mask=mask, other=0.0)


@triton.jit
def vectors(ptr, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Load rows of a head of [tokens, heads, SIZE] as float32; what does not exist is 0."""
    return store(ptr, first, rows, length, head, heads, dims, SIZE).to(tl.float32)


@triton.jit
def store_vectors(ptr, x, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Store rows of a head of [tokens, heads, SIZE]."""
    mask = (rows < length)[:, None] & (dims < SIZE)[None, :]
    at = rows_at(ptr, first, rows, head, heads, dims, SIZE)
    tl.store(at, x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def decays(
    ptr, first, rows, length, head, heads, dims,
    SIZE: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
):  # fmt: skip
    """Load log decays, [rows, dims], or [rows, 1] if a head has one decay for all channels."""
    if CHANNEL:
        found = vectors(ptr, first, rows, length, head, heads, dims, SIZE)
    else:
        at = (first + rows).to(tl.int64) * heads + head
        found = tl.load(ptr + at, mask=rows < length, other=0.0).to(tl.float32)[:, None]
    return tl.maximum(found, STRONGEST)


@triton.jit
def betas(ptr, first, rows, length, head, heads):
    """Load how much a delta rule corrects at each token, [rows]."""
    at = (first + rows).to(tl.int64) * heads + head
    return tl.load(ptr + at, mask=rows < length, other=0.0).to(tl.float32)


@triton.jit
def square(ptr, chunk, head, heads, rows, columns, CHUNK: tl.constexpr):
    """Return the addresses of a block of a chunk's matrix in [chunks, heads, CHUNK, CHUNK]."""
    begin = (chunk.to(tl.int64) * heads + head) * (CHUNK * CHUNK)
    return ptr + begin + rows[:, None] * CHUNK + columns[None, :]


@triton.jit
def store_square(ptr, x, chunk, head, heads, rows, CHUNK: tl.constexpr):
    """Store rows of a chunk's matrix."""
    at = square(ptr, chunk, head, heads, rows, tl.arange(0, CHUNK), CHUNK)
    tl.store(at, x.to(ptr.dtype.element_ty))


@triton.jit
def state_at(ptr, place, head, heads, dims, values, SIZE: tl.constexpr, VALUES: tl.constexpr):
    """Return the addresses of a block of a state in [places, heads, SIZE, VALUES]."""
    begin = (place.to(tl.int64) * heads + head) * (SIZE * VALUES)
    return ptr + begin + dims[:, None] * VALUES + values[None, :]


@triton.jit
def load_state(ptr, place, head, heads, dims, values, SIZE: tl.constexpr, VALUES: tl.constexpr):
    """Load a block of a state as it is stored; what does not exist is 0."""
    mask = (dims < SIZE)[:, None] & (values < VALUES)[None, :]
    at = state_at(ptr, place, head, heads, dims, values, SIZE, VALUES)
    return tl.load(at, mask=mask, other=0.0)


@triton.jit
def store_state(ptr, x, place, head, heads, dims, values, SIZE: tl.constexpr, VALUES: tl.constexpr):
    """Store a block of a state."""
    mask = (dims < SIZE)[:, None] & (values < VALUES)[None, :]
    at = state_at(ptr, place, head, heads, dims, values, SIZE, VALUES)
    tl.store(at, x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def tokens_of(chunks_ptr, sequences_ptr, sequence):
    """Return a sequence's first chunk, first token and end, the place of its first state, and how
    many chunks it has.

    Chunks of a sequence follow each other, so that a loop over them needs no table: what the
    compiler loads ahead must not wait for another load. The first chunk of none is 0, as one at the
    end would lie behind all tables.
    """
    count = tl.load(sequences_ptr + sequence * 2 + 1)
    some = count > 0
    chunk = tl.where(some, tl.load(sequences_ptr + sequence * 2), 0)
    last = chunks_ptr + (chunk + count - 1) * 3
    end = tl.load(last, mask=some, other=0) + tl.load(last + 1, mask=some, other=0)
    begin = tl.load(chunks_ptr + chunk * 3, mask=some, other=0)
    place = tl.load(chunks_ptr + chunk * 3 + 2, mask=some, other=0)
    return chunk, begin, end, place, count


@triton.jit
def shrinking(
    ptr, chunk, head, heads, dims, KEYS: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr
):
    """Load the factor e^{G_C} of a state: one of each channel, or one of all."""
    if CHANNEL:
        row = ptr + (chunk.to(tl.int64) * heads + head) * KEYS
        shrink = tl.load(row + dims, mask=dims < KEYS, other=0.0)
    else:
        shrink = tl.load(ptr + (chunk.to(tl.int64) * heads + head) * (2 * CHUNK) + CHUNK - 1)
    return shrink


FORGOTTEN = tl.constexpr(-17.0)
"""The log decay from which on nothing is left of what float32 holds."""


@triton.jit
def recall(
    ptr, chunk, count, head, heads, dims, STEP: tl.constexpr, KEYS: tl.constexpr,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr,
):  # fmt: skip
    """Return how many of the chunks from one on, in steps of 1 or -1, the other side of it knows.

    What a delta rule replaces is no more than what was there, if its keys have length 1.
    """
    left = tl.zeros([WIDTH if CHANNEL else 1], tl.float32)
    n = 0
    while (n < count) & (tl.max(left, 0) > FORGOTTEN):
        left += tl.log(shrinking(ptr, chunk + n * STEP, head, heads, dims, KEYS, CHUNK, CHANNEL))
        n += 1
    return n


@triton.jit
def token_factors(
    ptr, chunk, head, heads, tokens, WRITTEN: tl.constexpr, CHUNK: tl.constexpr,
    CHANNEL: tl.constexpr,
):  # fmt: skip
    """Load the factors e^G of what tokens read, or beta e^{G_C - G} of what they write.

    With a decay for each channel they are 1, as they are in the vectors already.
    """
    found = tl.full([CHUNK], 1.0, tl.float32)
    if not CHANNEL:
        row = ptr + (chunk.to(tl.int64) * heads + head) * (2 * CHUNK)
        found = tl.load(row + (CHUNK if WRITTEN else 0) + tokens)
    return found
