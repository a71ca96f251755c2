"""Note which modules of ours run, in one process.

A way is run, not read: `sys.setprofile` notes each function of ours that begins. What runs while a
module is imported does not count, nor do functions of the tests. Standard library only, as it is
imported into the processes of the program.
"""

from __future__ import annotations

import json
import opcode
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
BEGUN = "begun"
"""The file, beside the notes, that says that the act of the way has begun."""
OURS = ("accel", "app", "assistant", "language", "scheduler", "gpudeck")


_RESUME = opcode.opmap["RESUME"]
"""The instruction at which functions begin, and at which coroutines and generators go on."""


@dataclass
class Way:
    """The modules in the order of their first call, and those that were revisited."""

    modules: list[str] = field(default_factory=list)
    revisited: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """Where the part of a way begins and ends that a process goes. Functions have qualified names.

    A call within the event loop belongs to the task or callback that runs it.
    """

    first: str
    """Noting begins when this function is called, once the way was begun (see `BEGUN`)."""
    last: str
    """Noting ends when this function returns."""
    by: str = ""
    """It does not end before this function was called."""
    tasks: Collection[str] = ()
    """The functions that begin the tasks and callbacks on the way: what others run is not noted.
    Empty: all are."""
    aside: Collection[str] = ()
    """Functions that are called on the way for another purpose: what they run is not noted."""


def module_of(file: str) -> str | None:
    """Return the module of ours that a source file holds, such as `accel.attention.api`."""
    path = Path(file)
    if not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__") if parts[0] in OURS else None


class Noter:
    """Note the way of what one thread runs.

    A module is revisited if a call enters it while one of its own functions waits for another
    module: there the way turns back. A coroutine that goes on after a pause is on the way once it
    calls something; those that only wait for it are not.
    """

    def __init__(self) -> None:
        self.way = Way()
        self._waiting: list[_Call] = []
        self._known: dict[str, str | None] = {}

    def clear(self) -> None:
        """Forget what waits, as a way begins here."""
        self._waiting.clear()

    def call(self, frame: FrameType) -> None:
        """Note a function that begins or goes on."""
        code = frame.f_code
        if code.co_filename not in self._known:
            self._known[code.co_filename] = module_of(code.co_filename)
        module = self._known[code.co_filename]
        imported = code.co_name == "<module>"
        self._waiting.append(_Call("import" if imported else module, _goes_on(frame)))
        if module is not None and not self._waiting[-1].goes_on:
            self._arrive()

    def returned(self) -> None:
        """Note that the function that began last has ended."""
        if self._waiting:
            self._waiting.pop()

    @property
    def outside(self) -> bool:
        """Return whether no function of ours waits."""
        return not any(call.module for call in self._waiting)

    def _arrive(self) -> None:
        """Note the function that begins, after its caller, if that went on after a pause."""
        ours = [call for call in self._waiting if call.module is not None]
        if any(call.module == "import" for call in ours):
            return
        if len(ours) > 1 and ours[-2].goes_on:
            ours[-2].goes_on = False
            self._visit([call.module for call in ours[:-1] if not call.goes_on])
        self._visit([call.module for call in ours if not call.goes_on])

    def _visit(self, waiting: list[str | None]) -> None:
        """Note the last module of those that wait for each other."""
        module, way = waiting[-1], self.way
        assert module is not None
        if module not in way.modules:
            way.modules.append(module)
        left = any(name != module for name in waiting[waiting.index(module) :])
        if left and module not in way.revisited:
            way.revisited.append(module)


@dataclass
class _Call:
    """A function that waits for those that it called."""

    module: str | None
    """The module, if it is ours."""
    goes_on: bool
    """It is a coroutine or generator that goes on, and has called nothing since."""


def _goes_on(frame: FrameType) -> bool:
    """Return whether a call is that of a coroutine or generator that goes on after a pause."""
    code = frame.f_code.co_code
    return code[frame.f_lasti] == _RESUME and bool(code[frame.f_lasti + 1] & 3)


@contextmanager
def noted() -> Iterator[Way]:
    """Note the way of what this thread runs."""
    noter = Noter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            noter.call(frame)
        elif event == "return":
            noter.returned()

    sys.setprofile(note)
    try:
        yield noter.way
    finally:
        sys.setprofile(None)


def note_section(section: Section, file: Path) -> Callable[[FrameType, str, object], None]:
    """Return a profile function that notes a section, and writes it to a file at its end."""
    noter, begun, passed, ended, ignored = Noter(), False, not section.by, False, 0

    def is_beside(frame: FrameType) -> bool:
        """Return whether a function that is called now leads elsewhere."""
        if module_of(frame.f_code.co_filename) is None:
            return False
        name = frame.f_code.co_qualname
        if section.tasks and noter.outside and name not in section.tasks:
            return True
        return name in section.aside

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal begun, passed, ended, ignored
        code = frame.f_code
        if ended or event not in ("call", "return"):
            return
        first = not begun
        if first:
            if event == "return" or code.co_qualname != section.first:
                return
            if not file.with_name(BEGUN).exists():
                return
            begun = True
            noter.clear()
        if event == "call":
            if ignored or (is_beside(frame) and not first):
                ignored += 1
            else:
                noter.call(frame)
                passed = passed or code.co_qualname == section.by
        elif ignored:
            ignored -= 1
        else:
            noter.returned()
            if passed and code.co_qualname == section.last:
                ended = True
                partial = file.with_suffix(".part")
                partial.write_text(json.dumps(asdict(noter.way)))
                partial.rename(file)

    return note
