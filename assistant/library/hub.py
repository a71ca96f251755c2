"""Fetch a model from Hugging Face, in a process that may be killed and continues where it stopped.

python -m gpudeck.assistant.library.hub OWNER/NAME FOLDER [BYTES]

It reports progress as JSON lines on standard output, and ends when its standard input does. With
BYTES, it refuses a model that is larger. Exit status: 0 if the model was fetched, otherwise 1. Only
.safetensors weights, their description and vocabulary are fetched: nothing that could be run.
`HF_ENDPOINT` names another hub, and `HF_TOKEN` authenticates the user.

`huggingface_hub` sends the requests, authenticates, retries and resumes within a process. Its own
downloads (2.4) begin anew after a kill, so the partial files here are ours.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from gpudeck.accel.rwkv.weights.find import check_config, shards_of
from gpudeck.accel.serving.files import refuse_gguf
from gpudeck.assistant.library import staging
from gpudeck.assistant.library.describe import describe, model_errors
from gpudeck.assistant.library.served import check_served, is_served
from gpudeck.language.numbers import amount
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound, UserError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_WANTED = re.compile(
    r"[A-Za-z0-9][\w.-]*\.safetensors|model\.safetensors\.index\.json|(?:generation_)?config\.json|tokenizer[\w-]*\.(?:json|model)|chat_template\.(?:jinja|json)"
    r"|(?:vocab|added_tokens|special_tokens_map)\.json|merges\.txt|rwkv_vocab[\w.-]*\.txt",
    re.ASCII,
)
_REPLACED = re.compile(rf"(?!rwkv_vocab)(?:{_WANTED.pattern})|\..*\.partial")
"""Files that are not kept from an older revision: everything the hub may have provided, except a
vocabulary, which users often add.
"""
_CONSOLIDATED = "consolidated"
"""How files begin that hold the same weights once more, in their maker's own layout."""
_SPARE = 256 * 2**20
"""Bytes of the disk that stay free."""
_CHUNK = 2**20
_PLAIN = {"Accept-Encoding": "identity"}
"""Nothing is compressed, so that the size that comes is the size that is kept."""
_PIECE = 2**16
"""Bytes written at once: an incomplete piece is lost with the connection."""
_PATIENCE_S = 30.0
MOST_LISTED = 2**24
"""Bytes of the list of a model's files, and seconds until it has come: models of a thousand files
have lists of a few hundred kilobytes."""
LISTED_S = 60.0
MOST_FILES = 4096
MOST_BESIDE = 2**28
"""Bytes of a file beside the weights, which is read as a whole; vocabularies have a tenth."""
MOST_MEMORY = 2**30
"""Bytes of the process's own memory: what a reply becomes when it is decoded has no other limit."""


class FetchProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Report how far a download is."""

    file: str
    done: int
    """Bytes of all files together."""
    total: int
    checking: bool = False
    """True while the checksum of a complete file is computed."""


class Fetched(msgspec.Struct, frozen=True, tag="fetched"):
    """Report that the model was fetched."""

    folder: str


class FetchFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Report that the model was not fetched, and why."""

    message: Message


HubMessage = FetchProgress | Fetched | FetchFailed


class HubFile(msgspec.Struct, frozen=True):
    """Describe a file of the model as the hub lists it."""

    name: str
    size: int
    checksum: str
    """The SHA-256 of a large file (LFS), otherwise the SHA-1 of its git object."""

    @property
    def partial(self) -> str:
        """Return the name of the partial file; a file that changed on the hub gets another one."""
        return f".{self.name}.{self.checksum[:16]}.partial"

    def is_in(self, folder: Path, checking: Callable[[], None]) -> bool:
        """Return True if the folder has the file, by name, size and checksum.

        `checking` is called before the checksum is computed, which takes a while: a further trained
        model differs by nothing else.
        """
        path = folder / self.name
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        checking()
        return self.matches(path)

    def matches(self, path: Path) -> bool:
        """Return True if the file at `path` has the checksum."""
        digest = (
            hashlib.sha256()
            if len(self.checksum) == 64
            else hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
        )
        with path.open("rb") as f:
            while chunk := f.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest() == self.checksum


