"""Turn text into tokens: bytes, or what a model's tokenizer.json makes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.settings import AUTO
from gpudeck.language.text import phrase

if TYPE_CHECKING:
    from gpudeck.accel.serving.template import Template

Tokens = NDArray[np.uint32]
END = "<|endoftext|>"
_ENDS = (END, "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")
"""Names of the token that ends a text, for tokenizers that do not say which one it is."""
_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "generation_config.json",
)  # fmt: skip


class Tokenizer(Protocol):
    """What turns texts into tokens."""

    vocabulary: int
    """The number of tokens."""
    begin: int
    """The token before a text."""
    end: int
    """The token after a text."""
    fingerprint: str
    """Differs between tokenizers that make different tokens."""

    def chat_template(self) -> Template | None:
        """Return what writes chats; None if the model has none. Raises ModelRefused."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text, without special ones."""

    def write(self, folder: Path) -> None:
        """Write the files that make the same tokens in transformers."""


def load_tokenizer(path: str) -> Tokenizer:
    """Return the tokenizer of a file or a model's folder; bytes for `AUTO`.

    Raises:
        Refused: if it cannot be used.
        ModuleNotFoundError: if the package `tokenizers` is needed and not installed.
    """
    if path == AUTO:
        return ByteTokenizer()
    file = Path(path).expanduser()
    return FileTokenizer(file / _FILES[0] if file.is_dir() else file)


class ByteTokenizer:
    """Make a token of each byte of UTF-8."""

    vocabulary, begin, end, fingerprint = 257, 256, 256, "bytes"

    def chat_template(self) -> None:
        """Return None, as a new model has no template."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the bytes of each text."""
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]

    def write(self, folder: Path) -> None:
        """Write a byte-level BPE that merges nothing."""
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        made = {
            "version": "1.0",
            "added_tokens": [
                {"id": self.end, "content": END, "special": True, "single_word": False,
                 "lstrip": False, "rstrip": False, "normalized": False}
            ],
            "pre_tokenizer": {**byte_level, "use_regex": False},
            "decoder": {**byte_level, "use_regex": False},
            "model": {"type": "BPE", "vocab": _byte_names(), "merges": []},
        }  # fmt: skip
        (folder / _FILES[0]).write_text(json.dumps(made))
        said = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": END}
        (folder / _FILES[1]).write_text(json.dumps(said))


class FileTokenizer:
    """Use a tokenizer.json, by the package `tokenizers`."""

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer as Backend

        try:
            text = file.read_text(encoding="utf-8")
            self._backend = Backend.from_str(text)
        except OSError as e:
            raise Refused(
                phrase("cannot read {file}: {why}", file=str(file), why=str(e.strerror))
            ) from e
        except Exception as e:  # the package raises nothing more specific
            raise Refused(
                phrase("{file} is no tokenizer.json: {why}", file=str(file), why=str(e)[:200])
            ) from e
        self._file = file
        self.vocabulary = self._backend.get_vocab_size(with_added_tokens=True)
        self.end = self._find_end()
        added = self._backend.encode("", add_special_tokens=True).ids
        self.begin: int = added[0] if added else self.end
        said = [file.with_name(name) for name in _FILES[1:]]
        parts = [text.encode(), *(one.read_bytes() for one in said if one.is_file())]
        self.fingerprint = hashlib.sha256(b"\0".join(parts)).hexdigest()
        self.chat_template = cache(self._load_template)

    def _load_template(self) -> Template | None:
        from gpudeck.accel.serving.folder_template import load_template

        return load_template(self._file.parent)

    def _find_end(self) -> int:
        named = _name_of(_read_object(self._file.with_name(_FILES[1])).get("eos_token"))
        for name in (*filter(None, [named]), *_ENDS):
            if (token := self._backend.token_to_id(name)) is not None:
                return int(token)
        raise Refused(
            phrase(
                "{file} has no token that ends a text. Name it as eos_token in"
                " tokenizer_config.json beside it",
                file=str(self._file),
            )
        )

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text, computed in as many threads as there are processors."""
        made = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(one.ids, np.uint32) for one in made]

    def write(self, folder: Path) -> None:
        """Copy the tokenizer's files."""
        for name in _FILES:
            source = self._file if name == _FILES[0] else self._file.with_name(name)
            if source.is_file():
                (folder / name).write_bytes(source.read_bytes())


def _name_of(token: Any) -> str | None:
    """Return the content of a token, which configurations write as a text or an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _read_object(file: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one if there is no such file."""
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as e:
        raise Refused(phrase("cannot read {file}: {why}", file=str(file), why=str(e))) from e
    return found if isinstance(found, dict) else {}


def _byte_names() -> dict[str, int]:
    """Return the characters by which byte-level tokenizers write bytes, with the bytes.

    Printable characters of Latin-1 stand for themselves, the other bytes for characters from
    U+0100 on, in their order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(b if b in printable else next(others)): b for b in range(256)}
