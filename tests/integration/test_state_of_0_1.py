"""Open a state folder that was written before the packages were reorganised.

`data/state-0.1.tar.gz` holds its store, history, settings, job folders and a conversation;
`data/jobs-0.1.json` is what `gpudeck jobs --json` of that version printed.
"""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudeck.app.assistant.session_files import SessionFiles
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.search import Search
from tests.integration.deck import daemon_pid, log_of, python, ready, running
from tests.support import eventually, lives

DATA = Path(__file__).parent / "data"


@pytest.fixture
def old_home(home: Path) -> Path:
    """Unpack the old state folder to where the daemon of this test looks for its state."""
    with tarfile.open(DATA / "state-0.1.tar.gz") as archive:
        archive.extractall(home.parent, filter="data")
    (home.parent / "state").rename(home)
    home.chmod(0o700)
    return home


def contains(new: Any, old: Any) -> bool:
    """Return True if `new` says all that `old` says; it may have keys that are new."""
    if isinstance(old, Mapping):
        return all(key in new and contains(new[key], value) for key, value in old.items())
    return bool(new == old)


def test_every_job_and_its_state_is_kept(old_home: Path) -> None:
    before = {job["id"]: job for job in json.loads((DATA / "jobs-0.1.json").read_text())}
    with Client() as deck:
        ready(deck)
        for number, old in before.items():
            if number == 10:  # its retry is due by now, so its state may have moved on
                old = {"spec": old["spec"]}  # noqa: PLW2901
            elif old["state"]["type"] == "queued":
                del old["state"]["reason"]  # a sentence for people, which is worded anew
            new = json.loads(msgspec.json.encode(deck.job(number)))
            assert contains(new, old), f"job {number}"


def test_the_queue_goes_on_where_the_old_daemon_stopped(old_home: Path) -> None:
    with Client() as deck:
        ready(deck)
        assert str(deck.job(9).state.reason) == "waits for job 8 (held)"
        deck.hold(8, held=False)
        eventually(lambda: deck.job(9).status == "done")
        assert log_of(deck.job(9)) == "after\n"
        assert deck.submit(["true"]).id == 13


def test_settings_groups_logs_and_timelines_are_kept(old_home: Path) -> None:
    with Client() as deck:
        ready(deck)
        settings = deck.snapshot().settings
        assert (settings.source, settings.alert_temperature, settings.log_limit) == (
            "cpu",
            12.0,
            2.0,
        )
        assert (settings.idle_hours_off, settings.report_daily) == ("22:00-07:00", "08:30")
        assert [(group.group.name, group.group.limit) for group in deck.groups()] == [("sweep", 2)]
        assert log_of(deck.job(1)) == "hello world\n"
        assert deck.job(1).spec.notes == "first note"
        assert [job.id for job in deck.find(Search("sweep"))[0]] == [7, 6, 5, 4]


def test_the_old_history_file_is_opened_and_continued(old_home: Path) -> None:
    """Old readings expire after thirty days, so only new ones can be asserted."""
    inode = (old_home / "history.sqlite").stat().st_ino
    with Client() as deck:
        device = ready(deck).snapshot().devices[0].device.id
        began = time.time() - 60
        eventually(lambda: len(deck.history(device, ["util"], began).times) > 1)
    assert (old_home / "history.sqlite").stat().st_ino == inode
    assert not [file.name for file in old_home.iterdir() if "damaged" in file.name]


def test_conversations_are_kept(old_home: Path) -> None:
    files = SessionFiles()
    (found,) = files.find("failed")
    assert (found.title, files.notice) == ("What failed", "")
    nodes = files.open(found.key).nodes
    assert sorted(node.message.text for node in nodes) == [
        "Job 2 failed.",
        "what failed this week?",
        "what failed today?",
    ]


def test_a_command_replaces_the_daemon_of_an_older_version_and_jobs_go_on(
    cpu_home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    wait = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    with Client() as deck:
        job = ready(deck).submit(python(wait, go), gpus=1)
        before = running(deck, job.job)
        waits = deck.submit(python("print('after')"), gpus=1)
        old = daemon_pid()
        paths.replace_file(paths.daemon_version(), f"{old} 0.1.0\n".encode())
    with Client(start=False) as deck:
        assert daemon_pid() == old, "only who may start a daemon replaces one"
    with Client() as deck:
        assert daemon_pid() != old
        assert not lives(old)
        assert running(ready(deck), deck.job(job.id)) == before
        go.touch()
        assert [deck.wait(number, 20).status for number in (job.id, waits.id)] == ["done"] * 2
        new = daemon_pid()
    with Client():
        assert daemon_pid() == new
