"""Warn of a command that cannot be found, before the job waits for hours to fail."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from gpudeck.app.language.texts import tr

_MOST_FOLDERS = 6
_INTERPRETER = re.compile(
    r"(python|pypy)[0-9.]*|torchrun|(ba|da|z)?sh|Rscript|julia|node|perl|ruby"
)
_SCRIPT = re.compile(r".+\.(py|sh|R|jl|js|pl|rb)")
_INLINE = ("-c", "-m", "-e")
"""The options of interpreters that are followed by code, or by a module, instead of a file."""


def command_warning(argv: Sequence[str], folder: str, path: str) -> str:
    """Return why a command of this machine will not be found; empty where it will.

    Args:
        argv: The command with its arguments.
        folder: The folder that it runs in.
        path: The PATH that it runs with.
    """
    if not argv or not argv[0]:
        return ""
    name = argv[0]
    if "/" in name:
        return _path_warning(Path(folder) / name, name, folder) or _script_warning(argv, folder)
    if shutil.which(name, path=_absolute(path, folder)):
        return _script_warning(argv, folder)
    folders = [f for f in path.split(os.pathsep) if f]
    looked = ", ".join(folders[:_MOST_FOLDERS])
    if len(folders) > _MOST_FOLDERS:
        looked = tr("{folders} and {n} more", folders=looked, n=len(folders) - _MOST_FOLDERS)
    looked = looked or tr("none")
    text = tr(
        "there is no command {name!r} in the folders of PATH: {where}.", name=name, where=looked
    )
    if (Path(folder) / name).is_file():
        here = tr("There is a file of this name in {folder}; to run it:", folder=folder)
        return f"{text} {here} ./{name}"
    return _with_similar(text, get_close_matches(name, set(_commands(folders)), n=1, cutoff=0.75))


def _script_warning(argv: Sequence[str], folder: str) -> str:
    """Return why an interpreter will not find the script that it is to run."""
    script = script_of(argv)
    file = Path(folder) / script
    return "" if not script or file.exists() else _missing_warning(file, script, folder)


def script_of(argv: Sequence[str]) -> str:
    """Return the script that an interpreter runs; empty for other programs, and inline code."""
    if not argv or not _INTERPRETER.fullmatch(Path(argv[0]).name):
        return ""
    for word in argv[1:]:
        if word in _INLINE:
            return ""
        if _SCRIPT.fullmatch(word) and not word.startswith("-"):
            return word
    return ""


def module_of(argv: Sequence[str]) -> str:
    """Return the module that Python runs by its name; empty for other programs."""
    if not argv or not Path(argv[0]).name.startswith(("python", "pypy")):
        return ""
    return next((name for option, name in pairwise(argv[1:]) if option == "-m"), "")


def _path_warning(file: Path, name: str, folder: str) -> str:
    try:
        if os.access(file, os.X_OK) and file.is_file():
            return ""
        if file.is_file():
            command = f"chmod +x {file}"
            return tr(
                "{name} in {folder} cannot be executed. To allow it: {command}",
                name=name,
                folder=folder,
                command=command,
            )
    except OSError:
        pass
    return _missing_warning(file, name, folder)


def _missing_warning(file: Path, name: str, folder: str) -> str:
    """Return that there is no file, and one with a similar name."""
    try:
        names = [other.name for other in file.parent.iterdir() if other.is_file()]
    except OSError:
        names = []
    similar = get_close_matches(file.name, names, n=1, cutoff=0.75)
    text = tr("there is no {name} in {folder}.", name=name, folder=folder)
    if Path(name).is_absolute():
        text = tr("there is no file {name}.", name=name)
    return _with_similar(text, [str(Path(name).parent / found) for found in similar])


def _with_similar(text: str, similar: Sequence[str]) -> str:
    return text + " " + tr("Did you mean {name}?", name=similar[0]) if similar else text


def _absolute(path: str, folder: str) -> str:
    """Return the PATH with its relative folders seen from the folder of the job."""
    return os.pathsep.join(str(Path(folder) / part) for part in path.split(os.pathsep) if part)


def _commands(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                yield from (entry.name for entry in entries)
        except OSError:
            continue
