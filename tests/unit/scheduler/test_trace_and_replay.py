"""A recorded trace: written, read back, played; and what is cut off, foreign or from the future is
refused in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.devices.cpu import CpuSource
from gpudeck.scheduler.devices.sources import open_source
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.devices import NA, Device, Process, Reading
from gpudeck.scheduler.protocol.errors import NotFound, UserError

DEVICES = (
    Device("nvidia-0", 0, "H100", "nvidia", facts={"SMs": "132"}),
    Device("nvidia-1", 1, "H100", "nvidia"),
)


def moment(index: int) -> trace.Moment:
    """Return moment `index` of a recording at 2 Hz; the utilisation is the index."""
    at = 1000.0 + index / 2
    readings = [
        Reading(
            d.id,
            at,
            {"util": float(index)},
            {"fan": "Not Supported"},
            processes=(Process(1, "p"),),
            otherwise="not reported by this device",
        )
        for d in DEVICES
    ]
    return trace.Moment(at, tuple(readings[: 1 if index == 3 else 2]), "gemm")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with trace.TraceWriter(tmp_path / "a.trace.gz", DEVICES, 1000.0, {"seconds": "2"}) as out:
        for index in range(4):
            out.add(moment(index))
    return tmp_path / "a.trace.gz"


def test_what_was_written_is_read(file: Path) -> None:
    header, moments = trace.read(file)
    assert header == trace.Header(1, 1000.0, DEVICES, {"seconds": "2"})
    assert moments == [moment(i) for i in range(4)]


def test_the_same_trace_gives_the_same_bytes(file: Path, tmp_path: Path) -> None:
    with trace.TraceWriter(tmp_path / "b", DEVICES, 1000.0, {"seconds": "2"}) as out:
        for index in range(4):
            out.add(moment(index))
    assert (tmp_path / "b").read_bytes() == file.read_bytes()


def refused(file: Path) -> str:
    with pytest.raises(UserError) as caught:
        trace.read(file)
    assert "\n" not in str(caught.value)
    assert file.name in str(caught.value)
    return str(caught.value)


def packed(*lines: bytes) -> bytes:
    return gzip.compress(
        b"".join(line + b"\n" for line in lines), mtime=0
    )  # test ids are made of it


def test_every_cut_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        refused(file)


HEADER = msgspec.json.encode(trace.Header(1, 1000.0, DEVICES))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"plain text", "cannot be read"),
        (packed(b"hello"), "not a trace"),
        (packed(b'{"some": "json"}'), "not a trace"),
        (packed(b"\xff\xfe"), "not a trace"),
        (packed(HEADER, b'{"time": 1, "readings": "none"}'), "not a trace"),
        (
            packed(HEADER, b'{"time":1,"readings":[{"device":"\xff","time":1,"values":{}}]}'),
            "not a trace",
        ),
        (packed(HEADER, b'{"time":1,"readings":[],"x":' + b"[" * 5000), "not a trace"),
        (packed(HEADER), "no reading"),
        (packed(msgspec.json.encode(trace.Header(2, 1.0, DEVICES))), "format 2"),
        (packed(b'{"format": 2, "started": "of another shape"}'), "format 2"),
        (
            packed(msgspec.json.encode(trace.Header(1, 1.0, ())), msgspec.json.encode(moment(0))),
            "no reading",
        ),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "strange").write_bytes(content)
    assert words in refused(tmp_path / "strange")


@pytest.mark.parametrize("content", [b" " * 200_000, b'{"time":1,"readings":[]}\n' * 40_000])
def test_a_trace_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse a small file that would take all of the memory."""
    monkeypatch.setattr(trace, "MOST_LINE", 100_000)
    monkeypatch.setattr(trace, "MOST_BYTES", 500_000)
    (tmp_path / "bomb").write_bytes(packed(HEADER, content))
    assert (tmp_path / "bomb").stat().st_size < 10_000
    assert "is too long" in refused(tmp_path / "bomb")


