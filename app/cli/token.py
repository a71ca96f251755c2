"""Keep the secret token of an endpoint in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError


def read_token(file: Path) -> tuple[str, bool]:
    """Return the token in `file`, and True if it was created by this call.

    Raises:
        UserError: The token cannot be read or stored.
    """
    paths.ensure(file.parent)
    created = not file.exists() and _create(file)
    try:
        with paths.open_plain(file) as stored:
            token = stored.read(4096).decode().strip()
    except (OSError, ValueError) as e:
        raise UserError(
            phrase(
                "cannot read the token in {file}. Delete the file to create a new token",
                file=str(file),
            )
        ) from e
    if not token or not token.isascii():
        raise UserError(
            phrase("{file} holds no token. Delete the file to create a new token", file=str(file))
        )
    return token, created


def _create(file: Path) -> bool:
    """Store a new token, and return False if another process stored one first.

    The file is linked into place, so that nobody ever sees it empty.
    """
    new = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    new.unlink(missing_ok=True)  # left by a process with this number that was killed
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(new, flags, paths.PRIVATE_FILE), "w") as out:
            out.write(secrets.token_urlsafe(32))
        os.link(new, file)
    except FileExistsError:
        return False
    except OSError as e:
        raise UserError(
            phrase("cannot store a token in {file}: {error}", file=str(file), error=str(e.strerror))
        ) from e
    finally:
        new.unlink(missing_ok=True)
    return True
