"""Write sources in which attention is linked."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudeck.accel.inject.finding import Edit, Finding, Site
from gpudeck.accel.inject.notebook import code_cells, hide_magic, placed
from gpudeck.accel.inject.project import Module, Project
from gpudeck.accel.inject.scan import files, of_module
from gpudeck.accel.inject.source import Unreadable, shown

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
        cells = (code_cells(raw) for raw in (self.before, self.after))
        before, after = ("\n".join(hide_magic(cell.code) for cell in each) for each in cells)
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
            sites = of_module(project, module)
        except Unreadable as e:
            found.append(Finding(shown(path), e.line, "leave", "", e.why))
            continue
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
        after = _notebook(module, named, importing)
        before, text = (
            "\n".join(cell.code for cell in code_cells(raw)) for raw in (source.raw, after)
        )
        return Change(source.path, source.raw, after, before, text, tuple(sites), module)
    text = edited(source.text, [_import(module, importing), *named])
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


def _notebook(module: Module, edits: Sequence[Edit], importing: str) -> bytes:
    """Return the notebook with its cells changed; the first of those imports ours."""
    raw, made = module.source.raw, list[Edit]()
    for cell, (start, end, _) in zip(code_cells(raw), module.source.cells, strict=True):
        inner = [
            Edit(e.start - start, e.end - start, e.text) for e in edits if start <= e.start <= end
        ]
        if inner:
            line = importing.replace("\n", "\r\n") if "\r\n" in cell.code else importing
            made += placed(raw, cell, inner, "" if made else line)
    encoding = module.source.encoding
    return edited(raw.decode(encoding), made).encode(encoding)


def _import(module: Module, importing: str) -> Edit:
    """Return the edit that imports ours: after the docstring and imports from __future__."""
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
            if first == last:  # on the line of the docstring or import, after a semicolon
                at, _ = module.span(statement)
                return Edit(at, at, importing.replace("\n", "; "))
            at = module.starts[first - 1]
            return Edit(at, at, importing)
        last = statement.end_lineno or statement.lineno
    at = len(module.source.text)
    return Edit(at, at, importing)


def in_place(project: Project, module: Module, alias: str) -> tuple[str, list[Site]]:
    """Return the source with all that can be linked, on the same lines and without the import."""
    sites = of_module(project, module)
    edits = {edit for site in sites for edit in site.edits}
    named = [Edit(e.start, e.end, e.text.format(link=alias)) for e in edits]
    return edited(module.source.text, named), sites
