"""Following a log that somebody else writes: in pieces, in bulk, in binary, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.queue.progress_reader import CHUNK, Tail, last_line


def said(done: int) -> bytes:
    return b'{"gpudeck":"progress","done":%d,"total":1000000}\n' % done


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def add(log: Path, data: bytes) -> None:
    with log.open("ab") as f:
        f.write(data)


def heard(tail: Tail) -> list[int]:
    return [int(p.done) for p in tail.read(1.0)]


def test_each_line_is_heard_once(log: Path) -> None:
    tail = Tail(log)
    assert heard(tail) == [], "no log yet"
    add(log, said(1) + b"output\n" + said(2))
    assert heard(tail) == [1, 2]
    assert heard(tail) == []
    add(log, said(3))
    assert heard(tail) == [3]


def test_a_line_is_heard_when_its_end_has_come(log: Path) -> None:
    tail = Tail(log)
    whole = said(7)
    for cut in range(0, len(whole), 9):
        assert heard(tail) == []
        add(log, whole[cut : cut + 9])
    assert heard(tail) == [7]


def test_of_a_flood_the_newest_is_heard(log: Path) -> None:
    tail = Tail(log)
    add(log, b"".join(said(i) for i in range(CHUNK // 20)))
    found = heard(tail)
    assert found[-1] == CHUNK // 20 - 1
    assert found == list(range(found[0], CHUNK // 20)), "and nothing but whole lines in their order"


def test_a_line_without_end_is_not_kept_in_memory_and_what_follows_is_heard(log: Path) -> None:
    tail = Tail(log)
    for _ in range(20):
        add(log, b"\0\xff\x1b[" * 10_000)
        assert heard(tail) == []
    assert len(tail._rest) < 5000
    add(log, b"\n" + said(1))
    assert heard(tail) == [1]


def test_a_log_that_was_emptied_is_read_from_its_start(log: Path) -> None:
    tail = Tail(log)
    add(log, b"x" * 1000 + b"\n" + said(1))
    assert heard(tail) == [1]
    os.truncate(log, 0)
    assert heard(tail) == []
    add(log, said(2))
    assert heard(tail) == [2]


def test_what_stands_in_place_of_the_log_does_not_block_or_raise(log: Path, tmp_path: Path) -> None:
    os.mkfifo(log)
    assert heard(Tail(log)) == []
    assert last_line(log) == ""
    log.unlink()
    log.mkdir()
    assert heard(Tail(log)) == []
    log.rmdir()
    (tmp_path / "else").write_bytes(said(1))
    log.symlink_to(tmp_path / "else")
    assert heard(Tail(log)) == []


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"\n \n\t\n", ""),
        (said(1), ""),
        (b"first\nlast", "last"),
        (b"Error: no memory\n" + said(3) + b"\n\n", "Error: no memory"),
        (b"\x1b[31mred\x07\xff\n", "red �"),
        (b"x" * 100_000, "x" * 200),
    ],
)
def test_last_line(log: Path, output: bytes, line: str) -> None:
    log.write_bytes(output)
    assert last_line(log) == line
