"""Commands in a store of GPU Deck 0.1 start our modules by the names that they have now."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.protocol.jobs import Cancelled, Queued, Spec
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.migrate import renamed

OURS = [
    ("python -P -m {}accel.workloads.gemm --size=8", ""),
    ("/v/bin/python -P -m {}assistant.workloads.rain", ""),
    ("python -u -m {}accel.inject.script train.py -m app", ""),
    ("python -P -m {} serve /models/x --gpu", "app"),
]
"""Commands with a gap for the name of the package, and what stood there."""
THEIRS = [
    "python -m app serve", "python -P -m app train", "python -m accel.train", "python -m scheduler",
    "accel.workloads.gemm", "echo -m accel.workloads", "python train.py -m", "-m",
]  # fmt: skip


@pytest.mark.parametrize(("command", "before"), OURS)
def test_our_modules_are_renamed(command: str, before: str) -> None:
    old, new = command.format(before), command.format("gpudeck" if before else "gpudeck.")
    spec = msgspec.json.encode(Spec(tuple(old.split()), "x", "/", gpus=1))
    found = msgspec.json.decode(renamed(spec), type=Spec)
    assert found == Spec(tuple(new.split()), "x", "/", gpus=1)
    assert renamed(renamed(spec)) == renamed(spec)


@pytest.mark.parametrize("command", THEIRS)
def test_the_modules_of_users_are_not(command: str) -> None:
    spec = msgspec.json.encode(Spec(tuple(command.split()), "x", "/"))
    assert renamed(spec) == spec


@pytest.mark.parametrize("spec", [b"", b"{", b"[]", b'{"argv":5}', b"\xff", b'{"argv":[null]}'])
def test_what_cannot_be_read_is_left_alone(spec: bytes) -> None:
    assert renamed(spec) == spec


def test_jobs_that_wait_and_jobs_that_ended_are_renamed_and_keep_their_seals(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gpudeck.sqlite"
    tmp_path.chmod(0o700)
    argv = ("python", "-P", "-m", "accel.workloads.gemm")
    store = Store(file)
    for state in (Queued(), Cancelled(9.0), Queued()):
        store.insert(Spec(argv, "x", "/"), 5.0, state)
    store.connection.execute("UPDATE jobs SET seal = 'changed' WHERE id = 3")
    store.close()
    with sqlite3.connect(file) as db:
        db.execute("ALTER TABLE search DROP COLUMN user")  # as it was then
        db.execute("PRAGMA user_version = 9")
    db.close()
    store = Store(file)
    new = ("python", "-P", "-m", "gpudeck.accel.workloads.gemm")
    assert [store.get(number).spec.argv for number in (1, 2)] == [new, new]
    (kept,) = store.connection.execute("SELECT spec FROM jobs WHERE id = 3").fetchone()
    assert msgspec.json.decode(kept, type=Spec).argv == argv, "a damaged job is not made valid"
    store.close()
