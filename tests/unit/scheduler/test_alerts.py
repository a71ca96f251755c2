"""Alerts are raised and cleared with hysteresis, also where levels waver, vanish or jump."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.notices.notice import alert_notice
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Job, Progress, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert, HostState
from gpudeck.scheduler.telemetry.alerts import AlertEvaluator
from gpudeck.scheduler.telemetry.hysteresis import AlertState, Calm, Raised, Thresholds, advance

GPU = Device("GPU-0", 0, "H100", "nvidia")
CPU = Device("cpu", 0, "EPYC", "cpu")
LIMITS = Thresholds(10.0, 7.0, 4.0, 6.0)

evaluations = st.lists(
    st.tuples(
        st.sampled_from([0.5, 1.0, 2.0, 30.0, -5.0]),
        st.sampled_from([0.0, 6.9, 7.0, 8.5, 9.9, 10.0, 99.0, None]),
    ),
    max_size=60,
)
"""Seconds since the last evaluation (also a gap, and a clock that is set back), and the level."""


def run(steps: list[tuple[float, float | None]]) -> list[tuple[float, float | None, AlertState]]:
    """Return time, level and state after each evaluation."""
    state: AlertState = Calm()
    now, found = 1000.0, []
    for seconds, level in steps:
        now += seconds
        state = advance(state, level, now, LIMITS, 3.0)
        found.append((now, level, state))
    return found


def held(
    found: list[tuple[float, float | None, AlertState]], at: int, seconds: float, well: bool
) -> bool:
    """Return True if the level stood on one side for `seconds` before `at`, without a gap."""
    end = last = found[at][0]
    for time, level, _ in reversed(found[: at + 1]):
        if level is None:
            continue
        if not 0 <= last - time <= 3.0 or (level >= 7.0 if well else level < 10.0):
            return False
        last = time
        if end - time >= seconds:
            return True
    return False


@given(evaluations)
def test_an_alert_is_raised_and_cleared_for_a_whole_stretch_of_reasons_only(
    steps: list[tuple[float, float | None]],
) -> None:
    found = run(steps)
    before: AlertState = Calm()
    for at, (_, level, state) in enumerate(found):
        if isinstance(state, Raised) and isinstance(before, Calm):
            assert held(found, at, LIMITS.raise_s, well=False)
        if isinstance(state, Calm) and isinstance(before, Raised):
            assert held(found, at, LIMITS.clear_s, well=True)
        if level is None:
            assert state == before
        before = state


@given(evaluations)
def test_a_level_that_stands_long_enough_is_always_raised_or_cleared(
    steps: list[tuple[float, float | None]],
) -> None:
    found = run(steps)
    for at, (_, level, state) in enumerate(found):
        if level is not None and held(found, at, LIMITS.raise_s, well=False):
            assert isinstance(state, Raised)
        if level is not None and held(found, at, LIMITS.clear_s, well=True):
            assert isinstance(state, Calm)


@given(st.lists(st.floats(7.0, 9.99), max_size=50), st.booleans())
def test_between_the_limits_nothing_changes(levels: list[float], raised: bool) -> None:
    state: AlertState = Raised(1.0) if raised else Calm()
    for now, level in enumerate(levels):
        state = advance(state, level, 10.0 * now, LIMITS, 1e9)
        assert isinstance(state, Raised) == raised


class Machine:
    """Simulate one GPU that is evaluated twice a second."""

    def __init__(self, **settings: object) -> None:
        self.alerts, self.now = AlertEvaluator(), 1000.0
        self.settings = msgspec.structs.replace(Settings(), **settings)

    def run_for(
        self,
        seconds: float,
        jobs: tuple[Job, ...] = (),
        throttle: str = "none",
        device: Device = GPU,
        read: bool = True,
        processes: tuple[Process, ...] = (),
        **values: float,
    ) -> list[Alert]:
        """Let time pass; return all alerts that changed."""
        changed = []
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            reading = Reading(
                device.id, self.now, {"util": 50.0, **values}, texts={"throttle": throttle},
                processes=processes,
            )  # fmt: skip
            changed += self.alerts.evaluate(
                (device,), {device.id: reading} if read else {}, jobs, self.settings, self.now
            )
        return changed


def job(number: int = 3, done: float = 5.0, device: str = "GPU-0") -> Job:
    return Job(
        number,
        Spec(("x",), "train", "/", gpus=1),
        0.0,
        Running("n", (device,), 0.0, 1, 1, "b", Progress(done, 10.0)),
    )


KERNEL = Process(4711, "python", "ada", 30.0 * 2**30, start=900.0, notebook="fit.ipynb")


def rules(changed: list[Alert]) -> list[tuple[str, bool]]:
    return [(a.rule, a.cleared is None) for a in changed]


def test_too_hot_by_the_cards_own_limit() -> None:
    machine = Machine()
    assert machine.run_for(60, temp=83.0, temp_limit=89.0) == []
    (raised,) = machine.run_for(60, temp=84.0, temp_limit=89.0)
    assert str(raised.text) == "GPU 0 is at its alert level of 84 °C"
    assert raised.raised - raised.since == 10
    assert machine.run_for(20, temp=88.0, temp_limit=89.0) == [], "it is the same alert"
    assert str(machine.alerts.active[0].text) == "GPU 0 is over 84 °C, peak 88 °C"
    assert machine.run_for(60, temp=82.0, temp_limit=89.0) == [], "cooler, and not yet well"
    assert str(machine.alerts.active[0].text) == "GPU 0 is over 84 °C, peak 88 °C"
    assert machine.alerts.worded == machine.alerts.active and not machine.alerts.worded[0].clearing
    assert machine.run_for(10, temp=42.0, temp_limit=89.0) == []
    assert str(machine.alerts.worded[0].text) == "GPU 0 was over 84 °C, peak 88 °C; clears soon"
    assert machine.alerts.worded[0].clearing
    assert machine.run_for(1, temp=83.0, temp_limit=89.0) == [], "warm again before it is cleared"
    assert str(machine.alerts.worded[0].text) == "GPU 0 is over 84 °C, peak 88 °C"
    (cleared,) = machine.run_for(31, temp=80.0, temp_limit=89.0)
    assert (cleared.id, cleared.cleared) == (raised.id, machine.now - 0.5)
    assert str(cleared.text) == "GPU 0 was over 84 °C, peak 88 °C"
    assert machine.alerts.active == ()


def test_the_cards_own_margin_comes_before_its_limit() -> None:
    machine = Machine()
    assert machine.run_for(60, temp=88.0, temp_limit=89.0, temp_margin=6.0) == []
    (raised,) = machine.run_for(60, temp=70.0, temp_limit=89.0, temp_margin=4.0)
    assert str(raised.text) == "GPU 0 is over 69 °C, peak 70 °C"


@pytest.mark.parametrize("field", ["ecc_uncorrected", "rows_failure", "xid_count"])
def test_every_kind_of_hardware_error_raises_an_alert(field: str) -> None:
    (raised,) = Machine(alert_errors=1.0).run_for(5, **{field: 1.0})
    assert raised.rule == "hardware errors"
    assert str(raised.text).startswith("GPU 0 has had 1 ")


def test_what_the_driver_asks_for_raises_an_alert_until_it_asks_no_more() -> None:
    machine = Machine(alert_errors=5.0)
    assert machine.run_for(5, recovery_action=0.0) == []
    (raised,) = machine.run_for(5, recovery_action=4.0)
    assert raised.rule == "recovery needed"
    assert str(raised.text) == (
        "GPU 0: the driver asks for an end of its jobs, and then a reset of the GPU"
    )
    assert rules(machine.run_for(5, recovery_action=0.0)) == [("recovery needed", False)]


def test_a_machine_that_is_unreachable_raises_an_alert_until_it_answers() -> None:
    alerts, settings = AlertEvaluator(), Settings()

    def check(now: float, problem: str | None, since: float = 1000.0) -> list[Alert]:
        host = HostState("lab1", "ada@lab1", since, problem)
        return alerts.evaluate((), {}, (), settings, now, (host,))

    assert check(1001.0, "Connection refused") == []
    assert check(1119.0, "Connection refused") == []
    (raised,) = check(1120.0, "Connection refused")
    assert (raised.rule, raised.device) == ("machine unreachable", "lab1")
    assert str(raised.text) == "lab1 has been unreachable for over 2 min: Connection refused"
    assert check(1500.0, "No route to host") == []
    assert [a.cleared for a in check(1501.0, None, 1501.0)] == [1501.0]
    check(1502.0, "x", 1000.0)
    assert len(alerts.active) == 1
    gone = alerts.evaluate((), {}, (), settings, 1503.0, ())  # it was removed
    assert [a.cleared for a in gone] == [1503.0]
    off = msgspec.structs.replace(settings, alert_host="off")
    host = HostState("lab1", "ada@lab1", 0.0, "x")
    assert AlertEvaluator().evaluate((), {}, (), off, 9999.0, (host,)) == []


def test_a_cpu_is_never_too_hot() -> None:
    assert Machine().run_for(60, temp=99.0, device=CPU) == []


@pytest.mark.parametrize(
    ("kind", "threshold", "values"),
    [
        ("too hot", {"alert_temperature": 10.0}, {"temp": 80.0, "temp_limit": 89.0}),
        ("memory nearly full", {"alert_memory": 90.0}, {"mem_used": 91.0, "mem_total": 100.0}),
        ("throttled", {"alert_slowdown": 30.0}, {"throttle": "power limit, too hot (hardware)"}),
        ("at its power limit", {"alert_power_cap": 30.0}, {"throttle": "power limit"}),
        ("hardware errors", {"alert_errors": 2.0}, {"ecc_uncorrected": 2.0}),
        ("recovery needed", {"alert_errors": 2.0}, {"recovery_action": 1.0}),
        ("reserved but idle", {"alert_idle_job": 0.5}, {"util": 0.0, "jobs": (job(),)}),
        ("memory held idle", {"alert_idle_memory": 0.5}, {"util": 0.0, "processes": (KERNEL,)}),
        ("no progress", {"alert_stuck_job": 1.0}, {"jobs": (job(),)}),
    ],
)
def test_each_rule_has_its_threshold_and_can_be_switched_off(
    kind: str, threshold: dict[str, float], values: dict[str, object]
) -> None:
    machine = Machine(**threshold)
    changed = machine.run_for(90, **values)  # type: ignore[arg-type]
    assert rules(changed) == [(kind, True)]
    assert changed[0].text
    assert rules(machine.run_for(1, **values)) == []  # type: ignore[arg-type]
    machine.settings = msgspec.structs.replace(machine.settings, **dict.fromkeys(threshold, "off"))
    assert rules(machine.run_for(1, **values)) == [(kind, False)]  # type: ignore[arg-type]
    assert Machine(**dict.fromkeys(threshold, "off")).run_for(90, **values) == []  # type: ignore[arg-type]


def test_ordinary_work_raises_no_alert_by_default() -> None:
    assert (
        Machine().run_for(
            3600,
            temp=70.0,
            temp_limit=89.0,
            mem_used=90.0,
            mem_total=100.0,
            throttle="power limit",
            util=100.0,
        )
        == []
    )


def test_memory_errors_are_counted_within_the_hour() -> None:
    machine = Machine(alert_corrected=50.0)
    assert machine.run_for(60, ecc_corrected=4000.0) == [], "what was there before is not new"
    assert rules(machine.run_for(60, ecc_corrected=4049.0)) == []
    assert rules(machine.run_for(60, ecc_corrected=4050.0)) == [("memory errors", True)]
    assert rules(machine.run_for(3700, ecc_corrected=4050.0)) == [("memory errors", False)]
    assert machine.run_for(60, ecc_corrected=0.0) == [], "the driver was loaded anew"


def test_the_next_job_on_a_gpu_starts_a_new_span() -> None:
    machine = Machine(alert_idle_job=1.0)
    assert machine.run_for(50, util=0.0, jobs=(job(3),)) == []
    assert machine.run_for(50, util=0.0, jobs=(job(4),)) == []
    (raised,) = machine.run_for(15, util=0.0, jobs=(job(4),))
    assert str(raised.text) == "GPU 0 is held by job 4 (train), and has been idle for over 1 min"
    assert rules(machine.run_for(1, util=0.0)) == [("reserved but idle", False)], (
        "the job has ended"
    )


def test_each_job_that_shares_an_idle_gpu_is_named() -> None:
    machine = Machine(alert_idle_job=1.0)
    machine.run_for(30, util=0.0, jobs=(job(3),))
    assert [a.job for a in machine.run_for(40, util=0.0, jobs=(job(3), job(4)))] == [3]
    assert [a.job for a in machine.run_for(40, util=0.0, jobs=(job(3), job(4)))] == [4]
    assert [(a.job, a.cleared is None) for a in machine.run_for(1, util=0.0, jobs=(job(4),))] == [
        (3, False)
    ]


def test_a_job_that_goes_on_makes_progress() -> None:
    machine = Machine(alert_stuck_job=1.0)
    for done in (1.0, 2.0, 3.0):
        assert machine.run_for(50, jobs=(job(done=done),)) == []
    (raised,) = machine.run_for(15, jobs=(job(done=3.0),))
    assert (raised.job, str(raised.text)) == (
        3,
        "job 3 (train) has made no progress for over 1 min",
    )
    assert rules(machine.run_for(1, jobs=(job(done=4.0),))) == [("no progress", False)]
    assert machine.run_for(200, jobs=(job(done=10.0),)) == [], "all is done: it winds up"


def test_a_night_of_suspend_raises_no_alert() -> None:
    machine = Machine(alert_stuck_job=1.0, alert_idle_job=1.0)
    assert machine.run_for(50, util=0.0, jobs=(job(),)) == []
    machine.now += 8 * 3600
    assert machine.run_for(5, util=0.0, jobs=(job(),)) == []
    assert sorted(rules(machine.run_for(60, util=0.0, jobs=(job(),)))) == [
        ("no progress", True),
        ("reserved but idle", True),
    ]


@pytest.mark.parametrize("seconds", [-86400.0, 86400.0])
def test_a_clock_that_is_set_delays_no_alert(seconds: float) -> None:
    found = run([(1.0, 99.0), (seconds, 99.0), *[(1.0, 99.0)] * 4])
    assert isinstance(found[-1][2], Raised)
    back = run([(1.0, 99.0)] * 6 + [(1.0, 0.0), (seconds, 0.0), *[(1.0, 0.0)] * 6])
    assert isinstance(back[6][2], Raised)
    assert isinstance(back[-1][2], Calm)


def test_a_device_that_is_not_read_neither_raises_nor_clears() -> None:
    machine = Machine()
    machine.run_for(60, temp=88.0, temp_limit=89.0)
    assert machine.run_for(60, read=False) == []
    assert rules(machine.run_for(60, temp=50.0, temp_limit=89.0)) == [("too hot", False)]


def test_a_device_that_is_gone_has_no_alert() -> None:
    machine = Machine()
    machine.run_for(60, temp=88.0, temp_limit=89.0)
    assert rules(machine.run_for(1, device=CPU)) == [("too hot", False)]


def test_an_alert_from_before_a_restart_is_not_raised_again() -> None:
    machine = Machine()
    machine.run_for(60, temp=88.0, temp_limit=89.0)
    machine.alerts = AlertEvaluator(machine.alerts.active, 7)
    assert machine.run_for(1, temp=88.0, temp_limit=89.0) == []
    assert rules(machine.run_for(60, temp=50.0, temp_limit=89.0)) == [("too hot", False)]
    (again,) = machine.run_for(60, temp=88.0, temp_limit=89.0)
    assert again.id == 7


def test_an_acknowledged_alert_stays_so_until_it_is_cleared() -> None:
    machine = Machine()
    machine.run_for(60, temp=88.0, temp_limit=89.0)
    acknowledged = machine.alerts.acknowledge(1)
    assert acknowledged.acknowledged
    assert machine.alerts.active == (acknowledged,)
    with pytest.raises(NotFound, match="gpudeck alerts"):
        machine.alerts.acknowledge(2)
    (cleared,) = machine.run_for(60, temp=50.0, temp_limit=89.0)
    assert cleared.acknowledged


def test_a_recorded_h100_meets_its_power_limit_and_comes_back() -> None:
    """Play the shipped trace: idle, a GEMM, attention, a copy, idle."""
    source = ReplaySource(Path(paths.assets() / "h100.trace.gz"), start=1000.0)
    (device,) = source.devices()
    alerts, changed = AlertEvaluator(), []
    settings = msgspec.structs.replace(Settings(), alert_power_cap=10.0)
    for i in range(186 * 2):
        now = 1000.0 + i / 2
        changed += alerts.evaluate((device,), {device.id: source.read(now)[0]}, (), settings, now)
    raised, cleared = changed
    assert (raised.rule, cleared.id, alerts.active) == ("at its power limit", raised.id, ())
    assert 1031 <= raised.since <= 1033
    assert cleared.cleared is not None
    assert 1127 <= cleared.cleared <= 1129, (
        "the eight seconds between the two are too few to be well again"
    )


def test_a_notebook_that_holds_memory_and_does_nothing_is_named_and_can_be_suspended() -> None:
    machine, small = Machine(alert_idle_memory=2.0), Process(5, "sh", memory=2.0**20)
    (raised,) = machine.run_for(145, util=0.0, processes=(small, KERNEL))
    assert raised.process == 4711
    assert str(raised.text) == (
        "python (PID 4711, notebook fit.ipynb) has held 30 GiB of GPU 0 and done nothing for 2 min"
    )
    suspend = alert_notice(raised).actions[0]
    assert suspend.command == ("suspend", "--pid", "4711")
    assert rules(machine.run_for(1, util=90.0, processes=(KERNEL,))) == [(raised.rule, False)]
    ignoring = Machine(alert_idle_memory=2.0, ignored_programs="ollama, python")
    assert ignoring.run_for(300, util=0.0, processes=(KERNEL,)) == []
    young = msgspec.structs.replace(KERNEL, start=machine.now)
    ours = msgspec.structs.replace(KERNEL, job=3)
    for process, seconds in ((small, 500), (ours, 500), (young, 110)):
        assert machine.run_for(seconds, util=0.0, processes=(process,)) == [], process
