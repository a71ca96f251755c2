"""Describe the code of kernels: their source, and what the assembler made of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Code(msgspec.Struct, frozen=True):
    """Hold a kernel as it was written and as it is executed."""

    name: str
    source: str
    instructions: str
    """Machine code (SASS), an instruction a line."""


class Codes(msgspec.Struct, frozen=True):
    """Hold the kernels of the winner of a search, and of the first configuration that was right."""

    capability: int
    first: Mapping[str, int]
    first_code: tuple[Code, ...]
    winner: Mapping[str, int]
    winner_code: tuple[Code, ...]


def encode_codes(codes: Codes) -> bytes:
    """Return what `decode_codes` reads."""
    return msgspec.json.encode(codes)


def decode_codes(contents: bytes) -> Codes:
    """Read codes. Raises ValueError if these are none."""
    return msgspec.json.decode(contents, type=Codes)


def written(codes: tuple[Code, ...]) -> str:
    """Return the kernels as one text: for each its source, then its instructions."""
    parts = [f"# {code.name}\n{code.source}\n{code.instructions}" for code in codes]
    return "\n\n".join(parts)
