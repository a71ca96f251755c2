"""Test that a log over its limit is read correctly by every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.app.jobs.log_tail import LogTail
from gpudeck.app.jobs.requests import FIRST_TAIL
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.jobs import Failed
from gpudeck.scheduler.protocol.log_file import dropped
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import kill_daemon, python, ready
from tests.support import eventually

WAIT_S = 30.0
MIB = 2**20
CODE = """if True:
    import os, sys, time
    print("begin")
    while not os.path.exists(sys.argv[1] + "/flood"): time.sleep(0.01)
    for i in range(32 * 1024): os.write(1, b"%1023d\\n" % i)
    while not os.path.exists(sys.argv[1] + "/end"): time.sleep(0.01)
    print('{"gpudeck":"progress","done":1,"total":1}\\nno data: x.csv')
    sys.exit(3)"""


def test_a_log_is_cut_without_a_daemon_and_followed_across_the_gap(
    home: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    settings.save(Settings(source="cpu", log_limit=1 / 1024))
    whole = b"begin\n" + b"".join(b"%1023d\n" % i for i in range(32 * 1024))
    with Client() as deck:
        job = ready(deck).submit(python(CODE, tmp_path))
        eventually(lambda: deck.log(job.id) == b"begin\n")
        view, part = LogTail(job.id), deck.log_part(job.id)
        shown = view.feed(*part)
    kill_daemon()
    (tmp_path / "flood").touch()
    log = paths.job_folder(job.id) / "log"
    eventually(lambda: log.stat().st_size == len(whole) and log.stat().st_blocks * 512 <= MIB)
    with Client() as deck:
        ready(deck)
        (tmp_path / "end").touch()
        state = deck.wait(job.id, WAIT_S).state
        assert isinstance(state, Failed)
        assert str(state.reason) == "exit code 3; last line: no data: x.csv"
        last = b'{"gpudeck":"progress","done":1,"total":1}\nno data: x.csv\n'
        kept = deck.log(job.id)
        head, tail = kept[: MIB // 8], kept[-MIB // 2 :]
        assert (head, tail) == (whole[: MIB // 8], (whole + last)[-MIB // 2 :])
        gap = dropped(len(whole + last) - (len(kept) - len(dropped(31 * MIB))))
        assert kept.count(gap) == 1
        assert b"\0" not in kept
        while (part := deck.log_part(job.id, part.end, 100_000)).data:
            shown += view.feed(*part)
        assert shown == kept.replace(last.partition(b"\n")[0] + b"\n", b"").decode(), (
            "and the report of progress is left out"
        )
        assert deck.log(job.id, -FIRST_TAIL) == (whole + last)[-FIRST_TAIL:]
    assert main(["logs", str(job.id)]) == 0
    assert capsysbinary.readouterr().out == shown.encode()


def test_a_new_log_limit_applies_to_the_next_job(cpu_home: Path) -> None:
    flood = python(f"import os; os.write(1, b'x' * {2 * MIB})")
    with Client() as deck:
        ready(deck)
        sizes = []
        for limit in ("off", 1 / 1024, 0.0):
            deck.configure(log_limit=limit)
            job = deck.submit(flood)
            deck.wait(job.id, WAIT_S)
            sizes.append(len(deck.log(job.id, 0, 3 * MIB)) // MIB)
        assert sizes == [2, 0, 2]
