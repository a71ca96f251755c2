"""Tokenize as RWKV World does: greedy longest match over bytes, from a vocabulary file.

A line of the file is `ID LITERAL LENGTH`, where the literal is a quoted Python str or bytes: `33 '
' 1` or `250 b'\\xf9' 1`. Literals are parsed, never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from gpudeck.accel.rwkv.errors import ModelError, ModelNotFoundError
from gpudeck.language.text import phrase

VOCABULARY = "rwkv_vocab_v20230424.txt"
END = 0
"""The token that ends a text; it has no bytes."""
_UNKNOWN = "\ufffd".encode()
_LINE = re.compile(
    r"""^(\d+) (b?)(?:'([^'\\\n]*)'|"([^"\\\n]*)"|(['"].*['"])) (\d+)$""", re.MULTILINE
)
"""The number, a `b` for bytes, a literal without escapes in either quotes or one with them, the
length.
"""
_NO_LINE = "line {} of the vocabulary {} is not `ID LITERAL LENGTH`. Download it again."


class Tokenizer:
    """Convert text or bytes to tokens and back."""

    def __init__(self, vocabulary: dict[int, bytes]) -> None:
        """Index a vocabulary: each token with its bytes, at least one."""
        self._bytes = vocabulary
        self._tokens = {piece: token for token, piece in vocabulary.items()}
        lengths: dict[bytes, set[int]] = {}
        for piece in self._tokens:
            lengths.setdefault(piece[:2], set()).add(len(piece))
        # By the next two bytes: lengths of tokens that begin with them, longest first. One byte
        # always fits.
        self._lengths = {
            head: tuple(sorted(found, reverse=True))
            for head, found in lengths.items()
            if len(head) == 2
        }

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load a vocabulary file, or the one in a model's folder or beside its file.

        Raises:
            ModelError: There is none, or it cannot be read.
        """
        file = vocabulary_file(Path(path).expanduser())
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ModelError(
                phrase(
                    "cannot read the vocabulary {file}: {problem}. Download it again.",
                    file=str(file),
                    problem=str(e),
                )
            ) from e
        found = _LINE.findall(text)
        if len(found) != sum(map(bool, text.split("\n"))):
            number = next(
                i
                for i, line in enumerate(text.split("\n"), 1)
                if line and not _LINE.fullmatch(line)
            )
            raise ModelError(_NO_LINE.format(number, file))
        try:
            vocabulary = {
                int(number): _piece(prefix, single, double, escaped, int(size))
                for number, prefix, single, double, escaped, size in found
            }
        except (ValueError, SyntaxError) as e:
            raise ModelError(_NO_LINE.format(e, file)) from e
        if not vocabulary or END in vocabulary or len(set(vocabulary.values())) != len(found):
            raise ModelError(
                phrase(
                    "the vocabulary {file} is empty or lists a token twice, or the end. "
                    "Download it again.",
                    file=str(file),
                )
            )
        return cls(vocabulary)

    @property
    def size(self) -> int:
        """Return the highest token plus one: a model needs at least as many logits."""
        return max(self._bytes) + 1

    def encode(self, text: str | bytes) -> list[int]:
        """Return the tokens of `text`.

        Raises:
            ModelError: No token covers a byte. World vocabularies cover every byte.
        """
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        tokens: list[int] = []
        at = 0
        while at < len(data):
            for length in self._lengths.get(data[at : at + 2], ()):
                token = self._tokens.get(data[at : at + length])
                if token is not None:
                    break
            else:
                length, token = 1, self._tokens.get(data[at : at + 1])
            if token is None:
                raise ModelError(
                    phrase(
                        "the vocabulary has no token for the byte {value}. Use the model's own "
                        "{file}.",
                        value=f"{data[at]:#04x}",
                        file=VOCABULARY,
                    )
                )
            tokens.append(token)
            at += length
        return tokens

    def piece(self, token: int) -> bytes:
        """Return the bytes of one token, which may be part of a character.

        The end of the text has none; an unknown token is U+FFFD.
        """
        return b"" if token == END else self._bytes.get(token, _UNKNOWN)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes of all tokens."""
        return b"".join(map(self.piece, tokens))


def vocabulary_file(path: Path) -> Path:
    """Return the vocabulary file of a model's folder or file. Raises ModelNotFoundError."""
    if path.suffix == ".txt":
        return path
    file = (path if path.is_dir() else path.parent) / VOCABULARY
    if not file.is_file():
        raise ModelNotFoundError(
            phrase(
                "no vocabulary at {file}: put {name} (from the model's page) there.",
                file=str(file),
                name=VOCABULARY,
            )
        )
    return file


def _piece(prefix: str, single: str, double: str, escaped: str, length: int) -> bytes:
    """Return the bytes of a token. Raises ValueError or SyntaxError."""
    plain = single or double
    value: object = (
        ast.literal_eval(prefix + escaped)
        if escaped
        else plain.encode("ascii")
        if prefix
        else plain
    )
    piece = value.encode("utf-8") if isinstance(value, str) else value
    if not isinstance(piece, bytes) or not piece or len(piece) != length:
        raise ValueError(f"with {escaped or plain!r:.40}")
    return piece
