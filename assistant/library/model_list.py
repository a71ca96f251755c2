"""Keep the list of models that the user added or fetched.

Removing a model from the list never deletes its files.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudeck.assistant.library.describe import Model, describe
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError


class _List(msgspec.Struct, forbid_unknown_fields=True):
    paths: list[str] = []


def folder() -> Path:
    """Return the folder of fetched models."""
    return paths.home() / "models"


def folder_of(name: str) -> Path:
    """Return the folder that the model OWNER/NAME is fetched into."""
    return folder() / name.replace("/", "--")


def listed_models(used: str = "") -> tuple[Model, ...]:
    """Return all models as they are now, the `used` one (setting `model_folder`) first."""
    listed = _read().paths
    first = [str(Path(used).expanduser().absolute())] if used else []
    return tuple(describe(path) for path in dict.fromkeys([*first, *listed]))


def add(path: str | Path) -> Model:
    """Add a folder or file to the list. Raises UserError if it is not a usable model."""
    model = describe(path)
    if model.problem:
        raise UserError(model.problem)
    with _changing() as listed:
        if model.path not in listed.paths:
            listed.paths.append(model.path)
    return model


def remove(path: str) -> None:
    """Remove a model from the list; its files stay. Raises NotFound if it is not on the list."""
    with _changing() as listed:
        if path not in listed.paths:
            raise NotFound(
                phrase("{file} is not on the list of models. See: gpudeck models", file=str(path))
            )
        listed.paths.remove(path)


def find(word: str, used: str = "") -> Model:
    """Return the model on the list with this name or path, or else the one at this path.

    Raises:
        NotFound: There is no such model, or several have this name.
    """
    models = listed_models(used)
    path = str(Path(word).expanduser().absolute())
    found = [model for model in models if word == model.name or path == model.path]
    if len(found) == 1:
        return found[0]
    if Path(path).exists():
        return describe(path)
    names = ", ".join(model.name for model in models) or "none"
    raise NotFound(
        phrase(
            "no model, or more than one, is called {word}. Models: {names}. To add "
            "one: gpudeck models add FOLDER",
            word=word,
            names=names,
        )
    )


def _file() -> Path:
    return paths.home() / "models.json"


def _read() -> _List:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=_List)
    except FileNotFoundError:
        return _List()
    except (*MALFORMED, OSError) as e:
        raise UserError(
            phrase(
                "cannot read the list of models in {file}: {problem}. Correct the file,"
                " or delete it to start a new list.",
                file=str(_file()),
                problem=str(e),
            )
        ) from e


@contextmanager
def _changing() -> Iterator[_List]:
    """Yield the list and write it back, while a lock keeps other processes from changing it."""
    paths.ensure(paths.home())
    lock = os.open(
        paths.home() / "models.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, paths.PRIVATE_FILE
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listed = _read()
        yield listed
        try:
            paths.replace_file(_file(), msgspec.json.format(msgspec.json.encode(listed)))
        except OSError as e:
            raise UserError(
                phrase(
                    "cannot save the list of models in {file}: {problem}. The list is unchanged.",
                    file=str(_file()),
                    problem=e.strerror or str(e),
                )
            ) from e
    finally:
        os.close(lock)
