"""Submit jobs from processes with another umask, other limits and another nice value."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from tests.integration.deck import python

WAIT_S = 30.0
SHOW = """if True:
    import json, os, resource, sys
    os.mkdir(sys.argv[1])
    open(sys.argv[1] + "/checkpoint", "w").close()
    limits = [resource.getrlimit(getattr(resource, n)) for n in ("RLIMIT_NOFILE", "RLIMIT_CORE")]
    print(json.dumps([os.nice(0), *limits]))"""
SUBMIT = {
    "client": "print('job', Client().submit(sys.argv[1:]).id)",
    "aio": """async def submit():
    async with AsyncClient() as deck:
        print('job', (await deck.submit(sys.argv[1:])).id)
asyncio.run(submit())""",
    "command line": "sys.exit(main(['submit', '--', *sys.argv[1:]]))",
}
IMPORTS = """import asyncio, sys
from gpudeck.app.cli.main import main
from gpudeck.scheduler.aio import AsyncClient
from gpudeck.scheduler.client import Client
"""


def as_another(umask: int, nice: int, files: int) -> None:
    os.umask(umask)
    os.nice(nice)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.parametrize("way", SUBMIT)
def test_a_job_has_the_umask_limits_and_nice_value_of_its_submitter(
    shared: Client, tmp_path: Path, way: str
) -> None:
    command = [sys.executable, "-c", IMPORTS + SUBMIT[way], *python(SHOW, tmp_path / "group")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        preexec_fn=lambda: as_another(0o007, 3, 400),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[1])
    assert shared.wait(job, WAIT_S).status == "done"
    assert json.loads(shared.log(job)) == [min(os.nice(0) + 3, 19), [400, 401], [0, 0]]
    assert (tmp_path / "group").stat().st_mode & 0o777 == 0o770
    assert (tmp_path / "group" / "checkpoint").stat().st_mode & 0o777 == 0o660
    assert (paths.job_folder(job) / "log").stat().st_mode & 0o777 == 0o600
    assert (paths.job_folder(job) / "exit.json").stat().st_mode & 0o777 == 0o600


def test_the_option_nice_adds_to_the_nice_value_of_the_submitter(
    shared: Client, tmp_path: Path
) -> None:
    job = shared.submit(python(SHOW, tmp_path / "group"), nice=4)
    assert shared.wait(job.id, WAIT_S).status == "done"
    assert json.loads(job.log())[0] == min(os.nice(0) + 4, 19)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_only_root_may_set_is_set_as_far_as_allowed_and_said() -> None:
    code = """if True:
        import json, resource, sys
        from gpudeck.scheduler.executors.inheritance import prepare
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
        got = prepare({"umask": 0o22, "nice": -3, "limits": {"nofile": [300, 400]}}, 1)
        got.apply()
        print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), got.nice, got.denied]))"""
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", code],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    limits, nice, denied = json.loads(done.stdout)
    assert (limits, nice) == ([200, 200], os.nice(0))
    assert denied.split("; ")[0] == f"its nice value is {os.nice(0)}, as only root may set -2"
    assert "its limit nofile is 200, the most that the daemon may set, not 300" in denied
