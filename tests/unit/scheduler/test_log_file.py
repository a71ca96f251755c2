"""Read a log whose middle is missing: a real file with a real hole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudeck.scheduler.executors.log_cap import punch_hole
from gpudeck.scheduler.protocol import log_file as logfile
from gpudeck.scheduler.queue.progress_reader import CHUNK, ProgressReader, last_line, last_text

BLOCK = 2**16
FIRST, MIDDLE, LAST = b"a" * BLOCK, b"b" * (40 * BLOCK), b"c" * (BLOCK - 4) + b"end\n"
WHOLE = FIRST + MIDDLE + LAST
LINE = b"\n[... 2.5 MiB of output were dropped here ...]\n"


def punch(log: Path, start: int, length: int) -> None:
    fd = os.open(log, os.O_WRONLY)
    punch_hole(fd, start, length)
    os.close(fd)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log"
    file.write_bytes(WHOLE)
    punch(file, len(FIRST), len(MIDDLE))
    return file


@pytest.mark.parametrize(
    ("offset", "limit", "start", "data", "end"),
    [
        (0, 2**20, 0, FIRST + LINE + LAST, len(WHOLE)),
        (0, 10, 0, b"a" * 10, 10),
        (0, len(FIRST), 0, FIRST, len(FIRST)),
        (len(FIRST), 3, len(FIRST), LINE + b"ccc", len(FIRST + MIDDLE) + 3),
        (
            len(FIRST) + 24 * BLOCK,
            2**20,
            len(FIRST) + 24 * BLOCK,
            logfile.dropped(2**20) + LAST,
            len(WHOLE),
        ),
        (-4, 2**20, len(WHOLE) - 4, b"end\n", len(WHOLE)),
        (-10 * len(WHOLE), 1, 0, b"a", 1),
        (len(WHOLE), 2**20, len(WHOLE), b"", len(WHOLE)),
        (10**9, 2**20, 10**9, b"", 10**9),
        (0, 0, 0, b"", 0),
    ],
)
def test_a_part_is_read_without_the_hole(
    log: Path, offset: int, limit: int, start: int, data: bytes, end: int
) -> None:
    with log.open("rb") as f:
        assert logfile.read(f, offset, limit) == (start, data, end)


def test_each_byte_and_the_line_are_read_once_in_pieces_of_any_size(log: Path) -> None:
    for step in (1000, BLOCK, 3 * BLOCK):
        at, found = 0, b""
        with log.open("rb") as f:
            while (part := logfile.read(f, at, step)).data:
                assert part.start == at
                at, found = part.end, found + part.data
        assert found == FIRST + LINE + LAST


def test_zeros_that_a_job_wrote_are_its_output(log: Path) -> None:
    log.write_bytes(b"\0" * 2**20)
    with log.open("rb") as f:
        assert logfile.read(f, 0, 2**21).data == b"\0" * 2**20


def test_output_that_is_missing_to_its_end_is_marked(log: Path) -> None:
    os.truncate(log, len(FIRST + MIDDLE))
    with log.open("rb") as f:
        assert logfile.read(f, 0, 2**20) == (0, FIRST + LINE, len(FIRST + MIDDLE))


def test_output_that_is_dropped_between_two_reads_hides_no_progress(log: Path) -> None:
    tail = ProgressReader(log)
    tail.read(1.0)
    said = b'{"gpudeck":"progress","done":%d,"total":9}\n'
    with log.open("ab") as f:
        f.write(said % 1 + b"d" * (CHUNK - 2 * BLOCK) + b"\n" + said % 2)
    size = log.stat().st_size
    punch(log, len(WHOLE), (size - len(WHOLE) - 100) // 4096 * 4096)
    assert [p.done for p in tail.read(2.0)] == [2.0]
    assert tail.read(3.0) == []


def test_the_last_line_is_one_that_the_job_printed(log: Path) -> None:
    assert last_text(log, 7) == "cccend\n"
    assert last_text(log, 2**20) == (LINE + LAST).decode().replace("2.5", "0.9")
    with log.open("ab") as f:
        f.write(b"last words\n")
    assert last_line(log) == "last words"
