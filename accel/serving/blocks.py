"""Keep track of which blocks of the cache are free, and share those of common prefixes.

A block of a request's own is written to; once it is full it moves into the tree of prefixes, where
any request with the same tokens before it can use it too. A block in the tree is never written to.
It is evicted, least recently used first, only while no request uses it: to the host's memory as
long as there is room, and then for good.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Protocol

from torch import Tensor

from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.memory import BLOCK


class BlockStore(Protocol):
    """Keep blocks beyond the engine's life; `gpudeck.assistant.inference.prompt_store` does."""

    @property
    def ready(self) -> bool:
        """Return whether a block can be saved without waiting."""

    def wants(self, digest: str) -> bool:
        """Return whether a block is to be saved."""

    def save(self, digest: str, parts: list[Tensor]) -> None:
        """Save a block."""

    def begin(self) -> None:
        """Begin to read a prompt."""

    def read(self, digest: str) -> list[Tensor] | None:
        """Return a block; None if it is not there."""


class Node:
    """Hold a full block of a prefix, below the block that comes before it."""

    __slots__ = ("_digest", "block", "children", "host", "parent", "tokens", "used", "users")

    def __init__(self, tokens: tuple[int, ...], parent: Node | None) -> None:
        self.tokens, self.parent = tokens, parent
        self.block: int | None = None
        """Where it is in the device's memory; None: it is not there."""
        self.host: list[Tensor] | None = None
        """Its contents in the host's memory, if it was evicted."""
        self.children: dict[tuple[int, ...], Node] = {}
        self.users = 0
        """Requests that use it now."""
        self.used = 0
        """When it was used last, by the tree's own clock."""
        self._digest = ""

    @property
    def digest(self) -> str:
        """Return the hash of all tokens up to its end."""
        if not self._digest:
            before = self.parent.digest if self.parent is not None else ""
            self._digest = sha256(f"{before} {self.tokens}".encode()).hexdigest()[:40]
        return self._digest

    @property
    def evictable(self) -> bool:
        """Return True if no request needs it in the device's memory, nor a block after it."""
        return (
            self.block is not None
            and self.users == 0
            and all(child.block is None for child in self.children.values())
        )


