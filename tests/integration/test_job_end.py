"""The command at the end of a job: told which, without a shell, ended when it takes too long,
its failure noticed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Job, Spec
from gpudeck.scheduler.services import job_end
from gpudeck.scheduler.services.job_end import JobEndCommand
from tests.integration.deck import kill_daemon, ready
from tests.support import eventually, lives

TELL = (
    "import os, sys; open(sys.argv[1], 'a').write(' '.join(os.environ['GPUDECK_' + n] for n in"
    " ('JOB', 'STATUS', 'NAME')) + chr(10))"
)


def test_the_command_runs_after_every_job(cpu_home: Path, tmp_path: Path) -> None:
    told = tmp_path / "told here; touch not"
    with Client() as deck:
        ready(deck).configure(on_job_end=f'{sys.executable} -S -c "{TELL}" "{told}"')
        name = "a $(touch x) `b`; c"
        done = deck.submit(["true"], name=name)
        failed = deck.submit(["false"], name="f")
        held = deck.submit(["true"], name="held", hold=True)
        deck.cancel(held.id)
        wanted = {f"{done.id} done {name}", f"{failed.id} failed f", f"{held.id} cancelled held"}
        eventually(lambda: told.exists() and set(told.read_text().splitlines()) == wanted)
        assert "callback" not in " ".join(map(str, deck.snapshot().notices))
        runs = deck.submit(["sleep", "0.5"], name="outlives the daemon")
        eventually(lambda: deck.job(runs.id).status == "running")
    kill_daemon()
    with Client() as deck:
        deck.wait(runs.id)
        eventually(lambda: f"{runs.id} done outlives the daemon" in told.read_text())
        assert len(told.read_text().splitlines()) == 4
        deck.configure(on_job_end=f'{sys.executable} -S -c "print(2 * 3); raise SystemExit(7)"')
        last = deck.submit(["true"])
        notice = eventually(
            lambda: next((n for n in deck.snapshot().notices if "on_job_end" in n), None)
        )
        assert (
            notice
            == f"the command on_job_end failed for job {last.id}: it ended with status 7. Its log:"
            f" {paths.callback_log()}"
        )
        assert paths.callback_log().read_text() == "6\n"
        assert paths.callback_log().stat().st_mode & 0o777 == 0o600
        with pytest.raises(UserError, match="not a command"):
            deck.configure(on_job_end="sh -c 'unclosed")
        with pytest.raises(UserError, match="a program that is not there: /no/such/program"):
            deck.configure(on_job_end="/no/such/program --now")
        assert notice in deck.snapshot().notices
        deck.configure(on_job_end="")
        assert notice not in deck.snapshot().notices, "it was about the command of before"


def test_a_command_that_hangs_is_killed_with_its_children(home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    pids, said = home / "pids", list[str | None]()
    hangs = f"sh -c 'sleep 1000 & echo $! $$ >> {pids}; wait'"

    async def many() -> None:
        callback = JobEndCommand(said.append, timeout=0.3)
        for number in range(6):
            callback.job_ended(Job(number, Spec(("true",), "x", "/"), 0.0, Done(0.0, 1.0)), hangs)
        callback.job_ended(
            Job(7, Spec(("true",), "x", "/"), 0.0, Cancelled(1.0)), "/no/such/program"
        )
        callback.job_ended(Job(8, Spec(("true",), "x", "/"), 0.0, Cancelled(1.0)), "  ")
        await callback.finish()
        callback.job_ended(Job(9, Spec(("true",), "x", "/"), 0.0, Cancelled(1.0)), hangs)
        while len(pids.read_text().splitlines()) < 7:
            await asyncio.sleep(0.01)
        await callback.stop()

    asyncio.run(many())
    assert sum("more than 0.3 s" in str(text) for text in said) == 6
    assert sum("job 7: No such file" in str(text) for text in said) == 1
    assert len(said) == 7
    started = [int(pid) for line in pids.read_text().splitlines() for pid in line.split()]
    assert len(started) == 14
    eventually(lambda: not any(lives(pid) for pid in started))


def test_of_too_many_commands_the_oldest_is_dropped(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setattr(job_end, "MAX_WAITING", 2)
    told, said = tmp_path / "told", list[str | None]()

    async def many() -> None:
        callback = JobEndCommand(said.append)
        for number in range(1, 5):
            job = Job(number, Spec(("true",), "x", "/"), 0.0, Done(0.0, 1.0))
            callback.job_ended(job, f'{sys.executable} -S -c "{TELL}" {told}')
        await callback.finish()

    asyncio.run(many())
    assert sorted(line.split()[0] for line in told.read_text().splitlines()) == ["3", "4"]
    assert sum("the oldest was dropped" in str(text) for text in said) == 2
