"""Limit logs with a real runner and much output, on the file systems there are."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.scheduler.executors import local, tickets
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol import log_file as logfile
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.store import Store
from tests.support import eventually
from tests.unit.scheduler.own_queue import make_queue, submit_all

MIB = 2**20
LINES = 20 * MIB // 1024
FLOOD = f"import sys; sys.stdout.write(''.join('%1023d\\n' % i for i in range({LINES})))"
REFUSES = """
from gpudeck.scheduler.executors import log_cap
class Refuses:
    def fallocate(self, *arguments):
        log_cap.ctypes.set_errno(log_cap.errno.EOPNOTSUPP)
        return -1
log_cap.LIBC = Refuses()"""


def expected_output() -> bytes:
    return b"".join(b"%1023d\n" % i for i in range(LINES))


def code(prelude: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import sys\nfrom gpudeck.scheduler.executors import runner\n"
        f"{prelude}\nsys.exit(runner.main())",
    ]


def run(folder: Path, code_: str, limit: int, prelude: str = "", **more: object) -> dict[str, Any]:
    """Run a job in Python, and return its exit record."""
    argv = [sys.executable, "-S", "-u", "-c", code_]
    tickets.issue(folder / "ticket", b"{}")
    launch = {
        "attempt": "nonce",
        "submitted": 0.0,
        "ticket": str(folder / "ticket"),
        "folder": str(folder),
        "argv": argv,
        "cwd": "/",
        "env": {},
        "log_limit": limit,
        **more,
    }
    done = subprocess.run(
        code(prelude),
        input=json.dumps(launch).encode() + b"\n",
        timeout=60,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    assert done.returncode == 0
    record: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    return record


def allocated(log: Path) -> int:
    return log.stat().st_blocks * 512


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
            yield Path(made)


def test_a_log_over_its_limit_keeps_its_beginning_and_its_end_to_the_byte(folder: Path) -> None:
    record = run(folder, FLOOD, MIB)
    assert (record["code"], record["error"], record["uncapped"]) == (0, "", "")
    log, whole = folder / "log", expected_output()
    assert log.stat().st_size == len(whole)
    assert MIB // 2 <= allocated(log) <= MIB
    with log.open("rb") as f:
        part = logfile.read(f, 0, len(whole))
    head, line, tail = part.data.partition(logfile.dropped(len(whole) - MIB // 8 - MIB // 2))
    assert line, part.data[MIB // 8 :][:60]
    assert (len(head), len(tail)) == (MIB // 8, MIB // 2)
    assert (head, tail) == (whole[: MIB // 8], whole[-MIB // 2 :])
    assert part.end == len(whole)


@pytest.mark.parametrize("limit", [0, 20 * MIB, 10**18])
def test_a_log_within_its_limit_or_without_one_is_kept_whole(tmp_path: Path, limit: int) -> None:
    assert run(tmp_path, FLOOD, limit)["uncapped"] == ""
    assert (tmp_path / "log").read_bytes() == expected_output()
    assert allocated(tmp_path / "log") >= 20 * MIB


def test_a_limit_below_a_block_keeps_a_few_blocks(tmp_path: Path) -> None:
    assert run(tmp_path, FLOOD, 1)["uncapped"] == ""
    assert 0 < allocated(tmp_path / "log") <= 4 * (tmp_path / "log").stat().st_blksize


def test_a_log_is_kept_small_while_the_job_runs_and_after_it_was_emptied(
    tmp_path: Path,
) -> None:
    grow = """if True:
        import os, sys, time
        def flood():
            for i in range(10): os.write(1, b"x" * 2**20)
        def small():
            while os.fstat(1).st_blocks * 512 > 2**20: time.sleep(0.01)
        flood(); small()
        os.ftruncate(1, 0); time.sleep(0.3)
        flood(); small()
        print("small twice")"""
    assert run(tmp_path, grow, MIB, "runner.CHECK_S = 0.05")["code"] == 0
    with (tmp_path / "log").open("rb") as f:
        assert logfile.read(f, -12, 12).data == b"small twice\n"


def test_nothing_waits_for_the_next_check_of_the_log(tmp_path: Path) -> None:
    """End jobs by themselves, by time limits and by signals while the next check is far away."""
    never = "runner.CHECK_S = 1e6"
    assert run(tmp_path, "", MIB, never)["code"] == 0
    late = run(tmp_path, "import time; time.sleep(600)", MIB, never, timeout=0.2)
    assert (late["code"], late["over"]) == (-15, 0.2)
    asked = run(
        tmp_path,
        "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)",
        MIB,
        never,
    )
    assert (asked["code"], asked["over"]) == (-15, 0)
    orphans = """if True:
        import os
        for _ in range(50):
            if not os.fork():
                if not os.fork(): print(end="x")
                os._exit(0)
        os.wait()"""
    assert run(tmp_path, orphans, MIB, never)["code"] == 0


def test_a_log_is_kept_whole_and_noted_in_the_timeline_if_no_hole_can_be_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing() -> local.GatedRunner:
        quiet = subprocess.DEVNULL
        root = Path(__file__).parents[3]
        process = subprocess.Popen(
            code(REFUSES),
            stdin=subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
            cwd=root,
        )
        return local.GatedRunner(process, None)

    monkeypatch.setattr(local, "start_runner", refusing)
    store = Store(paths.store_file())
    queue = make_queue(store, local=Local(lambda job, runner: None, lambda: MIB))
    job = submit_all(queue, [Spec((sys.executable, "-S", "-c", FLOOD), "a", "/")], [])[0]
    queue.step([Device("cpu", 0, "EPYC", "cpu")])
    eventually((paths.job_folder(job.id) / "exit.json").exists)
    queue.reap([job.id])
    assert store.get(job.id).status == "done"
    events = {event.what: str(event.text) for event in store.timeline(job.id)}
    assert (
        events["log over its limit"]
        == "all of it was kept, as nothing could be dropped: Operation not supported"
    )
    assert list(itertools.islice(reversed(events), 2)) == ["done", "log over its limit"]
    assert (paths.job_folder(job.id) / "log").read_bytes() == expected_output()
    store.close()
