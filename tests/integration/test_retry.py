"""Failed jobs are queued again from the terminal, and each attempt keeps its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from tests.integration.shell import Shell
from tests.support import eventually


def test_a_failed_job_is_retried_with_its_cause(sh: Shell, shared: Client, tmp_path: Path) -> None:
    command = ["python3", "-c", "import gpudeck_has_no_such_module"]
    first = shared.submit(command, name="broken", cwd=tmp_path, priority=3)
    shared.wait(first.id)
    out = sh("retry", "broken")
    assert "Python found no module gpudeck_has_no_such_module" in out
    again = shared.wait(first.id + 1)
    assert f"job {again.id}: " in out
    assert (again.spec.argv, again.spec.cwd, again.spec.priority) == (
        first.spec.argv,
        str(tmp_path),
        3,
    )
    good = shared.wait(shared.submit(["true"], cwd=tmp_path).id)
    out = sh("retry", f"{first.id}-{good.id}")
    assert out.count("Python found no module") == 2, "of a range, the jobs that failed"
    refused = sh.fails("retry", f"{good.id}-{good.id}")
    assert f"none of the jobs {good.id} to {good.id} failed" in refused


def test_each_attempt_has_a_log(sh: Shell, shared: Client, tmp_path: Path) -> None:
    command = ["sh", "-c", "echo run >> tries; wc -l < tries; [ $(wc -l < tries) = 3 ]"]
    job = shared.submit(command, cwd=tmp_path, retries=2, backoff=0.1)
    eventually(lambda: shared.job(job.id).status == "done")
    assert [sh("logs", str(job.id), "--attempt", str(n)).strip() for n in (1, 2, 3)] == [
        "1",
        "2",
        "3",
    ]
    assert sh("logs", str(job.id)).strip() == "3"
    assert shared.log(job.id, attempt=2).strip() == b"2"
    with pytest.raises(UserError, match="has the attempts 1 to 3, and no attempt 4"):
        shared.log(job.id, attempt=4)
    assert "attempt 3, after 2 that failed" in sh("jobs")
