"""Text that is rewound where it goes wrong: RAIN (Li, Wei, Zhao, Zhang, Zhang: arXiv 2309.07124), by sentences.

The paper's two loops. The inner one goes from the root down to a leaf by value and curiosity, has it judged, passes the value up to all
that led there, and rewinds to the root; the outer one moves the root to the child that was visited most, once its value reaches a threshold
or the steps are used up. Here a node is a sentence, with the model's place after it: to rewind is to go on from another place, bit for bit
as before. As in the paper's "dynamic node addition" a node gets another child only where those it has are not good enough; the first is the
greedy one, so that a text without fault costs what it costs without search. Siblings are compared by their words, not by embeddings. One
step more than in the paper: a root below which nothing holds is given up for its parent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from assistant.writing.author import Author, P
from assistant.writing.verify import Refused

LONGEST = 400
"""Characters of a sentence; a model that goes on and on has lost its way."""
_ENDS = (".", "!", "?")


class Verdict(NamedTuple):
    value: float
    """From -1 to 1."""
    refused: str = ""
    """Why the text cannot stand, whatever follows; empty where it can."""


class Limits(NamedTuple):
    """The paper's parameters."""

    steps: int = 8
    """Of the inner loop at most, until the root moves on."""
    threshold: float = 0.8
    """Value of a child at which the root moves on at once."""
    curiosity: float = 2.0
    """Weight of what was visited little against what is valued."""
    children: int = 5
    """Of a node at most: so many ways to go on are tried."""
    sentences: int = 60
    """That are written at all, those of other branches included."""


@dataclass(eq=False)
class Node(Generic[P]):
    """A sentence, after those of its parents."""

    place: P
    parent: Node[P] | None = None
    children: list[Node[P]] = field(default_factory=list)
    tried: int = 0
    """How often a child was written, in other words or the same."""
    weight: int = 1
    """How often it was written itself."""
    visits: int = 0
    total: float = 0.0
    verdict: Verdict | None = None
    given_up: bool = False
    """Nothing that begins so holds."""

    @property
    def value(self) -> float:
        """Mean of all that was found below it."""
        return self.total / self.visits if self.visits else 0.0

    def score(self, curiosity: float) -> float:
        """By which the inner loop descends (the paper's equation 1, after PUCT)."""
        assert self.parent is not None
        chance = self.weight / self.parent.tried
        seen = sum(sibling.visits for sibling in self.parent.children)
        return self.value + curiosity * chance * math.sqrt(seen) / (1 + self.visits)


class Rain(Generic[P]):
    """One search; `written` counts sentences."""

    def __init__(
        self, author: Author[P], judge: Callable[[P], Verdict], limits: Limits | None = None
    ) -> None:
        self.written = 0
        self.rewound = 0
        """Times that the text went back to its root with something else than the next sentence."""
        self._author, self._judge, self._limits = author, judge, limits or Limits()
        self._seeds = itertools.count(1)
        self._why = "it was never written"

    def text(self, begin: P) -> P:
        """A whole text after `begin` of which every sentence stands. Raises Refused, saying why, where there is none; Cancelled."""
        root = Node(begin)
        while not root.place.ended:
            self._search(root)
            standing = [child for child in root.children if not child.given_up and child.visits]
            if standing:
                root = max(standing, key=lambda child: (child.visits, child.value))
            elif root.parent is not None and self.written < self._limits.sentences:
                root.given_up = True
                root = root.parent
            else:
                raise Refused(self._why)
        return root.place

    def _search(self, root: Node[P]) -> None:
        """The inner loop."""
        for _ in range(self._limits.steps):
            leaf = self._leaf(root)
            if leaf is None:
                return
            self._visit(leaf)
            if any(
                child.value >= self._limits.threshold
                for child in root.children
                if not child.given_up
            ):
                return
            self.rewound += 1

    def _leaf(self, root: Node[P]) -> Node[P] | None:
        """The next sentence to judge; None where there is none left."""
        node = root
        while True:
            if self._wants_child(node):
                child = self._grown(node)
                if child.verdict is None:
                    return child
                continue
            standing = [child for child in node.children if not child.given_up]
            if standing:
                node = max(standing, key=lambda child: child.score(self._limits.curiosity))
                if node.place.ended:
                    return node
            elif node is root:
                return None
            else:
                node.given_up, node = True, root

    def _wants_child(self, node: Node[P]) -> bool:
        limits = self._limits
        if node.tried >= limits.children or self.written >= limits.sentences:
            return False
        return not any(
            child.value >= limits.threshold for child in node.children if not child.given_up
        )

    def _grown(self, node: Node[P]) -> Node[P]:
        """One more child, or the one that has the same words."""
        place = sentence(self._author, node.place, next(self._seeds) if node.tried else 0)
        self.written += 1
        node.tried += 1
        for child in node.children:
            if (child.place.text, child.place.ended) == (place.text, place.ended):
                child.weight += 1
                return child
        node.children.append(child := Node(place, node))
        return child

    def _visit(self, leaf: Node[P]) -> None:
        """Judge it, and tell all that led there."""
        if leaf.verdict is None:
            leaf.verdict = self._judge(leaf.place)
        if leaf.verdict.refused:
            leaf.given_up, self._why = True, leaf.verdict.refused
        at: Node[P] | None = leaf
        while at is not None:
            at.visits += 1
            at.total += leaf.verdict.value
            at = at.parent


def sentence(author: Author[P], after: P, seed: int) -> P:
    """The place after the next sentence. Raises Refused where the model computes no numbers, Cancelled."""
    full: P | None = None
    try:
        for place in author.write(after, seed):
            new = place.text[len(after.text) :]
            if full is not None and place.text[len(full.text) : len(full.text) + 1].isspace():
                return full
            if place.ended or len(new) > LONGEST or (new.endswith("\n") and new.strip()):
                return place
            full = place if new.endswith(_ENDS) else None
    except ValueError as e:
        raise Refused(str(e)) from e
    raise AssertionError("a text ends with a place that says so")
