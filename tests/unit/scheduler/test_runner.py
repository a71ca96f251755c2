"""Run jobs with a real runner: how a job ended is on disk before anybody can find it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpudeck.scheduler.executors import tickets

PRELUDE = """
import os
fsync = os.fsync
def watched(fd):
    path = os.readlink(f'/proc/self/fd/{fd}')
    with open('synced', 'a') as f:
        f.write(f"{os.path.basename(path)} {os.path.exists('exit.json')}\\n")
    fsync(fd)
os.fsync = watched
"""


def run(folder: Path, argv: list[str], **more: object) -> dict[str, Any]:
    """Run a command, and return its exit record."""
    tickets.issue(folder / "ticket", b"{}")
    launch = {
        "attempt": "nonce",
        "ticket": str(folder / "ticket"),
        "submitted": 5.0,
        "folder": str(folder),
        "argv": argv,
        "cwd": "/",
        "env": {},
    }
    code = (
        f"{PRELUDE}\nimport sys\nfrom gpudeck.scheduler.executors import runner\n"
        "sys.exit(runner.main())"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(launch | more).encode() + b"\n",
        timeout=60,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    record: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    return record


def test_the_exit_record_is_synced_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path,
) -> None:
    run(tmp_path, ["/bin/true"])
    synced = (tmp_path / "synced").read_text().splitlines()
    assert synced[-2:] == ["exit.new False", f"{tmp_path.name} True"]
    assert not (tmp_path / "exit.new").exists()


def test_the_exit_record_says_how_the_job_ended(tmp_path: Path) -> None:
    record = run(tmp_path, ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], log_limit=0)
    assert {k: record[k] for k in ("attempt", "code", "error", "over", "uncapped")} == {
        "attempt": "nonce",
        "code": 7,
        "error": "",
        "over": 0.0,
        "uncapped": "",
    }
    assert 0 <= record["ended"] - record["started"] < 60
    assert (tmp_path / "log").read_bytes() == b"out\nerr\n"
    assert (tmp_path / "runner.lock").read_text() == "nonce 5.0"
    assert (tmp_path / "exit.json").stat().st_mode & 0o077 == 0


def test_a_job_at_its_time_limit_is_ended_and_says_so(tmp_path: Path) -> None:
    record = run(tmp_path, ["/bin/sleep", "60"], timeout=0.2)
    assert record["over"] == 0.2
    assert record["code"] == -15


def test_a_job_gets_the_priority_it_asked_for(tmp_path: Path) -> None:
    run(tmp_path, ["/bin/sh", "-c", "nice"], nice=7)
    assert int((tmp_path / "log").read_text()) == min(os.nice(0) + 7, 19)


def test_what_no_process_can_be_given_is_a_failure_with_a_record(tmp_path: Path) -> None:
    record = run(tmp_path, ["/bin/true", "a\0b"])
    assert record["code"] is None
    assert (record["program"], record["error"]) == ("/bin/true", "embedded null byte")
