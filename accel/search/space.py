"""Describe configuration spaces, and draw points of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Config = dict[str, int]


@dataclass(frozen=True)
class Space:
    """List the values of each parameter, in an order in which neighbours behave alike."""

    choices: Mapping[str, Sequence[int]]

    def __post_init__(self) -> None:
        if empty := [name for name, values in self.choices.items() if not values]:
            raise ValueError(f"{empty[0]} has no values to choose from")

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.choices.values())

    def all(self) -> Iterator[Config]:
        """Yield every configuration."""
        for number in range(len(self)):
            yield self._at(number)

    def _at(self, number: int) -> Config:
        config = {}
        for name, values in self.choices.items():
            number, place = divmod(number, len(values))
            config[name] = values[place]
        return config

    def latin(self, count: int, random: np.random.Generator) -> list[Config]:
        """Return up to `count` different configurations that cover each parameter evenly.

        Source: McKay, Beckman, Conover (1979), Latin hypercube sampling.
        """
        columns = {
            name: [values[k * len(values) // count] for k in random.permutation(count)]
            for name, values in self.choices.items()
        }
        drawn = [{name: columns[name][i] for name in columns} for i in range(count)]
        return list({key(config): config for config in drawn}.values())

    def draw(self, random: np.random.Generator) -> Config:
        """Return any configuration."""
        return self._at(int(random.integers(len(self))))

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Yield what differs in one parameter by one step."""
        for name, values in self.choices.items():
            place = list(values).index(config[name])
            for other in (place - 1, place + 1):
                if 0 <= other < len(values):
                    yield {**config, name: values[other]}

    def vector(self, config: Config) -> list[float]:
        """Return the places of the values, for a surrogate."""
        return [float(list(values).index(config[name])) for name, values in self.choices.items()]

    def holds(self, config: Mapping[str, int]) -> bool:
        """Return whether a configuration belongs to the space."""
        return config.keys() == self.choices.keys() and all(
            config[name] in values for name, values in self.choices.items()
        )


def key(config: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return what identifies a configuration."""
    return tuple(sorted(config.items()))
