"""Read and write files that a person names: whatever they name, one line says what is wrong."""

from __future__ import annotations

from pathlib import Path

from gpudeck.language.text import Bytes, phrase
from gpudeck.scheduler.protocol.errors import UserError

MOST_READ = 2**24
"""Bytes: /dev/zero and the like have no end."""


def read_bytes(file: Path) -> bytes:
    """Return the contents of a file. Raises UserError."""
    try:
        with file.expanduser().open("rb") as f:
            data = f.read(MOST_READ + 1)
    except OSError as e:
        raise UserError(
            phrase("cannot read {file}: {why}", file=str(file), why=e.strerror or str(e))
        ) from e
    if len(data) > MOST_READ:
        most = Bytes(MOST_READ)
        raise UserError(phrase("cannot read {file}: it has over {most}", file=str(file), most=most))
    return data


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file. Raises UserError."""
    try:
        file.expanduser().write_bytes(data)
    except OSError as e:
        raise UserError(
            phrase("cannot write {file}: {why}", file=str(file), why=e.strerror or str(e))
        ) from e
