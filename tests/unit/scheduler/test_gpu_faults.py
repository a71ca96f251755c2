"""Tell faults of the hardware, after which a GPU gets no new jobs, from errors of programs."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from gpudeck.scheduler.devices.nvidia.events import FAULTS, MEANINGS, XidEvents
from gpudeck.scheduler.devices.nvidia.source import NvmlSource
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.services.fault_watch import FaultWatch
from tests.unit.scheduler.recorded_nvml import UUID, RecordedNvml, one


def reading(xid: str = "", **counts: float) -> Reading:
    return Reading("GPU-0", 1.0, counts, texts={"xid_fault": xid} if xid else {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


def test_each_fault_is_reported_once(file: Path) -> None:
    watch = FaultWatch(file)
    assert watch.add([reading(ecc_uncorrected=0.0, rows_failure=0.0)]) == {}
    words = "2 memory errors that could not be corrected"
    assert watch.add([reading(ecc_uncorrected=2.0)]) == {"GPU-0": words}
    assert watch.add([reading(ecc_uncorrected=2.0)]) == {}
    both = watch.add([reading("Xid 79: off the bus", ecc_uncorrected=2.0, rows_failure=1.0)])
    assert both == {"GPU-0": "1 failed remapping of a memory row; Xid 79: off the bus"}
    assert watch.add([reading("Xid 79: off the bus", ecc_uncorrected=2.0, rows_failure=1.0)]) == {}
    assert watch.add([reading("Xid 79: off the bus (2 such events)")]) != {}


def test_known_counts_outlive_the_daemon_and_a_reset_begins_anew(file: Path) -> None:
    watch = FaultWatch(file)
    watch.add([reading(ecc_uncorrected=3.0)])
    watch.save()
    watch = FaultWatch(file)
    assert watch.add([reading(ecc_uncorrected=3.0)]) == {}
    assert watch.add([reading()]) == {}, "a count that could not be read is not 0"
    assert watch.add([reading(ecc_uncorrected=3.0)]) == {}
    assert watch.add([reading(ecc_uncorrected=0.0)]) == {}
    watch.save()
    assert FaultWatch(file).add([reading(ecc_uncorrected=1.0)]) != {}


def test_what_the_driver_asks_for_is_reported_once(file: Path) -> None:
    watch = FaultWatch(file)
    assert watch.add([reading(recovery_action=0.0)]) == {}
    assert watch.add([reading(recovery_action=1.0)]) == {
        "GPU-0": "the driver asks for a reset of the GPU"
    }
    watch.save()
    watch = FaultWatch(file)  # of the next daemon, after the user took the GPU back
    assert watch.add([reading(recovery_action=1.0)]) == {}
    assert watch.add([reading(ecc_uncorrected=0.0)]) == {}, "it could not be read for a moment"
    assert watch.add([reading(recovery_action=1.0)]) == {}
    assert watch.add([reading(recovery_action=2.0)]) == {
        "GPU-0": "the driver asks for a restart of the machine"
    }
    assert watch.add([reading(recovery_action=0.0)]) == {}
    both = watch.add([reading(recovery_action=9.0, rows_failure=1.0)])["GPU-0"]
    assert both == "1 failed remapping of a memory row; the driver asks for recovery action 9"


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (pynvml.NVML_GPU_RECOVERY_ACTION_NONE, "none"),
        (pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET, "a reset of the GPU"),
        (pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT, "a restart of the machine"),
        (
            pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET,
            "an end of its jobs, and then a reset of the GPU",
        ),
    ],
)
def test_the_recovery_action_is_read_where_it_is_supported(
    card: RecordedNvml, action: int, words: str
) -> None:
    assert "recovery_action" in one(NvmlSource(), card).absent
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == 230
    card.fields[pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION] = action
    found = one(NvmlSource(), card)
    assert found.values["recovery_action"] == action
    assert found.texts["recovery_action"] == words


def test_a_file_that_is_damaged_or_cannot_be_written_hides_no_fault(file: Path) -> None:
    file.write_text("{")
    watch = FaultWatch(file / "nowhere")
    assert watch.add([reading(ecc_uncorrected=1.0)]) != {}
    with pytest.raises(UserError, match="cannot be written"):
        watch.save()
    assert FaultWatch(file).add([reading(ecc_uncorrected=1.0)]) != {}


def test_an_xid_of_the_hardware_is_told_from_those_of_programs(card: RecordedNvml) -> None:
    card.events = [(0, 31), (0, 79), (0, 13)]
    events = XidEvents({UUID: 0})
    events.collect()
    texts: dict[str, str] = {}
    events.read(UUID, {}, {}, texts)
    assert texts["xid"].startswith("Xid 13")
    assert texts["xid_fault"] == f"Xid 79: {MEANINGS[79]}"
    card.events = [(0, 79)]
    events.collect()
    events.read(UUID, {}, {}, texts)
    assert texts["xid_fault"].endswith("(2 such events)")


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 92, 94])
def test_errors_of_programs_and_those_that_need_no_reset_are_no_faults(number: int) -> None:
    assert number not in FAULTS
