"""The secret of an endpoint: one file a kind of endpoint, which only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from scheduler import paths
from scheduler.errors import UserError


def read_token(file: Path) -> tuple[str, bool]:
    """The token in `file`, made where there is none yet, and whether it was made now."""
    paths.ensure(file.parent)
    made = True
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, paths.PRIVATE_FILE)
    except FileExistsError:
        made = False
    else:
        with os.fdopen(fd, "w") as out:
            out.write(secrets.token_urlsafe(32))
    try:
        with paths.open_plain(file) as found:
            token = found.read(4096).decode().strip()
    except (OSError, ValueError) as e:
        raise UserError(f"the token {file} cannot be read. Delete it, and another is made.") from e
    if not token or not token.isascii():
        raise UserError(f"there is no token in {file}. Delete it, and another is made.")
    return token, made
