"""pyqtgraph, without a copy of everything there is in Qt.

As it is imported it copies each name of QtCore, QtGui and QtWidgets into modules of its own, so that what it changes there stays its own;
thereby PySide makes thousands of classes that nobody asked for: half of the time of the import. The same modules, which fetch a name once
it is asked for, do as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from PySide6 import QtCore, QtGui, QtWidgets


class _Mirror(ModuleType):
    """A module of pyqtgraph's that has what one of Qt's has."""

    def __init__(self, source: ModuleType) -> None:
        super().__init__(f"pyqtgraph.Qt.{source.__name__.rpartition('.')[2]}")
        self._source = source

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)
        setattr(self, name, found)
        return found


@contextmanager
def _mirrored(*sources: ModuleType) -> Iterator[None]:
    """Meanwhile Qt's modules list no names to copy."""
    for source in sources:
        mirror = _Mirror(source)
        sys.modules[mirror.__name__] = mirror
        source.__dict__["__dir__"] = list
    try:
        yield
    finally:
        for source in sources:
            del source.__dict__["__dir__"]


with _mirrored(QtCore, QtGui, QtWidgets):
    import pyqtgraph as pg

__all__ = ["pg"]
