"""Find texts of the window that no catalogue can translate, page by page.

    python -m tests.gui.untranslated [PAGE ...]

A pseudo language accents every letter of a text that goes through `tr`, `tr_count`, `tr_text` or
`tr_text`, so a plain word that is still on a page was written past them. Words of the
invented data (names of jobs, commands, devices, people) and technical terms are left out.
"""

from __future__ import annotations

import os
import re
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from html import unescape

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QBuffer,
    QIODevice,
    QModelIndex,
    QPoint,
    Qt,
)
from PySide6.QtGui import QPainter, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QGraphicsView,
    QLineEdit,
    QTabBar,
    QTextEdit,
    QWidget,
)

from gpudeck.accel.workloads.catalog import WORKLOADS
from gpudeck.app.assistant.message_view import MessageView
from gpudeck.app.language import texts
from gpudeck.app.models.page import EXAMPLES
from gpudeck.app.widgets import theme
from gpudeck.language import rendering
from gpudeck.language.words import Words
from gpudeck.scheduler.protocol.jobs import Failed, Running
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import searched, served, world
from tests.gui.pictures import VIEWS, Stage, stage
from tests.gui.test_other_machines import with_hosts

_ACCENTED = str.maketrans(
    string.ascii_letters, "áƀćđéƒğħíĵķľɱńóþʠŕšţúṽŵẋýžÁɃĆĐÉƑĞĦÍĴĶĽṀŃÓÞɊŔŠŢÚṼŴẊÝŽ"
)
_KEPT = re.compile(r"(\{[^{}]*\}|<[^<>]*>|&\w+;|%\w\b)")
"""Names of values, markup and formats: a translation must keep them, too."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_PLAIN = re.compile(r"[A-Za-z]+")
_NO_WORDS = re.compile(r"<[^<>]*>|&\w+;|\S*[/._=]\w\S*|gpudeck(?: -{0,2}[a-z]+)+|--?\w+|\w+…")
"""Markup, entities, paths, names of files, commands, options, and the beginnings of words."""
_PAINTED = re.compile(r"<text [^>]*>(.*?)</text>", re.DOTALL)
_ROLES = {Qt.ItemDataRole.DisplayRole: "", Qt.ItemDataRole.ToolTipRole: "tooltip of a "}
_ROWS = 60
"""Rows of a table whose cells are read."""
_SIZE = (1920, 1200)
"""Pixels of the window: pages that leave out parts in a small one show them."""


Widgets = list[tuple[QWidget, ...]]
"""Widgets to look at: the first of each tuple without the others."""


class Pseudo(Words):
    """Accent every letter of a text, so that texts which were not translated stand out."""

    def __init__(self) -> None:
        super().__init__("en")

    def translated(self, message: str) -> str:
        return accented(message)

    def choose(self, one: str, many: str, number: int) -> str:
        return accented(one if number == 1 else many)

    def listed(self, things: Sequence[str], last: str = "and") -> str:
        return ", ".join(things)

    def count(self, one: str, many: str, number: int, **values: object) -> str:
        return accented(one if number == 1 else many).format(n=number, **values)


@cache
def accented(message: str) -> str:
    """Return a text with accents on the letters that a translator would change."""
    parts = _KEPT.split(message)
    return "".join(part if at % 2 else part.translate(_ACCENTED) for at, part in enumerate(parts))


@contextmanager
def pseudo_language() -> Iterator[None]:
    """Word all texts that are made meanwhile in the pseudo language."""
    chosen = texts._Chosen
    before = chosen.language, chosen.texts
    chosen.texts = pseudo = Pseudo()
    words_of = rendering._words
    rendering._words = lambda language: pseudo if language == "pseudo" else words_of(language)
    chosen.language = "pseudo"  # type: ignore[assignment] # what is kept by language stays apart
    try:
        yield
    finally:
        chosen.language, chosen.texts = before
        rendering._words = words_of


NOT_TRANSLATED = {
    "units": "GiB MiB KiB TiB GHz MHz TFLOP TFLOPs GFLOP FLOP FLOPs GB MB TB min kWh nats",
    "hardware, programs and formats": """GPU GPUs CPU CPUs NVIDIA AMD EPYC Intel NVLink PCIe HBM
        PID Deck gpudeck nvidia smi NVML Python PyTorch CUDA Slurm Ray Triton cuDNN cuBLAS Hopper
        FlashAttention RWKV Hugging Face Linux Markdown CSV JSON PDF HTML SVG PNG SSH URL HTTP API
        MIG ECC Xid RAPL MFU DCGM REPLAY""",
    "keys of the keyboard": """Ctrl Alt Shift Esc Tab Return Enter Home End Left Right Up Down Del
        Space""",
    "values as they are typed on the command line": """auto off cpu float bfloat replay nvml desktop
        system light dark""",
    "languages by their own names": "English Deutsch Français Español",
    "months, which `tr_date` names": "Nov",
}
"""Words that are the same in every language, by the reason."""


def data(on: Stage) -> Iterator[str]:
    """Yield what belongs to the invented world: names, commands, paths and what people wrote."""
    snapshot = on.window.state.snapshot
    assert snapshot is not None
    for spec in (job.spec for job in (*snapshot.jobs, *on.jobs)):
        yield from (*spec.argv, spec.name, spec.cwd, spec.group, *spec.tags, *spec.env.values())
        yield from (*spec.params, *map(str, spec.params.values()), spec.workload or "")
    for was in (job.state for job in (*snapshot.jobs, *on.jobs)):
        if isinstance(was, Running) and was.progress is not None:
            yield was.progress.note
        if isinstance(was, Failed):
            yield was.quote  # what the job wrote
    for state in snapshot.devices:
        yield from (state.device.id, state.device.name)
    for detail in world.inspected(on.newest_readings()):
        for process in detail.processes:
            yield f"{process.name} {process.user} {process.command} {process.container}"
    for host in with_hosts(snapshot).hosts:
        yield from (host.name, *(state.device.name for state in host.devices), "ada user")
    yield from (session.title for session in world.SESSIONS)
    yield from (*(model.name for model in served.MODELS), *EXAMPLES)
    yield from (*world.grid().versions, *(cell.contender for cell in world.grid().cells))
    tried = searched.record().entries
    yield from (name for entry in tried for name in entry.config)
    yield from ("search", "torch compile max autotune")  # the workload, and what was slower
    yield from Settings.__struct_fields__
    for param in (param for workload in WORKLOADS for param in workload.params):
        yield from (param.name, *param.choices, "yes" if param.kind == "flag" else "")


class Finder:
    """Find the texts of widgets that hold a word which no catalogue could translate."""

    def __init__(self, on: Stage) -> None:
        known = (*NOT_TRANSLATED.values(), *data(on))
        self._known = {word for text in known for word in _WORD.findall(text)}

    def untranslated(self, text: str) -> bool:
        """Report if a text has a word of plain letters that is no data and no technical term."""
        words = _WORD.findall(_NO_WORDS.sub(" ", text))
        return any(_PLAIN.fullmatch(word) and word not in self._known for word in words)

    def findings(self, root: QWidget, *without: QWidget) -> list[str]:
        """Return each such text below a widget once, with its path and what it is."""
        found: dict[str, str] = {}
        for widget in (root, *root.findChildren(QWidget)):
            if any(other is widget or other.isAncestorOf(widget) for other in without):
                continue
            for kind, text in (*said_by(widget), *listed_by(widget), *painted_by(widget)):
                if self.untranslated(text):
                    found.setdefault(text, f"{_path(widget, root)}, {kind}: {text!r}")
        return [*found.values()]


def said_by(widget: QWidget) -> Iterator[tuple[str, str]]:
    """Yield the texts of a widget's properties, with what they are."""
    yield "tooltip", widget.toolTip()
    yield "accessible name", widget.accessibleName()
    yield "accessible description", widget.accessibleDescription()
    if widget.isWindow():
        yield "window title", widget.windowTitle()
    for action in widget.actions():
        yield "action", action.text()
        yield "tooltip of an action", action.toolTip()
    for name in ("text", "title", "placeholderText", "prefix", "suffix", "specialValueText"):
        if not isinstance(widget, QLineEdit) or name != "text":
            said = getattr(widget, name, None)
            yield name, said if isinstance(said, str) else said() if callable(said) else ""
    if isinstance(widget, QTextEdit) and not isinstance(widget.parent(), MessageView):
        yield "text", widget.toPlainText()


