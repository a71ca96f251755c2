"""The probe beside a load whose clock, counters and power change, sampled as a busy machine does:
late, with gaps, and while the clock of the wall is set."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pynvml
import pytest

from gpudeck.scheduler.devices import probe
from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.jobs import Job, Running, Spec
from gpudeck.scheduler.queue.usage import MAX_GAP_S, UsageCollector
from tests.unit.scheduler.recorded_nvml import UUID, RecordedNvml

WALL = 1.76e9
STEP_S = 0.001
HMMA = 0.938
"""The share of cycles in which the tensor pipe works, while there is work."""
FLOP_A_CYCLE = 4096 * 132
END_S = 120.0

Lateness = Callable[[float], float]


class Simulation:
    """A GPU that works in turns, and the daemon's probe beside it in simulated time."""

    def __init__(
        self,
        card: RecordedNvml,
        monkeypatch: pytest.MonkeyPatch,
        busy: float,
        period: float = 0.37,
        phase: float = 0.0,
    ) -> None:
        """The load works for the share `busy` of every period (s), the first begins at `phase`."""
        self.card = card
        self.late: Lateness = lambda now: 0.0
        self.jumps: list[tuple[float, float]] = []
        """Times at which the clock of the wall is set, and by how much."""
        self.readings: list[tuple[float, Reading]] = []
        times = np.arange(0.0, END_S + 60.0, STEP_S)
        self._works = ((times - phase) % period) < busy * period
        self._follow()
        self._sampled = [0.0, 0.0]
        card.answers["nvmlDeviceGetClockInfo"] = lambda handle, kind: int(self.clock[self._at()])
        card.answers["nvmlGpmSampleGet"] = self._sample
        card.answers["nvmlDeviceGetPowerUsage"] = lambda handle: int(1e3 * self._last_second())
        card.gpm_values[pynvml.NVML_GPM_METRIC_FP32_UTIL] = 0.0
        monkeypatch.setattr(probe.time, "monotonic", lambda: card.now)
        monkeypatch.setattr(probe.time, "time", self._wall)
        monkeypatch.setattr(probe.select, "select", self._wait)
        monkeypatch.setattr(probe, "_send", self._sent)
        monkeypatch.setattr(probe.random, "expovariate", random.Random(5).expovariate)

    def _follow(self) -> None:
        self.clock = np.where(self._works, 1410.0, 1980.0)
        self.power = np.where(self._works, 650.0, 90.0)
        self._cycles = np.cumsum(self.clock) * STEP_S
        self._tensor = np.cumsum(np.where(self._works, HMMA, 0.0) * self.clock) * STEP_S
        self._joules = np.cumsum(self.power) * STEP_S

    def stop_work(self, time: float) -> None:
        """Do nothing from then on."""
        self._works[self._at(time) :] = False
        self._follow()

    def _at(self, time: float | None = None) -> int:
        return round((self.card.now if time is None else time) / STEP_S)

    def _last_second(self) -> float:
        """Return the mean power of the last second, in watts."""
        last = self._at()
        return float(self._joules[last] - self._joules[max(last - round(1 / STEP_S), 0)])

    def _wall(self) -> float:
        return WALL + self.card.now + sum(by for at, by in self.jumps if at <= self.card.now)

    def _sample(self, handle: object, into: object) -> None:
        """Counters give means between two samples: busy cycles / cycles."""
        before, now = self._sampled[1], self.card.now
        self._sampled = [before, now]
        first, last = self._at(before), self._at(now)
        if last > first:
            cycles = self._cycles[last] - self._cycles[first]
            share = 100 * float((self._tensor[last] - self._tensor[first]) / cycles)
            self.card.gpm_values[pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL] = share
            self.card.gpm_values[pynvml.NVML_GPM_METRIC_SM_UTIL] = share / HMMA

    def _wait(self, read: object, write: object, error: object, seconds: float) -> tuple:
        self.card.now = round(self.card.now + seconds + self.late(self.card.now), 6)
        self.card.fields[pynvml.NVML_FI_DEV_POWER_INSTANT] = 1e3 * float(self.power[self._at()])
        if self.card.now > END_S:
            raise SystemExit
        return [], [], []

    def _sent(self, message: object) -> None:
        if isinstance(message, probe.Readings):
            self.readings += [(self.card.now, reading) for reading in message.readings]

    def run(self) -> None:
        with pytest.raises(SystemExit):
            probe.ProbeLoop(NvmlSource(), "nvml", 2.0).run()

    def flops(self) -> Iterator[tuple[float, float]]:
        """Yield what each reading says was done since the one before, and what was done."""
        for (start, _), (end, reading) in pairwise(self.readings):
            if "tflops" in reading.values:
                cycles = self._tensor[self._at(end)] - self._tensor[self._at(start)]
                shown = reading.values["tflops"] * (end - start)
                yield shown, float(cycles) * 1e6 * FLOP_A_CYCLE / 1e12

    def energy(self, start: float, end: float) -> float:
        return float(self._joules[self._at(end)] - self._joules[self._at(start)])


