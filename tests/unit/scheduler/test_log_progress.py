"""Follow a log that another process writes: in pieces, in bulk, in binary, or not at all."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from gpudeck.scheduler.queue.progress_reader import CHUNK, ProgressReader, last_line


def report(done: int) -> bytes:
    return b'{"gpudeck":"progress","done":%d,"total":1000000}\n' % done


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def add(log: Path, data: bytes) -> None:
    with log.open("ab") as f:
        f.write(data)


def progress(reader: ProgressReader) -> list[int]:
    return [int(p.done) for p in reader.read(1.0)]


def test_each_line_is_read_once(log: Path) -> None:
    reader = ProgressReader(log)
    assert progress(reader) == [], "no log yet"
    add(log, report(1) + b"output\n" + report(2))
    assert progress(reader) == [1, 2]
    assert progress(reader) == []
    add(log, report(3))
    assert progress(reader) == [3]


def test_a_line_is_read_once_it_is_complete(log: Path) -> None:
    reader = ProgressReader(log)
    whole = report(7)
    for cut in range(0, len(whole), 9):
        assert progress(reader) == []
        add(log, whole[cut : cut + 9])
    assert progress(reader) == [7]


def test_the_newest_lines_of_much_output_are_read(log: Path) -> None:
    reader = ProgressReader(log)
    add(log, b"".join(report(i) for i in range(CHUNK // 20)))
    found = progress(reader)
    assert found[-1] == CHUNK // 20 - 1
    assert found == list(range(found[0], CHUNK // 20)), "and nothing but whole lines in their order"


def test_an_endless_line_is_not_kept_in_memory_and_the_next_one_is_read(log: Path) -> None:
    reader = ProgressReader(log)
    tracemalloc.start()
    for _ in range(20):
        add(log, b"\0\xff\x1b[" * 10_000)
        assert progress(reader) == []
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 40_000, "less than one of the pieces that were read"
    add(log, b"\n" + report(1))
    assert progress(reader) == [1]


def test_a_log_that_was_emptied_is_read_from_its_start(log: Path) -> None:
    reader = ProgressReader(log)
    add(log, b"x" * 1000 + b"\n" + report(1))
    assert progress(reader) == [1]
    os.truncate(log, 0)
    assert progress(reader) == []
    add(log, report(2))
    assert progress(reader) == [2]


def test_a_folder_or_pipe_in_place_of_the_log_does_not_block_or_raise(
    log: Path, tmp_path: Path
) -> None:
    os.mkfifo(log)
    assert progress(ProgressReader(log)) == []
    assert last_line(log) == ""
    log.unlink()
    log.mkdir()
    assert progress(ProgressReader(log)) == []
    log.rmdir()
    (tmp_path / "else").write_bytes(report(1))
    log.symlink_to(tmp_path / "else")
    assert progress(ProgressReader(log)) == []


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"\n \n\t\n", ""),
        (report(1), ""),
        (b"first\nlast", "last"),
        (b"Error: no memory\n" + report(3) + b"\n\n", "Error: no memory"),
        (b"\x1b[31mred\x07\xff\n", "red �"),
        (b"x" * 100_000, "x" * 200),
    ],
)
def test_last_line(log: Path, output: bytes, line: str) -> None:
    log.write_bytes(output)
    assert last_line(log) == line
