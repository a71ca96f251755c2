"""Calibrate a GPU's clock: the fit, the service that stores it, and the probe that applies it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from gpudeck.language.text import Message
from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.protocol import calibration, paths
from gpudeck.scheduler.protocol.calibration import UNCALIBRATED, ClockCalibration, ClockKnot
from gpudeck.scheduler.protocol.calibration_job import MODULE
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import NO_RESULT, Done, Job, Spec
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.services.calibration_service import FIELDS, CalibrationService
from gpudeck.scheduler.telemetry.clock_fit import CannotFit, ClockLoad, fit
from tests.unit.scheduler.recorded_nvml import UUID, RecordedNvml, one

VBIOS, DRIVER = "96.00.A5.00.1A", "580.159.04"
CURVE = (ClockKnot(0.0, 1.0, 2.0), ClockKnot(0.5, 0.96, 4.0), ClockKnot(1.0, 0.9, 3.0))
MADE = ClockCalibration(UUID, VBIOS, DRIVER, 50.0, CURVE)
RATIO = 0.9
"""The true clock / NVML's, while the tensor cores are always busy."""


def test_between_two_knots_the_correction_is_interpolated() -> None:
    assert [MADE.ratio(a) for a in (-1.0, 0.0, 0.25, 0.5, 0.9, 1.0, 2.0)] == pytest.approx(
        [1.0, 1.0, 0.98, 0.96, 0.912, 0.9, 0.9]
    )
    assert MADE.error(0.25) == pytest.approx(3.0)


def test_activity_is_the_share_of_cycles_in_which_tensor_kernels_ran() -> None:
    activity = calibration.tensor_activity
    assert activity({"tensor_hmma": 93.8, "sm_active": 96.6}) == pytest.approx(0.966)
    assert activity({"tensor_hmma": 51.0, "sm_active": 97.0}) == pytest.approx(0.97), "attention"
    assert activity({"tensor_hmma": 9.0, "sm_active": 97.0}) == pytest.approx(0.2)
    assert activity({"tensor_hmma": 0.0, "sm_active": 97.0}) == 0.0
    assert activity({"tensor_hmma": 0.0, "sm_active": 0.0}) == 0.0
    assert activity({"tensor_hmma": 50.0}) is None


def test_a_known_card_is_corrected_before_its_own_calibration(home: Path) -> None:
    paths.ensure(home)
    guess = calibration.in_force(UUID, "NVIDIA H200", VBIOS, DRIVER)
    for counted, shown in ((674.12, 746.54), (1229.44, 1352.44), (457.77, 518.28)):  # of one H200
        off = abs(shown * guess.ratio(1.0) / counted - 1)
        assert 100 * off <= guess.error(1.0) < UNCALIBRATED.error(1.0)
    assert guess.ratio(0.0) == 1.0 and not guess.made, "it does not count as a calibration"
    assert calibration.in_force(UUID, "NVIDIA H100 80GB HBM3", VBIOS, DRIVER) == UNCALIBRATED
    calibration.keep([MADE])
    assert calibration.in_force(UUID, "NVIDIA H200", VBIOS, DRIVER) == MADE


def test_the_fit_averages_like_loads_and_states_its_largest_deviation() -> None:
    loads = [ClockLoad(0.0, 1.0), ClockLoad(0.3, 0.94), ClockLoad(0.35, 0.98), ClockLoad(0.95, 0.9)]
    knots = fit(loads)
    found = ClockCalibration("", "", "", 0.0, knots)
    assert found.ratio(0.0) == 1.0
    assert found.ratio(0.325) == pytest.approx(0.96), "the mean of two that contradict each other"
    assert found.ratio(0.95) == pytest.approx(0.9)
    off = [100 * abs(found.ratio(x.activity) / x.ratio - 1) for x in loads]
    assert all(o <= found.error(x.activity) for o, x in zip(off, loads, strict=True))
    wide = fit([*loads, ClockLoad(0.32, 0.7)])
    assert max(k.error for k in wide) > 20, "what the curve cannot describe is admitted"


def test_a_clock_that_is_right_at_full_load_and_wrong_with_pauses_is_followed() -> None:
    """As on an H100, where one falling curve made full load 6 % too low."""
    loads = [(0.0, 1.0), (0.15, 0.96), (0.3, 0.935), (0.55, 0.91), (0.6, 0.9), (0.97, 0.99)]
    found = ClockCalibration("", "", "", 0.0, fit([ClockLoad(a, r) for a, r in loads]))
    assert all(found.ratio(a) == pytest.approx(r, abs=0.012) for a, r in loads)
    assert max(k.error for k in found.knots) < 10


