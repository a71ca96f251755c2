"""Decide what each step computes: which requests, and how many tokens of each.

Answers that are being written go first, a token each; what is left of a step's tokens goes to
prompts, in chunks, so that a long prompt never stops the others. While there is a request of a
better priority, all others pause. Among those of one priority, the client that was served least
goes first. A request that finds no block
for its next token makes the least important one wait, whose blocks stay known for as long as nobody
needs them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gpudeck.accel.serving.blocks import BlockPool
from gpudeck.accel.serving.sequence import Sequence
from gpudeck.accel.serving.speculation import Proposer, Speculator
from gpudeck.accel.serving.states import StatePool

DRAFT_TOKENS = 64
"""Tokens of a step up to which answers may have proposals."""
Pool = BlockPool | StatePool
PATIENCE = 500
"""Steps after which a waiting request counts as more important by one."""


class Text(Protocol):
    """Describe what a step needs of a text."""

    tokens: list[int]

    def table(self) -> list[int]:
        """Return its blocks in order."""


S_co = TypeVar("S_co", bound=Text, covariant=True)


@dataclass(frozen=True)
class Work(Generic[S_co]):
    """Say what a step computes of one text."""

    sequence: S_co
    start: int
    """The position of the first token."""
    tokens: list[int]
    drafts: int = 0
    """How many of the last tokens are proposals."""

    @property
    def chooses(self) -> bool:
        """Return True if the request's next token is chosen after this."""
        return self.start + len(self.tokens) - self.drafts == len(self.sequence.tokens)


class Scheduler:
    """Keep the requests that wait and those that run."""

    def __init__(
        self,
        pool: Pool,
        step_tokens: int,
        most_running: int,
        speculator: Speculator | None = None,
        most_drafts: int = 0,
    ) -> None:
        """Begin without requests.

        Args:
            pool: Where the texts are stored.
            step_tokens: The most tokens of a step.
            most_running: The most requests of a step.
            speculator: Proposes tokens of answers.
            most_drafts: The most that it may propose at once.
        """
        self._pool, self._step_tokens, self._most_running = pool, step_tokens, most_running
        self._speculator, self._most_drafts = speculator, most_drafts
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.preemptions = 0
        self.reserved = 0
        """People whose work needs the machine: while there are any, only requests of priority 0 or
        better are computed."""
        self._served: dict[str, int] = defaultdict(int)
        self._step = 0
        self._queued: dict[Sequence, int] = {}
        self._proposers: dict[Sequence, Proposer] = {}

    def add(self, sequence: Sequence) -> None:
        """Take a new request."""
        client = sequence.request.client
        if client not in self._served:  # a newcomer is not owed what others got before
            self._served[client] = min(self._served.values(), default=0)
        self._wait(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a request that has ended, and free its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
            del self._queued[sequence]
        sequence.leave()
        self._end_proposals(sequence)
        left = {s.request.client for s in (*self.running, *self.waiting)}
        self._served = defaultdict(int, {c: n for c, n in self._served.items() if c in left})

    def plan(self) -> list[Work[Sequence]]:
        """Return the work of the next step; empty if there is nothing to do now."""
        self._step += 1
        for sequence in [s for s in self.running if s.stream.full]:
            self._preempt(sequence)  # its reader is slow: others use the blocks meanwhile
        work: dict[Sequence, Work[Sequence]] = {}
        budget = self._step_tokens
        there = [s.request.priority for s in (*self.running, *self.waiting) if not s.stream.full]
        best = min([*there, 0] if self.reserved else there, default=0)
        for sequence in sorted(self.running, key=lambda s: (s.pending > 1, *self._rank(s))):
            if budget and sequence in self.running and sequence.request.priority == best:
                budget -= self._extend(sequence, budget, work)
        for sequence in sorted(self.waiting, key=self._rank):
            if not budget:
                break
            if sequence.stream.full or sequence.request.priority != best:
                continue
            if not self._admit(sequence, work):
                break  # who comes later must not overtake, or a long prompt would wait forever
            budget -= self._extend(sequence, budget, work)
        for item in work.values():
            self._served[item.sequence.request.client] += len(item.tokens)
        return list(work.values())

    def _extend(self, sequence: Sequence, budget: int, work: dict[Sequence, Work[Sequence]]) -> int:
        """Plan as many tokens of a running request as fit, and return their number."""
        count = sequence.next_count(budget)
        if count == 0:
            return 0
        drafts = self._drafts(sequence, budget - count) if sequence.pending == 1 else []
        start = sequence.computed
        while (missing := sequence.storage.missing(start + count + len(drafts))) > 0:
            if drafts and missing > self._pool.available:
                drafts = []  # a proposal is not worth making anybody wait
                continue
            if sequence.storage.take():
                continue
            victim = max(self.running, key=self._rank)
            work.pop(victim, None)
            self._preempt(victim)
            if victim is sequence:
                return 0
        tokens = sequence.tokens[start : start + count] + drafts
        work[sequence] = Work(sequence, start, tokens, len(drafts))
        return len(tokens)

    def _drafts(self, sequence: Sequence, room: int) -> list[int]:
        left = sequence.request.limit - sequence.answered - 1
        # Beside many others, proposals cost more than they bring.
        share = DRAFT_TOKENS // max(1, len(self.running)) - 1
        most = min(self._most_drafts, room, left, share)
        if self._speculator is None or most < 1:
            return []
        if sequence not in self._proposers:
            self._proposers[sequence] = self._speculator.begin(sequence.request)
        return self._proposers[sequence].propose(sequence.tokens, most)

    def _admit(self, sequence: Sequence, work: dict[Sequence, Work[Sequence]]) -> bool:
        """Let a waiting request run, if there is room or a less important one gives way."""
        while True:
            if len(self.running) < self._most_running:
                sequence.begin()
                if sequence.storage.missing(len(sequence.tokens) + 1) <= self._pool.available:
                    break
                sequence.pause()
            victim = max(self.running, key=self._rank, default=None)
            if victim is None or victim.request.priority <= sequence.request.priority:
                return False
            work.pop(victim, None)
            self._preempt(victim)
        sequence.started = True
        self.waiting.remove(sequence)
        del self._queued[sequence]
        self.running.append(sequence)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Make a running request wait; it goes on with what is then still in the tree."""
        sequence.pause()
        self._end_proposals(sequence)
        self.running.remove(sequence)
        self.preemptions += 1
        self._wait(sequence)

    def _end_proposals(self, sequence: Sequence) -> None:
        if (proposer := self._proposers.pop(sequence, None)) is not None:
            proposer.end()

    def _wait(self, sequence: Sequence) -> None:
        self._queued[sequence] = self._step
        self.waiting.append(sequence)

    def _rank(self, sequence: Sequence) -> tuple[int, int, int]:
        """Return what requests are ordered by, the most important first."""
        request = sequence.request
        waited = self._step - self._queued.get(sequence, self._step)
        priority = request.priority - waited // PATIENCE
        return priority, self._served[request.client], sequence.arrival
