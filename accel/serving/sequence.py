"""A request that is worked on: its tokens, its storage, and the text that is made of it."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from gpudeck.accel.serving.grammar import Matcher
from gpudeck.accel.serving.request import Choice, Ended, Piece, Request, Stream
from gpudeck.accel.serving.sampler import Row
from gpudeck.accel.serving.states import StateStorage
from gpudeck.accel.serving.storage import PagedStorage
from gpudeck.accel.serving.world import Vocabulary

Storage = PagedStorage | StateStorage
"""What the model remembers of one text. Both have the same methods."""
Reason = Literal["stop", "length", "cancelled", "error"]


class Sequence:
    """Hold a request's state. Only the engine's thread uses it."""

    def __init__(
        self,
        request: Request,
        stream: Stream,
        tokenizer: Vocabulary,
        ends: tuple[int, ...],
        matcher: Matcher | None,
        arrival: int,
        storage: Storage,
    ) -> None:
        self.request, self.stream, self.arrival = request, stream, arrival
        self.tokens = list(request.prompt)
        """The prompt, and the answer so far."""
        self.computed = 0
        """Tokens that the model has read."""
        self.storage = storage
        """What the model remembers of them."""
        self.cached = 0
        """Tokens of the prompt that needed no computing."""
        self.proposed = self.accepted = 0
        self.started = False
        """It was in a step, so `cached` is known."""
        self._ends = () if request.ignore_end else ends
        self._matcher = matcher
        self._pieces = tokenizer.pieces(request.prompt)
        self._held = ""
        self._counts: Counter[int] = Counter()
        self._prompt = frozenset(request.prompt if request.sampling.repetition != 1 else ())
        self._choices: list[Choice] = []
        self._marked = False

    @property
    def pending(self) -> int:
        """Return how many tokens have to be computed before the next can be chosen."""
        return len(self.tokens) - self.computed

    @property
    def answered(self) -> int:
        """Return the number of tokens of the answer."""
        return len(self.tokens) - len(self.request.prompt) + self.request.begun

    def table(self) -> list[int]:
        """Return its blocks in order."""
        return self.storage.table()

    def begin(self) -> None:
        """Begin with what is known of its tokens; the last one is always computed."""
        self.computed = self.storage.begin(self.tokens[:-1])
        if not self.started:
            self.cached = self.computed

    def next_count(self, room: int) -> int:
        """Return how many tokens are computed in a step that has room for `room` more."""
        return self.storage.next_count(self.computed, len(self.tokens), room)

    def share(self) -> None:
        """Let others use what is stored of its tokens."""
        self.storage.share(self.tokens, self.computed)
        if self._marked:
            self.storage.mark(self.tokens, self.computed)

    def pause(self) -> None:
        """Make room for others; what was stored is found again if nobody needed its place."""
        self.storage.pause(self.computed)
        self.computed = 0

    def leave(self) -> None:
        """Give everything back that is stored for it alone."""
        self.storage.leave()
        self.computed = 0

    def row(self) -> Row:
        """Return how the next token is chosen."""
        allowed = None if self._matcher is None else self._matcher.allowed()
        return Row(self.request.sampling, self.answered, self._prompt, self._counts, allowed)

    def add(self, choice: Choice) -> Reason | None:
        """Add a token that was chosen, send its text, and return a reason if it is the last."""
        self.tokens.append(choice.token)
        self._choices.append(choice)
        reason = self._read(choice.token)
        if reason is None:
            self._send(self._safe())
        return reason or self._finished()

    def resume(self) -> Reason | None:
        """Send the text of an answer that was begun; return a reason if nothing follows."""
        for token in self.tokens[len(self.tokens) - self.request.begun :]:
            if (reason := self._read(token)) is not None:
                return reason
        self._marked = False
        self._send(self._safe())
        return self._finished()

    def _read(self, token: int) -> Reason | None:
        """Hold the text of a token of the answer, and return a reason if the text ends with it."""
        if self.request.sampling.penalizes:
            self._counts[token] += 1
        if self._matcher is not None:
            self._matcher.add(token)
        if token in self._ends:
            return "stop"
        text = self._pieces.add(token)
        self._marked = text.endswith(self.request.marks)
        self._held += text
        return "stop" if self._stop_found() else None

    def _finished(self) -> Reason | None:
        if self._matcher is not None and self._matcher.finished:
            return "stop"
        return "length" if self.answered >= self.request.limit else None

    def end(self, reason: Reason, message: str = "") -> None:
        """Send the rest of the text, and how it ended."""
        self._send(len(self._held))
        self.stream.put(
            Ended(
                reason, len(self.request.prompt), min(self.cached, len(self.request.prompt)),
                self.answered, self.proposed, self.accepted, message,
            )
        )  # fmt: skip

    def _send(self, length: int) -> None:
        text, self._held = self._held[:length], self._held[length:]
        if text or (self._choices and self.request.sampling.logprobs >= 0):
            self.stream.put(Piece(text, tuple(self._choices)))
            self._choices = []

    def _stop_found(self) -> bool:
        """Cut what is held at the first stop text, and return True if there is one."""
        places = [at for stop in self.request.stops if (at := self._held.find(stop)) >= 0]
        if places:
            self._held = self._held[: min(places)]
        return bool(places)

    def _safe(self) -> int:
        """Return how much of what is held cannot be the beginning of a stop text."""
        for start in range(max(0, len(self._held) - self._longest_stop() + 1), len(self._held)):
            if any(stop.startswith(self._held[start:]) for stop in self.request.stops):
                return start
        return len(self._held)

    def _longest_stop(self) -> int:
        return max(map(len, self.request.stops), default=1)
