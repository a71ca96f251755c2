"""A backup while jobs run, and its restoration: no job runs twice, no number is given again."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from gpudeck.app.cli.system.restore import MOST_SETTINGS
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from tests.integration.deck import ready
from tests.integration.shell import Shell


def test_a_restored_queue_is_paused_and_runs_nothing_twice(alone: Shell, tmp_path: Path) -> None:
    file, ran = tmp_path / "backup.tar.gz", tmp_path / "ran"
    note = ["sh", "-c", f"echo $GPUDECK_JOB >> {ran}"]
    with Client() as deck:
        ready(deck).configure(energy_price=0.5)
        old = deck.submit(note).wait()
        deck.pause()
        waits = deck.submit(note, name="waits")
        stays = deck.submit(note, name="stays", hold=True)
        assert "holds 3 jobs" in alone("backup", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        deck.pause(False)
        deck.wait(waits.id)
        later = deck.submit(note).wait()
        deck.configure(energy_price=0.7)
        assert "uses the store" in alone("restore", str(file), "--yes", status=1)
    alone("daemon", "stop")
    out = alone("restore", str(file), "--yes")
    assert "The queue is paused" in out and "before-restore" in out
    with Client() as deck:
        snapshot = ready(deck).snapshot()
        assert snapshot.paused
        assert snapshot.settings.energy_price == 0.5
        assert deck.job(old.id).status == "done"
        assert deck.job(waits.id).status == "done", "its folder shows that it ran"
        assert deck.job(stays.id).status == "queued"
        deck.pause(False)
        deck.hold(stays.id, False)
        assert deck.wait(stays.id).status == "done"
        new = deck.submit(note)
        assert new.id > later.id, "its number belongs to a job that the backup does not know"
        new.wait()
    assert sorted(map(int, ran.read_text().split())) == [
        old.id, waits.id, stays.id, later.id, new.id,
    ]  # fmt: skip


@pytest.mark.parametrize("log", [b"", b"the newest changes"], ids=["alone", "with its log"])
def test_a_damaged_store_is_kept_as_it_is_and_replaced(
    alone: Shell, tmp_path: Path, log: bytes
) -> None:
    with Client() as deck:
        job = ready(deck).submit(["true"]).wait()
        alone("backup", str(tmp_path / "backup.tar.gz"))
    alone("daemon", "stop")
    store = paths.store_file()
    damaged = b"no store" * 1000
    store.write_bytes(damaged)
    if log:
        store.with_name(f"{store.name}-wal").write_bytes(log)
    found = json.loads(alone("restore", str(tmp_path / "backup.tar.gz"), "--yes", "--json"))
    kept = Path(found["kept"])
    assert kept.read_bytes() == damaged
    copied = {file.name.removeprefix(kept.name) for file in kept.parent.glob(f"{kept.name}*")}
    assert copied == ({"", "-wal"} if log else {""})
    if log:
        assert kept.with_name(f"{kept.name}-wal").read_bytes() == log
    with Client() as deck:
        assert ready(deck).job(job.id).status == "done"


def test_what_is_no_backup_changes_nothing(alone: Shell, tmp_path: Path) -> None:
    with Client() as deck:
        job = ready(deck).submit(["true"]).wait()
    alone("daemon", "stop")
    before = paths.store_file().read_bytes()
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"\x1f\x8b nonsense")
    assert "cannot read" in alone("restore", str(broken), "--yes", status=1)
    assert "cannot read" in alone("restore", str(tmp_path / "none"), "--yes", status=1)
    other = tmp_path / "other"
    other.write_text("x")
    for name, content in (("../gpudeck.sqlite", "x"), ("gpudeck.sqlite", "no store")):
        (tmp_path / "member").write_text(content)
        file = tmp_path / "file.tar.gz"
        with tarfile.open(file, "w:gz") as out:
            out.add(tmp_path / "member", name)
        alone("restore", str(file), "--yes", status=1)
    with tarfile.open(file := tmp_path / "bomb.tar.gz", "w:gz") as out:
        member = tarfile.TarInfo("gpudeck.sqlite")
        member.size = 2**50
        with suppress(OSError):  # the file ends before its member
            out.addfile(member, io.BytesIO(bytes(2**20)))
    assert "needs 1048576 GiB of disk" in alone("restore", str(file), "--yes", status=1)
    newer = tmp_path / "member"
    newer.unlink()
    db = sqlite3.connect(newer)
    db.executescript("CREATE TABLE jobs (id); CREATE TABLE queue (paused); PRAGMA user_version=99;")
    db.close()
    with tarfile.open(file := tmp_path / "newer.tar.gz", "w:gz") as out:
        out.add(newer, "gpudeck.sqlite")
    assert "can read" in alone("restore", str(file), "--yes", status=1)
    assert paths.store_file().read_bytes() == before
    assert not (paths.home() / "gpudeck.sqlite.unpacked").exists()
    with Client() as deck:
        assert deck.job(job.id).status == "done"


def test_a_backup_overwrites_no_file(alone: Shell, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    assert "exists already" in alone("backup", str(tmp_path / "there"), status=1)
    assert "no store" in alone("backup", str(tmp_path / "new"), status=1)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["too large", "a link"])
def test_settings_that_are_not_restored_are_named(alone: Shell, tmp_path: Path, kind: str) -> None:
    with Client() as deck:
        ready(deck).submit(["true"]).wait()
    alone("daemon", "stop")
    settings = paths.settings_file()
    settings.write_bytes(b'{"webhook": "https://here.example"}')
    alone("backup", str(whole := tmp_path / "whole.tar.gz"))
    with tarfile.open(whole) as old, tarfile.open(file := tmp_path / "new.tar.gz", "w:gz") as new:
        new.addfile(old.getmember("gpudeck.sqlite"), old.extractfile("gpudeck.sqlite"))
        member = tarfile.TarInfo(settings.name)
        if kind == "too large":
            member.size = MOST_SETTINGS + 1
        else:
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        new.addfile(member, io.BytesIO(bytes(member.size)))
    assert f"The file {settings.name} was not restored" in alone("restore", str(file), "--yes")
    assert settings.read_bytes() == b'{"webhook": "https://here.example"}'
    found = json.loads(alone("restore", str(file), "--yes", "--json"))
    assert found["left_out"] == [settings.name]
