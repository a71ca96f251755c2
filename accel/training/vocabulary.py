"""Turn text into tokens as RWKV's models do: by a list of pieces of bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.tokenizer import END, VOCABULARY, vocabulary_file
from gpudeck.accel.rwkv.tokenizer import Tokenizer as World
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.tokenizers import Tokens
from gpudeck.language.text import phrase

if TYPE_CHECKING:
    from gpudeck.accel.serving.template import Template


class VocabularyTokenizer:
    """Use the vocabulary file of an RWKV model."""

    begin = end = END

    def __init__(self, world: World, lines: bytes, folder: Path | None = None) -> None:
        """Take a vocabulary.

        Args:
            world: makes the tokens.
            lines: the vocabulary file.
            folder: of the model that it belongs to; None if there is none.
        """
        self._world, self._lines, self._folder = world, lines, folder
        self.vocabulary = world.size
        self.fingerprint = hashlib.sha256(lines).hexdigest()

    @classmethod
    def load(cls, path: Path) -> VocabularyTokenizer:
        """Load a vocabulary file, or that of a model's folder. Raises Refused."""
        path = path.expanduser()
        try:
            lines = vocabulary_file(path).read_bytes()
            return cls(World.load(path), lines, path if path.is_dir() else None)
        except (ModelError, OSError) as e:
            raise Refused(phrase("the vocabulary cannot be used: {why}", why=str(e))) from e

    def chat_template(self) -> Template | None:
        """Return the model's own form of chats, or that of the World models."""
        from gpudeck.accel.serving.folder_template import load_template
        from gpudeck.accel.serving.world import world_template

        if self._folder is None:
            return None
        return load_template(self._folder) or world_template()

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text."""
        return [np.asarray(self._world.encode(text), np.uint32) for text in texts]

    def write(self, folder: Path) -> None:
        """Write the vocabulary file."""
        (folder / VOCABULARY).write_bytes(self._lines)


def byte_vocabulary() -> VocabularyTokenizer:
    """Return a vocabulary with a token for each byte, numbered from 1 on."""
    pieces = {byte + 1: bytes([byte]) for byte in range(256)}
    lines = "".join(f"{token} {piece!r} 1\n" for token, piece in pieces.items())
    return VocabularyTokenizer(World(pieces), lines.encode())
