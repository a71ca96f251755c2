"""Containers of jobs: the engine and the image, as they are written. Standard library only."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

ENGINES = ("podman", "docker", "apptainer")
"""The programs that run containers; the first one that is installed is the default."""
DETACHING = ("podman", "docker")
"""Those whose containers' processes do not descend from the one that started them."""


def split_container(container: str) -> tuple[str, str]:
    """Return the engine, empty where none is named, and the image."""
    engine, colon, image = container.partition(":")
    return (engine, image) if colon and engine in ENGINES else ("", container)


def with_engine(container: str, path: str) -> str:
    """Return ENGINE:IMAGE; unchanged where no engine is named and none is installed.

    Args:
        container: IMAGE or ENGINE:IMAGE.
        path: The folders of PATH, in which an engine is searched.
    """
    engine, image = split_container(container)
    found = engine or next((name for name in ENGINES if shutil.which(name, path=path)), "")
    return f"{found}:{image}" if found and image else container


def container_problem(container: str, folders: Sequence[str]) -> str:
    """Return why a job cannot run in this container; an empty text where it can.

    Args:
        container: ENGINE:IMAGE, as `with_engine` returns it.
        folders: The folders that the container sees.
    """
    engine, image = split_container(container)
    if not engine:
        return (
            "neither podman, docker nor apptainer is installed here. Install one, or name the "
            "engine of another machine, as in podman:IMAGE"
        )
    if not image or image.startswith("-") or not image.isprintable() or " " in image:
        return f"{image!r} is no name of an image"
    for folder in folders:
        if not folder.startswith("/"):
            return f"a folder for a container is named by its whole path; got {folder!r}"
        if ":" in folder.removesuffix(":ro") or "," in folder:
            return f"a container cannot see a folder with a colon or comma in its name: {folder!r}"
    return ""
