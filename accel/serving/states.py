"""Keep the states of a recurrent model, one for each text, and share those of common prompts.

A state is what the model remembers of all tokens so far. It has one size however many they are, and
it cannot be cut at an earlier token. So a prompt is computed in spans that begin at multiples of
SPAN tokens, and the state after each is kept, until its place is needed, for prompts that begin
with the same tokens. All texts are divided alike, so an answer has the same bits whatever was
computed before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.state import State

_SPAN = {"cpu": 64, "cuda": 512}
"""Tokens of a prompt that are computed at once: on a GPU, those of the captured graph."""
LONGEST = 2**20
"""The most tokens of a text; the state sets no limit."""


class StateCache:
    """Hold one state in each slot. States are values, so that a copy takes no memory."""

    def __init__(self, model: RWKV7, slots: int) -> None:
        """Begin with slots that hold the state before the first token."""
        self.blocks = slots
        """The number of slots."""
        self.span = _SPAN[model.device.type]
        self._fresh = model.fresh()
        self._states: dict[int, State] = {}
        self._batch: tuple[tuple[int, ...], State] = ((), self._fresh)
        """Slots whose latest states are one batch, and that batch."""

    def clear(self, slot: int) -> None:
        """Make a slot hold the state before the first token."""
        self._part([slot])
        self._states.pop(slot, None)

    def copy(self, source: int, target: int) -> None:
        """Copy a state."""
        self._part([source, target])
        self._states[target] = self._states.get(source, self._fresh)

    def read(self, slots: Sequence[int], size: int) -> State:
        """Return the states of slots as one batch of `size`, filled up with fresh ones."""
        if self._batch[0] == tuple(slots) and self._batch[1].batch == size:
            return self._batch[1]
        self._part(slots)
        states = [self._states.get(slot, self._fresh) for slot in slots]
        return (
            State.join([*states, *[self._fresh] * (size - len(slots))]) if size > 1 else states[0]
        )

    def write(self, slots: Sequence[int], states: State) -> None:
        """Store a batch of states; those after the slots are dropped."""
        if len(slots) == 1 and states.batch == 1:
            self._part(slots)
            self._states[slots[0]] = states
            return
        if self._batch[0] != tuple(slots):
            self._part(self._batch[0])
        self._batch = (tuple(slots), states)

    def _part(self, slots: Sequence[int]) -> None:
        """Divide the batch, if it has any of these slots."""
        members, states = self._batch
        if not set(members).isdisjoint(slots):
            self._states |= {slot: states.pick([at]) for at, slot in enumerate(members)}
            self._batch = ((), self._fresh)


class StatePool:
    """Give out slots, and keep states that nobody uses for as long as there is room."""

    on_host = swaps = 0
    most_tokens = LONGEST

    def __init__(self, memory: StateCache) -> None:
        """Begin with all slots free."""
        self.memory = memory
        self._free = list(range(memory.blocks - 1, -1, -1))
        self._kept: dict[object, int] = {}
        """Slots of states that no text uses, the least recently used first."""
        self.evictions = 0
        """States that were kept, and given up for others."""

    @property
    def total(self) -> int:
        """Return the number of all slots."""
        return self.memory.blocks

    @property
    def free(self) -> int:
        """Return how many slots hold nothing."""
        return len(self._free)

    @property
    def idle(self) -> int:
        """Return how many slots hold a state that no text uses."""
        return len(self._kept)

    @property
    def available(self) -> int:
        """Return how many slots could be taken now."""
        return len(self._free) + len(self._kept)

    def save_some(self, most: int = 4, *, wait: bool = False) -> bool:
        """Return False: states are not saved."""
        del most, wait
        return False

    def take(self) -> int | None:
        """Return a slot, whatever it holds; None if every slot is in use."""
        if self._free:
            return self._free.pop()
        if not self._kept:
            return None
        self.evictions += 1
        return self._kept.pop(next(iter(self._kept)))

    def give(self, slot: int) -> None:
        """Take a slot back."""
        self._free.append(slot)

    def keep(self, key: object, slot: int) -> None:
        """Take a slot back, whose state is kept under a new key for as long as there is room."""
        self._kept[key] = slot

    def knows(self, key: object) -> bool:
        """Return True if a state is kept under a key, which counts as a use."""
        slot = self._kept.pop(key, None)
        if slot is not None:
            self._kept[key] = slot
        return slot is not None

    def reclaim(self, key: object) -> int | None:
        """Return the slot that was kept under a key; None if its place was needed."""
        return self._kept.pop(key, None)

    def duplicate(self, key: object) -> int | None:
        """Return a slot with the state that is kept under a key; None if there is no room.

        If its own slot is the only one to be had, the state is kept no longer.
        """
        self.knows(key)
        slot = self.take()
        source = self._kept.get(key)
        if slot is not None and source is not None:
            self.memory.copy(source, slot)
        return slot


class StateStorage:
    """Hold the state of one text."""

    def __init__(
        self, pool: StatePool, prompt: Sequence[int], written: tuple[int, int] = (0, 0)
    ) -> None:
        """Begin without a slot.

        Args:
            pool: Gives the slot.
            prompt: The tokens that the text begins with.
            written: The part of them that the model wrote itself.
        """
        self._pool, self._prompt, self._written = pool, prompt, written
        self._slot: int | None = None
        self._paused = 0
        """Tokens that the state holds which was left in the pool."""

    def table(self) -> list[int]:
        """Return its slot."""
        return [] if self._slot is None else [self._slot]

    def begin(self, known: Sequence[int]) -> int:
        """Begin with its own state from before, or with that of the longest prompt that is kept."""
        self._slot = self._pool.reclaim(self)
        if self._slot is not None:
            return self._paused
        found = [
            length
            for length, key in self._keys.items()
            if length <= len(known) and self._pool.knows(key)
        ]
        if not found:
            self.take()
            return 0
        self._slot = self._pool.duplicate(self._keys[found[-1]])
        return found[-1] if self._slot is not None else 0

    def next_count(self, computed: int, length: int, room: int) -> int:
        """Return the rest of a span of the prompt, or one token that the model wrote."""
        prompt, (start, end) = len(self._prompt), self._written
        if computed >= prompt or start <= computed < end:
            return min(1, room)
        span = self._pool.memory.span
        prompt = start if computed < start else prompt
        count = min(span - computed % span, prompt - computed, length - computed)
        return count if count <= room else 0

    def missing(self, tokens: int) -> int:
        """Return 1 if it has no slot."""
        del tokens
        return int(self._slot is None)

    def take(self) -> bool:
        """Take a slot with the state before the first token; return False if there is none."""
        self._slot = self._pool.take()
        if self._slot is not None:
            self._pool.memory.clear(self._slot)
        return self._slot is not None

    def share(self, tokens: Sequence[int], computed: int) -> None:
        """Keep a copy of the state after a whole span of the prompt."""
        del tokens
        if (key := self._keys.get(computed)) is not None:
            self._keep_copy(key)

    def mark(self, tokens: Sequence[int], computed: int) -> None:
        """Keep a copy of the state after a part of the answer."""
        start = self._written[0] if self._written[1] else len(self._prompt)
        if computed > start:
            self._keep_copy(list(_written_keys(tokens[:start], tokens[start:computed]))[-1])

    def _keep_copy(self, key: bytes) -> None:
        if self._slot is None:
            return
        if not self._pool.knows(key) and (copy := self._pool.take()) is not None:
            self._pool.memory.copy(self._slot, copy)
            self._pool.keep(key, copy)

    def keep(self) -> None:
        """Do nothing: states are not saved."""

    def pause(self, computed: int) -> None:
        """Leave its state in the pool."""
        if self._slot is not None:
            self._paused = computed
            self._pool.keep(self, self._slot)
        self._slot = None

    def leave(self) -> None:
        """Give its slot back."""
        slot = self._slot if self._slot is not None else self._pool.reclaim(self)
        if slot is not None:
            self._pool.give(slot)
        self._slot = None

    @cached_property
    def _keys(self) -> dict[int, bytes]:
        """Return digests of the prompt's tokens by their number, where states may be kept.

        That is after each span, and after each token that the model wrote.
        """
        span, digest, found = self._pool.memory.span, blake2b(digest_size=16), {}
        start, end = self._written
        for at in range(span, (start if end else len(self._prompt)) + 1, span):
            digest.update(array("q", self._prompt[at - span : at]).tobytes())
            found[at] = digest.digest()
        keys = _written_keys(self._prompt[:start], self._prompt[start:end])
        return found | dict(enumerate(keys, start + 1))


def _written_keys(prompt: Sequence[int], answer: Sequence[int]) -> Iterator[bytes]:
    """Yield digests of a prompt with each beginning of what the model wrote after it.

    They differ from those of the same tokens in a prompt, which are read in spans.
    """
    digest = blake2b(array("q", prompt).tobytes(), digest_size=16, person=b"written")
    for token in answer:
        digest.update(array("q", [token]).tobytes())
        yield digest.digest()
