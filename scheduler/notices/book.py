"""The destinations of each user, in a file that only the daemon reads: addresses may be secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.destinations import MOST_DESTINATIONS, Destination
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError

_Entries = dict[str, dict[str, Destination]]


class DestinationBook:
    """Keep destinations by user and name. A user of None is who runs a daemon of their own.

    Raises UserError where the file cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._entries = msgspec.json.decode(file.read_bytes(), type=_Entries)
        except FileNotFoundError:
            self._entries = {}
        except (*MALFORMED, OSError) as e:
            raise UserError(
                phrase(
                    "cannot read the destinations of notices in {file}. Correct "
                    "the file, or delete it and add them again with: gpudeck "
                    "notify add",
                    file=str(file),
                )
            ) from e

    def of(self, user: int | None) -> dict[str, Destination]:
        """Return the destinations of a user."""
        return self._entries.get(_key(user), {})

    def users(self) -> Iterator[int | None]:
        """Yield the users who have any."""
        for key in self._entries:
            yield int(key) if key else None

    def set(self, user: int | None, name: str, destination: Destination | None) -> None:
        """Add or replace a destination, or remove it (None), and store that.

        Raises NotFound, UserError.
        """
        mine = dict(self.of(user))
        if destination is not None:
            mine[name] = destination
            if len(mine) > MOST_DESTINATIONS:
                raise UserError(
                    phrase("there are at most {limit} destinations", limit=MOST_DESTINATIONS)
                )
        elif mine.pop(name, None) is None:
            raise NotFound(phrase("there is no destination {name}. See: gpudeck notify", name=name))
        entries = {**self._entries, _key(user): mine}
        try:
            paths.replace_file(self._file, msgspec.json.encode(entries))
        except OSError as e:
            raise UserError(
                phrase(
                    "{file} cannot be stored: {error}", file=str(self._file), error=str(e.strerror)
                )
            ) from e
        self._entries = entries


def _key(user: int | None) -> str:
    return "" if user is None else str(user)
