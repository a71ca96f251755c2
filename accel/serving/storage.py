"""Hold what a transformer remembers of one text: blocks of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.accel.serving.blocks import BlockPool, Node
from gpudeck.accel.serving.memory import BLOCK


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
        """Begin with the blocks that the tree knows, and a copy of one that begins alike.

        Returns:
            How many of these tokens they store.
        """
        self._path = self._pool.match(known)
        stored = len(self._path) * BLOCK
        found = self._pool.partial(self._path, known[stored : stored + BLOCK])
        if found is not None:
            self._own.append(found[0])
            stored += found[1]
        return stored

    def next_count(self, computed: int, length: int, room: int) -> int:
        """Return how many of a text's tokens are computed next; 0 if too few fit.

        Args:
            computed: Tokens that are stored.
            length: Tokens of the text.
            room: The most tokens.
        """
        return min(length - computed, room)

    def missing(self, tokens: int) -> int:
        """Return how many more blocks it needs to store its first `tokens` tokens."""
        return max(0, -(-tokens // BLOCK) - len(self._path) - len(self._own))

    def take(self) -> bool:
        """Take one more block; return False if every block is in use."""
        block = self._pool.take()
        if block is not None:
            self._own.append(block)
        return block is not None

    def share(self, tokens: Sequence[int], computed: int) -> None:
        """Let other texts use what is stored: move its full blocks into the tree."""
        while self._own and computed >= (len(self._path) + 1) * BLOCK:
            start = len(self._path) * BLOCK
            parent = self._path[-1] if self._path else None
            part = tokens[start : start + BLOCK]
            self._path.append(self._pool.insert(parent, part, self._own.pop(0)))

    def mark(self, tokens: Sequence[int], computed: int) -> None:
        """Do nothing: its blocks are in the tree."""

    def keep(self) -> None:
        """Have its blocks in the tree saved beyond the engine's life, if there is a store."""
        self._pool.keep(self._path)

    def pause(self, computed: int) -> None:
        """Give its blocks to whoever needs them; `begin` finds again what is left in the tree."""
        del computed
        self.leave()

    def leave(self) -> None:
        """Give all its blocks back; what it shared stays in the tree until it is evicted."""
        self._pool.release(self._path)
        for block in self._own:
            self._pool.give(block)
        self._path, self._own = [], []
