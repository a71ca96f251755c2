"""Link attention when modules are imported, without touching files.

The source is rewritten in memory. Line numbers stay, so that tracebacks show the original lines,
and no compiled file is read or written.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gpudeck.accel.inject import link, record
from gpudeck.accel.inject.project import Project
from gpudeck.accel.inject.rewrite import in_place
from gpudeck.accel.inject.source import Unreadable

ALIAS = "_gpudeck"


class _Loader(SourceFileLoader):
    """Load a module whose attention is linked."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Compile the linked source; unlike Python's own loader, keep no compiled file."""
        path = self.get_filename(fullname)
        return compile(linked_text(Path(path)), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, which finds what linked code calls under `_gpudeck`."""
        module.__dict__[ALIAS] = link
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = frozenset(packages)
        self.root = Path.cwd().resolve()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is to be linked, or None for all others."""
        if name.partition(".")[0] in ("gpudeck", "torch"):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not spec.origin:
            return None
        if not self._chosen(name, Path(spec.origin)) or not _worth(Path(spec.origin)):
            return None
        spec.loader = _Loader(name, spec.origin)
        return spec

    def _chosen(self, name: str, file: Path) -> bool:
        if name.partition(".")[0] in self.packages:
            return True
        return self.root in file.resolve().parents and "site-packages" not in file.parts


_active: list[_Finder] = []
_replaced: list[dict[str, Any]] = []


def on(packages: Iterable[str] = ()) -> None:
    """Link attention in modules that are imported from now on.

    Those are the modules below the current folder, and those of the named packages. A module that
    was imported before stays as it is until it is reloaded; so does what others took from it by
    `from ... import`.
    """
    off()
    _active.append(_Finder(packages))
    sys.meta_path.insert(0, _active[0])


def off() -> None:
    """Import modules as they are again; those that are linked stay linked until a reload."""
    while _active:
        sys.meta_path.remove(_active.pop())


def linked_text(path: Path) -> str:
    """Return the source of a module with its attention linked, and note what was done."""
    project = Project()
    module = project.module(path)
    text, sites = in_place(project, module, ALIAS)
    for site in sites:
        f = site.finding
        _replaced.append({"file": f.file, "line": f.line, "action": f.action,
                          "reason": str(f.reason)})  # fmt: skip
    return text


def _worth(path: Path) -> bool:
    """Return True if anything in a module can be linked."""
    try:
        project = Project()
        _, sites = in_place(project, project.module(path), ALIAS)
    except Unreadable:  # Python says what is wrong with it
        return False
    return any(site.edits for site in sites)


def write_report() -> None:
    """Add what was replaced, and what ran, to the result of the job that this process is."""
    file = os.environ.get("GPUDECK_RESULT")
    if not file or not _replaced:
        return
    path = Path(file)
    try:
        result = json.loads(path.read_bytes())
    except (OSError, ValueError):
        result = {}
    if isinstance(result, dict):
        earlier = result.get("inject", {"found": [], "ran": []})
        merged = {"found": earlier["found"] + _replaced, "ran": earlier["ran"] + record.report()}
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(json.dumps(result | {"inject": merged}))
        new.replace(path)
