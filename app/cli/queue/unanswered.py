"""Remember submissions that got no answer, so that a loop over `gpudeck submit` doubles no job.

Each process that submits locks a file whose name holds a digest of what it submits, and the token.
It deletes the file once it has the answer. A file that nobody locks is of a submission without an
answer: the next process that submits the same uses its token, and so gets the same job.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpudeck.app.cli.output import UsageError, print_error
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound, OutcomeUnknown, Refused, UserError
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.submissions import digest_of, new_token

FORGET_S = 3600.0
"""A submission without an answer is not repeated after so long: the same command is a new one."""
_REPEATED = (
    "the last submission of this command got no answer. This one repeats it and queues no second "
    "job"
)


@contextmanager
def submission_token(name: str | None, specs: Sequence[Spec]) -> Iterator[str]:
    """Yield the token to submit with, and remember it unless the answer arrives.

    Args:
        name: The token that the user chose, about which nothing is remembered; None for none.
        specs: The jobs.
    """
    if name is not None:
        yield name
        return
    file, lock, repeated = _file(_digest(specs))
    try:
        try:
            yield file.suffix[1:]
        except OutcomeUnknown:
            raise
        except (Refused, NotFound, BrokenPipeError):  # a reader like `head` has read enough
            _forget(file)
            raise
        except (UserError, UsageError):  # never sent, but perhaps the last time
            if not repeated:
                _forget(file)
            raise
        _forget(file)
    finally:
        os.close(lock)


def remember(token: str, specs: Sequence[Spec]) -> None:
    """Remember a submission that was answered, so that the same command finds its job again."""
    digest = _digest(specs)
    try:
        (paths.ensure(paths.home() / "submissions") / f"{digest}.{token}").touch(paths.PRIVATE_FILE)
    except OSError as e:
        print_error(f"the submission cannot be noted: {e.strerror} ({e.filename})")


def _digest(specs: Sequence[Spec]) -> str:
    """Return the digest of a submission to the daemon that this command talks to."""
    place = Client.default_place
    about = f"{place.name if place else ''} {digest_of(specs)}"
    return hashlib.sha256(about.encode()).hexdigest()[:32]


def _forget(file: Path) -> None:
    """Delete the note of a submission that has its answer, which counts whatever the disk does."""
    try:
        file.unlink(missing_ok=True)
    except OSError as e:
        print_error(
            f"the note {file} cannot be deleted: {e.strerror}. Until it is, the same command is "
            "taken for a repetition of this one"
        )


def _file(digest: str) -> tuple[Path, int, bool]:
    """Return the file of a submission without an answer, or a new one, and its locked descriptor.

    The last value is True where there was one. Raises UserError.
    """
    folder = paths.ensure(paths.home() / "submissions")
    try:
        for file in folder.iterdir():
            forgotten = _is_old(file)
            if (forgotten or file.stem == digest) and (lock := _lock(file, 0)) is not None:
                if not forgotten:
                    print_error(_REPEATED)
                    return file, lock, True
                file.unlink(missing_ok=True)
                os.close(lock)
        while True:
            file = folder / f"{digest}.{new_token()}"
            if (lock := _lock(file, os.O_CREAT | os.O_EXCL)) is not None:
                return file, lock, False
    except OSError as e:
        raise UserError(
            phrase(
                "the submission cannot be noted in {folder}: {error}. To submit "
                "without that, choose a name for it: --token NAME",
                folder=str(folder),
                error=str(e.strerror),
            )
        ) from e


def _is_old(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime > FORGET_S
    except FileNotFoundError:  # its process has its answer
        return False


def _lock(file: Path, flags: int) -> int | None:
    """Return the locked descriptor of a file; None where another process has it, or deleted it."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, paths.PRIVATE_FILE)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), file.stat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None
