"""Decode what a request means, under the constraint of what the program can do.

The constraint is a tree of all meanings without their slots. A `#n` in it stands for any number of
the request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpudeck.assistant.router.network import Network, State
from gpudeck.assistant.router.symbols import AND
from gpudeck.assistant.router.vocabulary import END, Vocabulary

BEAM = 4
LONGEST = 48
"""The most symbols of a meaning."""
MOST = 3
"""The most questions that are asked at once; of orders there are at most two."""


class Meaning(NamedTuple):
    """Hold one reading of a request, and its probability."""

    text: str
    chance: float


class Tree:
    """Hold all meanings as a tree of symbols."""

    def __init__(self, shapes: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._ends: set[int] = set()
        self._asks: set[int] = set()
        """Ends of questions, behind which another question may follow."""
        self._orders: set[int] = set()
        """Ends of orders, behind which another order may follow."""
        for shape in shapes:
            place = 0
            for symbol in shape.split():
                if symbol not in self._next[place]:
                    self._next[place][symbol] = len(self._next)
                    self._next.append({})
                place = self._next[place][symbol]
            self._ends.add(place)
            if shape.startswith("do:"):
                self._orders.add(place)
            elif not shape.startswith(("no:", "plan")):
                self._asks.add(place)

    def follow(
        self, place: int, slots: Sequence[str], before: Sequence[str]
    ) -> Iterator[tuple[str, int]]:
        """Yield the symbols that may follow, with the places behind them.

        Args:
            place: A place in the tree; the root is 0.
            slots: The slots of the request, such as `n1`.
            before: The symbols so far.
        """
        orders, sides = bool(before) and before[0].startswith("do:"), 1 + before.count(AND)
        for symbol, then in self._next[place].items():
            if sides > 1 and place == 0 and symbol.startswith("do:") != orders:
                continue
            if sides > 1 and place == 0 and symbol.startswith(("no:", "plan")):
                continue
            if symbol.startswith("#"):
                yield from ((slot, then) for slot in slots if slot[0] == symbol[1])
            else:
                yield symbol, then
        if place in (self._orders if orders else self._asks) and sides < (2 if orders else MOST):
            yield AND, 0

    def ends(self, place: int) -> bool:
        """Return whether a meaning may end at a place."""
        return place in self._ends


class _Path(NamedTuple):
    symbols: tuple[str, ...]
    place: int
    log: float
    row: int


class Router:
    """Hold the model that reads requests."""

    def __init__(
        self, name: str, network: Network, vocabulary: Vocabulary, tree: Tree, twice: bool
    ) -> None:
        self.name, self._network, self._vocabulary = name, network, vocabulary
        self._tree, self._twice = tree, twice

    @classmethod
    def load(cls, folder: Path) -> Router:
        """Load the model's weights, vocabulary and meanings from its folder."""
        shapes = (folder / "meanings.txt").read_text(encoding="utf-8").splitlines()
        return cls(
            folder.name,
            Network.load(folder / "model.safetensors"),
            Vocabulary.load(folder / "vocabulary.txt"),
            Tree(shapes),
            bool(json.loads((folder / "router.json").read_text())["twice"]),
        )

    def meanings(self, before: str, request: str, slots: Sequence[str]) -> list[Meaning]:
        """Return the likeliest meanings of a request, the likeliest first.

        Args:
            before: The meaning of the last request without its slots; empty at first.
            request: The request with slots.
            slots: The names of the slots.
        """
        known = self._vocabulary.ids
        before = " ".join(symbol for symbol in before.split() if symbol in known)
        prompt = self._vocabulary.prompt(before, request, self._twice)
        logs, state = self._network.read(np.array([prompt], np.intp), self._network.empty())
        paths, done = [_Path((), 0, 0.0, 0)], list[Meaning]()
        while paths and len(paths[0].symbols) < LONGEST:
            paths = self._longer(paths, logs, slots, done)
            worst = sorted((one.chance for one in done), reverse=True)[BEAM - 1 : BEAM]
            paths = [path for path in paths if not worst or np.exp(path.log) > worst[0]][:BEAM]
            if paths:
                logs, state = self._step(paths, state)
                paths = [path._replace(row=i) for i, path in enumerate(paths)]
        return sorted(done, key=lambda one: -one.chance)[:BEAM]

    def _longer(
        self, paths: Sequence[_Path], logs: np.ndarray, slots: Sequence[str], done: list[Meaning]
    ) -> list[_Path]:
        """Return the paths with one symbol more, the likeliest first; add those that end."""
        known, found = self._vocabulary.ids, list[_Path]()
        for path in paths:
            if self._tree.ends(path.place):
                chance = float(np.exp(path.log + logs[path.row, END]))
                done.append(Meaning(" ".join(path.symbols), chance))
            for symbol, place in self._tree.follow(path.place, slots, path.symbols):
                if (token := known.get(symbol)) is not None:
                    log = path.log + float(logs[path.row, token])
                    found.append(_Path((*path.symbols, symbol), place, log, path.row))
        return sorted(found, key=lambda path: -path.log)[:BEAM]

    def _step(self, paths: Sequence[_Path], state: State) -> tuple[np.ndarray, State]:
        tokens = [[self._vocabulary.ids[path.symbols[-1]]] for path in paths]
        rows = np.array([path.row for path in paths], np.intp)
        return self._network.read(np.array(tokens, np.intp), state.rows(rows))
