"""A store of an older GPU Deck is taken over whole, after a copy was put aside; where that fails,
it is as it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Cancelled, Event, Queued, Spec
from gpudeck.scheduler.protocol.search import NEWEST, Search
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store import store as module
from gpudeck.scheduler.store.environments import EnvironmentLost, is_held
from gpudeck.scheduler.store.migrate import SCHEMA_VERSION, backup_of

SCHEMA_1 = """
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, submitted REAL NOT NULL, status TEXT NOT NULL, spec TEXT NOT NULL,
    env TEXT NOT NULL, state TEXT NOT NULL);
CREATE INDEX jobs_by_status ON jobs (status);
CREATE TABLE samples (device TEXT NOT NULL, time REAL NOT NULL, data BLOB NOT NULL, PRIMARY KEY (device, time)) WITHOUT ROWID;
CREATE INDEX samples_by_time ON samples (time);
CREATE TABLE queue (paused INTEGER NOT NULL);
INSERT INTO queue VALUES (1);
PRAGMA user_version = 1;
"""  # noqa: E501


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is not cut short here, however slow the machine."""
    monkeypatch.setattr(module, "FIND_S", 60.0)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of schema 1: a job that waits, and one that was cancelled."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    file = folder / "gpudeck.sqlite"
    db = sqlite3.connect(file)
    db.executescript(SCHEMA_1)
    spec = b'{"argv":["true"],"name":"old","cwd":"/","env":{},"gpus":1,"workload":null,"params":{},"kind":"nvidia"}'  # noqa: E501
    for status, state in (
        ("queued", b'{"type":"queued","reason":"x"}'),
        ("cancelled", b'{"type":"cancelled","at":9.0}'),
    ):
        db.execute(
            "INSERT INTO jobs (submitted, status, spec, env, state) VALUES (5.0, ?, ?,"
            ' \'{"A":"b"}\', ?)',
            (status, spec, state),
        )
    db.commit()
    db.close()
    return file


def shape(file: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(file) as db:
        names = [
            name
            for (name,) in db.execute(
                "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
            )
        ]
        found = {name: db.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names}
    db.close()
    return found


def version(file: Path) -> int:
    with sqlite3.connect(file) as db:
        (found,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return int(found)


def test_the_jobs_of_an_older_store_are_there_and_a_copy_of_it_too(old: Path) -> None:
    store = Store(old)
    waiting, ended = store.get(1), store.get(2)
    assert (waiting.state, ended.state) == (Queued("x"), Cancelled(9.0))
    assert (waiting.spec, waiting.place, waiting.tries) == (
        Spec(("true",), "old", "/", gpus=1, kind="nvidia"),
        None,
        0,
    )
    assert store.env(1) == {"A": "b"}
    assert store.connection.execute("SELECT count(*) FROM environments").fetchone() == (1,), (
        "what had ended needs none"
    )
    assert store.paused()
    assert store.timeline(1) == [Event(5.0, "submitted")]
    assert store.insert(waiting.spec, 6.0, Queued()).id == 3
    assert [job.id for job in store.find(Search("OLD", ("queued",)), NEWEST, 9)[0]] == [3, 1]
    store.update(msgspec.structs.replace(waiting, state=Cancelled(7.0)), Event(7.0, "cancelled"))
    store.close()
    copy = backup_of(old, 1)
    assert version(copy) == 1
    assert copy.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(copy) as db:
        assert db.execute("SELECT COUNT(*) FROM jobs").fetchone() == (2,)
    db.close()


def test_a_store_that_was_taken_over_is_like_a_new_one(old: Path) -> None:
    Store(old).close()
    new = old.with_name("new.sqlite")
    Store(new).close()
    assert shape(old) == shape(new)
    assert version(old) == version(new) == SCHEMA_VERSION


def test_jobs_of_an_older_store_are_searched_by_their_users_alone(old: Path) -> None:
    with sqlite3.connect(old) as db:
        spec = "json_set(CAST(spec AS TEXT), '$.user', 1001)"
        db.execute(f"UPDATE jobs SET spec = {spec} WHERE id = 2")
    db.close()
    store = Store(old)
    found = {uid: store.find(Search("old"), NEWEST, 9, uid)[0] for uid in (1001, 1002)}
    assert [[job.id for job in jobs] for jobs in found.values()] == [[2], []]
    store.close()


def test_a_garbled_job_of_an_older_store_keeps_no_other_from_being_found(old: Path) -> None:
    with sqlite3.connect(old) as db:
        db.execute("UPDATE jobs SET spec = '{', state = x'ff' WHERE id = 2")
    db.close()
    store = Store(old)
    assert [job.id for job in store.find(Search("true"), NEWEST, 9)[0]] == [1]
    store.close()


def test_environments_of_an_older_store_are_stored_once_from_then_on(old: Path) -> None:
    with sqlite3.connect(old) as db:
        many = (
            "INSERT INTO jobs (submitted, status, spec, env, state) SELECT submitted, status, spec,"
            " ?, state FROM jobs WHERE id = 1"
        )
        for env in ['{"A":"ü"}'] * 3 + ['{"B": "spaces"}', b"\x7b\xff"]:
            db.execute(many, (env,))
    db.close()
    store = Store(old)
    assert [store.env(number) for number in (1, 3, 4, 5, 6)] == [
        {"A": "b"},
        *[{"A": "ü"}] * 3,
        {"B": "spaces"},
    ]
    with pytest.raises(EnvironmentLost):
        store.env(7)
    assert store.connection.execute("SELECT count(*) FROM environments").fetchone() == (4,)
    assert (
        store.insert(msgspec.structs.replace(store.get(3).spec, env={"A": "ü"}), 6.0, Queued()).id
        == 8
    )
    assert store.connection.execute("SELECT count(*) FROM environments").fetchone() == (4,)
    store.close()


def test_a_job_of_an_older_store_that_lacks_its_environment_waits_for_that_reason(
    old: Path,
) -> None:
    """Such stores had a sentence in place of a value; one of the states is no JSON at all."""
    sentence = (
        "is held: the environment it was submitted with is lost or damaged in the store. "
        "Submit it again, and cancel this one"
    )
    spec = '{"argv":["true"],"name":"held","cwd":"/","hold":true}'
    with sqlite3.connect(old) as db:
        for state in (
            f'{{"type":"queued","reason":"{sentence}"}}',
            f'{{"type":"queued","reason":"{sentence}"}}'.encode(),
            '{"type":"queued","reason":"is held"}',
            "{no JSON",
        ):
            db.execute(
                "INSERT INTO jobs (submitted, status, spec, env, state) VALUES (5.0, 'queued', ?,"
                " '{}', ?)",
                (spec, state),
            )
    db.close()
    store = Store(old)
    assert [is_held(store.get(number)) for number in (1, 3, 4, 5)] == [False, True, True, False]
    with pytest.raises(UserError, match="job 6"):
        store.get(6)
    store.close()


def test_where_no_copy_can_be_made_nothing_is_changed(old: Path) -> None:
    (old.parent / (backup_of(old, 1).name + ".new")).mkdir()
    with pytest.raises(UserError, match="cannot be copied before its migration") as caught:
        Store(old)
    assert "\n" not in str(caught.value)
    assert version(old) == 1


def test_a_step_that_fails_leaves_the_store_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(old) as db:
        db.execute(
            "CREATE TABLE events (somebody TEXT)"
        )  # the step that creates it fails, after the first has succeeded
    db.close()
    before = shape(old)
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        module.Store(old)
    assert shape(old) == before
    assert version(old) == 1