def listed_by(widget: QWidget) -> Iterator[tuple[str, str]]:
    """Yield the texts of a widget's entries, headers and cells."""
    if isinstance(widget, QTabBar):
        for at in range(widget.count()):
            yield "tab", widget.tabText(at)
            yield "tooltip of a tab", widget.tabToolTip(at)
    model = widget.model() if isinstance(widget, QAbstractItemView | QComboBox) else None
    if model is None:
        return
    for column in range(_width(model, QModelIndex())):
        for role, kind in _ROLES.items():
            said = model.headerData(column, Qt.Orientation.Horizontal, role)
            yield f"{kind}header", said if isinstance(said, str) else ""
    yield from _cells(model, QModelIndex())


def _width(model: QAbstractItemModel, parent: QModelIndex) -> int:
    """Return the number of columns; PySide keeps that of a list, which has one, to itself."""
    return 1 if isinstance(model, QAbstractListModel) else model.columnCount(parent)


def _cells(model: QAbstractItemModel, parent: QModelIndex) -> Iterator[tuple[str, str]]:
    for row in range(min(model.rowCount(parent), _ROWS)):
        for column in range(_width(model, parent)):
            index = model.index(row, column, parent)
            for role, kind in _ROLES.items():
                said = index.data(role)
                yield f"{kind}cell", said if isinstance(said, str) else ""
            if column == 0:
                yield from _cells(model, index)


