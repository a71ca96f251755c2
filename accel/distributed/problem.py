"""Describe an attention problem that is divided among ranks as one value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from gpudeck.accel.distributed.sharding import Span, Spans, size_of
from gpudeck.accel.distributed.tiles import Sight, Tile, tiles_of


@dataclass(frozen=True)
class Rules:
    """Say how scores are computed, and by which backend of `accel.attention`."""

    scale: float
    softcap: float = 0.0
    deterministic: bool = False
    backend: str = "auto"
    precision: str = ""
    """`fp8`, or empty for that of the tensors."""


@dataclass(frozen=True)
class Problem:
    """Describe attention over the sequence whose positions `spans` divides among the members.

    Members are numbers of ranks in the group of the operation. A strategy that works in two stages
    poses a smaller problem to a part of them.
    """

    spans: tuple[Spans, ...]
    """The positions that each member holds."""
    members: tuple[int, ...]
    """The ranks in the group."""
    me: int
    """The index of this rank in `members`."""
    sight: Sight
    rules: Rules

    @property
    def size(self) -> int:
        """Return the number of members."""
        return len(self.members)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of tokens of each member."""
        return tuple(size_of(spans) for spans in self.spans)

    @cached_property
    def tokens(self) -> int:
        """Return the number of tokens of all members."""
        return sum(self.sizes)

    @cached_property
    def end(self) -> int:
        """Return the position after the last one of all members."""
        return max((span.stop for spans in self.spans for span in spans if span.size), default=0)

    @property
    def mine(self) -> Spans:
        """Return the positions of this rank."""
        return self.spans[self.me]

    @property
    def others(self) -> list[int]:
        """Return the indices of the other members, the next one first."""
        return [(self.me + i) % self.size for i in range(1, self.size)]

    @property
    def consecutive(self) -> bool:
        """Return True if the tokens of every span are neighbours."""
        return all(span.step == 1 or span.size <= 1 for spans in self.spans for span in spans)

    def between(self, queries: int, keys: int) -> list[Tile]:
        """Return the tiles of one member's queries and another's keys, as they lie in the
        shards."""
        return _tiles(self.spans[queries], self.spans[keys], self.sight, False)

    def over_all(self, spans: Spans) -> list[Tile]:
        """Return the tiles of queries over all keys in the order of their positions."""
        return _tiles(spans, (Span(0, self.end),), self.sight, True)


@lru_cache(maxsize=1024)
def _tiles(queries: Spans, keys: Spans, sight: Sight, whole_keys: bool) -> list[Tile]:
    return tiles_of(queries, keys, sight, whole_keys=whole_keys)


def rows_of(spans: Spans) -> list[tuple[Span, slice]]:
    """Return each span that is not empty with its rows in the shard."""
    rows, begin = [], 0
    for span in spans:
        if span.size:
            rows.append((span, slice(begin, begin + span.size)))
        begin += span.size
    return rows


def heads_of(x: slice, group: int) -> slice:
    """Return the query heads of key heads that `group` query heads share each."""
    return slice(x.start * group, x.stop * group)
