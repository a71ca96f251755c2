"""Keep the tokens of data in memory-mapped files, which are made once and checked before each use.

A folder holds tokens-00000.bin, ... (uint32, little-endian, all documents end to end), starts.npy
(where documents begin, int64) and index.json with the checksums. Around each document are the
tokens that begin and end a text; where these are equal, one stands between two documents. Chats
have only what their template writes. The highest bit of a token is set where it is read and not
predicted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudeck.accel.training.documents import Broken, Piece, files_of, read_file
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.tokenizers import Tokenizer, Tokens
from gpudeck.language.text import Message, Text, phrase, phrase_count

UNLEARNED = 1 << 31
"""The bit of a token that is read and not predicted."""
_VERSION = 4
_SHARD_TOKENS = 2**26
_BATCH_CHARACTERS, _BATCH_PIECES = 2**22, 2**16
"""Characters and documents that are tokenized together."""
KEPT_BROKEN, _SHOWN = 1000, 5
"""The places without use that are kept, and those that a message names: of a file that is no data,
every line may be one."""
Report = Callable[[float, float], None]
"""Takes the bytes that were read, and those of all files."""


class Shard(msgspec.Struct, frozen=True):
    """A file of tokens."""

    name: str
    tokens: int
    sha256: str


class Index(msgspec.Struct, frozen=True):
    """What index.json holds."""

    version: int
    tokens: int
    highest: int
    """The highest token; -1 if there are none."""
    starts: str
    """The checksum of starts.npy."""
    shards: tuple[Shard, ...]
    broken: tuple[Text, ...]
    """What of the data could not be used: the first KEPT_BROKEN places."""
    unused: int
    """How many such places there are."""

    @property
    def fingerprint(self) -> str:
        """Return what differs between data with different tokens."""
        parts = [self.starts, *(shard.sha256 for shard in self.shards)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


class TokenData:
    """Read tokens by their position."""

    def __init__(self, folder: Path) -> None:
        """Open the files of a folder and compare their checksums.

        Raises:
            Refused: if one is missing or damaged.
        """
        try:
            self.index = msgspec.json.decode((folder / "index.json").read_bytes(), type=Index)
            files = [(s.name, s.sha256) for s in self.index.shards]
            for name, wanted in (*files, ("starts.npy", self.index.starts)):
                if checksum(folder / name) != wanted:
                    raise Refused(_damaged(folder, phrase("{name} has changed", name=name)))
            self.starts: NDArray[np.int64] = np.load(folder / "starts.npy", mmap_mode="r")
        except (OSError, msgspec.MsgspecError) as e:
            raise Refused(_damaged(folder, str(e))) from e
        self._shards = [
            np.memmap(folder / s.name, "<u4", "r", shape=(s.tokens,)) for s in self.index.shards
        ]
        self._ends = np.cumsum([s.tokens for s in self.index.shards])

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.index.tokens

    def take(self, begin: int, count: int) -> Tokens:
        """Return a copy of tokens that follow each other."""
        parts, end = [], begin + count
        first = int(np.searchsorted(self._ends, begin, side="right"))
        for shard, last in zip(self._shards[first:], self._ends[first:], strict=True):
            offset = int(last) - len(shard)
            parts.append(shard[max(begin - offset, 0) : end - offset])
            if last >= end:
                break
        return np.concatenate(parts)


def _damaged(folder: Path, why: Message) -> Text:
    return phrase(
        "the tokens in {folder} are damaged: {why}. Remove the folder", folder=str(folder), why=why
    )


def prepare(
    path: Path, tokenizer: Tokenizer, cache: Path, *, skip_broken: bool, report: Report
) -> TokenData:
    """Tokenize data unless that was done before, and open the tokens.

    Args:
        path: a file or folder.
        tokenizer: makes the tokens.
        cache: the folder in which the tokens of all data are kept.
        skip_broken: leave out what cannot be read.
        report: receives the progress.

    Raises:
        Refused: if a part of the data cannot be read, or nothing is left of it.
        OSError: if the tokens cannot be written.
    """
    files = files_of(path)
    folder = cache / _key(path, files, tokenizer)
    if not (folder / "index.json").is_file():
        _make(folder, files, tokenizer, report)
    data = TokenData(folder)
    if data.index.broken and not skip_broken:
        shown = "; ".join(map(str, data.index.broken[:_SHOWN]))
        raise Refused(
            phrase_count(
                "{n} part of the data cannot be used: {parts}. Mend it, or choose skip_broken=yes",
                "{n} parts of the data cannot be used, among them: {parts}. Mend them, or choose"
                " skip_broken=yes",
                data.index.unused,
                parts=shown,
            )
        )
    if not len(data):
        raise Refused(phrase("nothing in {path} can be used", path=str(path)))
    return data


def _key(path: Path, files: Sequence[Path], tokenizer: Tokenizer) -> str:
    """Return a name that differs if a file or the tokenizer has changed."""
    made = hashlib.sha256(f"{_VERSION} {tokenizer.fingerprint}".encode())
    for file in files:
        s = file.stat()
        made.update(f"{file.absolute()}\0{s.st_size}\0{s.st_mtime_ns}\0".encode("utf-8", "replace"))
    return made.hexdigest()[:24]


def _make(folder: Path, files: Sequence[Path], tokenizer: Tokenizer, report: Report) -> None:
    """Write all files into a folder beside it, and rename that when it is complete."""
    new = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True, mode=0o700)
    try:
        _write(new, files, tokenizer, report)
        new.rename(folder)
    except BaseException as e:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(e, OSError) and (folder / "index.json").is_file():
            return  # another run made the same tokens
        raise


def _write(folder: Path, files: Sequence[Path], tokenizer: Tokenizer, report: Report) -> None:
    total = float(sum(file.stat().st_size for file in files)) or 1.0
    writer, broken, unused, done = _Writer(folder, tokenizer), list[Text](), 0, 0.0
    for file in files:
        for batch in _batches(read_file(file, tokenizer.chat_template)):
            places = [found for found in batch if isinstance(found, Broken)]
            unused += len(places)
            broken += [place.text for place in places[: KEPT_BROKEN - len(broken)]]
            pieces = [found for found in batch if isinstance(found, Piece)]
            made = tokenizer.encode([piece.text for piece in pieces])
            for piece, tokens in zip(pieces, made, strict=True):
                writer.add(tokens, piece)
            report(min(done + sum(len(p.text) for p in pieces), total), total)
        done += file.stat().st_size
        report(min(done, total), total)
    shards, count = writer.close()
    np.save(folder / "starts.npy", np.asarray(writer.starts, np.int64))
    index = Index(
        _VERSION, count, writer.highest, checksum(folder / "starts.npy"), shards,
        tuple(broken), unused,
    )  # fmt: skip
    with (folder / "index.json").open("wb") as f:
        f.write(msgspec.json.encode(index))
        f.flush()
        os.fsync(f.fileno())


def _batches(found: Iterator[Piece | Broken]) -> Iterator[list[Piece | Broken]]:
    """Group what was read, so that a tokenizer has enough for several threads."""
    batch: list[Piece | Broken] = []
    size = 0
    for one in found:
        batch.append(one)
        size += len(one.text) if isinstance(one, Piece) else 0
        if size >= _BATCH_CHARACTERS or len(batch) >= _BATCH_PIECES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Writer:
    """Write documents end to end into files of limited size."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._folder = folder
        self._begin, self._end = (
            np.asarray([token], np.uint32) for token in (tokenizer.begin, tokenizer.end)
        )
        self._shards: list[Shard] = []
        self._file = (folder / "tokens-00000.bin").open("wb")
        self._sum, self._count, self._before = hashlib.sha256(), 0, 0
        self._within = False
        """A document has begun and not ended."""
        self._owed = False
        """The token that ends the last document is not written yet."""
        self.starts: list[int] = []
        self.highest = -1

    def add(self, tokens: Tokens, piece: Piece) -> None:
        """Write a part of a document; a document without tokens leaves nothing."""
        if len(tokens) and not self._within:
            self._begin_document(bare=piece.bare)
            self._within = True
        self._put(tokens, learned=piece.learned)
        self._within = self._within and not piece.ends

    def _begin_document(self, *, bare: bool) -> None:
        """Write what stands between two documents, and before the first."""
        shared = self._owed and not bare and self._begin == self._end
        if self._owed and not shared:
            self._put(self._end)
        self.starts.append(self._before + self._count)
        if not bare:
            self._put(self._begin, learned=shared)
        self._owed = not bare

    def _put(self, tokens: Tokens, *, learned: bool = True) -> None:
        self.highest = max(self.highest, int(tokens.max(initial=0)))
        tokens = tokens if learned else tokens | np.uint32(UNLEARNED)
        data = tokens.astype("<u4").tobytes()
        self._file.write(data)
        self._sum.update(data)
        self._count += len(tokens)
        if self._count >= _SHARD_TOKENS:
            self._finish()
            self._file = (self._folder / f"tokens-{len(self._shards):05}.bin").open("wb")

    def _finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        name = Path(self._file.name).name
        self._shards.append(Shard(name, self._count, self._sum.hexdigest()))
        self._before += self._count
        self._sum, self._count = hashlib.sha256(), 0

    def close(self) -> tuple[tuple[Shard, ...], int]:
        """End the last document and file; return the files, and the number of all tokens."""
        if self._owed:
            self._put(self._end)
        if self._count:
            self._finish()
        else:
            self._file.close()
            Path(self._file.name).unlink()
        return tuple(self._shards), self._before


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