def test_counted_operations_take_precedence_over_the_measured_clock() -> None:
    loads = [ClockLoad(0.0, 1.0, 1.0), ClockLoad(0.5, 0.95), ClockLoad(0.96, 0.91, 0.9)]
    found = ClockCalibration("", "", "", 0.0, fit(loads))
    assert found.ratio(0.96) == pytest.approx(0.9)
    assert found.ratio(0.5) == pytest.approx(0.95 * (1 + 0.5 * (0.9 / 0.91 - 1)))


def test_counters_that_are_three_per_cent_high_are_corrected_and_not_refused() -> None:
    """As once on an H200."""
    loads = [ClockLoad(0.0, 1.0, 1.0), ClockLoad(0.5, 0.95), ClockLoad(0.96, 0.91, 0.91 / 1.031)]
    found = ClockCalibration("", "", "", 0.0, fit(loads))
    assert found.ratio(0.96) == pytest.approx(0.91 / 1.031)


@pytest.mark.parametrize(
    ("loads", "reason"),
    [
        ([ClockLoad(0.0, 1.0)], "too few loads"),
        ([ClockLoad(0.0, 1.0), ClockLoad(0.5, 0.4), ClockLoad(1.0, 0.9)], "more than a half"),
        (
            [ClockLoad(0.0, 1.0), ClockLoad(0.5, 0.95), ClockLoad(0.96, 0.91, 0.8)],
            "113.8 % of the operations",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused(loads: list[ClockLoad], reason: str) -> None:
    with pytest.raises(CannotFit, match=reason):
        fit(loads)


def test_calibrations_are_kept_for_their_owner_by_card_vbios_and_driver(home: Path) -> None:
    paths.ensure(home)
    assert calibration.load() == ()
    calibration.keep([MADE, msgspec.structs.replace(MADE, device="GPU-other")])
    calibration.keep([msgspec.structs.replace(MADE, made=60.0)])
    assert [(c.device, c.made) for c in calibration.load()] == [(UUID, 60.0), ("GPU-other", 50.0)]
    assert calibration.file().stat().st_mode & 0o777 == 0o600
    assert calibration.find(UUID, VBIOS, DRIVER) is not None
    assert calibration.find(UUID, VBIOS, "590.1") is None, "another driver needs a new one"
    assert calibration.find(UUID, "96.00.A5.00.1B", DRIVER) is None
    calibration.file().write_bytes(b"[{")
    assert calibration.load() == (), "it can be measured again"


def test_the_probe_applies_the_calibration_of_the_card_and_states_its_error(
    card: RecordedNvml, home: Path
) -> None:
    paths.ensure(home)
    plain = one(NvmlSource(), card)
    assert "run: gpudeck calibrate" in str(plain.methods["tflops"])
    calibration.keep([msgspec.structs.replace(MADE, driver="590.1")])
    assert one(NvmlSource(), card).values["tflops"] == plain.values["tflops"]
    calibration.keep([MADE])
    reading = one(NvmlSource(), card)
    activity = 0.96657
    assert reading.values["tflops"] == pytest.approx(plain.values["tflops"] * MADE.ratio(activity))
    assert reading.values["tflops_gpm"] == reading.values["tflops"]
    assert reading.values["tflops_error"] == pytest.approx(MADE.error(activity))
    assert plain.values["tflops_error"] == pytest.approx(UNCALIBRATED.error(activity))
    assert "corrected by a calibration" in str(reading.methods["tflops"])
    assert reading.values["clock_sm"] == plain.values["clock_sm"], "the clock itself stays NVML's"


def test_the_probe_corrects_a_known_card_that_was_never_calibrated(
    card: RecordedNvml, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.ensure(home)
    plain = one(NvmlSource(), card)
    guess = ClockKnot(1.0, 0.9, 4.2)
    monkeypatch.setattr(calibration, "KNOWN_CARDS", {"NVIDIA H200": guess})
    reading = one(NvmlSource(), card)
    known = calibration.in_force(UUID, "NVIDIA H200", VBIOS, DRIVER)
    ratio, activity = known.ratio(0.96657), 0.96657
    assert 0.9 < ratio < 0.92
    assert reading.values["tflops"] == pytest.approx(plain.values["tflops"] * ratio)
    assert reading.values["tflops_error"] == pytest.approx(known.error(activity))
    assert "run: gpudeck calibrate" in str(reading.methods["tflops"]), "it is a guess"
    calibration.keep([MADE])
    assert one(NvmlSource(), card).values["tflops_error"] == pytest.approx(MADE.error(activity))


class Lab:
    """A calibration job that has ended, and the daemon's history of the same seconds."""

    def __init__(self, home: Path) -> None:
        self.notices: list[Message | None] = []
        self.restarts = 0
        self.device = Device(
            UUID, 0, "NVIDIA H100", "nvidia", facts={"VBIOS": VBIOS, "driver": DRIVER}
        )
        self.hz = 2.0
        self.file = paths.job_folder(7) / "clocks.json"
        self.file.parent.mkdir(parents=True)
        loads = [self._load(i, busy) for i, busy in enumerate((0.0, 0.3, 0.6, 1.0))]
        self.file.write_text(json.dumps([{"device": UUID, "loads": loads}]))

    def _load(self, number: int, busy: float) -> dict[str, object]:
        """The clock is 1500 MHz by NVML; the tensor cores slow it down in proportion."""
        start = 1000.0 + 10 * number
        true = 1500 * (1 - busy * (1 - RATIO))
        return {
            "name": f"load {busy}",
            "start": start,
            "end": start + 3,
            "flops": 3 * 600e12 * busy * true / 1500,
            "busy": [[start, start + 3]],
            "clocks": [[start + t / 100, true] for t in range(300)],
        }

    async def past(
        self, device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        assert (device, fields) == (UUID, FIELDS)
        busy = (0.0, 0.3, 0.6, 1.0)[round((since - 1000) / 10)]
        times = [since + t / self.hz for t in range(int((until - since) * self.hz))]
        shown = {"clock_sm": 1500.0, "tensor_hmma": 100 * busy, "sm_active": 100 * busy}
        shown["tflops_gpm"] = 600 * busy
        return Columns(times, {f: [shown[f]] * len(times) for f in fields})

    async def restart(self) -> None:
        self.restarts += 1

    async def end(
        self, argv: tuple[str, ...] = ("python", "-m", MODULE), result: msgspec.Raw = NO_RESULT
    ) -> None:
        service = CalibrationService(
            self.past, lambda: [self.device], self.restart, self.notices.append
        )
        state = Done(990.0, 1050.0, (UUID,), result)
        service.job_ended(Job(7, Spec(argv, "calibrate", "/"), 980.0, state))
        while service.busy:
            await asyncio.sleep(0.01)


def test_a_calibration_job_that_ends_corrects_its_gpu(home: Path) -> None:
    lab = Lab(home)
    asyncio.run(lab.end())
    assert (lab.notices, lab.restarts) == ([None], 1)
    (found,) = calibration.load()
    assert (found.device, found.vbios, found.driver, found.made) == (UUID, VBIOS, DRIVER, 1050.0)
    for activity in (0.0, 0.3, 0.6, 1.0):
        assert found.ratio(activity) == pytest.approx(1 - activity * (1 - RATIO), abs=0.002)


def test_another_calibration_takes_the_one_in_force_out_again(home: Path) -> None:
    paths.ensure(home)
    calibration.keep([MADE])
    lab = Lab(home)
    shown = lab.past

    async def corrected(*arguments: object) -> Columns:
        plain = await shown(*arguments)  # type: ignore[arg-type]
        rates = plain.columns["tflops_gpm"]
        busy = [(share or 0.0) / 100 for share in plain.columns["tensor_hmma"]]
        rates[:] = [(r or 0.0) * MADE.ratio(b) for r, b in zip(rates, busy, strict=True)]
        return plain

    lab.past = corrected  # type: ignore[method-assign]
    asyncio.run(lab.end())
    (found,) = calibration.load()
    assert found.made == 1050.0
    assert found.ratio(1.0) == pytest.approx(RATIO, abs=0.002)


@pytest.mark.parametrize("damage", ["no file", "no GPU", "no readings", "no JSON"])
def test_a_calibration_that_failed_changes_nothing_and_says_why(home: Path, damage: str) -> None:
    lab = Lab(home)
    calibration.keep([MADE])
    if damage == "no file":
        lab.file.unlink()
    elif damage == "no JSON":
        lab.file.write_text("{")
    elif damage == "no GPU":
        lab.device = msgspec.structs.replace(lab.device, id="GPU-else")
    else:
        lab.hz = 0.5
    asyncio.run(lab.end())
    (notice,) = lab.notices
    assert notice is not None
    assert str(notice).startswith("the calibration of job 7 was not kept: ")
    assert "\n" not in str(notice)
    assert calibration.load() == (MADE,)
    assert lab.restarts == 0


def test_other_jobs_calibrate_nothing(home: Path) -> None:
    lab = Lab(home)
    asyncio.run(lab.end(("python", "train.py")))
    assert (lab.notices, lab.restarts, calibration.load()) == ([], 0, ())


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (600.0, ""),
        (628.0, ""),
        (635.0, "showed 6 % (stated: ±3 %) above the operations that it counted"),
        (540.0, "10 % (stated: ±3 %) below"),
    ],
)
def test_a_product_of_ours_that_counted_its_work_checks_the_counters(
    home: Path, shown: float, said: str
) -> None:
    lab = Lab(home)
    asked: list[tuple[float, float]] = []

    async def past(
        device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        assert device == UUID
        asked.append((since, until))
        times = [since + t / 2 for t in range(10)]
        columns: dict[str, list[float | None]] = {"tflops_gpm": [shown, *[shown] * 8, None]}
        columns["tflops_gpm_error"] = [3.0] * 10
        return Columns(times, {field: columns.get(field, [None] * 10) for field in fields})

    lab.past = past  # type: ignore[method-assign]
    asyncio.run(lab.end(("python", "-m", "gpudeck.accel.workloads.gemm"), product()))
    assert asked == [(2000.6, 2010.0)]
    assert len(lab.notices) == bool(said)
    for notice in lab.notices:
        assert notice is not None
        assert str(notice).startswith("while job 7 ran, the hardware counters of GPU 0 showed ")
        assert said in str(notice)
        assert str(notice).endswith("gpudeck calibrate")
    assert (lab.restarts, calibration.load()) == (0, ())


@pytest.mark.parametrize(
    ("true_mhz", "calibrated", "said"),
    [
        (1350.0, True, ""),
        (1350.0, False, ""),  # 11 % off, of 14 % that are stated without a calibration
        (1250.0, False, "used a clock 20 % (stated: ±14 %) above the one that it measured"),
        (1500.0, True, "used a clock 10 % (stated: ±3 %) below the one that it measured"),
        (None, True, ""),
    ],
)
@pytest.mark.parametrize("workload", ["attention", "gemm"])
def test_the_clock_that_a_job_measured_checks_the_corrected_one(
    home: Path, workload: str, true_mhz: float | None, calibrated: bool, said: str
) -> None:
    """NVML says 1500 MHz; the calibration corrects that to 1350 while tensor cores work."""
    paths.ensure(home)
    lab = Lab(home)
    if calibrated:
        calibration.keep([MADE])

    async def past(
        device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        shown = {"clock_sm": 1500.0, "tensor_hmma": 95.0, "sm_active": 100.0}
        times = [since + t / 2 for t in range(10)]
        return Columns(times, {field: [shown.get(field)] * 10 for field in fields})

    lab.past = past  # type: ignore[method-assign]
    result = product(
        workload=workload,
        params={"dtype": "float8"},
        sensors={"sm_mhz": 1500, "true_mhz": true_mhz},
    )
    asyncio.run(lab.end(("python", "-m", f"gpudeck.accel.workloads.{workload}"), result))
    assert len(lab.notices) == bool(said)
    assert all(said in str(notice or "") for notice in lab.notices)


@pytest.mark.parametrize(
    "change",
    [{"params": {"dtype": "float32"}}, {"workload": "attention"}, {"sustained_tflops": 0.0}, None],
)
def test_jobs_whose_work_the_counters_cannot_tell_check_nothing(
    home: Path, change: dict[str, object] | None
) -> None:
    lab = Lab(home)
    result = msgspec.Raw(b"[1]") if change is None else product(**change)
    asyncio.run(lab.end(("python", "-m", "gpudeck.accel.workloads.gemm"), result))
    assert (lab.notices, lab.restarts) == ([], 0)


def product(**change: object) -> msgspec.Raw:
    """Return a Result's JSON of a product that counted 600 TFLOP/s for ten seconds."""
    result = {
        "workload": "gemm", "params": {"size": 8192, "dtype": "bfloat16"},
        "sustained_tflops": 600.0, "sustained_from": 2000.0, "sustained_to": 2010.0,
        "verdict": "pass",
    }  # fmt: skip
    return msgspec.Raw(msgspec.json.encode(result | change))
