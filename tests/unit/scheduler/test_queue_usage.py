"""Check what a job used, from readings as a GPU gives them."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.scheduler.protocol.devices import Process, Reading
from gpudeck.scheduler.protocol.jobs import Job, Running, Spec, Usage
from gpudeck.scheduler.queue.usage import UsageCollector


def job(number: int, *devices: str, usage: Usage | None = None) -> Job:
    return Job(
        number,
        Spec(("x",), "x", "/", gpus=1),
        0.0,
        Running("n", devices, 0.0, 1, 1, "b"),
        usage=usage,
    )


def reading(
    device: str, at: float, memory: dict[int, float | None] | None = None, **values: float
) -> Reading:
    processes = tuple(Process(n, "p", memory=m, job=n) for n, m in (memory or {}).items())
    return Reading(
        device,
        at,
        values,
        {"power": "not supported"} if "power" not in values else {},
        processes=processes,
    )


def test_energy_memory_and_utilisation_of_a_job_alone() -> None:
    usage, one = UsageCollector(), job(1, "a")
    for at, util, memory in ((0.0, 0.0, 10.0), (1.0, 100.0, 30.0), (3.0, 50.0, 20.0)):
        usage.add([reading("a", at, {1: memory}, util=util, power=100.0)], [one])
    used = usage.take(one, 3.0)
    assert used == Usage(3.0, 30.0, 300.0, pytest.approx(200 / 3), {})
    assert usage.take(one, 3.0) is None, "taken once"


def test_energy_of_a_short_job_is_neither_by_the_slow_counter_nor_by_a_mean_that_trails() -> None:
    usage, one = UsageCollector(), job(1, "a")
    for at, power, trailing in ((0.0, 70.0, 70.0), (0.5, 700.0, 385.0), (1.0, 700.0, 700.0)):
        usage.add(
            [reading("a", at, util=1.0, energy=9000.0, power=power, power_avg=trailing)], [one]
        )
    assert usage.take(one, 1.0).energy == 700.0  # type: ignore[union-attr]


def test_energy_begins_and_ends_with_the_job_and_not_with_the_readings_around_it() -> None:
    usage, one = UsageCollector(), job(1, "a")
    for at, running in ((-0.3, []), (0.2, [one]), (0.7, [one]), (1.2, [])):
        usage.add([reading("a", at, util=1.0, power=500.0, power_avg=500.0)], running)
    assert usage.take(one, 1.0).energy == pytest.approx(500.0)  # type: ignore[union-attr]


def test_the_energy_of_a_job_that_follows_another_one_is_never_below_zero() -> None:
    usage, one = UsageCollector(), job(1, "a")
    for at, mean, running in ((-0.45, 700.0, []), (0.05, 415.0, [one]), (0.1, 390.0, [one])):
        usage.add([reading("a", at, util=1.0, power=130.0, power_avg=mean)], running)
    assert 0 < usage.take(one, 0.1).energy < 130.0  # type: ignore[union-attr]


def test_where_the_only_power_is_a_mean_it_is_power_times_time() -> None:
    usage, one = UsageCollector(), job(1, "a")
    for at, power in ((0.0, 70.0), (0.5, 385.0), (1.0, 700.0)):
        told = reading("a", at, util=1.0, power=power, power_avg=power)
        usage.add([msgspec.structs.replace(told, methods={"power": "averaged"})], [one])
    assert usage.take(one, 1.0).energy == 0.5 * (385.0 + 700.0)  # type: ignore[union-attr]


def test_two_devices_count_together() -> None:
    usage, one = UsageCollector(), job(1, "a", "b")
    for at in (0.0, 2.0):
        usage.add(
            [
                reading("a", at, {1: 5.0}, util=100.0, power=10.0),
                reading("b", at, {1: 7.0}, util=0.0, power=30.0),
            ],
            [one],
        )
    assert usage.take(one, 2.0) == Usage(2.0, 7.0, 80.0, 50.0, {})


def test_energy_and_utilisation_of_a_shared_device_are_absent() -> None:
    usage, one, two = UsageCollector(), job(1, "a"), job(2, "a")
    for at in (0.0, 1.0):
        usage.add([reading("a", at, {1: 5.0, 2: 6.0}, util=90.0, power=100.0)], [one, two])
    used = usage.take(one, 1.0)
    assert used is not None
    assert (used.memory, used.energy, used.util) == (5.0, 0.0, 0.0)
    shared = "it shared its device with other jobs"
    assert {k: str(v) for k, v in used.absent.items()} == dict.fromkeys(("energy", "util"), shared)


def test_a_figure_that_is_not_read_is_absent_with_its_reason() -> None:
    usage, one = UsageCollector(), job(1, "a")
    usage.add([reading("a", 0.0, {1: None})], [one])
    assert set(usage.take(one, 0.0).absent) == {"memory", "energy", "util"}  # type: ignore[union-attr]
    usage.add([reading("a", 1.0)], [one])
    usage.add([reading("a", 2.0)], [one])
    assert usage.take(one, 2.0).absent["energy"] == "not supported"  # type: ignore[union-attr]


@pytest.mark.parametrize("at", [100_000.0, -100_000.0])
def test_a_gap_or_a_clock_that_was_set_is_not_counted(at: float) -> None:
    usage, one = UsageCollector(), job(1, "a")
    for t in (0.0, 1.0, at, at + 1.0):
        usage.add([reading("a", t, util=50.0, power=10.0)], [one])
    used = usage.take(one, at + 1.0)
    assert used is not None
    assert (used.seconds, used.energy, used.util) == (2.0, 20.0, 50.0)


def test_attempts_add_up() -> None:
    before = Usage(3.0, 40.0, 100.0, 20.0, {})
    usage, one = UsageCollector(), job(1, "a", usage=before)
    assert usage.take(one, 0.0) == before, "an attempt that was not seen adds nothing"
    for at in (0.0, 1.0):
        usage.add([reading("a", at, {1: 5.0}, util=60.0, power=50.0)], [one])
    assert usage.take(one, 1.0) == Usage(4.0, 40.0, 150.0, 30.0, {})
    assert msgspec.json.decode(msgspec.json.encode(before), type=Usage) == before
