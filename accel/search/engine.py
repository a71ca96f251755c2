"""Search the configurations of a template: compile, measure, learn, propose, until the budget ends.

Everything that is found out is in the journal before the next step. So a search that is killed or
evicted at any moment goes on where it was. Kernels that hang or break their process cost that
process, and a new one is started.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from msgspec.structs import replace

from gpudeck.accel.runtime import power
from gpudeck.accel.search.advice import Advisor
from gpudeck.accel.search.arena import calls_that_fit, lay_out
from gpudeck.accel.search.candidate_protocol import Window
from gpudeck.accel.search.contender import Contender, Desk
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.journal import Entry, Journal, Proposer, State, Turns, lessons
from gpudeck.accel.search.measures import compare
from gpudeck.accel.search.space import Config, key
from gpudeck.accel.search.surrogate import propose
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.templates import Template
from gpudeck.language.text import Message, Number, phrase

FIRST = 12
"""Configurations of the Latin hypercube."""
_COMPILERS = max(2, len(os.sched_getaffinity(0)) - 1)
"""Of the processors that this process may use, one is left to the search itself."""
_BATCH = max(4, _COMPILERS)
_CALLS = 6
_LEAST, _MOST = 4, 15
"""Windows of a configuration: those that all are much slower than the best end it early."""
_HOPELESS = 1.05
_KNOWN = ("lessons", "usual")
"""Configurations that were the fastest elsewhere are measured even if they spill registers."""
_REPEATS = 8
"""Of each call: copying inputs and the result once counts little then, as it should."""
_WINDOW_S = 0.02
"""About the longest window: slow kernels are repeated less often."""
_FINALISTS = 4
_TURNS = 3
"""How often the finalists are measured again. Most of them were measured while other kernels were
being compiled, one some minutes after another."""
JOULES_A_KWH = 3.6e6


class Budget(NamedTuple):
    """Limit a search, over all its processes."""

    minutes: float = 10.0
    kwh: float = math.inf
    """Counted on a GPU whose power can be read."""
    configurations: int = 1_000_000


class _NotCaptured(Exception):
    """The calls of a configuration cannot be put into a CUDA graph."""


class Engine:
    """Own the processes of a search."""

    def __init__(
        self,
        task: Task,
        template: Template,
        journal: Journal,
        crew: Crew,
        capability: int | None,
        report: Callable[[Entry], None] = lambda entry: None,
        advisor: Advisor | None = None,
    ) -> None:
        """Prepare a search.

        Args:
            task: what is computed; the timed sizes count.
            template: the kernel.
            journal: keeps what is found out, and holds what was found out before.
            crew: starts the processes, on the device where the search runs.
            capability: the compute capability for which kernels are compiled before they run;
                None if that is not of use.
            report: is told each new entry.
            advisor: proposes configurations in turn with the surrogate.
        """
        self._task, self._template, self._journal = task, template, journal
        self._crew, self._device, self._capability = crew, crew.device, capability
        self._report, self._advisor = report, advisor
        self._random = np.random.default_rng(len(journal.entries))
        self._values = torch.Generator().manual_seed(len(journal.entries))
        self._runner: Contender | None = None
        self._captures = crew.device.type == "cuda"
        """Whether it is tried to capture calls, of each configuration anew."""
        self._calls = calls_that_fit(task, task.timed, _CALLS)
        arena = crew.arena(lay_out(task, task.timed, self._calls)[1])
        self._desk = Desk(arena, task, crew.device)
        self._desk.lay_out(task.timed, self._calls)
        self._desk.stock(self._values)

    def run(self, budget: Budget) -> None:
        """Search until the budget is spent or everything was tried."""
        self._started = time.monotonic()
        self._before = self._journal.seconds
        for by, batch in self._batches():
            for config, entry in self._compiled(batch, by in _KNOWN):
                begun = time.monotonic()
                found = entry or self._measured(config)
                self._keep(found, by, time.monotonic() - begun)
                if self._is_spent(budget):
                    return

    def decide(self, timed: Sequence[tuple[Config, float]]) -> tuple[Config, float]:
        """Return the winner, and the median of its microseconds.

        The fastest few and the template's own are measured again in turns, with the fastest one
        whose calls cannot be captured. If there is one, no calls are captured.

        Args:
            timed: configurations with their microseconds, the fastest first; at least one.
        """
        usual = next(iter(self._template.usual), None)
        finalists = [
            config for place, (config, _) in enumerate(timed)
            if place < _FINALISTS or config == usual
        ]  # fmt: skip
        lone = [config for config, _ in self._journal.uncaptured[:1]]
        if len(finalists) + len(lone) == 1:
            return timed[0]
        configs = [*finalists, *lone]
        turns = self._in_turns(configs, capture=not lone)
        kept = [
            Turns(config, tuple(e.microseconds for e in entries), entries[0].captured)
            for config, entries in zip(configs, zip(*turns, strict=True), strict=True)
            if all(entry.state == "timed" for entry in entries)
        ]
        self._journal.keep_turns(kept)
        times = [(one.config, one.microseconds) for one in kept]
        return winner_of(times, usual) if times else timed[0]

    def _in_turns(self, configs: Sequence[Config], capture: bool) -> list[list[Entry]]:
        """Measure configurations in turns, the calls of all of them in the same way."""
        turns = [[self._measured(config, capture) for config in configs] for _ in range(_TURNS)]
        kinds = {entry.captured for turn in turns for entry in turn if entry.state == "timed"}
        return turns if len(kinds) < 2 else self._in_turns(configs, capture=False)

    def close(self) -> None:
        """Give the process back."""
        if self._runner is not None:
            self._crew.release(self._runner)
            self._runner = None

    def _is_spent(self, budget: Budget) -> bool:
        minutes = (self._before + time.monotonic() - self._started) / 60
        return (
            minutes >= budget.minutes
            or self._journal.joules >= budget.kwh * JOULES_A_KWH
            or len(self._journal.known) >= budget.configurations
        )

    def _batches(self) -> Iterator[tuple[Proposer, list[Config]]]:
        """Yield what to try, and who proposed it: lessons, the template's own, a Latin hypercube,
        then what the surrogate and the advisor propose in turn."""
        space, journal = self._template.space, self._journal
        taught = [c for c in lessons(journal.problem) if space.holds(c)][:_BATCH]
        latin = space.latin(FIRST, np.random.default_rng(0))
        first: dict[Proposer, Sequence[Config]] = {
            "lessons": taught, "usual": self._template.usual, "sample": latin
        }  # fmt: skip
        for by, batch in first.items():
            if fresh := [c for c in batch if key(c) not in journal.known]:
                yield by, fresh
        while batch := propose(space, journal.timed, journal.known, _BATCH, self._random):
            yield "surrogate", batch
            if self._advisor and (advised := self._advisor.propose(space, journal, _BATCH)):
                yield "endpoint", advised

    def _compiled(
        self, batch: Sequence[Config], may_spill: bool
    ) -> Iterator[tuple[Config, Entry | None]]:
        """Yield each configuration, with an entry if compiling shows that it is of no use."""
        launch, capability = self._template.launch, self._capability
        if launch is None or capability is None:
            yield from ((config, None) for config in batch)
            return

        def examine(config: Config) -> Entry | None:
            compiler = Contender(self._crew.nursery.fork(), [])
            try:
                needs = compiler.compile(launch(config), capability)
            finally:
                compiler.end()
            if needs is None:
                return Entry(config, "failed", why=compiler.flags[0].where)
            why = needs.too_large(capability) if may_spill else needs.unfit(capability)
            return Entry(config, "pruned", why=why) if why else None

        with ThreadPoolExecutor(_COMPILERS) as pool:
            yield from zip(batch, pool.map(examine, batch), strict=True)

    def _keep(self, entry: Entry, by: Proposer, seconds: float) -> None:
        watts = power.read(self._device)[1] if self._device.type == "cuda" else None
        joules = 0.0 if watts is None else watts * seconds
        kept = replace(entry, seconds=seconds, joules=joules, by=by)
        self._journal.add(kept)
        self._report(kept)

    def _measured(self, config: Config, capture: bool = True) -> Entry:
        """Return what comes of a configuration, whose calls are captured if that works."""
        if capture and self._captures:
            try:
                return self._found(config, capture=True)
            except _NotCaptured:
                self.close()  # its context of the GPU may be broken
        return self._found(config, capture=False)

    def _found(self, config: Config, capture: bool) -> Entry:
        """Return what comes of a configuration. Raises _NotCaptured."""
        source = self._template.make(config)
        if self._runner is None:
            self._runner = self._crew.start(source, self._desk, trusted=True)
        else:
            self._runner.load(
                source, self._desk, self._device, trusted=True, threads=torch.get_num_threads()
            )
        runner = self._runner
        self._desk.refill(self._values, self._calls)
        times: list[float] = []
        if runner.bind(self._desk, "first call"):
            times = self._times(runner, capture)
        if not runner.flags:
            wrong = self._wrong()
            state: State = "wrong" if wrong else "timed"
            us = 0.0 if wrong else statistics.median(times)
            lone = self._captures and not capture
            why = wrong or (phrase("its calls cannot be captured in a CUDA graph") if lone else "")
            return Entry(config, state, us, why, captured=capture and not wrong)
        failed = runner.flags[0]
        self.close()  # the process may be gone, or its context of the GPU be broken
        return Entry(config, "hung" if failed.kind == "hung" else "failed", why=failed.where)

    def _times(self, runner: Contender, capture: bool) -> list[float]:
        """Return the microseconds of a call in each window. Raises _NotCaptured."""
        alike = [e for e in self._journal.known.values() if e.captured == capture]
        best = min((e.microseconds for e in alike if e.state == "timed"), default=math.inf)
        times: list[float] = []
        repeats = 0
        while len(times) < _MOST:
            self._desk.refill(self._values, self._calls)
            window = Window(self._calls, repeats=max(repeats, 1))
            seconds = runner.window(window, "a timed call")
            if seconds is None or runner.flags:
                break
            if not repeats:
                repeats = max(1, min(_REPEATS, int(_WINDOW_S / seconds)))
                if capture and not runner.capture(repeats):
                    raise _NotCaptured
                if capture or repeats > 1:
                    continue
            times.append(1e6 * seconds / self._calls / repeats)
            if len(times) >= _LEAST and min(times) > _HOPELESS * best:
                break
        return times

    def _wrong(self) -> Message:
        """Return what is wrong with the last window's answers; empty if nothing is.

        This protects the search from kernels that are fast because they are wrong; the winner is
        judged.
        """
        inputs, got = self._desk.inputs(self._calls - 1), self._desk.result(self._calls - 1)
        found = compare(self._task.reference, inputs, got)
        if math.isinf(found.error):
            return phrase("it is not finite")
        if found.is_right:
            return ""
        return phrase(
            "its error is {found}, above {allowed}",
            found=Number(found.error, ".3g"),
            allowed=Number(found.bound, ".3g"),
        )


def winner_of(
    times: Sequence[tuple[Config, Sequence[float]]], usual: Config | None
) -> tuple[Config, float]:
    """Return the fastest configuration, and the median of its microseconds.

    The template's own stays unless the fastest one was faster in its slowest turn than that in its
    fastest, so that noise never makes a kernel slower.

    Args:
        times: the microseconds of some configurations in some turns; at least one.
        usual: the template's own.
    """
    best = min(times, key=lambda one: statistics.median(one[1]))
    own = next((one for one in times if one[0] == usual), best)
    config, us = best if max(best[1]) < min(own[1]) else own
    return config, statistics.median(us)