def fetch(
    name: str, folder: Path, say: Callable[[FetchProgress], None], most: int = sys.maxsize
) -> None:
    """Fetch the newest revision of the model OWNER/NAME into `folder`.

    An older revision stays until the new one is complete.

    Args:
        name: OWNER/NAME.
        folder: Where it is fetched to.
        say: Takes the progress.
        most: The bytes that the user agreed to.

    Raises:
        NotFound: There is no such model.
        UserError: It cannot be fetched. What was fetched is kept, and is not fetched again.
    """
    paths.ensure(folder.parent)
    with hold_lock(
        folder.parent / f".{folder.name}.lock",
        f"{name} is being fetched already, by another window or command",
    ):
        try:
            _fetch_all(name, folder.resolve(), say, most)
        except OSError as e:
            raise UserError(
                phrase(
                    "{name} cannot be saved in {folder}: {problem}. What was fetched is "
                    "kept; try again later.",
                    name=name,
                    folder=str(folder),
                    problem=e.strerror or str(e),
                )
            ) from e


def _fetch_all(name: str, folder: Path, say: Callable[[FetchProgress], None], most: int) -> None:
    revision, files = _listed(name)
    _check_size(name, files, most)
    new = staging.begin(folder, {file.name for file in files} | {file.partial for file in files})
    total, done = sum(file.size for file in files), 0
    wanted, taken = list[HubFile](), 0
    for file in files:
        checking = partial(say, FetchProgress(file.name, done, total, checking=True))
        if not file.is_in(new, checking):
            (new / file.name).unlink(missing_ok=True)
            if not file.is_in(folder, checking):
                wanted.append(file)
                continue
            staging.take_over(folder / file.name, new)
            taken += 1
        done += file.size
    if taken == len(files) and not _older(folder, files):
        shutil.rmtree(new)
        return
    check_room(new, wanted)
    # Small files come first, so that the model is known before gigabytes are fetched.
    for file in wanted:
        if file.name.endswith(".safetensors"):
            _check_small(new, files, name)
        _fetch(
            name,
            revision,
            new,
            file,
            lambda more, f=file, d=done: say(FetchProgress(f.name, d + more, total)),  # type: ignore[misc]
        )
        say(FetchProgress(file.name, done + file.size, total, checking=True))
        accept(new, file, name)
        done += file.size
    _finish(name, folder, files)


def _check_size(name: str, files: Sequence[HubFile], most: int) -> None:
    """Raise UserError if the hub lists more than the user agreed to."""
    if (size := sum(file.size for file in files)) > most:
        raise UserError(
            phrase(
                "the hub lists {size} for {name}, and {most} were offered, so nothing was fetched. "
                "To fetch it all the same: gpudeck models pull {name}",
                size=amount(size),
                name=name,
                most=amount(most),
            )
        )


def _older(folder: Path, files: Sequence[HubFile]) -> list[Path]:
    """Return what older revisions left in the folder."""
    return [
        entry
        for entry in folder.iterdir()
        if _REPLACED.fullmatch(entry.name) and entry.name not in {file.name for file in files}
    ]


def _finish(name: str, folder: Path, files: Sequence[HubFile]) -> None:
    """Replace the model by what was fetched, with the files that the user added.

    A model that works is not given up for one that does not.
    """
    new = staging.beside(folder)
    if folder.is_dir():
        left = {file.name for file in files} | {entry.name for entry in _older(folder, files)}
        for entry in folder.iterdir():
            if entry.name not in left:
                staging.take_over(entry, new)
    if (problem := describe(new).problem) and folder.is_dir() and not describe(folder).problem:
        words = str(problem).replace(str(new), str(folder))
        raise UserError(
            phrase(
                "the newest revision of {name} cannot be used: {words} Your current "
                "revision stays.",
                name=name,
                words=words,
            )
        )
    staging.replace(folder)


def _listed(name: str) -> tuple[str, list[HubFile]]:
    """Return the newest revision and its wanted files, smallest first."""
    try:
        return _files(name, _understood(lambda: _listing(name), name))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise UserError(
            phrase(
                "the hub lists {name} in an unknown form: {problem}", name=name, problem=_line(e)
            )
        ) from e


def _files(name: str, listing: Mapping[str, Any]) -> tuple[str, list[HubFile]]:
    """Return the revision of a list, and its wanted files, smallest first."""
    from huggingface_hub import ModelInfo

    read: Callable[..., ModelInfo] = ModelInfo
    info = read(**listing)
    siblings: list[RepoSibling] = info.siblings or []
    wanted = [sibling for sibling in siblings if _WANTED.fullmatch(sibling.rfilename)]
    weights = [s for s in wanted if s.rfilename.endswith(".safetensors")]
    if any(not s.rfilename.startswith(_CONSOLIDATED) for s in weights):
        wanted = [s for s in wanted if not s.rfilename.startswith(_CONSOLIDATED)]
    files = [_file(sibling) for sibling in wanted]
    if not weights:
        if any(sibling.rfilename.lower().endswith(".gguf") for sibling in siblings):
            raise UserError(refuse_gguf(name))
        raise UserError(
            phrase(
                "{name} has no .safetensors files, and nothing else is fetched. Look "
                "for a version in the Hugging Face format (-hf).",
                name=name,
            )
        )
    if len(files) > MOST_FILES:
        raise UserError(
            phrase(
                "{name} has {n} files, and at most {most} are fetched",
                name=name,
                n=len(files),
                most=MOST_FILES,
            )
        )
    if info.sha is None or not re.fullmatch("[0-9a-f]{40}", info.sha):
        raise UserError(
            phrase(
                "the hub does not list the newest revision of {name}. Try again later.", name=name
            )
        )
    return info.sha, sorted(files, key=lambda file: (file.size, file.name))