def told_energy(simulation: Simulation) -> float:
    """Return the joules that a job is told it used."""
    usage = UsageCollector()
    job = Job(1, Spec(("x",), "x", "/", gpus=1), 0.0, Running("n", (UUID,), 0.0, 1, 1, "b"))
    for _, reading in simulation.readings:
        usage.add([reading], [job])
    used = usage.take(job, simulation.readings[-1][1].time)
    assert used is not None
    return used.energy


def never(now: float) -> float:
    return 0.0


def often_late() -> Lateness:
    chance = random.Random(7)
    return lambda now: chance.uniform(0.02, 0.4) if chance.random() < 0.2 else 0.0


@pytest.fixture(params=[0.0, 0.3, 0.6, 1.0], ids=lambda busy: f"busy {busy:.0%}")
def simulation(
    request: pytest.FixtureRequest, card: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> Simulation:
    return Simulation(card, monkeypatch, request.param)


@pytest.mark.parametrize("late", [False, True], ids=["punctual", "late"])
def test_work_and_energy_add_up_to_what_was_done(simulation: Simulation, late: bool) -> None:
    simulation.late = often_late() if late else never
    simulation.run()
    shown, done = (sum(part) for part in zip(*simulation.flops(), strict=True))
    assert shown == pytest.approx(done, rel=0.02)
    first, last = simulation.readings[0][0], simulation.readings[-1][0]
    true = simulation.energy(first, last)
    assert told_energy(simulation) == pytest.approx(true, rel=0.02)


def test_a_gap_in_which_the_load_ends_does_not_distort_the_rate(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe stands still from 60.3 s to 69 s; the load, without a pause, ends at 60.4 s."""
    simulation = Simulation(card, monkeypatch, 1.0)
    simulation.stop_work(60.4)
    simulation.late = lambda now: 69.0 - now if 60.3 <= now < 69.0 else 0.0
    simulation.run()
    gap = next(r for at, r in simulation.readings if at >= 69.0)
    index = [r for _, r in simulation.readings].index(gap)
    shown, done = list(simulation.flops())[index - 1]
    assert 0 < done < 600, "a second of it"
    assert shown == pytest.approx(done, rel=0.05)
    first, last = simulation.readings[0][0], simulation.readings[-1][0]
    told = told_energy(simulation)
    # of a gap the power before and after it is known: its mean, 370 W, stands for 8.7 s of 90 W
    assert told == pytest.approx(simulation.energy(first, last), rel=0.05)


def test_of_a_long_gap_nothing_is_told(card: RecordedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(card, monkeypatch, 0.6)
    simulation.late = lambda now: 30.0 if 50.0 <= now < 51.0 else 0.0
    simulation.run()
    times = [at for at, _ in simulation.readings]
    start, end = max(pairwise(times), key=lambda pair: pair[1] - pair[0])
    assert end - start > MAX_GAP_S
    read = simulation.energy(times[0], start) + simulation.energy(end, times[-1])
    assert told_energy(simulation) == pytest.approx(read, rel=0.02)


@pytest.mark.parametrize("phase", [0.0, 0.03, 0.06, 0.09])
def test_pauses_as_long_as_the_driver_renews_its_clock_are_not_in_step_with_the_probe(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch, phase: float
) -> None:
    """Readings come every 0.5 s, so a sample with each would see one phase of the load only."""
    simulation = Simulation(card, monkeypatch, 0.6, period=0.1, phase=phase)
    simulation.run()
    shown, done = (sum(part) for part in zip(*simulation.flops(), strict=True))
    assert shown == pytest.approx(done, rel=0.015)


@pytest.mark.parametrize("by", [-3600.0, 3600.0])
def test_a_clock_that_is_set_changes_neither_rates_nor_more_than_one_interval_of_energy(
    card: RecordedNvml, monkeypatch: pytest.MonkeyPatch, by: float
) -> None:
    simulation = Simulation(card, monkeypatch, 0.6)
    simulation.jumps = [(40.0, by)]
    simulation.run()
    assert all("tflops" in reading.values for _, reading in simulation.readings)
    shown, done = (sum(part) for part in zip(*simulation.flops(), strict=True))
    assert shown == pytest.approx(done, rel=0.02)
    true = simulation.energy(simulation.readings[0][0], simulation.readings[-1][0])
    assert told_energy(simulation) == pytest.approx(true * (1 - 0.5 / END_S), rel=0.03)
