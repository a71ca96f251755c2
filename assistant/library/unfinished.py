"""Find downloads that ended before they were complete."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.library import model_list


class Unfinished(msgspec.Struct, frozen=True):
    """Describe a download that can be continued."""

    name: str
    """OWNER/NAME."""
    bytes: int
    """What it left on the disk."""


def unfinished_downloads() -> tuple[Unfinished, ...]:
    """Return the downloads whose folders `gpudeck.assistant.library.staging` keeps."""
    found = []
    for folder in sorted(model_list.folder().glob(".*--*.new")):
        name = folder.name.removeprefix(".").removesuffix(".new").replace("--", "/", 1)
        size = sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
        if size:
            found.append(Unfinished(name, size))
    return tuple(found)
