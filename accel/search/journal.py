"""Keep what a search has measured in a file that survives the end of its process at any moment.

Each record is a line, written and synchronised before the next configuration is tried. A line that
was cut off is dropped when the file is opened again, and its configuration is tried again.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from gpudeck.accel.runtime import state_files
from gpudeck.accel.runtime.state_files import state_folder
from gpudeck.accel.search.space import Config, key
from gpudeck.language.text import Message

_METHOD = b"4"
"""Changes whenever the times of earlier searches cannot be compared with new ones."""
State = Literal["timed", "pruned", "wrong", "failed", "hung"]
Proposer = Literal["", "lessons", "usual", "sample", "surrogate", "endpoint", "alone"]
"""Lessons of other problems, the template's own, the Latin hypercube, LFBO, a language model, the
search without it."""


class Problem(msgspec.Struct, frozen=True):
    """Identify what is searched: a journal belongs to one problem."""

    task: str
    template: str
    sizes: dict[str, int]
    dtype: str
    gpu: str
    software: str

    @property
    def name(self) -> str:
        """Return what people call it: the name of its file."""
        return self.file.stem

    @property
    def file(self) -> Path:
        """Return the path of its journal."""
        known = _METHOD + msgspec.json.encode(self, order="deterministic")
        digest = sha256(known).hexdigest()[:16]
        return _folder() / f"{self.task}-{digest}.jsonl"

    @property
    def alone_file(self) -> Path:
        """Return the path of the journal of its search beside one with a language model."""
        return self.file.with_suffix(".alone")

    @property
    def verdict_file(self) -> Path:
        """Return the path of the verdict on the winner of its last search."""
        return self.file.with_suffix(".verdict.json")

    @property
    def turns_file(self) -> Path:
        """Return the path of the turns in which the fastest of its last search were measured."""
        return self.file.with_suffix(".turns.json")

    @property
    def code_file(self) -> Path:
        """Return the path of the code of that winner and of what was tried first."""
        return self.file.with_suffix(".code.json")


class Turns(msgspec.Struct, frozen=True):
    """Hold the times of a configuration that was measured again, in turns with others."""

    config: Config
    microseconds: tuple[float, ...]
    """In the order of the turns; the other configurations had theirs between them."""
    captured: bool
    """As in `Entry`; it is the same for all that were measured in turns."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tell what came of one configuration."""

    config: Config
    state: State
    microseconds: float = 0.0
    why: Message = ""
    """Why it is not timed: a resource, or the words of the program that failed."""
    seconds: float = 0.0
    """How long it took to find out."""
    joules: float = 0.0
    """The energy meanwhile; 0 if it was not measured."""
    by: Proposer = ""
    """What proposed it."""
    captured: bool = False
    """Whether its calls were replayed from a CUDA graph. Its time is comparable with those of the
    same kind only: without a graph, the time of the processor counts, too."""


