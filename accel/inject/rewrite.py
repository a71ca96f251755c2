"""Write sources in which attention is linked."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudeck.accel.inject.finding import Edit, Finding, Site
from gpudeck.accel.inject.project import Module, Project
from gpudeck.accel.inject.scan import files, of_module
from gpudeck.accel.inject.source import Unreadable, cell_codes, hide_magic, write_notebook

ALIAS = "_gpudeck"


@dataclass(frozen=True)
class Change:
    """Hold a file before and after, and what was found in it."""

    path: Path
    before: bytes
    after: bytes
    text_before: str
    text_after: str
    sites: tuple[Site, ...]
    module: Module = field(repr=False)

    @property
    def linked(self) -> list[Site]:
        """Return the attentions that the change links."""
        return [site for site in self.sites if site.edits]

    @property
    def programs(self) -> tuple[str, str]:
        """Return what can be compiled of the file before and after, on the lines of the texts."""
        if self.path.suffix != ".ipynb":
            return self.text_before, self.text_after
        codes = (cell_codes(raw).values() for raw in (self.before, self.after))
        before, after = ("\n".join(map(hide_magic, cells)) for cells in codes)
        return before, after

    def diff(self) -> str:
        """Return a unified diff."""
        lines = difflib.unified_diff(
            self.text_before.splitlines(), self.text_after.splitlines(),
            f"a/{self.path}", f"b/{self.path}", lineterm="",
        )  # fmt: skip
        return "\n".join(lines)


def changes(paths: Iterable[str | Path]) -> tuple[list[Change], list[Finding]]:
    """Return the changes of all files that have something to link, and all findings."""
    project = Project()
    made: list[Change] = []
    found: list[Finding] = []
    for path in files(paths):
        try:
            module = project.module(path)
        except Unreadable as e:
            found.append(Finding(str(path), e.line, "leave", "", str(e)))
            continue
        sites = of_module(project, module)
        found += [site.finding for site in sites]
        if any(site.edits for site in sites):
            made.append(change(module, sites))
    return made, found


def change(module: Module, sites: Sequence[Site]) -> Change:
    """Return the change of a module that links `sites`."""
    alias = ALIAS
    while re.search(rf"\b{alias}\b", module.source.text):
        alias += "_"
    edits = {edit for site in sites for edit in site.edits}
    named = sorted(Edit(e.start, e.end, e.text.format(link=alias)) for e in edits)
    source = module.source
    importing = f"from gpudeck.accel.inject import link as {alias}\n"
    if source.path.suffix == ".ipynb":
        cells = _cells(module, named, importing)
        after = write_notebook(source.raw, cells)
        old = cell_codes(source.raw)
        before = "\n".join(old.values())
        text = "\n".join((old | cells).values())
        return Change(source.path, source.raw, after, before, text, tuple(sites), module)
    text = edited(source.text, [*named, Edit(at := _top(module), at, importing)])
    return Change(
        source.path, source.raw, source.encode(text), source.text, text, tuple(sites), module
    )


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text after all edits, which do not overlap; insertions keep their order."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def _cells(module: Module, edits: Sequence[Edit], importing: str) -> dict[int, str]:
    """Return the new code of the cells of a notebook that change; the first one imports ours."""
    old, new = cell_codes(module.source.raw), dict[int, str]()
    for start, end, number in module.source.cells:
        inner = [
            Edit(e.start - start, e.end - start, e.text) for e in edits if start <= e.start <= end
        ]
        if inner:
            new[number] = ("" if new else importing) + edited(old[number], inner)
    return new


def _top(module: Module) -> int:
    """Return where an import is added: after the docstring and imports from __future__."""
    last: int = 0
    for place, statement in enumerate(module.tree.body):
        docstring = (
            place == 0
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        )
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not docstring and not future:
            decorators = getattr(statement, "decorator_list", [])
            first: int = min([statement.lineno, *(d.lineno for d in decorators)])
            return module.starts[max(first - 1, last)]
        last = statement.end_lineno or statement.lineno
    return len(module.source.text)


def in_place(project: Project, module: Module, alias: str) -> tuple[str, list[Site]]:
    """Return the source with all that can be linked, on the same lines and without the import."""
    sites = of_module(project, module)
    edits = {edit for site in sites for edit in site.edits}
    named = [Edit(e.start, e.end, e.text.format(link=alias)) for e in edits]
    return edited(module.source.text, named), sites
