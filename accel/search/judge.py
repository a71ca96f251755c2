"""Judge a candidate: whether it is right, and faster than the fastest honest alternative.

The candidate runs in processes of its own. It is loaded before the judge draws the sizes, the
distributions and the values with which it is checked. The judge writes the inputs, reads the
results, and has the clock and the reference.
"""

from __future__ import annotations

import atexit
import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from hashlib import sha256

import torch
from torch import Tensor

from gpudeck.accel.runtime.capability import ComputeDevice, find_device, versions
from gpudeck.accel.search.arena import calls_that_fit, lay_out
from gpudeck.accel.search.candidate_protocol import Window
from gpudeck.accel.search.contender import Contender, Desk
from gpudeck.accel.search.contest import CALLS, Contest, Effort, fastest
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.measures import compare
from gpudeck.accel.search.nursery import Nursery
from gpudeck.accel.search.roofline import roofline
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.verdict import (
    Denominator,
    Race,
    Refusal,
    Roofline,
    Source,
    Trial,
    Verdict,
    digest_of,
)

COMPILED = ("default", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of torch.compile that are alternatives, as a rule."""
_HERE = "gpudeck.accel.search"
_EVERYWHERE = (
    "process of its own", "paused outside of its windows", "fresh inputs at the same addresses",
    "random timed call verified", "hidden sizes and distributions", "reference in float64",
    "honest computation of the same precision", "inputs compared and hashed", "exact types",
    "poisoned allocator", "operators listed", "twin of the alternative", "single calls",
    "replaced functions, threads, processes and inspection",
)  # fmt: skip
_DOUBTED = 10
"""How often the rates of a CPU are measured before they refuse a candidate: a busy one is slow."""
_HASHED = 4096
"""Bytes of a block whose sum stands for it in the hash of inputs of more than its square."""
_ON_GPU = ("synchronised device", "kernels listed", "true clock")


@lru_cache(maxsize=1)
def nursery() -> Nursery:
    """Return the process that starts all others of this program."""
    made = Nursery()
    atexit.register(made.close)
    return made


def judge(
    candidate: Source,
    task: Task,
    *,
    compiled: Sequence[str] = COMPILED,
    effort: Effort | None = None,
    seed: int | None = None,
    device: ComputeDevice | None = None,
    crew: Crew | None = None,
) -> Verdict:
    """Return the verdict on a candidate.

    The candidate's code is executed with the permissions of this process: the judge finds out who
    cheats, and is no protection against who attacks.

    Args:
        candidate: what is judged.
        task: what it must compute.
        compiled: the modes of torch.compile that are alternatives, beside the task's own.
        effort: how long is measured.
        seed: repeats a verdict; by default it is drawn after the candidate was loaded.
        device: where it runs; by default the first GPU, or the CPU.
        crew: has processes of judgements before, and keeps those of this one.

    Raises:
        OSError: if the candidate's file cannot be read.
        MemoryError: if inputs and results of a few calls do not fit into the device's memory.
    """
    device = find_device() if device is None else device
    with torch.no_grad(), ExitStack() as stack:
        crew = crew or stack.enter_context(Crew(nursery(), device.torch_device))
        return _Session(candidate, task, device, effort or Effort(), crew).judge(compiled, seed)


class _Session:
    """Judge one candidate once."""

    def __init__(
        self, candidate: Source, task: Task, device: ComputeDevice, effort: Effort, crew: Crew
    ) -> None:
        self._candidate, self._task = candidate, task
        self._device, self._torch_device = device, device.torch_device
        self._effort, self._crew = effort, crew
        self._text = candidate.text
        self._refusals: list[Refusal] = []
        self._trials: list[Trial] = []
        self._launched: tuple[str, ...] = ()
        self._race: Race | None = None
        self._roofline: Roofline | None = None
        timed = self._task.timed
        self._calls = calls_that_fit(self._task, timed, CALLS)
        size = max(lay_out(self._task, *s)[1] for s in ((timed, self._calls), (self._largest(), 2)))
        if size > crew.held and size > (device.free_memory() + crew.held) / 2:
            raise MemoryError(
                f"{size / 2**20:.0f} MiB are shared with the candidate, which is more than half of"
                " the free memory. Choose smaller sizes"
            )
        self._desk = Desk(crew.arena(size), self._task, self._torch_device)

    def judge(self, compiled: Sequence[str], seed: int | None) -> Verdict:
        with self._start(self._candidate) as checked:
            # drawn only now that the candidate is loaded
            seed = secrets.randbits(48) if seed is None else seed
            self._random = torch.Generator().manual_seed(seed)
            if self._collect(checked):
                self._check(checked)
        if not self._refusals and self._effort.rounds:
            self._time(compiled)
        return Verdict(
            self._task.name, self._task.timed, str(self._task.dtype).removeprefix("torch."),
            str(self._device), versions(), self._candidate, self._text,
            digest_of(self._candidate, self._text), seed, tuple(self._refusals),
            tuple(self._trials), self._launched, self._measures(), self._race, self._roofline,
            time.time(),
        )  # fmt: skip

    def _measures(self) -> tuple[str, ...]:
        roof = () if self._roofline is None else ("roofline",)
        return (*_EVERYWHERE, *roof, *(_ON_GPU if self._torch_device.type == "cuda" else ()))

    @contextmanager
    def _start(self, source: Source) -> Iterator[Contender]:
        contender = self._crew.start(source, self._desk, trusted=False)
        try:
            yield contender
        finally:
            contender.end()

    def _collect(self, contender: Contender) -> bool:
        """Take over what a process noticed; return whether that was nothing."""
        self._refusals += (Refusal(flag.kind, flag.where) for flag in contender.flags)
        contender.flags.clear()
        return not self._refusals

    def _largest(self) -> dict[str, int]:
        return {name: size.high for name, size in self._task.sizes.items()}

    def _check(self, contender: Contender) -> None:
        """Compare answers at hidden sizes, then at those that are timed."""
        draws = self._task.draws
        shuffled = torch.randperm(len(draws), generator=self._random).tolist()
        for number in range(self._effort.trials):
            name = draws[shuffled[number % len(draws)]]
            if not self._trial(contender, self._task.drawn(self._random), name):
                return
        for name in dict.fromkeys(("normal", draws[shuffled[0]])):
            if not self._trial(contender, self._task.timed, name):
                return
        self._list(contender)

    def _list(self, contender: Contender) -> None:
        listed = contender.listing()
        self._launched = listed.launched
        if self._collect(contender) and self._task.own and listed.foreign:
            self._refusals.append(Refusal("library", ", ".join(listed.foreign)))

    def _trial(self, contender: Contender, sizes: dict[str, int], draw: str) -> bool:
        """Have two calls computed, and keep both results until the second has ended."""
        where = f"{', '.join(f'{k} {v}' for k, v in sizes.items())}, {draw}"
        self._desk.lay_out(sizes, 2)
        self._desk.fill(draw, self._random)
        if contender.bind(self._desk, where):
            contender.window(Window(2, late=True, poison=True), where)
        if not self._collect(contender):
            return False
        for call in (1, 0):
            if not self._compare(sizes, draw, where, call):
                return False
        if not self._desk.is_unchanged(1):
            self._refusals.append(Refusal("changes-inputs", where))
        if self._task.own and not self._refusals:
            self._list(contender)
        return not self._refusals

    def _compare(self, sizes: dict[str, int], draw: str, where: str, call: int) -> bool:
        inputs, got = self._desk.inputs(call), self._desk.result(call)
        found = compare(self._task.reference, inputs, got)
        if math.isinf(found.error):
            self._refusals.append(Refusal("not-finite", where))
            return False
        self._trials.append(Trial(sizes, draw, *found, _hash(inputs)))
        if found.is_right:
            return True
        later = self._desk.result(1)
        if call == 0 and torch.equal(got, later):
            self._refusals.append(Refusal("reuses-output", where))
        else:
            self._refusals.append(Refusal("inaccurate", where, found.error, found.bound))
        return False

    def _time(self, compiled: Sequence[str]) -> None:
        task, stack = self._task, ExitStack()
        allowed = max(t.bound for t in self._trials if t.sizes == task.timed)
        self._desk.lay_out(task.timed, self._calls)
        self._desk.stock(self._random)
        with stack:
            alternatives = self._alternatives(compiled)
            rest = {
                "candidate": self._candidate,
                "copies": Source(f"{_HERE}.baselines", "copies", self._place()),
            }
            started = self._start_all(alternatives | rest, stack)
            self._crew.look_ahead(self._desk)
            self._make_ready({name: c for name, c in started.items() if name != "candidate"})
            ready = {name: started[name] for name in alternatives if not started[name].flags}
            others = [
                Denominator(name, absent=started[name].flags[0].where)
                for name in alternatives.keys() - ready.keys()
            ]
            baseline, medians = fastest(ready, self._desk, self._random)
            others += (Denominator(name, us) for name, us in medians.items())
            twin = self._start_all({"twin": alternatives[baseline]}, stack)
            self._make_ready(twin)
            self._make_ready({"candidate": started["candidate"]})
            runners = {"baseline": ready[baseline], **twin} | {n: started[n] for n in rest}
            if not all(map(self._collect, runners.values())):
                return
            contest = Contest(
                task, self._desk, allowed, self._random, self._effort, medians[baseline]
            )
            self._crew.settle()
            with self._clock() as clock:
                self._race = contest.run(runners, baseline, others)
            for name, runner in runners.items():
                if name != "candidate" and runner.flags:
                    raise RuntimeError(f"{name} failed while it was timed: {runner.flags[0].where}")
            self._refusals += contest.refusals
            self._finish(runners["candidate"], clock[0] if clock else None)

    def _start_all(self, sources: Mapping[str, Source], stack: ExitStack) -> dict[str, Contender]:
        """Start processes at the same time; only the candidate is watched. All are paused."""

        def start(name: str) -> Contender:
            return self._crew.start(sources[name], self._desk, trusted=name != "candidate")

        with ThreadPoolExecutor(len(sources)) as pool:
            started = dict(zip(sources, pool.map(start, sources), strict=True))
        for contender in started.values():
            stack.callback(self._crew.release, contender)
            contender.child.pause()
        return started

    def _make_ready(self, contenders: Mapping[str, Contender]) -> None:
        """Have processes call once, at the same time; failures are in their flags.

        They are paused then. The candidate does so alone.
        """
        self._desk.refill(self._random, self._calls)
        for contender in contenders.values():
            contender.child.go_on()
        with ThreadPoolExecutor(len(contenders)) as pool:
            list(pool.map(lambda name: contenders[name].bind(self._desk, name), contenders))
        for contender in contenders.values():
            contender.child.pause()

    def _finish(self, contender: Contender, mhz: float | None) -> None:
        contender.child.go_on()
        if self._collect(contender):
            self._list(contender)
        for _ in range(_DOUBTED):
            self._roofline = roof = roofline(self._task, self._torch_device, mhz)
            if roof is None or self._race is None or self._race.at_most >= roof.least_us:
                return
        if roof and self._race:
            self._refusals.append(Refusal("too-fast", "", self._race.at_most, roof.least_us))

    @contextmanager
    def _clock(self) -> Iterator[list[float]]:
        """Measure the true clock of a GPU meanwhile; the list gets it."""
        found: list[float] = []
        if self._torch_device.type != "cuda":
            yield found
            return
        from gpudeck.accel.runtime.sm_clock import ClockWatch

        with ClockWatch(self._torch_device, self._effort.seconds) as watch:
            yield found
        if watch.mhz is not None:
            found.append(watch.mhz)

    def _alternatives(self, compiled: Sequence[str]) -> dict[str, Source]:
        """Return whatever computes the same, by name."""
        place = self._place()
        made = {
            f"torch.compile {mode}": Source(
                f"{_HERE}.baselines", "compiled", place | {"mode": mode}
            )
            for mode in compiled
        }
        return {"eager": self._task.source, **made, **self._task.alternatives}

    def _place(self) -> dict[str, str]:
        source = self._task.source
        return {"place": source.place, "entry": source.entry}


def _hash(inputs: Sequence[Tensor]) -> str:
    """Return the SHA-256 of the inputs, of large ones that of the sums of their blocks."""
    state = sha256()
    for x in inputs:
        held = x.contiguous().view(-1).view(torch.uint8)
        if (blocks := held.numel() // _HASHED) > _HASHED:
            state.update(held[: blocks * _HASHED].view(-1, _HASHED).sum(1).cpu().numpy().tobytes())
            held = held[blocks * _HASHED :]
        state.update(held.cpu().numpy().tobytes())
    return state.hexdigest()
