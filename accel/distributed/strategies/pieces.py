"""Cut heads into pieces, so that one piece travels while another one is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudeck.accel.distributed.exchange import Exchange, Landing, Round

MOST_PIECES = 8


def pieces_of(heads: int, most: int = MOST_PIECES) -> list[slice]:
    """Return slices of heads: small ones first, because nothing hides the first one's journey.

    Each one has at most twice the heads of the one before it, and about 1 / 4 of all.
    """
    pieces: list[slice] = []
    size, begin = 1, 0
    limit = max(1, -(-heads // 4), -(-heads // most))
    while begin < heads:
        end = min(heads, begin + size)
        pieces.append(slice(begin, end))
        size = limit if len(pieces) >= most // 2 else min(limit, size * (1 + len(pieces) % 2))
        begin = end
    return pieces


def rounds_ahead(exchange: Exchange, rounds: Sequence[Round], ahead: int = 2) -> Iterator[Landing]:
    """Begin rounds so many ahead of their use, and yield their landings in their order.

    Each landing must be released before the next one is asked for.
    """
    landings = [exchange.begin(round_) for round_ in rounds[:ahead]]
    for i in range(len(rounds)):
        if i and i + ahead <= len(rounds):
            landings.append(exchange.begin(rounds[i + ahead - 1]))
        yield landings[i]
