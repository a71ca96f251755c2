"""Remember which jobs in the store do not exist yet (see `staging`)."""

from __future__ import annotations


class Hidden:
    """Keep the numbers of jobs that do not exist yet."""

    def __init__(self) -> None:
        self._first: dict[range, int] = {}
        """The lowest number that is hidden, by all numbers of a submission."""

    def __contains__(self, number: int) -> bool:
        return any(first <= number < numbers.stop for numbers, first in self._first.items())

    def hide(self, numbers: range, first: int) -> None:
        """Hide those of the numbers from `first` on."""
        if first < numbers.stop:
            self._first[numbers] = first
        else:
            self._first.pop(numbers, None)

    def shown(self, end: int) -> list[tuple[int, int]]:
        """Return the ranges of numbers below `end` that are not hidden, the highest first: the
        first number of each, and its end."""
        found = []
        for numbers, first in sorted(self._first.items(), key=lambda pair: -pair[1]):
            found.append((numbers.stop, end))
            end = min(first, end)
        return [*found, (0, end)]