def _listing(name: str) -> Mapping[str, Any]:
    """Return what the hub says of a model, as JSON.

    `HfApi.model_info` would read and decompress whatever comes.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        hf_raise_for_status,
        http_stream_backoff,
    )

    received, end = bytearray(), time.monotonic() + LISTED_S
    with http_stream_backoff(
        "GET",
        f"{constants.ENDPOINT}/api/models/{name}",
        params={"blobs": True},
        headers={**build_hf_headers(library_name="gpudeck"), **_PLAIN},
        timeout=_PATIENCE_S,
        max_retries=0,
    ) as response:
        hf_raise_for_status(response)
        for part in response.iter_raw():
            received += part
            if len(received) > MOST_LISTED or time.monotonic() > end:
                raise UserError(
                    phrase(
                        "the hub's list of the files of {name} has no end: it is over {size}, "
                        "or takes over {seconds} s",
                        name=name,
                        size=amount(MOST_LISTED),
                        seconds=f"{LISTED_S:.0f}",
                    )
                )
    found: Mapping[str, Any] = json.loads(received)
    return found


def _file(sibling: RepoSibling) -> HubFile:
    checksum = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    if (
        sibling.size is None
        or checksum is None
        or not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", checksum)
    ):
        raise UserError(
            phrase(
                "the hub lists no size or checksum of {file}, so it is not fetched",
                file=sibling.rfilename,
            )
        )
    most = 2**63 if sibling.rfilename.endswith(".safetensors") else MOST_BESIDE
    if not 0 <= sibling.size < most:
        raise UserError(
            phrase(
                "the hub lists {file} with {size} bytes, so it is not fetched",
                file=sibling.rfilename,
                size=sibling.size,
            )
        )
    return HubFile(sibling.rfilename, sibling.size, checksum)


def _check_small(folder: Path, files: Sequence[HubFile], name: str) -> None:
    """Refuse another kind of model, or an index of files that the hub lacks, before fetching
    weights.
    """
    with model_errors():
        if is_served(folder):
            check_served(folder)
        else:
            check_config(folder)
        shards = shards_of(folder)
    if absent := {shard.name for shard in shards} - {file.name for file in files}:
        raise UserError(
            phrase(
                "the index of {name} names {file}, which the hub does not list. It "
                "may still be uploading; try again later.",
                name=name,
                file=min(absent),
            )
        )


def check_room(folder: Path, files: list[HubFile]) -> None:
    """Raise UserError if the disk lacks room for the files."""
    there = sum(min(_size(folder / file.partial), file.size) for file in files)
    wanted, free = sum(file.size for file in files) - there, shutil.disk_usage(folder).free
    if wanted + _SPARE > free:
        raise UserError(
            phrase(
                "{size} must be fetched, but the disk of {folder} has {free} free. "
                "Make room there first.",
                size=amount(wanted),
                folder=str(folder),
                free=amount(free),
            )
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _fetch(
    name: str, revision: str, folder: Path, file: HubFile, say: Callable[[int], None]
) -> None:
    """Fetch the bytes that the partial file still lacks."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    constants.DOWNLOAD_CHUNK_SIZE = _PIECE
    grown = folder / file.partial
    if _size(grown) > file.size:
        grown.unlink()
    fd = os.open(grown, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, paths.PRIVATE_FILE)
    with os.fdopen(fd, "r+b") as f:
        start = f.seek(0, os.SEEK_END)
        say(start)
        http: Callable[..., None] = http_get
        try:
            _understood(
                lambda: http(
                    hf_hub_url(name, file.name, revision=revision),
                    _Cut(f, file.size),
                    resume_size=start,
                    headers={**build_hf_headers(library_name="gpudeck"), **_PLAIN},
                    expected_size=file.size,
                    displayed_filename=file.name,
                    tqdm_class=_telling(start, say),
                ),
                name,
            )
        except _TooLong:
            grown.unlink()
            raise UserError(
                phrase(
                    "the hub sent more of {file} than the {size} that it lists, so what "
                    "came was removed",
                    file=file.name,
                    size=amount(file.size),
                )
            ) from None
        f.flush()
        os.fsync(f.fileno())


