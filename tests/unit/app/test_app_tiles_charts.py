import msgspec
import pytest

from gpudeck.app.charts.chart_model import chart_models
from gpudeck.app.cli.devices.status import rate_lines
from gpudeck.app.strip.tile_model import temperature_meaning, throttle_reasons, tiles
from gpudeck.scheduler.protocol.busy_causes import NoReading, QuietHours, Reserved, Settling
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle
from tests.gui import snapshots


def test_a_cpu_tile_explains_missing_values():
    (tile,) = tiles(snapshots.cpu_snapshot())
    assert (tile.title, tile.note, tile.replay) == ("CPU", "CPU: no NVIDIA GPU found", False)
    assert [m.text for m in tile.metrics][2:] == ["–", "–", "–"]
    assert tile.metrics[3].tooltip == "the kernel exposes no temperature sensor here"
    assert tile.metrics[1].text.endswith(" / 31.3 GiB")
    assert tile.holder == "job 8 · attention"


def test_a_gpu_tile_has_all_values_and_the_method_of_tflops():
    tile = tiles(snapshots.gpu_snapshot(3))[0]
    assert tile.name == "H100 80GB HBM3"
    assert all(m.text != "–" for m in tile.metrics)
    peak = "the vendor's peak of this card for BF16 is 989 TFLOP/s"
    assert tile.metrics[2].tooltip == f"{snapshots.TFLOPS_METHOD}\n{peak}"
    assert tile.metrics[2].text.endswith("% of peak")
    assert tile.metrics[2].short_text.endswith("TFLOP/s"), "where there is less room"
    assert 0 < tile.metrics[0].share <= 1


def test_tflops_of_counters_are_shown_with_their_error_and_for_each_data_type():
    made = snapshots.gpu_snapshot()
    (state,) = made.devices
    values = {**state.reading.values, "tflops": 740.2, "tflops_error": 11.6}
    reading = msgspec.structs.replace(state.reading, values=values)
    state = msgspec.structs.replace(state, reading=reading)
    shown = tiles(msgspec.structs.replace(made, devices=(state,)))[0].metrics[2]
    assert shown.text == "≈ 740 (FP8: 1480) ±12 % · 75 % of peak"
    assert shown.short_text == "≈ 740 (FP8: 1480)", "the range stays where there is less room"
    assert shown.tooltip.startswith(
        "740 TFLOP/s if this is FP16, BF16 or FP32, 1480 if FP8, 370 if TF32, each ±12 %: "
        + snapshots.TFLOPS_METHOD
    )
    made = msgspec.structs.replace(made, devices=(state,))
    assert rate_lines(made) == [
        "GPU 0: 740 TFLOP/s if this is FP16, BF16 or FP32, 1480 if FP8, 370 if TF32, each ±12 %"
    ]
    assert rate_lines(snapshots.gpu_snapshot(3)) == [], "rates that no counters tell"
    assert [chart.unit for chart in chart_models(made, ("tflops", "tflops_gpm"))] == [
        "±12 %",
        "TFLOP/s",
    ]


def test_a_rate_in_the_type_that_a_job_states_has_no_other_and_the_peak_of_that_type():
    made = snapshots.gpu_snapshot()
    (state,) = made.devices
    values = {**state.reading.values, "tflops": 1187.0, "tflops_error": 4.0}
    reading = msgspec.structs.replace(state.reading, values=values, precision="fp8")
    made = msgspec.structs.replace(made, devices=(msgspec.structs.replace(state, reading=reading),))
    shown = tiles(made)[0].metrics[2]
    assert shown.text == "≈ 1187 ±4 % · 60 % of peak"
    assert "peak of this card for FP8 is 1979 TFLOP/s" in shown.tooltip
    assert rate_lines(made) == []


def test_a_gpu_that_computes_nothing_has_no_uncertain_rate():
    made = snapshots.gpu_snapshot()
    (state,) = made.devices
    values = {**state.reading.values, "tflops": 0.0, "tflops_error": 2.0}
    reading = msgspec.structs.replace(state.reading, values=values)
    state = msgspec.structs.replace(state, reading=reading)
    assert tiles(msgspec.structs.replace(made, devices=(state,)))[0].metrics[2].text == "0 TFLOP/s"


def test_a_tile_names_the_holder():
    held, busy, idle = tiles(snapshots.gpu_snapshot(3))
    assert (held.holder, busy.holder, idle.holder) == ("job 8 · attention", "in use", "idle")
    assert held.holder_tooltip == "used by this job alone"
    assert busy.holder_tooltip == "1 process of others"


