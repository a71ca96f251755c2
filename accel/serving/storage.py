"""Where what the model remembers of a text is stored, for each kind of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from accel.serving.blocks import BlockPool, Node
from accel.serving.memory import BLOCK


class Pool(Protocol):
    """Give out blocks of memory to texts; `BlockPool` and `accel.serving.states.StatePool` do."""

    @property
    def total(self) -> int:
        """Return the number of all blocks."""
        ...

    @property
    def available(self) -> int:
        """Return how many blocks could be taken now."""
        ...

    @property
    def most_tokens(self) -> int:
        """Return the most tokens of a text."""
        ...

    @property
    def on_host(self) -> int:
        """Return how many blocks are in the host's memory."""
        ...

    @property
    def idle(self) -> int:
        """Return how many blocks no text uses, which are kept for prompts that begin alike."""
        ...

    @property
    def evictions(self) -> int:
        """Return how many of these were given to others since the start."""
        ...

    @property
    def swaps(self) -> int:
        """Return how many of the evicted ones went to the host's memory."""
        ...

    def save_some(self, most: int = 4, *, wait: bool = False) -> bool:
        """Save a few of the blocks that are to be kept, and return whether there were any."""
        ...


class Storage(Protocol):
    """Hold what the model remembers of one text."""

    def table(self) -> list[int]:
        """Return its blocks in order."""
        ...

    def begin(self, known: Sequence[int]) -> int:
        """Begin with what is stored of the first of these tokens, and return their number."""
        ...

    def next_count(self, computed: int, length: int, room: int) -> int:
        """Return how many of a text's tokens are computed next; 0 if too few fit.

        Args:
            computed: Tokens that are stored.
            length: Tokens of the text.
            room: The most tokens.
        """
        ...

    def missing(self, tokens: int) -> int:
        """Return how many more blocks it needs to store its first `tokens` tokens."""
        ...

    def take(self) -> bool:
        """Take one more block; return False if every block is in use."""
        ...

    def share(self, tokens: Sequence[int], computed: int) -> None:
        """Let other texts use what is stored of its first `computed` tokens."""
        ...

    def mark(self, tokens: Sequence[int], computed: int) -> None:
        """Keep what is stored of its first `computed` tokens for who goes on from there."""
        ...

    def keep(self) -> None:
        """Have what it shares saved beyond the engine's life, if there is a store."""
        ...

    def pause(self, computed: int) -> None:
        """Give its blocks, which store `computed` tokens, to whoever needs them; `begin` finds
        what is left of them.
        """
        ...

    def leave(self) -> None:
        """Give its blocks back; what it shared stays known until it is evicted."""
        ...


class PagedStorage:
    """Hold the keys and values of a text in blocks of BLOCK tokens."""

    def __init__(self, pool: BlockPool) -> None:
        """Begin without blocks."""
        self._pool = pool
        self._path: list[Node] = []
        """Blocks in the tree of prefixes, from the first on."""
        self._own: list[int] = []
        """Blocks after them that nobody shares."""

    def table(self) -> list[int]:
        """Return its blocks in order."""
        return [node.block for node in self._path if node.block is not None] + self._own

    def begin(self, known: Sequence[int]) -> int:
        """Begin with the blocks that the tree knows, and a copy of one that begins alike."""
        self._path = self._pool.match(known)
        stored = len(self._path) * BLOCK
        found = self._pool.partial(self._path, known[stored : stored + BLOCK])
        if found is not None:
            self._own.append(found[0])
            stored += found[1]
        return stored

    def next_count(self, computed: int, length: int, room: int) -> int:
        """Return as many tokens as fit."""
        return min(length - computed, room)

    def missing(self, tokens: int) -> int:
        """Return how many more blocks it needs."""
        return max(0, -(-tokens // BLOCK) - len(self._path) - len(self._own))

    def take(self) -> bool:
        """Take one more block; return False if every block is in use."""
        block = self._pool.take()
        if block is not None:
            self._own.append(block)
        return block is not None

    def share(self, tokens: Sequence[int], computed: int) -> None:
        """Move its full blocks into the tree."""
        while self._own and computed >= (len(self._path) + 1) * BLOCK:
            start = len(self._path) * BLOCK
            parent = self._path[-1] if self._path else None
            part = tokens[start : start + BLOCK]
            self._path.append(self._pool.insert(parent, part, self._own.pop(0)))

    def mark(self, tokens: Sequence[int], computed: int) -> None:
        """Do nothing: its blocks are in the tree."""

    def keep(self) -> None:
        """Have its blocks in the tree saved by and by."""
        self._pool.keep(self._path)

    def pause(self, computed: int) -> None:
        """Give its blocks back; those in the tree are found again."""
        del computed
        self.leave()

    def leave(self) -> None:
        """Give all its blocks back; what it shared stays in the tree until it is evicted."""
        self._pool.release(self._path)
        for block in self._own:
            self._pool.give(block)
        self._path, self._own = [], []
