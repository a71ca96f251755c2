"""Check the policy for arbitrary queues: what starts, on which device, and why the rest waits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Job, Queued, Running, Spec, held_devices
from gpudeck.scheduler.queue.admission import bind_kind, check_environment, check_spec
from tests.unit.scheduler.planning import Decided, decide

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(4)]
CPU = Device("cpu", 0, "EPYC", "cpu")
REPLAY = Device("REPLAY-0", 0, "REPLAY H100", "replay")


def queued(number: int, gpus: int = 0) -> Job:
    return Job(number, Spec(("true",), f"job{number}", "/", gpus=gpus), 0.0, Queued())


def running(job: Job, devices: tuple[str, ...]) -> Job:
    return msgspec.structs.replace(job, state=Running("nonce", devices, 0.0, 1, 1, "boot"))


machines = st.one_of(
    st.integers(0, 4).map(lambda n: GPUS[:n]),
    st.just([CPU]),
    st.just([REPLAY]),
    st.integers(1, 3).map(lambda n: [REPLAY, *GPUS[:n]]),
)


def check(
    decided: Decided, active: list[Job], devices: list[Device], paused: bool, slots: int
) -> None:
    waiting = [j for j in active if j.status == "queued"]
    started = [s.job.id for s in decided.starts]
    assert sorted([*started, *decided.reasons]) == [j.id for j in waiting], (
        "each waiting job starts, or is told why not; never both"
    )
    assert all(decided.reasons.values())
    taken = [d for s in decided.starts for d in s.devices] + [
        d for j in active for d in held_devices(j)
    ]
    assert len(taken) == len(set(taken)), "no device is given twice"
    assert {d for s in decided.starts for d in s.devices} <= {
        d.id for d in devices if d.kind != "replay"
    }
    assert all(len(s.devices) == s.job.spec.gpus for s in decided.starts)
    without = sum(not j.spec.gpus for j in active if j.status == "running") + sum(
        not s.devices for s in decided.starts
    )
    assert without <= max(slots, sum(not j.spec.gpus for j in active if j.status == "running"))
    assert not (paused and started)
    possible = [
        j.id for j in waiting if 0 < j.spec.gpus <= len([d for d in devices if d.kind != "replay"])
    ]
    on_devices = [s.job.id for s in decided.starts if s.devices]
    assert on_devices == possible[: len(on_devices)], (
        "jobs for devices start in the order in which they came"
    )


@settings(deadline=None)
@given(st.data(), machines, st.integers(1, 3))
def test_every_history_keeps_the_rules_and_every_possible_job_runs(
    data: st.DataObject, devices: list[Device], slots: int
) -> None:
    active: dict[int, Job] = {}
    submitted = 0
    ran: list[int] = []

    def step(paused: bool) -> None:
        jobs = [active[i] for i in sorted(active)]
        decided = decide(jobs, devices, paused, slots)
        check(decided, jobs, devices, paused, slots)
        for job, held in decided.starts:
            active[job.id] = running(job, held)
            ran.append(job.id)

    for action in data.draw(
        st.lists(st.sampled_from(("submit", "step", "pause", "end")), max_size=25)
    ):
        if action == "submit":
            submitted += 1
            active[submitted] = queued(submitted, data.draw(st.integers(0, 5)))
        elif action == "end" and (going := [i for i, j in active.items() if j.status == "running"]):
            del active[data.draw(st.sampled_from(going))]
        else:
            step(paused=action == "pause")

    real = [d for d in devices if d.kind != "replay"]
    for _ in range(
        submitted + 1
    ):  # everything ends sooner or later: then everything that can run has run
        step(paused=False)
        active = {i: j for i, j in active.items() if j.status == "queued"}
    assert len(ran) == len(set(ran)), "no job starts twice"
    assert all(j.spec.gpus > len(real) for j in active.values()), "nobody starves"


def test_a_job_for_many_gpus_is_not_overtaken() -> None:
    active = [running(queued(1, 1), ("GPU-0",)), queued(2, 4), queued(3, 1)]
    decided = decide(active, GPUS, False, 2)
    assert decided.starts == []
    assert decided.reasons == {
        2: "needs 4 GPUs; 3 free: GPU 0 is held by job 1 (job1)",
        3: "job 2 is ahead of it",
    }


def test_a_job_that_needs_more_gpus_than_are_left_does_not_hold_up_the_others() -> None:
    decided = decide([queued(1, 4), queued(2, 1)], GPUS[:2], False, 2)
    assert [s.job.id for s in decided.starts] == [2]
    assert decided.reasons == {1: "needs 4 GPUs; this machine has 2"}


def test_a_job_for_gpus_waits_while_a_replay_is_shown() -> None:
    decided = decide([queued(1, 1), queued(2, 0)], [REPLAY], False, 2)
    assert [s.job.id for s in decided.starts] == [2], "what needs no GPU runs"
    assert "a recording is shown (REPLAY), which runs no GPU jobs" in decided.reasons[1]


def test_reasons_name_the_holder_the_pause_and_missing_devices() -> None:
    held = running(queued(1, 1), ("cpu",))
    assert decide([held, queued(2, 1)], [CPU], False, 2).reasons == {
        2: "needs the CPU; 0 free: CPU is held by job 1 (job1)"
    }
    assert decide([queued(1, 1), queued(2)], [CPU], True, 2).reasons == dict.fromkeys(
        (1, 2), "the queue is paused"
    )
    assert decide([queued(1, 1)], [], False, 2).reasons == {1: "no device can be read at present"}
    assert decide([running(queued(1), ()), queued(2)], [CPU], False, 1).reasons == {
        2: "needs a CPU slot; 1 of 1 are in use"
    }


def test_a_device_started_in_the_same_step_is_named_as_held() -> None:
    decided = decide([queued(1, 1), queued(2, 1)], [CPU], False, 2)
    assert [s.job.id for s in decided.starts] == [1]
    assert decided.reasons == {2: "needs the CPU; 0 free: CPU is held by job 1 (job1)"}


@pytest.mark.parametrize(
    ("kind", "devices", "words"),
    [
        ("nvidia", [CPU], "was submitted for NVIDIA GPUs; this machine shows the CPU now"),
        ("cpu", GPUS, "was submitted for the CPU; this machine shows NVIDIA GPUs now"),
    ],
)
def test_a_job_waits_for_the_kind_of_device_it_was_submitted_for(
    kind: str, devices: list[Device], words: str
) -> None:
    other = msgspec.structs.replace(queued(1), spec=Spec(("true",), "a", "/", gpus=1, kind=kind))
    decided = decide([other, queued(2, 1)], devices, False, 2)
    assert decided.reasons == {1: words}
    assert [s.job.id for s in decided.starts] == [2], "and holds up nobody meanwhile"


@pytest.mark.parametrize(
    ("gpus", "devices", "kind"),
    [
        (1, GPUS, "nvidia"),
        (1, [CPU], "cpu"),
        (1, [REPLAY, *GPUS], "nvidia"),
        (1, [], ""),
        (0, GPUS, ""),
    ],
)
def test_a_job_is_bound_to_the_devices_there_are_whatever_the_client_sends(
    gpus: int, devices: list[Device], kind: str
) -> None:
    assert bind_kind(Spec(("true",), "a", "/", gpus=gpus, kind="abacus"), devices).kind == kind


def test_jobs_that_ended_hold_nothing() -> None:
    assert (
        held_devices(Job(1, Spec(("true",), "a", "/", gpus=1), 0.0, Done(0.0, 1.0, ("cpu",)))) == ()
    )


SPEC = Spec(("true",), "a", "/")


@pytest.mark.parametrize(
    ("spec", "devices", "words"),
    [
        (Spec((), "a", "/"), [CPU], "no command"),
        (Spec(("",), "a", "/"), [CPU], "no command"),
        (Spec(("a\0b",), "a", "/"), [CPU], "NUL"),
        (Spec(("a",), "a", "/\0"), [CPU], "NUL"),
        (Spec(("a",), "a", "/", {"A": "\0"}), [CPU], "NUL"),
        (Spec(("a",), "a", "/", {"\0": "x"}), [CPU], "NUL"),
        (Spec(("a",), "a", "/", {"": "x"}), [CPU], "variable"),
        (Spec(("a",), "a", "/", {"A=B": "x"}), [CPU], "variable"),
        (Spec(("a",), "a", "/", gpus=-1), [CPU], "-1"),
        (Spec(("a",), "a", "/", gpus=1), [REPLAY], "REPLAY"),
        (Spec(("a",), "a", "/", gpus=2), [CPU], "no NVIDIA GPU: its CPU counts as 1"),
        (Spec(("a",), "a", "/", gpus=5), [*GPUS, REPLAY], "this machine has 4"),
        (Spec(("a",), "a", "/", memory=1), GPUS, "need a number of GPUs"),
        (Spec(("a",), "a", "/", gpus=1, memory=-1), GPUS, "-1"),
        (
            Spec(("a",), "a", "/", gpus=1, priority=2**40),
            GPUS,
            "priority must be from -1000000 to 1000000",
        ),
        (
            Spec(("a",), "a", "/", gpus=1, gpu_type="B200"),
            GPUS,
            "1 GPU of the type 'B200'; this machine has 0 .its GPUs: H100",
        ),
    ],
)
def test_a_job_that_can_never_run_is_refused_in_one_line(
    spec: Spec, devices: list[Device], words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        check_spec(spec, devices)
        check_environment(spec.env, spec.where)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [(0, [REPLAY]), (1, [CPU]), (4, GPUS), (8, [])],
    ids=["none", "CPU", "all", "devices unknown"],
)
def test_a_job_that_may_run_later_is_accepted(gpus: int, devices: list[Device]) -> None:
    check_spec(msgspec.structs.replace(SPEC, gpus=gpus), devices)