class _TooLong(Exception):
    """Signal a file that is longer than listed."""


class _Cut:
    """A file as `http_get` uses it, that takes no byte beyond a size."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self.seek, self.tell, self.truncate = file.seek, file.tell, file.truncate

    def write(self, data: bytes) -> int:
        """Write. Raises _TooLong."""
        if self._file.tell() + len(data) > self._size:
            raise _TooLong
        return self._file.write(data)


def _telling(start: int, say: Callable[[int], None]) -> type:
    """Return a class of progress bars, as `huggingface_hub` needs, that only report."""

    class Bar:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.done = start

        def update(self, more: int) -> None:
            self.done += more
            say(self.done)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None: ...

    return Bar


def accept(folder: Path, file: HubFile, name: str) -> None:
    """Move a file to its place if it has the checksum that the hub lists."""
    grown = folder / file.partial
    if not file.matches(grown):
        grown.unlink()
        raise UserError(
            phrase(
                "{file} of {name} is damaged: its checksum differs from the one on "
                "the hub. Fetch it again.",
                file=file.name,
                name=name,
            )
        )
    grown.replace(folder / file.name)


def _understood(call: Callable[[], Any], name: str) -> Any:
    """Call the hub, and turn errors of hub and network into UserErrors of one line."""
    import httpx2
    from huggingface_hub import constants, errors

    try:
        return call()
    except errors.GatedRepoError as e:
        raise UserError(
            phrase(
                "{name} requires your consent: give it on its page, then set HF_TOKEN to your "
                "token",
                name=name,
            )
        ) from e
    except errors.RepositoryNotFoundError as e:
        raise NotFound(
            phrase(
                "there is no model {name} at {address}, or it is private: set HF_TOKEN to your "
                "token",
                name=name,
                address=constants.ENDPOINT,
            )
        ) from e
    except httpx2.ConnectError as e:
        raise UserError(
            phrase(
                "{address} cannot be reached: {quote}. Is this machine online? To use another hub, "
                "set HF_ENDPOINT.",
                address=constants.ENDPOINT,
                quote=_line(e),
            )
        ) from e
    except (errors.HfHubHTTPError, httpx2.HTTPError, errors.HFValidationError) as e:
        raise UserError(
            phrase(
                "{address} cannot serve {name}: {quote}. What was fetched is kept; try again "
                "later.",
                address=constants.ENDPOINT,
                name=name,
                quote=_line(e),
            )
        ) from e
    except OSError as e:
        raise UserError(
            phrase(
                "{name} cannot be fetched: {problem}. What was fetched is kept; try again later.",
                name=name,
                problem=e.strerror or _line(e),
            )
        ) from e


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _paced(say: Callable[[HubMessage], None]) -> Callable[[FetchProgress], None]:
    """Report at most once in each half percent of the whole, and at each new file."""
    last = FetchProgress("", -1, 0)

    def tell(now: FetchProgress) -> None:
        nonlocal last
        if (now.file, now.checking) != (
            last.file,
            last.checking,
        ) or now.done - last.done > now.total // 200:
            last = now
            say(now)

    return tell


def _until_alone() -> None:
    """End together with the parent process.

    The read is unbuffered: Python aborts if a thread holds a buffer's lock when the interpreter
    exits.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


def main(argv: list[str]) -> int:
    """Fetch a model and report on standard output; return the exit status."""
    name, folder, *most = argv
    logging.disable(logging.WARNING)  # Retries are logged as warnings; the progress shows more.

    def say(word: HubMessage) -> None:
        sys.stdout.write(msgspec.json.encode(word).decode() + "\n")
        sys.stdout.flush()

    threading.Thread(target=_until_alone, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    try:
        fetch(name, Path(folder), _paced(say), *map(int, most))
    except UserError as e:
        say(FetchFailed(e.message))
        return 1
    except MemoryError:
        say(
            FetchFailed(
                phrase(
                    "the hub sent something that needs over {size} of memory",
                    size=amount(MOST_MEMORY),
                )
            )
        )
        return 1
    say(Fetched(folder))
    return 0


def read_messages(lines: Iterator[bytes]) -> Iterator[HubMessage]:
    """Yield the messages of the process, line by line."""
    decode = msgspec.json.Decoder(HubMessage).decode
    for line in lines:
        yield decode(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
