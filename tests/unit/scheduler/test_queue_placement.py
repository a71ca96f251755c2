"""Share GPUs by memory: no two jobs count on the same bytes, none starves, each has a reason."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB, clock
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Progress, Queued, Running, Spec, turn
from gpudeck.scheduler.protocol.schedule import expected_end
from gpudeck.scheduler.protocol.wait_reasons import End, TooFewGpus, TooLittleMemory
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue import policy
from gpudeck.scheduler.queue.admission import check_spec, device_obstacle
from gpudeck.scheduler.queue.placement import UNREAD, Availability, DeviceUse, choose, device_use
from gpudeck.scheduler.queue.policy import Conditions
from tests.unit.scheduler.planning import decide, laned

GPUS = [
    Device(f"GPU-{i}", i, "NVIDIA H100 80GB HBM3" if i < 2 else "NVIDIA A100", "nvidia")
    for i in range(4)
]
TOTAL = 80.0
OTHER = Process(4711, "python", "ada", 20.0)


def job(number: int, gpus: int = 1, memory: int = 0, **more: object) -> Job:
    return Job(
        number,
        Spec(("true",), f"job{number}", "/", gpus=gpus, memory=memory, **more),
        0.0,
        Queued(),
    )  # type: ignore[arg-type]


def on(found: Job, *devices: str) -> Job:
    return msgspec.structs.replace(found, state=Running("nonce", devices, 0.0, 1, 1, "boot"))


def gib(number: int, size: float, *devices: str, gpus: int = 1) -> Job:
    made = job(number, gpus, round(size * GIB))
    return on(made, *devices) if devices else made


def use(
    free: float, used: dict[int, float] | None = None, *others: Process, total: float = TOTAL
) -> DeviceUse:
    return DeviceUse(total * GIB, free * GIB, {k: v * GIB for k, v in (used or {}).items()}, others)


def conditions(*found: DeviceUse, **more: object) -> Conditions:
    return Conditions(Availability({f"GPU-{i}": s for i, s in enumerate(found)}), **more)  # type: ignore[arg-type]


class Machine:
    """Simulate GPUs whose memory jobs allocate late, in steps, and within their reservation."""

    def __init__(self, data: st.DataObject, gpus: int) -> None:
        self.data, self.devices = data, GPUS[:gpus]
        self.jobs: dict[int, Job] = {}
        self.allocated: dict[tuple[int, str], int] = {}
        self.foreign = {d.id: 0 for d in self.devices}
        self.started: list[int] = []

    def read(self) -> Availability:
        """Return what NVML reports; some drivers omit the memory of each process."""
        found = {}
        for device in self.devices:
            used = {n: a for (n, d), a in self.allocated.items() if d == device.id}
            free = TOTAL - sum(used.values()) - self.foreign[device.id]
            others = (OTHER,) if self.foreign[device.id] else ()
            found[device.id] = DeviceUse(
                TOTAL,
                free,
                dict.fromkeys(used, 0.0) if self.data.draw(st.booleans()) else dict(used),
                others,
            )
        return Availability(found)

    def step(self) -> None:
        for number, held in decide(
            sorted(self.jobs.values(), key=turn), self.devices, False, 1, Conditions(self.read())
        ).starts:
            self.started.append(number.id)
            self.jobs[number.id] = on(number, *held)
        for device in self.devices:
            promised = sum(
                j.spec.memory
                for j in self.jobs.values()
                if isinstance(j.state, Running) and device.id in j.state.devices
            )
            alone = [
                j
                for j in self.jobs.values()
                if isinstance(j.state, Running)
                and device.id in j.state.devices
                and not j.spec.memory
            ]
            assert promised + self.foreign[device.id] <= TOTAL, (
                "every job can allocate all that it reserved"
            )
            assert not alone or (
                len(alone) == 1 and not promised and not self.foreign[device.id]
            ), "alone means alone"

    def allocate(self) -> None:
        running_jobs = [
            (j, d)
            for j in self.jobs.values()
            if isinstance(j.state, Running)
            for d in j.state.devices
        ]
        if running_jobs:
            found, device = self.data.draw(st.sampled_from(running_jobs))
            self.allocated[found.id, device] = self.data.draw(st.integers(0, found.spec.memory))

    def end(self) -> None:
        running_jobs = [j.id for j in self.jobs.values() if isinstance(j.state, Running)]
        if running_jobs:
            self.remove(self.data.draw(st.sampled_from(running_jobs)))

    def remove(self, number: int) -> None:
        del self.jobs[number]
        self.allocated = {key: a for key, a in self.allocated.items() if key[0] != number}


@settings(deadline=None)
@given(st.data(), st.integers(1, 3))
def test_no_two_jobs_count_on_the_same_memory_and_every_job_runs(
    data: st.DataObject, gpus: int
) -> None:
    machine = Machine(data, gpus)
    submitted = 0
    for action in data.draw(
        st.lists(
            st.sampled_from(("submit", "submit", "step", "allocate", "end", "foreign")), max_size=30
        )
    ):
        if action == "submit":
            submitted += 1
            needs = (
                data.draw(st.integers(1, gpus)),
                data.draw(st.one_of(st.just(0), st.integers(1, int(TOTAL)))),
            )
            machine.jobs[submitted] = job(submitted, *needs, priority=data.draw(st.integers(0, 1)))
        elif action == "foreign":  # only beside none of our jobs, from which others could take
            empty = [
                d.id
                for d in machine.devices
                if not any(isinstance(j.state, Running) for j in machine.jobs.values())
            ]
            for device in empty:
                machine.foreign[device] = data.draw(st.sampled_from((0, 20)))
        else:
            {"step": machine.step, "allocate": machine.allocate, "end": machine.end}[action]()
    machine.foreign = dict.fromkeys(machine.foreign, 0)
    for _ in range(2 * submitted + 2):
        for number in [j.id for j in machine.jobs.values() if isinstance(j.state, Running)]:
            machine.remove(number)
        machine.step()
    assert sorted(machine.started) == list(range(1, submitted + 1)), "each once"


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=8))
def test_a_job_is_not_starved_by_those_that_come_after_it(small: list[int]) -> None:
    """Start a large job before a stream of small ones, once the three that ran have ended."""
    devices = GPUS[:3]
    running = [on(job(n, 1, 10), d.id) for n, d in enumerate(devices, 1)]
    big = job(10, 2)
    waiting = [job(100 + i, 1, memory) for i, memory in enumerate(small)]
    availability = Availability({d.id: DeviceUse(TOTAL, TOTAL, {}) for d in devices})
    for again in range(4):
        starts = decide(
            [*running, big, *waiting], devices, False, 1, Conditions(availability)
        ).starts
        if any(start.job.id == big.id for start in starts):
            return
        running = [*running[1:], *(on(start.job, *start.devices) for start in starts)]
        begun = {start.job.id for start in starts}
        waiting = [
            *(j for j in waiting if j.id not in begun),
            *(job(1000 * (again + 1) + n, 1, 10) for n in begun),
        ]
    raise AssertionError("it was starved")


def test_a_reservation_counts_before_it_is_allocated() -> None:
    running = gib(1, 40, "GPU-0")
    decided = decide([running, gib(2, 41), gib(3, 40)], GPUS[:1], False, 1, conditions(use(80.0)))
    assert decided.starts == []
    assert decided.reasons[2] == "needs 41 GiB on one GPU; GPU 0 has 40 GiB free until job 1 ends"
    assert decided.reasons[3] == "job 2 is ahead of it"


def test_a_job_that_allocates_more_than_it_reserved_counts_with_what_it_allocates() -> None:
    decided = decide(
        [gib(1, 10, "GPU-0"), gib(2, 40)], GPUS[:1], False, 1, conditions(use(30.0, {1: 50.0}))
    )
    assert decided.reasons == {2: "needs 40 GiB on one GPU; GPU 0 has 30 GiB free until job 1 ends"}


def test_the_reason_includes_when_memory_comes_free() -> None:
    now = 1_000_000.0
    ends = {12: End(now + 600), 13: End(now + 60)}
    active = [gib(12, 30, "GPU-0"), gib(13, 19, "GPU-0"), gib(14, 60)]
    decided = decide(
        active, GPUS[:1], False, 1, conditions(use(31.0, {12: 30.0, 13: 19.0}), ends=ends, now=now)
    )
    assert decided.reasons == {
        14: "needs 60 GiB on one GPU; GPU 0 has 31 GiB free until job 12 ends, "
        f"about {clock(now + 600, now)}"
    }
    alone = decide(
        [on(job(12), "GPU-0"), job(2)], GPUS[:1], False, 1, Conditions(ends=ends, now=now)
    )
    assert alone.reasons == {
        2: "needs 1 GPU; 0 free: GPU 0 is held by job 12 (job12) "
        f"until about {clock(now + 600, now)}"
    }


def test_jobs_are_spread_over_the_gpus() -> None:
    decided = decide(
        [gib(i, 10) for i in range(1, 6)], GPUS, False, 1, conditions(*[use(80.0)] * 4)
    )
    assert [s.devices for s in decided.starts] == [
        ("GPU-0",),
        ("GPU-1",),
        ("GPU-2",),
        ("GPU-3",),
        ("GPU-0",),
    ]


def test_of_gpus_with_as_many_jobs_the_one_with_the_most_memory_is_taken() -> None:
    around = conditions(use(30.0, None, OTHER), use(60.0, None, OTHER))
    decided = decide([gib(1, 10)], GPUS[:2], False, 1, around)
    assert [s.devices for s in decided.starts] == [("GPU-1",)]


def test_a_job_that_shares_may_pass_one_that_waits_for_another_gpu() -> None:
    active = [on(job(1), "GPU-0"), gib(2, 60, "GPU-1"), gib(3, 70), gib(4, 20)]
    decided = decide(active, GPUS[:2], False, 1, conditions(use(79.0), use(20.0, {2: 60.0})))
    assert "GPU 1 has 20 GiB free until job 2 ends" in decided.reasons[3]
    assert decided.reasons[4] == "job 3 is ahead of it", (
        "GPU 1 is what job 3 waits for: it shrinks no further"
    )


def test_processes_of_others_keep_a_job_from_having_a_gpu_to_itself() -> None:
    decided = decide([job(1), gib(2, 50)], GPUS[:1], False, 1, conditions(use(60.0, None, OTHER)))
    assert decided.reasons[1] == "needs 1 GPU; 0 free: GPU 0 is used by pid 4711 (python, of ada)"
    assert [
        s.job.id
        for s in decide([gib(2, 50)], GPUS[:1], False, 1, conditions(use(60.0, None, OTHER))).starts
    ] == [2]
    short = decide(
        [gib(2, 70)],
        GPUS[:1],
        False,
        1,
        conditions(use(60.0, None, msgspec.structs.replace(OTHER, memory=20.0 * GIB))),
    )
    assert short.reasons == {
        2: "needs 70 GiB on one GPU; GPU 0 has 60 GiB free; pid 4711 (python, of ada) uses 20 GiB"
    }


def test_device_use_distinguishes_jobs_from_other_processes() -> None:
    reading = Reading(
        "GPU-0",
        1.0,
        {"mem_total": 80.0, "mem_free": 30.0},
        processes=(
            Process(1, "python", "me", 20.0, job=7),
            Process(2, "python", "me", 5.0, job=7),
            Process(3, "python", "me", None, job=8),
            Process(4, "host", "me", 5.0, assistant=True),
            Process(5, "Xorg", "root", 5.0),
            Process(6, "python", "me", 5.0, job=6),
        ),
    )
    found = device_use(reading, [7, 8], frozenset({"Xorg"}))
    assert found[:3] == (80.0, 35.0, {7: 25.0, 8: 0.0})
    assert [p.pid for p in found.others] == [6], (
        "what a job left behind is on the device still; Xorg may be"
    )
    assert [p.pid for p in device_use(reading, [7, 8]).others] == [5, 6]
    assert device_use(None, [7]) is UNREAD


def test_a_device_that_cannot_be_read_is_not_free() -> None:
    blind = decide([job(1), gib(2, 1)], GPUS[:1], False, 1, conditions(UNREAD))
    assert blind.reasons[1] == "needs 1 GPU; 0 free: GPU 0 has no current reading"
    assert decide([gib(2, 1)], GPUS[:1], False, 1, conditions(UNREAD)).reasons == {
        2: "needs 1 GiB on one GPU; GPU 0 has no current reading"
    }
    unread = decide(
        [gib(2, 1)], GPUS[:1], False, 1, conditions(DeviceUse(None, None, {})._replace(others=()))
    )
    assert unread.starts == []


def test_a_drained_gpu_gets_no_new_job_and_delays_no_other() -> None:
    availability = Availability({d.id: use(80.0) for d in GPUS}, frozenset({"GPU-0", "GPU-1"}))
    decided = decide([job(1, 3), job(2, 2), gib(3, 1)], GPUS, False, 1, Conditions(availability))
    assert decided.reasons == {
        1: "needs 3 GPUs; drained: GPU 0, GPU 1",
        3: "needs 1 GiB on one GPU; " + ALONE,
    }
    assert [(s.job.id, s.devices) for s in decided.starts] == [(2, ("GPU-2", "GPU-3"))]


def test_a_gpu_divided_by_mig_runs_no_job_as_a_whole() -> None:
    divided = msgspec.structs.replace(GPUS[0], mig=True)
    availability = Availability({d.id: use(80.0) for d in GPUS}, frozenset({"GPU-0"}))
    alone = decide([job(1, 1)], [divided], False, 1, Conditions(availability))
    assert alone.reasons == {1: "needs 1 GPU; drained or divided by MIG: GPU 0"}
    decided = decide(
        [job(1, 3), job(2, 1)], [divided, *GPUS[1:]], False, 1, Conditions(availability)
    )
    assert [(s.job.id, s.devices) for s in decided.starts] == [(1, ("GPU-1", "GPU-2", "GPU-3"))]
    assert "GPU 0 is divided by MIG" in decided.reasons[2]


def test_what_another_users_queue_holds_is_not_free() -> None:
    held = {"GPU-0": math.inf, "GPU-1": 30 * GIB}
    availability = Availability({d.id: use(80.0) for d in GPUS[:2]}, held_by_others=held)
    found = conditions()._replace(availability=availability)
    decided = decide([job(1, 1)], GPUS[:2], False, 1, found)
    assert decided.reasons == {
        1: "needs 1 GPU; 0 free: GPU 0 is held by another user's queue, "
        "30 GiB of GPU 1 are held by another user's queue"
    }
    assert [s.devices for s in decide([gib(1, 50)], GPUS[:2], False, 1, found).starts] == [
        ("GPU-1",)
    ]
    assert decide([gib(1, 51)], GPUS[:2], False, 1, found).reasons == {
        1: "needs 51 GiB on one GPU; "
        "GPU 1 has 50 GiB free; another user's queue holds 30 GiB, "
        "GPU 0 is held by another user's queue"
    }


@pytest.mark.parametrize(("allocated", "free"), [(0.0, 50), (20.0, 50), (30.0, 50), (45.0, 35)])
def test_what_another_users_queue_reserves_and_allocates_counts_once(
    allocated: float, free: int
) -> None:
    theirs = Process(4711, "python", "ada", allocated * GIB)
    availability = Availability(
        {"GPU-0": use(80.0 - allocated, {}, theirs)}, held_by_others={"GPU-0": 30 * GIB}
    )
    found = conditions()._replace(availability=availability)
    assert decide([gib(1, free)], GPUS[:1], False, 1, found).starts
    assert not decide([gib(1, free + 1)], GPUS[:1], False, 1, found).starts


ALONE = "GPU 2 is held by job 2 (job2), GPU 3 is held by job 2 (job2)"


def test_a_type_of_gpu() -> None:
    active = [
        job(1, 2, gpu_type="h100"),
        job(2, 1, gpu_type="h100"),
        job(3, 1, gpu_type="a100"),
        job(4, 3, gpu_type="A100"),
    ]
    decided = decide(active, GPUS, False, 1)
    assert [(s.job.id, s.devices) for s in decided.starts] == [
        (1, ("GPU-0", "GPU-1")),
        (3, ("GPU-2",)),
    ]
    assert decided.reasons[4] == (
        "needs 3 GPUs of the type 'A100'; this machine has 2 "
        "(its GPUs: NVIDIA A100, NVIDIA H100 80GB HBM3)"
    )
    assert decided.reasons[2].startswith(
        "needs 1 GPU of the type 'h100'; 0 free: GPU 0 is held by job 1 (job1), "
    )


def test_a_higher_priority_goes_first_and_equals_as_they_came() -> None:
    active = [job(1), job(2, priority=1), job(3), job(4, priority=1)]
    active[2] = msgspec.structs.replace(active[2], place=0.5)  # moved to the front
    decided = decide(sorted(active, key=turn), GPUS[:3], False, 1)
    assert [s.job.id for s in decided.starts] == [2, 4, 3]
    assert decided.reasons == {
        1: "needs 1 GPU; 0 free: "
        + ", ".join(f"GPU {i} is held by job {n} (job{n})" for i, n in enumerate((2, 4, 3)))
    }


def test_more_memory_than_any_gpu_has_is_refused() -> None:
    availability = Availability({d.id: use(80.0) for d in GPUS})
    with pytest.raises(
        UserError, match=r"^the job cannot run: needs 81 GiB on one GPU; the largest has 80 GiB$"
    ):
        check_spec(gib(1, 81).spec, GPUS, availability)
    assert isinstance(device_obstacle(gib(1, 81).spec, GPUS, availability), TooLittleMemory)
    assert device_obstacle(gib(1, 80).spec, GPUS, availability) is None
    assert device_obstacle(gib(1, 81).spec, GPUS, Availability({"GPU-0": UNREAD})) is None
    waits = decide([gib(1, 81), gib(2, 1)], GPUS[:1], False, 1, conditions(use(80.0)))
    assert waits.reasons == {1: "needs 81 GiB on one GPU; the largest has 80 GiB"}
    assert [s.job.id for s in waits.starts] == [2], "it holds up nobody"


def test_devices_are_not_searched_for_jobs_that_fit_on_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[Spec] = []
    monkeypatch.setattr(
        policy, "choose", lambda spec, *rest: searched.append(spec) or choose(spec, *rest)
    )
    held = [gib(n, 70, f"GPU-{n}") for n in range(4)]
    wanting = [gib(n, n, gpus=1 + n % 2) for n in range(11, 60)]
    running_jobs, lanes = laned([*held, *wanting, gib(60, 10)])
    decided = policy.make_plan(running_jobs, lanes, GPUS, conditions(*[use(80)] * 4))
    assert (
        [start.job.id for start in decided.starts],
        len(lanes),
        [spec.name for spec in searched],
    ) == ([60], 50, ["job60"])
    assert decided.reservations() == {"GPU-0": 11, "GPU-1": 11}
    assert render(decided.reason(wanting[0]), 0.0).startswith(
        "needs 11 GiB on each of 2 GPUs; GPU 0 has 10 GiB free until job 0 ends, GPU 1 has 10 GiB"
    )


def test_the_first_job_for_a_type_of_gpu_waits_for_others_and_not_for_itself() -> None:
    jobs = [
        on(job(9), "GPU-0"),
        job(1, 4),
        job(2, gpu_type="a100"),
        job(3, gpu_type="A100"),
        job(4, 1, GIB),
    ]
    waits = decide(jobs, GPUS, False, 1, conditions(*[use(80)] * 4))
    assert waits.reasons == {
        1: "needs 4 GPUs; 3 free: GPU 0 is held by job 9 (job9)",
        2: "job 1 is ahead of it",
        3: "job 1 is ahead of it",
        4: "job 1 is ahead of it",
    }


def test_an_end_is_expected_by_the_pace_so_far() -> None:
    state = Running("nonce", (), 100.0, 1, 1, "boot", Progress(1.0, 4.0, time=110.0))
    running_jobs = msgspec.structs.replace(job(1), state=state)
    assert expected_end(running_jobs, 120.0) == End(140.0)
    assert expected_end(running_jobs, 500.0) == End(500.0), "late: any moment now"
    for unknown in (None, Progress(0.0, 4.0, time=110.0), Progress(1.0, 4.0, time=100.0)):
        assert (
            expected_end(
                msgspec.structs.replace(
                    job(1), state=msgspec.structs.replace(state, progress=unknown)
                ),
                120.0,
            )
            is None
        )


@pytest.mark.parametrize("wanted", ["GPU 2", "gpu 2", "GPU-2"])
def test_one_gpu_can_be_asked_for_by_its_label_or_its_id(wanted: str) -> None:
    plan = decide([job(1, gpu_type=wanted), job(2, gpu_type=wanted)], GPUS, False, 1)
    assert [(start.job.id, start.devices) for start in plan.starts] == [(1, ("GPU-2",))]


def test_a_mig_instance_is_for_one_job_with_one_gpu() -> None:
    whole = msgspec.structs.replace(GPUS[0], mig=True)
    parts = [
        Device(f"MIG-{i}", 0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "nvidia", instance=f"0:{i}")
        for i in range(2)
    ]
    uses = {d.id: use(10.0, total=10.0) for d in (whole, *parts)}
    divided = Conditions(Availability(uses, frozenset([whole.id])))
    devices = [whole, *parts, GPUS[1]]
    planned = decide([job(1), job(2), job(3), job(4, 2)], devices, False, 1, divided)
    placed = {start.job.id: start.devices for start in planned.starts}
    assert placed == {1: ("MIG-0",), 2: ("MIG-1",), 3: ("GPU-1",)}
    obstacle = device_obstacle(job(5, 2).spec, [whole, *parts], divided.availability)
    assert obstacle == TooFewGpus(2, 1, False)
    fits = decide([gib(6, 8.0)], [whole, parts[1]], False, 1, divided)
    assert [start.devices for start in fits.starts] == [("MIG-1",)]