class Journal:
    """Own the file of a problem; only one process has it open."""

    def __init__(self, problem: Problem, *, alone: bool = False) -> None:
        """Open the file and read it.

        Args:
            problem: what is searched.
            alone: whether this is the search beside one with a language model.

        Raises:
            BlockingIOError: if another process searches the same problem.
            OSError: if it cannot be written.
        """
        self.problem = problem
        file = problem.alone_file if alone else problem.file
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.entries = self._read(file)
        except BaseException:
            os.close(self._fd)
            raise

    def _read(self, file: Path) -> list[Entry]:
        contents = file.read_bytes()
        whole = contents[: contents.rfind(b"\n") + 1]
        os.ftruncate(self._fd, len(whole))
        os.lseek(self._fd, 0, os.SEEK_END)
        lines = whole.splitlines()
        if not lines:
            self._write(self.problem)
            return []
        return [msgspec.json.decode(line, type=Entry) for line in lines[1:]]

    def _write(self, record: msgspec.Struct) -> None:
        os.write(self._fd, msgspec.json.encode(record) + b"\n")
        os.fsync(self._fd)

    def add(self, entry: Entry) -> None:
        """Keep a record; it is on disk when this returns."""
        self._write(entry)
        self.entries.append(entry)

    def keep_turns(self, turns: Sequence[Turns]) -> None:
        """Keep the turns that decided on the winner, in place of earlier ones."""
        state_files.replace(self.problem.turns_file, msgspec.json.encode(turns))

    @property
    def known(self) -> dict[tuple[tuple[str, int], ...], Entry]:
        """Return the records by configuration."""
        return {key(entry.config): entry for entry in self.entries}

    @property
    def timed(self) -> list[tuple[Config, float]]:
        """Return the configurations whose times can be compared, the fastest first."""
        return _by_time(comparable(self.known.values()))

    @property
    def uncaptured(self) -> list[tuple[Config, float]]:
        """Return the configurations whose times cannot be compared with those of `timed`, as only
        the calls of those could be captured, the fastest first."""
        known = list(self.known.values())
        kept = comparable(known)
        return _by_time(e for e in known if e.state == "timed" and e not in kept)

    @property
    def seconds(self) -> float:
        """Return how long the search has taken, over all its processes."""
        return sum(entry.seconds for entry in self.entries)

    @property
    def joules(self) -> float:
        """Return the energy that it has taken."""
        return sum(entry.joules for entry in self.entries)

    def close(self) -> None:
        """Let others open the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def turns_of(problem: Problem) -> list[Turns]:
    """Return the turns that decided on the winner; none where nothing was measured again."""
    try:
        return msgspec.json.decode(problem.turns_file.read_bytes(), type=list[Turns])
    except (OSError, ValueError):
        return []


def comparable(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries whose times can be compared: once calls were captured, only such."""
    timed = [entry for entry in entries if entry.state == "timed"]
    return [entry for entry in timed if entry.captured] or timed


def _by_time(entries: Iterable[Entry]) -> list[tuple[Config, float]]:
    return sorted(((e.config, e.microseconds) for e in entries), key=lambda one: one[1])


def searches() -> Iterator[tuple[Problem, list[Entry]]]:
    """Yield what was searched on this machine, and what came of it; damaged files are left out."""
    for file in sorted(_folder().glob("*.jsonl")):
        try:
            first, *rest = file.read_bytes().splitlines()
            problem = msgspec.json.decode(first, type=Problem)
            yield problem, [msgspec.json.decode(line, type=Entry) for line in rest]
        except (OSError, ValueError):
            continue


def improvements(entries: Sequence[Entry]) -> list[tuple[float, Entry]]:
    """Return each configuration that was the best so far, and after how many seconds."""
    found: list[tuple[float, Entry]] = []
    spent, best, compared = 0.0, math.inf, comparable(entries)
    for entry in entries:
        spent += entry.seconds
        if entry in compared and entry.microseconds < best:
            best = entry.microseconds
            found.append((spent, entry))
    return found


def by_speed(entries: Iterable[Entry]) -> list[Entry]:
    """Return all configurations, the fastest first, those whose calls could not be captured behind
    the others, and then those that were refused."""
    return sorted(
        entries, key=lambda e: (e.state != "timed", e.state, not e.captured, e.microseconds)
    )


def lessons(problem: Problem) -> Iterator[Config]:
    """Yield the best configurations of other problems of the template: near sizes, other cards.

    The nearest problem comes first.
    """
    found: list[tuple[float, Config]] = []
    for other, entries in searches():
        times = comparable(entries)
        if other.template == problem.template and other != problem and times:
            best = min(times, key=lambda entry: entry.microseconds)
            found.append((_distance(problem, other), best.config))
    for _, config in sorted(found, key=lambda entry: entry[0]):
        yield config


def _folder() -> Path:
    return state_folder() / "search"


def _distance(one: Problem, other: Problem) -> float:
    shared = one.sizes.keys() & other.sizes.keys()
    octaves = sum(abs(one.sizes[k].bit_length() - other.sizes[k].bit_length()) for k in shared)
    unlike = (one.dtype != other.dtype) + (one.task != other.task)
    return octaves + 2.0 * (one.gpu != other.gpu) + unlike