def test_no_file_and_no_place_to_write(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no trace at"):
        trace.read(tmp_path / "none")
    with pytest.raises(UserError, match="cannot write the trace"):
        trace.TraceWriter(tmp_path / "no" / "folder", DEVICES, 0.0, {})
    with pytest.raises(UserError, match="cannot be read"):
        trace.read(tmp_path)


def utils(source: ReplaySource, now: float) -> list[float]:
    return [r.values["util"] for r in source.read(now)]


def test_replay_says_what_it_is_everywhere(file: Path) -> None:
    devices = ReplaySource(file, copies=2).devices()
    assert [d.index for d in devices] == [0, 1, 2, 3]
    assert len({d.id for d in devices}) == 4
    for device in devices:
        assert device.kind == "replay"
        assert device.name == "REPLAY H100"
        assert "REPLAY" in str(device.note)
        assert device.id.startswith("REPLAY")


def test_replay_plays_at_the_speed_of_the_recording_and_loops(file: Path) -> None:
    source = ReplaySource(file)
    assert utils(source, 50.0) == [0.0, 0.0]
    assert utils(source, 50.6) == [1.0, 1.0]
    assert utils(source, 51.6) == [3.0], "a device that was not read then is not read now"
    assert utils(source, 52.1) == [0.0, 0.0], "after the last moment, the first"
    assert utils(source, 50.0 + 2.0 * 1000 + 0.6) == [1.0, 1.0]


def test_replay_shows_the_present_time_and_no_process_of_the_past(file: Path) -> None:
    source = ReplaySource(file, start=0.0)
    for reading in source.read(77.7):
        assert reading.time == 77.7
        assert reading.processes == ()
        assert reading.absent == {"fan": "Not Supported"}
    assert {r.device for r in source.read(0.0)} == {d.id for d in source.devices()}


def test_copies_are_shifted_so_that_they_differ(file: Path) -> None:
    found = ReplaySource(file, copies=4, start=0.0).read(0.0)
    assert [r.values["util"] for r in found] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0]
    assert len({r.device for r in found}) == 7


def test_a_trace_of_one_moment_plays_too(tmp_path: Path) -> None:
    with trace.TraceWriter(tmp_path / "one", DEVICES, 1.0, {}) as out:
        out.add(moment(1))
    assert utils(ReplaySource(tmp_path / "one"), 12345.0) == [1.0, 1.0]


def test_open_by_name(file: Path) -> None:
    source, words = open_source(f"replay:{file}*8")
    assert str(words) == "replay of a.trace.gz"
    assert len(source.devices()) == 16
    source, words = open_source("cpu")
    assert isinstance(source, CpuSource)
    assert str(words) == "cpu (chosen in the settings)"


def test_a_star_in_the_name_of_a_file_is_a_star(file: Path, tmp_path: Path) -> None:
    strange = tmp_path / "a*b*c"
    strange.write_bytes(file.read_bytes())
    assert len(open_source(f"replay:{strange}")[0].devices()) == 2
    assert len(open_source(f"replay:{strange}*2")[0].devices()) == 4


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "gpu",
        "NVML",
        "replay",
        "replay:",
        "replay:/nowhere",
        "replay:/nowhere*8",
        "replay:/nowhere*0",
    ],
)
def test_a_source_that_is_not_there(spec: str) -> None:
    with pytest.raises(UserError) as caught:
        open_source(spec)
    assert "\n" not in str(caught.value)


def test_shipped_traces_are_found_by_name() -> None:
    shipped = sorted(paths.assets().glob("*.trace.gz"))
    for file in shipped:
        assert open_source(f"replay:{file.name}")[0].devices()


def test_a_field_that_an_older_trace_does_not_have_was_not_recorded() -> None:
    source, _ = open_source("replay:h100.trace.gz")
    (reading,) = source.read(0.0)
    assert reading.get("nvlink_errors") == NA(Unavailable("unrecorded"))
    assert reading.get("fan") == NA("NVML: Not Supported"), (
        "what was recorded as absent keeps its reason"
    )
    assert source.details(0.0) == []


def test_rates_of_counters_from_an_older_trace_carry_the_error_without_a_calibration() -> None:
    _, moments = trace.read(paths.assets() / "h100.trace.gz")
    found = [reading.values for moment in moments for reading in moment.readings]
    counted = [values for values in found if values["tflops_gpm"]]
    assert len(counted) == 159
    for values in counted:
        assert 2.0 <= values["tflops_gpm_error"] <= 19.0
        assert "tflops_error" not in values, "the job counted its own operations"
    assert not any("tflops_gpm_error" in values for values in found if not values["tflops_gpm"])
