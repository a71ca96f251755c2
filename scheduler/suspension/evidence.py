"""Keep which programs are suspended on disk, so that no crash leaves one forgotten."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.background.process_stat import boot_id
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.paths import replace_file
from gpudeck.scheduler.suspension.program import Suspension

_DECODE = msgspec.json.Decoder(tuple[Suspension, ...]).decode


def read_suspensions(file: Path) -> tuple[Suspension, ...]:
    """Return the suspensions of this boot that were written.

    Raises:
        UserError: The file cannot be read or is damaged.
    """
    try:
        found = _DECODE(file.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, *MALFORMED) as e:
        raise UserError(
            phrase(
                "the list of suspended programs, {file}, cannot be read: {error}. "
                "Programs that were suspended wait until they are resumed by: "
                "gpudeck resume --pid PID",
                file=str(file),
                error=str(e),
            )
        ) from e
    boot = boot_id()
    return tuple(suspension for suspension in found if suspension.boot == boot)


def write_suspensions(file: Path, suspensions: tuple[Suspension, ...]) -> None:
    """Replace the list on disk before anything is done that it tells of. Raises OSError."""
    replace_file(file, msgspec.json.encode(suspensions))
