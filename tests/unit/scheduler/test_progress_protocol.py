"""Parse what jobs print: foreign data, which may be anything and must never raise."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpudeck.scheduler.protocol.jobs import Progress
from gpudeck.scheduler.protocol.progress import MAX_LINE, parse, parse_bar, printable

NOW = 1_764_000_000.0


def line(**fields: object) -> bytes:
    return json.dumps({"gpudeck": "progress", "done": 1, "total": 4, **fields}).encode()


def test_reported_progress_is_parsed() -> None:
    said = line(done=3, total=10, note="timing", flops=1.2e13, time=NOW - 1)
    assert parse(said, NOW) == Progress(3.0, 10.0, "timing", 1.2e13, NOW - 1)
    assert parse(line(), NOW) == Progress(1.0, 4.0, "", 0.0, NOW)
    assert parse(b"  " + line() + b"\r", NOW) == Progress(1.0, 4.0, "", 0.0, NOW), (
        "blanks around it do no harm"
    )


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"\n",
        b"epoch 3",
        b'{"gpudeck": "progress"}',
        b'{"gpudeck": "other", "done": 1, "total": 2}',
        b'["gpudeck"]',
        b'"gpudeck"',
        b'{"gpudeck": "progress", "done": "1", "total": 2}',
        b'{"gpudeck":"progress","done":NaN,"total":1}',
        b'{"gpudeck":"progress","done":1,"total":Infinity}',
        b'{"gpudeck":"progress","done":1e400,"total":2}',
        b'{"gpudeck":"progress","done":' + b"9" * 3000 + b',"total":2}',
        b'{"gpudeck":"progress","done":1,"total":2,"note":"\xff\xfe"}',
        b'{"gpudeck":"progress","done":1,"total":2,"note":"\\ud800"}',
        b'{"gpudeck":"progress","done":1,"total":2,"x":' + b"[" * 3000,
        b'{"gpudeck":"progress","done":1,"total":2,"x":' + b'{"":' * 900,
        line(total=0),
        line(total=-1),
        line(done=None),
        line(note=3),
        line(note="x" * MAX_LINE),
        line()[:-1],
    ],
)
def test_anything_else_is_ordinary_output(output: bytes) -> None:
    assert parse(output, NOW) is None


def test_figures_are_limited_to_their_ranges() -> None:
    assert parse(line(done=9), NOW) == Progress(4.0, 4.0, "", 0.0, NOW)
    assert parse(line(done=-9, flops=-1), NOW) == Progress(0.0, 4.0, "", 0.0, NOW)


@pytest.mark.parametrize("time", [0, -5, NOW + 3600, NOW * 1000])
def test_a_time_in_the_future_is_replaced_by_now(time: float) -> None:
    assert parse(line(time=time), NOW) == Progress(1.0, 4.0, "", 0.0, NOW)


def test_a_note_cannot_control_the_terminal() -> None:
    said = parse(line(note="\x1b]0;owned\x07\x1b[31mred\r\n\u202e\u2028" + "x" * 500), NOW)
    assert said is not None
    assert said.note.isprintable()
    assert len(said.note) == 120


pieces = st.sampled_from(
    [
        b'{"gpudeck":"progress"',
        b',"done":',
        b',"total":',
        b',"note":"',
        b'"',
        b"}",
        b"1",
        b"-1e308",
        b"\xff",
        b"\\ud800",
        b"[",
    ]
)


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(pieces, max_size=30).map(b"".join)))
@example(b'"gpudeck"' + b"[" * 4000)
def test_no_output_raises_and_every_progress_can_be_encoded(output: bytes) -> None:
    said = parse(output, NOW)
    if said is not None:
        assert math.isfinite(said.done + said.total)
        assert msgspec.json.decode(msgspec.json.encode(said), type=Progress) == said


@settings(deadline=None)
@given(st.text())
def test_printable_keeps_the_length_and_drops_every_control_character(text: str) -> None:
    clean = printable(text)
    assert len(clean) == len(text)
    assert clean.isprintable()


@pytest.mark.parametrize(
    ("line", "done", "total", "note"),
    [
        (b" 45%|####5     | 45/100 [00:12<00:15,  3.60it/s]", 45.0, 100.0, ""),
        (
            "train:  45%|████▌     | 45/100 [00:12<00:15,  3.60it/s, loss=0.3]".encode(),
            45.0,
            100.0,
            "train",
        ),
        (
            b"Downloading: 100%|##########| 1.20G/1.20G [00:12<00:00, 99.6MB/s]",
            1.2e9,
            1.2e9,
            "Downloading",
        ),
        (b"  0%|          | 0/7 [00:00<?, ?it/s]", 0.0, 7.0, ""),
    ],
)
def test_a_bar_of_tqdm(line: bytes, done: float, total: float, note: str) -> None:
    assert parse_bar(line, 5.0) == Progress(done, total, note, 0.0, 5.0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"45%",
        b"45% | 3/4 [",
        b"12it [00:01, 9it/s]",
        b"0%|  | 0/0 [00:00<?]",
        b"1%|" + b"|" * 4000,
        b"%|" * 2000,
        b" 5%| | x/9 [",
    ],
)
def test_lines_that_are_no_bar(line: bytes) -> None:
    assert parse_bar(line, 5.0) is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_of_bars_raise(data: bytes) -> None:
    for line in (data, b" 45%|" + data, b"x" + data + b"%|##| 45/100 [" + data):
        found = parse_bar(line, 5.0)
        assert found is None or (0 <= found.done <= found.total and found.note.isprintable())
