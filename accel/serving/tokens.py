"""Convert text to tokens and back, by the tokenizer.json of a model's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import DecodeStream

from gpudeck.accel.serving.errors import ModelRefused, TooLong
from gpudeck.language.text import phrase

_FILE = "tokenizer.json"
_MOST_BYTES = 64 * 2**20
_BEFORE = 8
"""Tokens of the prompt that the text's pieces are decoded after: a space may belong to both."""


class Tokenizer:
    """Convert text to tokens and back, by the package `tokenizers`."""

    def __init__(self, backend: Backend) -> None:
        """Take a tokenizer of the package `tokenizers`."""
        self.backend = backend
        self.size = backend.get_vocab_size(with_added_tokens=True)
        self._longest = max(map(len, backend.get_vocab(with_added_tokens=True)), default=1)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Load the tokenizer in a model's folder. Raises ModelRefused."""
        file = folder / _FILE
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise ModelRefused(
                    phrase(
                        "{file} has more than {most} bytes",
                        file=str(file),
                        most=_MOST_BYTES,
                    )
                )
            return cls(Backend.from_str(file.read_text(encoding="utf-8")))
        except ModelRefused:
            raise
        except OSError as e:
            raise ModelRefused(
                phrase(
                    "cannot read {file}: {problem}. A model needs a {name}; download it again",
                    file=str(file),
                    problem=e.strerror or str(e),
                    name=_FILE,
                )
            ) from e
        except Exception as e:  # the package raises nothing more specific
            raise ModelRefused(
                phrase(
                    "{file} is damaged: {problem}. Download it again",
                    file=str(file),
                    problem=f"{e!s:.200}",
                )
            ) from e

    def encode(self, text: str, most: int, *, special: bool = True) -> list[int]:
        """Return the tokens of `text`.

        Args:
            text: Any text.
            most: The most tokens that are of use.
            special: Add what the tokenizer puts around a text, such as a token for its beginning.

        Raises:
            TooLong: There are more, which a very long text is refused for before it is
                converted.
        """
        least = len(text) // self._longest
        if least <= most:
            tokens: list[int] = self.backend.encode(text, add_special_tokens=special).ids
            if len(tokens) <= most:
                return tokens
            least = len(tokens)
        raise TooLong(f"the prompt has {least} tokens or more; at most {most} fit. Shorten it")

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        text: str = self.backend.decode(list(tokens), skip_special_tokens=True)
        return text

    def bytes_of(self, token: int) -> str:
        """Return a token as the vocabulary writes it."""
        return self.backend.id_to_token(token) or ""

    def pieces(self, prompt: Sequence[int]) -> Pieces:
        """Return what converts the answer to a prompt."""
        return Pieces(self, prompt)

    def grammar_source(self, ends: Sequence[int], size: int) -> str:
        """Return the vocabulary in a form that llguidance reads: the tokenizer.json.

        Args:
            ends: Tokens that end a text.
            size: Logits of the model, which may be more than there are tokens.
        """
        del ends, size
        source: str = self.backend.to_str()
        return source


class Pieces:
    """Convert an answer's tokens to text one by one; part of a character is held back."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        """Begin after a prompt."""
        self._backend = tokenizer.backend
        self._stream = DecodeStream(ids=list(prompt[-_BEFORE:]), skip_special_tokens=True)

    def add(self, token: int) -> str:
        """Return the text that is complete with this token."""
        try:
            return self._stream.step(self._backend, token) or ""
        except Exception:  # noqa: BLE001  raised for bytes that never become a character
            self._stream = DecodeStream(skip_special_tokens=True)
            return "\ufffd"
