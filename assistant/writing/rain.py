"""Rewind a text where it goes wrong: RAIN, by sentences.

The search has the two loops of the paper. The inner loop descends from the root to a leaf by value
and curiosity, has the leaf judged, passes its value up to all its parents, and rewinds to the root.
The outer loop moves the root to its most visited child once that child's value reaches a threshold,
or once the steps are used up.

A node is a sentence with the model's place after it, so that rewinding means to continue from
another place, bit for bit as before. As in the paper's "dynamic node addition", a node gets another
child only if those it has are not good enough. The first child is the greedy one, so that a text
without faults costs no more than without a search. Siblings are compared by their words, not by
embeddings. One step goes beyond the paper: a root below which nothing holds is given up for its
parent.

Source: Li, Wei, Zhao, Zhang, Zhang: arXiv 2309.07124.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from gpudeck.assistant.writing.author import Author, P
from gpudeck.assistant.writing.verify import Refused

LONGEST = 400
"""The longest sentence in characters; a model that exceeds it has lost its way."""
_ENDS = (".", "!", "?")


class Verdict(NamedTuple):
    """Judge a text up to a place."""

    value: float
    """From -1 to 1."""
    refused: str = ""
    """Why the text cannot stand, whatever follows; empty if it can."""


class SearchLimits(NamedTuple):
    """Hold the parameters of the paper."""

    steps: int = 8
    """Steps of the inner loop until the root moves on."""
    threshold: float = 0.8
    """The value of a child at which the root moves on at once."""
    curiosity: float = 2.0
    """The weight of rarely visited nodes against highly valued ones."""
    children: int = 5
    """The number of continuations tried at a node."""
    sentences: int = 60
    """The number of sentences written in all branches together."""


@dataclass(eq=False)
class Node(Generic[P]):
    """Represent a sentence that follows those of its parents."""

    place: P
    parent: Node[P] | None = None
    children: list[Node[P]] = field(default_factory=list)
    tried: int = 0
    """The number of children written, in other words or the same."""
    weight: int = 1
    """The number of times this sentence was written."""
    visits: int = 0
    total: float = 0.0
    verdict: Verdict | None = None
    given_up: bool = False
    """True if nothing that begins like this can stand."""

    @property
    def value(self) -> float:
        """Return the mean of all values found below the node."""
        return self.total / self.visits if self.visits else 0.0

    def score(self, curiosity: float) -> float:
        """Return the score by which the inner loop descends.

        Source: the paper's equation 1, after PUCT.
        """
        assert self.parent is not None
        chance = self.weight / self.parent.tried
        seen = sum(sibling.visits for sibling in self.parent.children)
        return self.value + curiosity * chance * math.sqrt(seen) / (1 + self.visits)


class Rain(Generic[P]):
    """Run one search; `written` counts its sentences."""

    def __init__(
        self, author: Author[P], judge: Callable[[P], Verdict], limits: SearchLimits | None = None
    ) -> None:
        self.written = 0
        self.rewound = 0
        """The number of returns to the root other than for the next sentence."""
        self._author, self._judge, self._limits = author, judge, limits or SearchLimits()
        self._seeds = itertools.count(1)
        self._why = "it was never written"

    def text(self, begin: P) -> P:
        """Return a whole text after `begin` in which every sentence stands.

        Raises:
            Refused: There is none; the message says why.
            Cancelled: The request was cancelled.
        """
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
        """Run the inner loop."""
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
        """Return the next sentence to judge; None if there is none left."""
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
        """Return one more child, or the existing one with the same words."""
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
        """Judge a node, and pass its value up to all its parents."""
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
    """Return the place after the next sentence.

    Raises:
        Refused: The model's output is not finite.
        Cancelled: The request was cancelled.
    """
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