def painted_by(widget: QWidget) -> Iterator[tuple[str, str]]:
    """Yield the texts that a visible widget paints by itself, as Qt writes them to an SVG."""
    parent = widget.parentWidget()
    drawn = isinstance(parent, QAbstractItemView | QGraphicsView) and widget is parent.viewport()
    own = any("paintEvent" in vars(kind) for kind in type(widget).__mro__ if _of_app(kind))
    if isinstance(widget, QLineEdit):
        return  # what a person typed
    if not widget.isVisible() or widget.size().isEmpty() or not (drawn or own):
        return
    written = QBuffer()
    written.open(QIODevice.OpenModeFlag.WriteOnly)
    svg = QSvgGenerator()
    svg.setOutputDevice(written)
    svg.setSize(widget.size())
    painter = QPainter(svg)
    widget.render(painter, QPoint(), QRegion(), QWidget.RenderFlag(0))
    painter.end()
    for text in _PAINTED.findall(bytes(written.data().data()).decode()):
        yield "painted", unescape(text)


def _of_app(kind: type) -> bool:
    return kind.__module__.startswith("app.")


def _path(widget: QWidget, root: QWidget) -> str:
    names = []
    at: QWidget | None = widget
    while at is not None and at is not root:
        if type(at).__module__.startswith("app.") or at is widget:
            names.append(type(at).__name__)
        at = at.parentWidget()
    return " > ".join([type(root).__name__, *reversed(names)])


def _page(on: Stage, view: str) -> Widgets:
    VIEWS[1][view](on)
    on.settle()
    current = on.window.pages.currentWidget()
    assert current is not None
    return [(current,)]


def _assistant(on: Stage) -> Widgets:
    """Return the page without the question and the facts of the answer beside it."""
    [(page,)] = _page(on, "assistant")
    pane = on.window.assistant.pane
    return [(page, pane.question, pane.sources)]


def _code(on: Stage) -> Widgets:
    on.window.show_page("code")
    on.settle()
    return [(on.window.code,)]


def _frame(on: Stage) -> Widgets:
    """Return the window without its pages, and what floats over it."""
    on.window.toasts.show_text("123", [], 60, "/data/report.pdf")
    VIEWS[1]["compact"](on)
    on.window.commands.palette.open()
    on.window.commands.palette.box.setText("s")
    on.window.commands.show_shortcuts()
    on.settle()
    on.window.commands.palette.show()
    parts: Widgets = [(on.window, on.window.pages), (on.desktop.compact,), (on.desktop.tray.menu,)]
    on.window.commands.shortcut_sheet.leave()
    return parts


PAGES: dict[str, Callable[[Stage], Widgets]] = {
    "window": _frame,
    "code": _code,
    **{name: partial(_page, view=name) for name in VIEWS[1] if name != "compact"},
    "assistant": _assistant,
}
"""How each page is shown, and what is to be looked at then."""


def untranslated(names: Sequence[str]) -> dict[str, list[str]]:
    """Open the window in the pseudo language and return what is untranslated on each page."""
    app = theme.application()
    with pseudo_language(), stage(app, 1) as on:
        on.window.resize(*_SIZE)
        find = Finder(on).findings
        found = {}
        for name in names:
            on.restore()
            found[name] = [text for parts in PAGES[name](on) for text in find(*parts)]
        return found


def main() -> int:
    for name, found in untranslated(sys.argv[1:] or [*PAGES]).items():
        print(f"{name}: {len(found)} texts are not translated")
        print(*(f"  {text}" for text in found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
