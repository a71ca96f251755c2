"""Record what each step measured, in metrics.jsonl: one JSON object a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

FILE = "metrics.jsonl"


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one step measured, or one computation of the held-out loss."""

    step: int
    """The number of steps that were done, this one included."""
    loss: float | None = None
    held_out: float | None = None
    rate: float | None = None
    """The learning rate."""
    norm: float | None = None
    """The norm of the gradient before clipping."""
    seconds: float | None = None
    """The time that the step took."""
    tokens_per_second: float | None = None


class Journal:
    """Append to the file, and read it again after an interruption."""

    def __init__(self, out: Path, rank: int = 0) -> None:
        """Name the file in the folder of a run; processes of other ranks have one of their own."""
        out.mkdir(parents=True, exist_ok=True)
        self._file = out / (f"rank-{rank}.jsonl" if rank else FILE)
        self._opened: BinaryIO | None = None
        self.rows: list[Measured] = []

    def begin(self, step: int) -> None:
        """Keep what was recorded up to a step, and drop what was done after its checkpoint."""
        self.rows = [row for row in self._read() if row.step <= step]
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_bytes(b"".join(map(_line, self.rows)))
        new.replace(self._file)
        self._opened = self._file.open("ab")

    def _read(self) -> list[Measured]:
        """Return the rows of the file; the last line of a process that was killed may be cut."""
        if not self._file.is_file():
            return []
        rows = []
        for line in self._file.read_bytes().splitlines():
            try:
                rows.append(msgspec.json.decode(line, type=Measured))
            except msgspec.MsgspecError:
                break
        return rows

    def add(self, row: Measured) -> None:
        """Record a step."""
        assert self._opened is not None
        self.rows.append(row)
        self._opened.write(_line(row))
        self._opened.flush()

    def sync(self) -> None:
        """Wait until all rows are on disk, before a checkpoint relies on them."""
        assert self._opened is not None
        os.fsync(self._opened.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()


def _line(row: Measured) -> bytes:
    return msgspec.json.encode(row) + b"\n"