class BlockPool:
    """Give out blocks, and keep the tree of prefixes.

    A request uses a whole path from the root, so what nobody uses has nothing in use after it.
    """

    def __init__(
        self, memory: PagedCache, host_blocks: int = 0, store: BlockStore | None = None
    ) -> None:
        """Begin with all blocks free.

        Args:
            memory: Holds the blocks.
            host_blocks: Evicted blocks that may be kept in the host's memory.
            store: Keeps blocks of long prompts.
        """
        self._memory, self._host_blocks, self._store = memory, host_blocks, store
        self._unsaved: deque[Node] = deque()
        self._free = list(range(memory.blocks - 1, -1, -1))
        self._root = Node((), None)
        self._clock, self._order = itertools.count(1), itertools.count()
        self._heap: list[tuple[int, int, Node]] = []
        """Nodes that were evictable when they were pushed, by when they had been used."""
        self._host: dict[Node, None] = {}
        """Nodes in the host's memory, in the order they came: blocks before what they follow."""
        self.in_tree = self.idle = 0
        """Blocks of the tree in the device's memory; of these, the ones that no request uses."""
        self.evictions = self.swaps = 0
        """Blocks that were evicted, and of these the ones that went to the host's memory."""

    @property
    def total(self) -> int:
        """Return the number of all blocks."""
        return self._memory.blocks

    @property
    def free(self) -> int:
        """Return how many blocks hold nothing."""
        return len(self._free)

    @property
    def available(self) -> int:
        """Return how many blocks could be taken now."""
        return len(self._free) + self.idle

    @property
    def most_tokens(self) -> int:
        """Return the most tokens of a text."""
        return self.total * BLOCK

    @property
    def on_host(self) -> int:
        """Return how many blocks are in the host's memory."""
        return len(self._host)

    def take(self) -> int | None:
        """Return a block that holds nothing; None if every block is in use."""
        if not self._free and not self._evict():
            return None
        return self._free.pop()

    def give(self, block: int) -> None:
        """Take a block back that a request had for itself."""
        self._free.append(block)

    def match(self, tokens: Sequence[int]) -> list[Node]:
        """Return the nodes of the longest known prefix, which are used from now on.

        Blocks in the host's memory are brought back, as far as there is room.
        """
        node, path = self._root, []
        if self._store is not None:
            self._store.begin()
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = tuple(tokens[start : start + BLOCK])
            child = node.children.get(key) or self._stored(node, key)
            if child is None or (child.block is None and not self._bring_back(child)):
                break
            self._use(child)
            path.append(child)
            node = child
        return path

    def keep(self, path: Sequence[Node]) -> None:
        """Have blocks saved by and by, if there is a store."""
        if self._store is not None:
            self._unsaved.extend(path)

    def save_some(self, most: int = 4, *, wait: bool = False) -> bool:
        """Save a few of the blocks that are to be kept, and return whether there were any.

        With `wait`, the store may take its time.
        """
        had = bool(self._unsaved)
        while self._store is not None and self._unsaved and most and (wait or self._store.ready):
            node = self._unsaved.popleft()
            if node.block is not None and self._store.wants(node.digest):
                self._store.save(node.digest, self._memory.read(node.block))
                most -= 1
        return had

    def partial(self, path: Sequence[Node], rest: Sequence[int]) -> tuple[int, int] | None:
        """Copy the block after a path that shares most of its first tokens with `rest`.

        Returns:
            The copy, for the caller to write to, and how many of its tokens are those of `rest`;
            None if there is nothing to share, or no room.
        """
        node = path[-1] if path else self._root
        best, shared = None, 0
        for child in node.children.values():
            same = _same(child.tokens, rest)
            if same > shared and child.block is not None:
                best, shared = child, same
        if best is None:
            return None
        self._use(best)  # so that taking a block does not evict it
        copy = self.take()
        if copy is not None and best.block is not None:
            self._memory.copy(best.block, copy)
        self.release([best])
        return None if copy is None else (copy, shared)

    def insert(self, parent: Node | None, tokens: Sequence[int], block: int) -> Node:
        """Put a full block of a request's own into the tree; the request goes on using it.

        If the tree has these tokens already, that block is used instead and this one is free.
        """
        node, key = parent or self._root, tuple(tokens)
        child = node.children.get(key)
        if child is not None and child.block is not None:
            self._use(child)
            self.give(block)
            return child
        if child is None:
            child = node.children[key] = Node(key, node)
        child.host = None
        self._host.pop(child, None)
        child.block = block
        self.in_tree += 1
        child.users, child.used = 1, next(self._clock)
        return child

    def release(self, path: Sequence[Node]) -> None:
        """Stop using nodes, the last first."""
        for node in reversed(path):
            node.users -= 1
            assert node.users >= 0, "released more often than used"
            if node.users == 0:
                self.idle += 1
                self._offer(node)

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes of the tree."""
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _use(self, node: Node) -> None:
        if node.users == 0:
            self.idle -= 1
        node.users += 1
        node.used = next(self._clock)

    def _offer(self, node: Node) -> None:
        """Remember a node for eviction, if it is evictable now."""
        if not node.evictable:
            return
        if len(self._heap) > 2 * self.in_tree + 64:  # most entries are out of date
            self._heap = [(n.used, next(self._order), n) for n in self.nodes() if n.evictable]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (node.used, next(self._order), node))

    def _evict(self) -> bool:
        """Free the least recently used block of the tree; return False if all are in use."""
        while self._heap:
            used, _, node = heapq.heappop(self._heap)
            if not node.evictable or node.used != used:
                continue
            assert node.block is not None and node.parent is not None
            if self._host_blocks:
                node.host = self._memory.read(node.block)
                self.swaps += 1
            self.give(node.block)
            node.block = None
            self.in_tree -= 1
            self.idle -= 1
            self.evictions += 1
            if node.parent is not self._root:
                self._offer(node.parent)
            if node.host is None:
                self._forget(node)
                return True
            self._host[node] = None
            if len(self._host) > self._host_blocks:
                self._forget(next(iter(self._host)))
            return True
        return False

    def _stored(self, parent: Node, key: tuple[int, ...]) -> Node | None:
        """Return a node whose block was saved before, in the device's memory; None if none was."""
        if self._store is None:
            return None
        node = Node(key, parent)
        parts = self._store.read(node.digest)
        block = self.take() if parts is not None else None
        if parts is None or block is None:
            return None
        self._memory.restore(block, parts)
        node.block = block
        parent.children[key] = node
        self.in_tree += 1
        self.idle += 1
        return node

    def _bring_back(self, node: Node) -> bool:
        """Bring a block back from the host's memory; return False if there is no room."""
        assert node.host is not None
        parts = node.host
        block = self.take()
        if block is None:
            return False
        if node not in self._host:  # it had to make room for what was evicted just now
            self.give(block)
            return False
        self._memory.restore(block, parts)
        node.host, node.block = None, block
        del self._host[node]
        self.in_tree += 1
        self.idle += 1
        return True

    def _forget(self, node: Node) -> None:
        """Remove a node that is not in the device's memory, with all that comes after it."""
        assert node.parent is not None
        del node.parent.children[node.tokens]
        stack = [node]
        while stack:
            gone = stack.pop()
            assert gone.block is None
            gone.host = None
            self._host.pop(gone, None)
            stack.extend(gone.children.values())


def _same(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
