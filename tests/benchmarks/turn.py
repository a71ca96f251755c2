"""Let benchmarks that begin together, and import and compile meanwhile, measure in turn."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(file: Path | None) -> Iterator[None]:
    """Wait until nobody else has locked a file, and lock it for a `with` block; None: at once."""
    if file is None:
        yield
        return
    with file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
