"""Search once with a language model that proposes and once without it, for the same time.

The search with it comes first. The other one finds the kernels compiled that both try, so that
whatever the language model seems to gain is not due to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpudeck.accel.search.advice import Advisor
from gpudeck.accel.search.engine import Budget
from gpudeck.accel.search.journal import Entry, Journal, comparable
from gpudeck.language.text import Number, Text, phrase

Search = Callable[[Journal, Advisor | None, Budget], None]


class Advice(NamedTuple):
    """Tell what a language model's proposals cost and gained, at equal time."""

    us: float
    """The microseconds of the best with it; infinite if nothing was timed."""
    alone_us: float
    """Of the best without it."""
    tried: int
    alone_tried: int
    proposed: int
    """Configurations of its that were timed."""
    seconds: float
    """How long its answers took, of the time of the search with it."""
    tokens: int
    failure: str
    """What the last question failed by."""

    @property
    def text(self) -> Text:
        """Say it in one sentence."""
        if not self.proposed and self.failure:
            return phrase("the language model proposed nothing: {error}", error=self.failure)
        return phrase(
            "with the language model {us} after {tried} configurations, without it {alone} after"
            " {alone_tried} in the same time; {proposed} of its proposals were timed, which took"
            " {seconds} and {tokens} tokens",
            us=Number(self.us, ".1f", "µs"), alone=Number(self.alone_us, ".1f", "µs"),
            tried=self.tried, alone_tried=self.alone_tried, proposed=self.proposed,
            seconds=Number(self.seconds, ".1f", "s"), tokens=self.tokens,
        )  # fmt: skip


def search_both(search: Search, journal: Journal, advisor: Advisor, budget: Budget) -> Advice:
    """Spend half of a budget with the advisor, half without it; keep the best of both.

    Args:
        search: searches within a budget, and writes into a journal.
        journal: of the search with the advisor; it also gets the best of the other one.
        advisor: the language model.
        budget: of both searches together.
    """
    half = budget._replace(minutes=budget.minutes / 2, kwh=budget.kwh / 2)
    search(journal, advisor, half)
    with_it = [entry for entry in journal.entries if entry.by != "alone"]
    with Journal(journal.problem, alone=True) as other:
        search(other, None, half)
        best = _fastest(other.entries)
        if best is not None and _fastest([*journal.entries, best]) is best:
            journal.add(replace(best, by="alone"))
        return Advice(
            _best(with_it), _best(other.entries), len(with_it), len(other.entries),
            sum(entry.by == "endpoint" and entry.state == "timed" for entry in with_it),
            advisor.seconds, advisor.tokens, advisor.failure,
        )  # fmt: skip


def _fastest(entries: Sequence[Entry]) -> Entry | None:
    return min(comparable(entries), key=lambda entry: entry.microseconds, default=None)


def _best(entries: Sequence[Entry]) -> float:
    best = _fastest(entries)
    return math.inf if best is None else best.microseconds
