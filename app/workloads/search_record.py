"""Read what a search of a kernel tried, what the judge said of its winner, and use the winner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gpudeck.accel.result import Result
from gpudeck.accel.runtime import state_files
from gpudeck.accel.search.code import Codes, decode_codes
from gpudeck.accel.search.installed import Kernel, find, install, remove
from gpudeck.accel.search.journal import (
    Entry,
    Problem,
    Proposer,
    State,
    by_speed,
    improvements,
    searches,
)
from gpudeck.accel.search.verdict import Verdict, decode
from gpudeck.app.format.values import significant
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.call import Call
from gpudeck.scheduler.protocol.errors import UserError

_OUTCOMES: dict[State, str] = {
    "timed": tr_noop("correct"),
    "pruned": tr_noop("not run"),
    "wrong": tr_noop("wrong result"),
    "failed": tr_noop("failed"),
    "hung": tr_noop("did not answer"),
}
_PROPOSERS: dict[Proposer, str] = {
    "": "",
    "lessons": tr_noop("earlier searches"),
    "usual": tr_noop("the template"),
    "sample": tr_noop("even sample"),
    "surrogate": tr_noop("boosted trees"),
    "endpoint": tr_noop("language model"),
    "alone": tr_noop("the search without the language model"),
}


@dataclass(frozen=True)
class SearchRecord:
    """Hold what is known of a search on this machine."""

    entries: tuple[Entry, ...]
    verdict: Verdict | None
    """On its winner; None if it was not judged."""
    kernel: Kernel | None
    """The winner, if it is installed."""
    codes: Codes | None = None
    """The code of its kernels beside that of what was tried first; None if it is not known."""

    @property
    def speeds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return seconds of the search, and thousands of calls a second of the best so far.

        Each improvement has two points, one above the other.
        """
        seconds: list[float] = []
        speeds: list[float] = []
        for spent, entry in improvements(self.entries):
            seconds += [spent, spent]
            speeds += [speeds[-1] if speeds else _thousands(entry.microseconds)]
            speeds += [_thousands(entry.microseconds)]
        if speeds:
            seconds.append(sum(entry.seconds for entry in self.entries))
            speeds.append(speeds[-1])
        return tuple(round(at, 1) for at in seconds), tuple(speeds)

    @property
    def roofline(self) -> float | None:
        """Return the most thousands of calls a second of the hardware, None if not known."""
        found = self.verdict.roofline if self.verdict else None
        return _thousands(found.least_us) if found and found.least_us else None

    @property
    def rows(self) -> tuple[VariantRow, ...]:
        """Return a row for each variant, the fastest first."""
        return tuple(_row(at, entry) for at, entry in enumerate(by_speed(self.entries)))


@dataclass(frozen=True)
class VariantRow:
    """A variant as texts: microseconds, configuration, outcome."""

    key: int
    cells: tuple[str, ...]
    tooltip: str


class ReadSearch(msgspec.Struct, frozen=True):
    """Read the newest search of a kernel."""

    task: str
    sizes: dict[str, int]
    dtype: str

    def carry_out(self, call: Call) -> SearchRecord | None:
        """Return its record; None if this machine has none."""
        try:
            return self._record()
        except (OSError, ValueError) as e:
            raise UserError(tr("The search cannot be read: {why}", why=e)) from e

    def _record(self) -> SearchRecord | None:
        found = [(p, entries) for p, entries in searches() if self._is_of(p)]
        if not found:
            return None
        problem, entries = max(found, key=lambda one: one[0].file.stat().st_mtime)
        data = state_files.read(problem.verdict_file)
        verdict = decode(data) if data else None
        kernel = None if verdict is None else _kernel_of(verdict)
        data = state_files.read(problem.code_file)
        codes = decode_codes(data) if data else None
        return SearchRecord(tuple(entries), verdict, kernel, codes)

    def _is_of(self, problem: Problem) -> bool:
        asked = (self.task, self.sizes, self.dtype)
        return (problem.task, problem.sizes, problem.dtype) == asked


class UseWinner(msgspec.Struct, frozen=True):
    """Install the kernel of a verdict."""

    verdict: Verdict

    def carry_out(self, call: Call) -> None:
        """Install it; it is used from now on."""
        try:
            install(self.verdict)
        except (OSError, ValueError) as e:
            raise UserError(tr("The kernel cannot be installed: {why}", why=e)) from e


class RemoveWinner(msgspec.Struct, frozen=True):
    """Remove an installed kernel."""

    name: str

    def carry_out(self, call: Call) -> None:
        """Remove it, if it was not removed elsewhere."""
        try:
            remove(self.name)
        except KeyError:
            return
        except (OSError, ValueError) as e:
            raise UserError(tr("The kernel cannot be removed: {why}", why=e)) from e


def request_of(result: Result) -> ReadSearch:
    """Return the request for the search that left a Result."""
    given = result.params
    sizes = {name: int(given[name]) for name in ("rows", "columns")}
    return ReadSearch(str(given["task"]), sizes, str(given["dtype"]))


def _kernel_of(verdict: Verdict) -> Kernel | None:
    """Return the kernel of a verdict if it is the one that is used."""
    used = find(verdict.task, verdict.sizes, verdict.dtype, verdict.device)
    return used if used is not None and used.digest == verdict.digest else None


def config_text(config: Mapping[str, int]) -> str:
    """Return a configuration in one line."""
    return ", ".join(f"{name} {value}" for name, value in config.items())


def _thousands(microseconds: float) -> float:
    return 1e3 / microseconds


def _row(key: int, entry: Entry) -> VariantRow:
    outcome = tr(_OUTCOMES[entry.state])
    if entry.why:
        outcome = tr("{caption}: {value}", caption=outcome, value=tr_text(entry.why))
    speed = significant(entry.microseconds) if entry.state == "timed" else "–"
    config = config_text(entry.config)
    lines = [config, outcome]
    if entry.by:
        lines.append(tr("Proposed by: {who}", who=tr(_PROPOSERS[entry.by])))
    return VariantRow(key, (speed, config, outcome), "\n".join(lines))
