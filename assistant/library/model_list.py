"""The list of models that the user has named or fetched, and ours. Taking one off the list never deletes it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from assistant.library.describe import Model, describe
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED, NotFound, UserError


class _List(msgspec.Struct, forbid_unknown_fields=True):
    paths: list[str] = []


def folder() -> Path:
    """Where fetched models are."""
    return paths.home() / "models"


def listed_models(used: str = "") -> tuple[Model, ...]:
    """All on the list, the one that is `used` (the setting `model_folder`) and ours, first the one that is used, each as it is now."""
    listed = _read().paths
    first = [str(Path(used).expanduser().absolute())] if used else []
    ours = paths.shipped_model()
    shipped = [str(ours)] if ours.is_dir() else []
    return tuple(describe(path) for path in dict.fromkeys([*first, *listed, *shipped]))


def add(path: str | Path) -> Model:
    """Put a folder or file on the list. Raises UserError where it is no model that can be used, and says why."""
    model = describe(path)
    if model.problem:
        raise UserError(model.problem)
    with _changing() as listed:
        if model.path not in listed.paths:
            listed.paths.append(model.path)
    return model


def remove(path: str) -> None:
    """Take it off the list; its files stay. Raises NotFound where it is not on it."""
    with _changing() as listed:
        if path not in listed.paths:
            if Path(path) == paths.shipped_model():
                raise UserError(
                    "that model comes with the program, and stays on the list. To use none: gpudeck models use template"
                )
            raise NotFound(f"{path} is not on the list of models. See: gpudeck models")
        listed.paths.remove(path)


def setting_of(model: Model) -> str:
    """What `model_folder` is to be for this one: ours is not named by its path, which changes with the installation."""
    return "" if Path(model.path) == paths.shipped_model() else model.path


def find(word: str, used: str = "") -> Model:
    """The model on the list that has this name or path; a path may also be of one that is not on it. Raises NotFound."""
    models = listed_models(used)
    path = str(Path(word).expanduser().absolute())
    found = [model for model in models if word == model.name or path == model.path]
    if len(found) == 1:
        return found[0]
    if Path(path).exists():
        return describe(path)
    names = ", ".join(model.name for model in models) or "none"
    raise NotFound(
        f"no model, or more than one, is called {word}. There are: {names}. To name one: gpudeck models add FOLDER"
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
            f"cannot read the list of models in {_file()}: {e}. Correct the file, or delete it to begin a new list."
        ) from e


@contextmanager
def _changing() -> Iterator[_List]:
    """The list, written back at the end; window and command line take turns."""
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
                f"the list of models cannot be stored in {_file()}: {e.strerror}. It is as before."
            ) from e
    finally:
        os.close(lock)
