"""Find attention in a person's code and propose to look at it; nothing of it is run or changed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from gpudeck.accel.inject.finding import Finding
from gpudeck.accel.inject.scan import sites
from gpudeck.assistant.facts import Fact, phrases
from gpudeck.assistant.facts.fact import FactBuilder
from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.tools.tool import ToolContext, ToolResult
from gpudeck.assistant.writing.template.sentences import table
from gpudeck.language.rendering import render
from gpudeck.language.words import Words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.progress import printable

_SHOWN = 6
"""Attentions that are listed one by one, those that can be linked first."""
_SEARCH_S = 20.0
_JOBS = 50
"""The newest jobs among which a program of the person's own is looked for."""


class _Enough(Exception):
    """The search took too long, or was cancelled."""


def find_attention(context: ToolContext, query: Query) -> ToolResult:
    """List the attention in a folder, and say how to see, prove and apply the change.

    Raises NotFound and UserError, in one line.
    """
    root, words = _root(context, query.text), context.words
    began, ended = time.monotonic(), False
    files: list[Path] = []

    def progress(path: Path) -> None:
        if context.cancelled() or time.monotonic() - began > _SEARCH_S:
            raise _Enough
        context.progress(phrases.plain(str(path)))
        files.append(path)

    found: list[Finding] = []
    try:
        found += (site.finding for site in sites([root], progress) if site.finding.form)
    except _Enough:
        ended = True
    facts = _facts(root, found, len(files), words)

    def render(index: FactIndex) -> list[str]:
        read = index.of("code")("files")
        stopped = words.text("I stopped after {n} files.", n=read) if ended else ""
        linked = bool(index.number("code.linked"))
        return [_opening(index, words), stopped, _table(index, words), _next(root, linked, words)]

    return ToolResult(
        facts, render, folder=str(root) if any(f.action == "link" for f in found) else ""
    )


def _root(context: ToolContext, named: str) -> Path:
    """Return the folder or file that is named, or that the person works in.

    That is the folder of the request, or where it says nothing the folder of the newest job that
    runs a Python program.
    """
    words = context.words
    if printable(named) != named:
        raise UserError(words.text("that path has characters that cannot be shown"))
    path = Path(context.folder)
    if named or path in (Path.home(), Path("/")):
        path = path / _home(named) if named else _of_jobs(context.daemon, words)
    try:
        return path.resolve(strict=True)
    except OSError as e:
        shown = phrases.plain(str(path))
        raise NotFound(words.text("there is no file or folder {path}", path=shown)) from e


def _home(named: str) -> Path:
    """Return the path with a leading `~` replaced; that of an unknown user stays."""
    try:
        return Path(named).expanduser()
    except RuntimeError:
        return Path(named)


def _of_jobs(daemon: Client, words: Words) -> Path:
    for job in sorted(daemon.jobs(_JOBS), key=lambda job: (not job.active, -job.id)):
        if any(part.endswith(".py") for part in job.spec.argv) and Path(job.spec.cwd).is_dir():
            return Path(job.spec.cwd)
    raise UserError(
        words.text("name the folder of your code, for example: find attention in ~/project")
    )


def _facts(root: Path, found: Sequence[Finding], files: int, words: Words) -> tuple[Fact, ...]:
    linked = [f for f in found if f.action == "link"]
    left = [f for f in found if f.action == "leave"]
    add = FactBuilder("code", "Attention", "the source code, of which nothing was run", time.time())
    add.value("folder", "in", str(root), "", phrases.escaped(str(root)))
    add.value("files", "in files", files, "", words.number(files))
    add.value("count", "found", len(found), "", words.number(len(found)))
    add.value("linked", "to accelerate", len(linked), "", words.number(len(linked)))
    for n, f in enumerate([*linked, *left][:_SHOWN]):
        path = Path(f.file)
        where = path.relative_to(root) if root in path.parents else path.name
        add.text(f"where{n}", "at", f"{where}:{f.line}")
        add.text(f"form{n}", "written as", _written(f, words))
        add.text(f"speed{n}", "after linking", _speed(f, words))
    return tuple(add.facts)


def _written(f: Finding, words: Words) -> str:
    """Return how an attention is written, and why it is left alone if it is."""
    form = render(f.form, words.language)
    return form if f.action == "link" else f"{form}: {render(f.reason, words.language)}"


def _speed(f: Finding, words: Words) -> str:
    if f.action == "leave":
        return words.text("stays as it is")
    if f.speedup is None:
        return words.text("not known")
    factor = words.number(float(f"{f.speedup.training:.2g}"))
    return words.text(
        "{n} times as fast on an {gpu}, predicted for the attention alone",
        n=factor,
        gpu=f.speedup.gpu,
    )


def _opening(index: FactIndex, words: Words) -> str:
    code = index.of("code")
    if not index.number("code.count"):
        return words.text("There is no attention in {folder}.", folder=code("folder"))
    return words.text(
        "Attention in {folder}: {count} found, {linked} can be accelerated.",
        folder=code("folder"), count=code("count"), linked=code("linked"),
    )  # fmt: skip


def _table(index: FactIndex, words: Words) -> str:
    code = index.of("code")
    rows = [
        [code(f"{column}{n}") or "" for column in ("where", "form", "speed")]
        for n in range(_SHOWN)
        if code(f"where{n}")
    ]
    head = words.text("Place"), words.text("Written as"), words.text("After linking")
    return table(head, rows)


def _next(root: Path, linked: bool, words: Words) -> str:
    """Say what the person can do; the command is shown only if it can be typed as it is shown."""
    if not linked:
        return words.text("Nothing was run or changed.")
    if printable(str(root)) != str(root):
        return words.text("Nothing was run or changed. The page Your code shows and proves it.")
    command = phrases.escaped(f"gpudeck inject diff {shlex.quote(str(root))}", 1000)
    return words.text(
        "Nothing was run or changed. The page Your code shows the change, proves it and applies it"
        " if you say so; or in a terminal: {command}", command=command,
    )  # fmt: skip
