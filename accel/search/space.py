"""Describe configuration spaces, and draw points of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Config = dict[str, int]


def _fits_always(config: Config) -> bool:
    return True


@dataclass(frozen=True)
class Space:
    """List the values of each parameter, in an order in which neighbours behave alike."""

    choices: Mapping[str, Sequence[int]]
    fits: Callable[[Config], bool] = _fits_always
    """Tells which combinations can be of use."""

    def __post_init__(self) -> None:
        if empty := [name for name, values in self.choices.items() if not values]:
            raise ValueError(f"{empty[0]} has no values to choose from")

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    @property
    def _combinations(self) -> int:
        return math.prod(len(values) for values in self.choices.values())

    def all(self) -> Iterator[Config]:
        """Yield every configuration."""
        yield from filter(self.fits, map(self._at, range(self._combinations)))

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
        return list({key(config): config for config in drawn if self.fits(config)}.values())

    def draw(self, random: np.random.Generator) -> Config:
        """Return any configuration."""
        while not self.fits(config := self._at(int(random.integers(self._combinations)))):
            continue
        return config

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Yield what differs in one parameter by one step."""
        for name, values in self.choices.items():
            place = list(values).index(config[name])
            for other in (place - 1, place + 1):
                near = {**config, name: values[other]} if 0 <= other < len(values) else config
                if near != config and self.fits(near):
                    yield near

    def vector(self, config: Config) -> list[float]:
        """Return the places of the values, for a surrogate."""
        return [float(list(values).index(config[name])) for name, values in self.choices.items()]

    def holds(self, config: Mapping[str, int]) -> bool:
        """Return whether a configuration belongs to the space."""
        return (
            config.keys() == self.choices.keys()
            and all(config[name] in values for name, values in self.choices.items())
            and self.fits({**config})
        )


def key(config: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return what identifies a configuration."""
    return tuple(sorted(config.items()))