def test_what_keeps_only_the_assistant_away_is_not_shown_as_use():
    for cause, usage, holder, why in (
        (Settling(5.0, 15.0), "idle", "idle in 10 s", "not in use"),
        (QuietHours("22:00-07:00"), "idle", "idle", "quiet hours, 22:00-07:00"),
        (Reserved("group night", snapshots.NOW), "reserved", "reserved until", "for group night"),
    ):
        made = snapshots.gpu_snapshot(3)
        *others, last = made.devices
        last = msgspec.structs.replace(last, use=Busy(cause))
        tile = tiles(msgspec.structs.replace(made, devices=(*others, last)))[2]
        assert (tile.usage, tile.holder[: len(holder)]) == (usage, holder)
        assert why in tile.holder_tooltip


def test_a_device_that_jobs_share_names_all_of_them():
    made = snapshots.gpu_snapshot()
    (state,) = made.devices
    jobs = [
        msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, memory=20 * 2**30))
        for j in made.jobs
        if j.id in (7, 8)
    ]
    told = {}
    for holders in ((8,), (7, 8)):
        shared = msgspec.structs.replace(
            made, devices=(msgspec.structs.replace(state, holders=holders),), jobs=tuple(jobs)
        )
        told[holders] = tiles(shared)[0]
    assert (told[8,].holder, told[8,].holder_tooltip) == (
        "job 8 · attention",
        "used by this job, which shares it with others",
    )
    assert told[7, 8].holder == "jobs 7 and 8"
    assert (
        told[7, 8].holder_tooltip
        == "shared by job 7 · warm-up (20 GiB reserved), job 8 · attention (20 GiB reserved)"
    )


def test_a_replay_is_labelled():
    assert all(
        t.replay and "REPLAY" in t.note for t in tiles(snapshots.gpu_snapshot(2, replay=True))
    )


def test_before_the_first_reading():
    state = DeviceState(snapshots.gpu(0), None, Busy(NoReading()))
    (tile,) = tiles(snapshots.snapshot((state,)))
    assert {m.text for m in tile.metrics} == {"–"}
    assert {m.tooltip for m in tile.metrics} == {"no reading yet"}
    assert all(c.absent == "no reading yet" for c in chart_models(snapshots.snapshot((state,))))


@pytest.mark.parametrize(
    ("temperature", "meaning"), [(60, ""), (72, "warm"), (81.9, "warm"), (82, "hot"), (95, "hot")]
)
def test_warm_and_hot_depend_on_the_limit_of_the_device(temperature, meaning):
    assert temperature_meaning(snapshots.gpu_reading(snapshots.gpu(0), temp=temperature)) == meaning


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("none", ()),
        ("", ()),
        ("idle", ()),
        ("power limit", ("power limit",)),
        ("idle, too hot (hardware)", ("too hot (hardware)",)),
    ],
)
def test_idling_is_not_throttling(text, reasons):
    assert throttle_reasons(snapshots.gpu_reading(snapshots.gpu(0), throttle=text)) == reasons


def test_throttling_is_marked_on_power():
    device = snapshots.gpu(0)
    state = DeviceState(device, snapshots.gpu_reading(device, throttle="power limit"), Idle(0))
    power = tiles(snapshots.snapshot((state,)))[0].metrics[4]
    assert (power.meaning, power.tooltip) == ("throttled", "Throttled: power limit")


def test_charts_have_values_limits_and_methods():
    util, memory, tflops, temperature, power = chart_models(snapshots.gpu_snapshot(2))
    assert [v.label for v in util.values] == ["GPU 0", "GPU 1"]
    assert (util.ceiling, memory.limit, temperature.limit, power.limit) == (
        100.0,
        pytest.approx(79.6),
        87.0,
        700.0,
    )
    assert tflops.ceiling is None
    assert snapshots.TFLOPS_METHOD in tflops.tooltip
    assert not any(c.absent for c in (util, memory, tflops, temperature, power))


def test_a_chart_without_values_explains_it_once():
    made = snapshots.cpu_snapshot()
    twice = msgspec.structs.replace(made, devices=made.devices * 2)
    assert chart_models(twice)[3].absent == "the kernel exposes no temperature sensor here"


def test_a_chart_is_not_absent_while_one_device_has_the_value():
    mixed = snapshots.snapshot(snapshots.gpu_snapshot(1).devices + snapshots.cpu_snapshot().devices)
    power = chart_models(mixed)[4]
    assert power.absent is None
    assert [bool(v.reason) for v in power.values] == [False, True]


def test_no_device_at_all():
    assert tiles(snapshots.snapshot(())) == ()
    assert all(c.absent == "no device yet" for c in chart_models(snapshots.snapshot(())))
