"""Add GPU Deck to the menu of the user's desktop, or remove it from there."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from gpudeck.app import DESKTOP_ID
from gpudeck.app.cli.output import print_result
from gpudeck.extras import missing_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.background import unit
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

_ENTRY = f"applications/{DESKTOP_ID}.desktop"
_SOURCES = {
    f"icons/hicolor/scalable/apps/{DESKTOP_ID}.svg": f"icons/{DESKTOP_ID}.svg",
    f"metainfo/{DESKTOP_ID}.metainfo.xml": f"desktop/{DESKTOP_ID}.metainfo.xml",
    _ENTRY: f"desktop/{DESKTOP_ID}.desktop",
}
"""The files below the user's data folder, and the assets that they are made from."""
_CACHES = {
    "icons/hicolor/icon-theme.cache": (
        "gtk-update-icon-cache", "--quiet", "--force", "--ignore-theme-index",
    ),
    "applications/mimeinfo.cache": ("update-desktop-database", "--quiet"),
}  # fmt: skip
"""Caches that a desktop may have, and the commands that renew them."""


class Changed(msgspec.Struct):
    """Hold what was done, as --json prints it."""

    program: str | None
    """What the menu starts; None where the entry was removed."""
    files: list[str]
    """The files that were written or removed."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action."""
    parser.add_argument(
        "action",
        choices=("install", "remove"),
        metavar="install|remove",
        help="install adds the entry, the icon and the description for software centres to the "
        "folder $XDG_DATA_HOME (~/.local/share); remove deletes these files",
    )


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    try:
        done = install() if args.action == "install" else remove()
    except OSError as e:
        raise UserError(
            phrase(
                "the menu cannot be changed: {file}: {error}",
                file=str(e.filename),
                error=str(e.strerror),
            )
        ) from e
    if done.program:
        first, verb = f"GPU Deck is in your menu, which starts {done.program}.", "Wrote"
    elif done.files:
        first, verb = "GPU Deck was removed from your menu.", "Removed"
    else:
        first, verb = "GPU Deck was not in your menu, so nothing was removed.", ""
    print_result(args, done, first, *(f"{verb} {file}" for file in done.files))


def install() -> Changed:
    """Write the files that are missing or out of date. Raises UserError or OSError."""
    if missing := missing_of("window"):
        raise UserError(missing.text)
    program, changed = _find_program(), []
    for name, asset in _SOURCES.items():
        file, content = _data_folder() / name, (paths.assets() / asset).read_bytes()
        if name == _ENTRY:
            content = _insert_program(content.decode(), program).encode()
        if not file.exists() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            changed.append(file)
    return _announce(shlex.join(program), changed)


def remove() -> Changed:
    """Remove the files that `install` writes. Raises OSError."""
    files = [file for name in _SOURCES if (file := _data_folder() / name).exists()]
    for file in files:
        file.unlink()
    return _announce(None, files)


def _data_folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()


def _find_program() -> list[str]:
    """Return the command that starts this installation, also where it is not in the PATH."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "gpudeck":
        return [str(script)]
    return [sys.executable, "-P", "-m", "gpudeck"]


def _insert_program(entry: str, program: list[str]) -> str:
    """Return the entry with the program that it starts, and without which it is not shown."""
    command = " ".join(_quote(word) for word in program)
    return entry.replace("\nExec=gpudeck\n", f"\nTryExec={_escape(program[0])}\nExec={command}\n")


def _quote(word: str) -> str:
    """Quote a word of a command line in a desktop entry."""
    for reserved in '\\"`$':
        word = word.replace(reserved, f"\\{reserved}")
    return _escape('"' + word.replace("%", "%%") + '"')


def _escape(value: str) -> str:
    """Escape a value of a desktop entry."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _announce(program: str | None, files: list[Path]) -> Changed:
    """Have the desktop notice that files changed, and return what was done."""
    for name, command in _CACHES.items():
        cache = _data_folder() / name
        if files and cache.parent.is_dir():
            os.utime(cache.parent)  # a desktop does not use a cache that is older than its folder
            if cache.exists():
                unit.run(*command, str(cache.parent))
    return Changed(program, list(map(str, files)))
