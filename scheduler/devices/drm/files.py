"""Read single values of sysfs, and say why one is absent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.absence import Absence, Unavailable, Unreadable


class Values:
    """Collect the fields of one reading."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.absent: dict[str, Absence] = {}
        self.methods: dict[str, Message] = {}

    def add(
        self, field: str, files: Sequence[Path], unit: float = 1.0, method: Message = ""
    ) -> None:
        """Add the number in the first of these files that exists, times `unit`."""
        found = number(files)
        self.set(field, found * unit if isinstance(found, float) else found, method)

    def set(self, field: str, value: float | Absence, method: Message = "") -> None:
        """Add a value, or why it is absent, and how it was computed."""
        if isinstance(value, float):
            self.values[field] = value
            if method:
                self.methods[field] = method
        else:
            self.absent[field] = value


class Rate:
    """Turn a counter into its change per second."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def read(self, count: float | Absence, now: float) -> float | Absence:
        """Return the change per second since the last call, or why it is not known."""
        if not isinstance(count, float):
            return count
        before, self._before = self._before, (now, count)
        if before is None or now <= before[0] or count < before[1]:
            return Unavailable("first reading")  # or the counter began anew
        return (count - before[1]) / (now - before[0])


def number(files: Sequence[Path]) -> float | Absence:
    """Return the number in the first of these files that exists, or why there is none."""
    for file in files:
        try:
            return float(file.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as e:
            return Unreadable(str(file.name), getattr(e, "strerror", None) or str(e))
    return Unavailable("unreported")
