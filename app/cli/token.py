"""The secret of an endpoint: one file a kind of endpoint, which only its owner can read."""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path

from scheduler.protocol import paths
from scheduler.protocol.errors import UserError


def read_token(file: Path) -> tuple[str, bool]:
    """The token in `file`, made where there is none yet, and whether it was made now."""
    paths.ensure(file.parent)
    made = not file.exists() and _made(file)
    try:
        with paths.open_plain(file) as found:
            token = found.read(4096).decode().strip()
    except (OSError, ValueError) as e:
        raise UserError(f"the token {file} cannot be read. Delete it, and another is made.") from e
    if not token or not token.isascii():
        raise UserError(f"there is no token in {file}. Delete it, and another is made.")
    return token, made


def _made(file: Path) -> bool:
    """Whether it is ours: of several who make it at once one wins, and nobody ever sees it without its content."""
    new = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    new.unlink(missing_ok=True)  # of one that had this pid and was killed
    try:
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, paths.PRIVATE_FILE), "w"
        ) as out:
            out.write(secrets.token_urlsafe(32))
        os.link(new, file)
    except FileExistsError:
        return False
    except OSError as e:
        raise UserError(f"a token cannot be stored in {file}: {e.strerror}") from e
    finally:
        new.unlink(missing_ok=True)
    return True
