"""Cut heads into pieces, so that one piece travels while another one is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from gpudeck.accel.distributed.cost import MOST_PIECES, PIECE_BYTES
from gpudeck.accel.distributed.exchange import Exchange, Landing, Round


def pieces_of(heads: int, bytes_of_all: int) -> list[slice]:
    """Return slices of heads, whose journey takes so many bytes for all.

    The first one is small, because nothing hides its journey; each one is at most about three times
    the one before it, whose computation must hide it.
    """
    count = max(1, min(MOST_PIECES, heads, bytes_of_all // PIECE_BYTES))
    if count == 1:
        return [slice(0, heads)]
    shares = [1, 3, *(4 for _ in range(count - 2))]
    ends = [max(i + 1, heads * n // sum(shares)) for i, n in enumerate(accumulate(shares))]
    ends = [min(end, heads) for end in ends]
    return [slice(a, b) for a, b in pairwise([0, *ends]) if a < b]


def rounds_ahead(
    exchange: Exchange, rounds: Sequence[Round], tensors: Sequence[Tensor]
) -> Iterator[Landing]:
    """Begin rounds ahead of their use, and yield their landings in their order.

    Each landing must be released before the next one is asked for.
    """
    ahead = exchange.ahead
    landings = [exchange.begin(round_, tensors) for round_ in rounds[:ahead]]
    for i in range(len(rounds)):
        if i and i + ahead <= len(rounds):
            landings.append(exchange.begin(rounds[i + ahead - 1], tensors))
        yield landings[i]
