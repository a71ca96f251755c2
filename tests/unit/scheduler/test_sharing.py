"""Test who may do what in a daemon that several users share; `test_shared.py` tries it for real."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from gpudeck.scheduler.daemon import sharing
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import (
    LISTED_ARGV,
    LISTED_RESULT,
    Changes,
    Done,
    Failed,
    Job,
    Running,
    Spec,
    listed,
)
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.verbs.apply import ApplySettings
from gpudeck.scheduler.verbs.change import Cancel, CancelMany, Edit, Restore
from gpudeck.scheduler.verbs.control import Configure, Lease, Stop
from gpudeck.scheduler.verbs.groups import Pause
from gpudeck.scheduler.verbs.hosts import SetHost
from gpudeck.scheduler.verbs.logs import ReadLog
from gpudeck.scheduler.verbs.registry import decoding
from gpudeck.scheduler.verbs.request import Request
from gpudeck.scheduler.verbs.submit import Submit, SubmitMany
from gpudeck.scheduler.verbs.suspension import ResumeJob, SuspendJob

A, B, ADMIN, ROOT = 1001, 1002, 1003, 0
OWNERS = {1: A, 2: B}


def owners(jobs: Sequence[int]) -> dict[int, int | None]:
    return {job: OWNERS[job] for job in jobs if job in OWNERS}


@pytest.fixture(autouse=True)
def administrators(monkeypatch):
    monkeypatch.setattr(sharing, "is_admin", lambda uid: uid in (ROOT, ADMIN))


def may(request: Request, uid: int) -> bool:
    try:
        sharing.authorize(request, uid, owners)
    except NotFound:
        raise
    except UserError:
        return False
    return True


def who(request: Request) -> set[int]:
    return {uid for uid in (A, B, ADMIN, ROOT) if may(request, uid)}


def test_every_request_is_decided_and_a_new_one_is_roots():
    with pytest.raises(UserError):
        finish(decoding(b"{}"))  # imports all of them
    of_root = {each for each in Request.__subclasses__() if each.permission == "root"}
    known = {Lease, Stop, SetHost, Configure, ApplySettings}
    assert of_root == known, "decide who may make a new request"
    for request in (Stop(), Lease(), SetHost("x", None)):
        assert who(request) == {ROOT}


def test_users_that_the_kernel_cannot_tell_apart_are_refused():
    assert not may(Submit(Spec(("true",), "true", "/")), 65534)
    assert not may(ReadLog(1), 65534)


def test_a_log_is_for_its_user_and_not_for_administrators():
    assert who(ReadLog(1)) == {A, ROOT}


def test_jobs_are_changed_by_their_users_and_administrators():
    assert who(Cancel(1)) == {A, ADMIN, ROOT}
    assert who(SuspendJob(1)) == who(ResumeJob(1)) == {A, ADMIN, ROOT}
    assert who(Edit(2, Changes(name="x"))) == {B, ADMIN, ROOT}
    assert who(CancelMany((1,))) == {A, ADMIN, ROOT}
    assert who(CancelMany((1, 2))) == {ADMIN, ROOT}
    assert who(CancelMany(ranges=((1, 3),))) == {ADMIN, ROOT}
    assert who(CancelMany(ranges=((2, 500),))) == {B, ADMIN, ROOT}
    assert who(CancelMany(ranges=((2, 10**9),))) == {ADMIN, ROOT}
    assert who(CancelMany(ranges=((2, 9001),) * 100_000)) == {ADMIN, ROOT}
    assert who(CancelMany(array=1)) == {A, ADMIN, ROOT}
    assert who(CancelMany(group="g")) == {ADMIN, ROOT}
    assert who(Restore((1, 2))) == {ADMIN, ROOT}
    assert who(Pause(True)) == {ADMIN, ROOT}


def test_administrators_drain_and_root_alone_sets_what_root_does():
    assert who(Configure({"drained": "0"})) == {ADMIN, ROOT}
    for setting in ("on_job_end", "clusters", "source", "webhook"):
        assert who(Configure({setting: "x"})) == {ROOT}
        assert who(Configure({setting: "x", "drained": "0"})) == {ROOT}


def test_nobody_overtakes_others_or_reaches_roots_clusters():
    for make in (Submit, lambda spec: SubmitMany((spec, spec))):
        spec = Spec(("true",), "true", "/")
        assert who(make(spec)) == {A, B, ADMIN, ROOT}
        assert who(make(Spec(("true",), "true", "/", priority=-1))) == {A, B, ADMIN, ROOT}
        assert who(make(Spec(("true",), "true", "/", priority=1))) == {ADMIN, ROOT}
        assert who(make(Spec(("true",), "true", "/", where="ray:x"))) == {ROOT}
    assert who(Edit(1, Changes(priority=9))) == {ADMIN, ROOT}


SECRET = Spec(
    ("secret",), "training", "/secret", {"SECRET": "secret"}, workload="secret",
    params={"p": "secret"}, notes="secret", tags=("secret",), user=A,
)  # fmt: skip
LONG = b'{"x": "%s"}' % (b"long" * LISTED_RESULT)
JOBS = (
    Job(1, SECRET, 0.0, Failed(1.0, 2.0, "exit status 1: secret", 1)),
    Job(1, SECRET, 0.0, Running("secret", (), 1.0, 2, 3, "boot", note="secret")),
    Job(1, SECRET, 0.0, Done(1.0, 2.0, result=msgspec.Raw(b'{"x": "secret"}'))),
)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.status)
def test_what_a_job_is_stays_with_its_user(job):
    for uid in (B, ADMIN):
        seen = sharing.visible(job, uid)
        assert b"secret" not in encoded(seen) and seen.spec.name == "training"
    assert sharing.visible(job, A) is job and sharing.visible(job, ROOT) is job


def test_how_long_a_command_or_a_result_is_stays_with_its_user_too():
    spec = msgspec.structs.replace(SECRET, argv=("secret" * LISTED_ARGV,))
    long = listed(Job(1, spec, 0.0, Done(1.0, 2.0, result=msgspec.Raw(LONG))))
    short = listed(Job(1, SECRET, 0.0, Done(1.0, 2.0)))
    assert encoded(long) != encoded(short)
    assert encoded(sharing.visible(long, B)) == encoded(sharing.visible(short, B))


def test_a_snapshot_hides_what_is_roots(monkeypatch):
    settings = Settings(webhook="https://secret/x", on_job_end="secret")
    snapshot = Snapshot(1, 1.0, (), JOBS, settings, "cpu")
    assert b"secret" not in encoded(sharing.visible(snapshot, B))
    assert b"secret" in encoded(sharing.visible(snapshot, A))
    assert b"https://secret" not in encoded(sharing.visible(snapshot, A))


def encoded(value: object) -> bytes:
    return msgspec.json.encode(value)


def test_a_job_of_another_user_that_could_not_be_started_says_no_exit_status():
    spec = Spec(("secret",), "x", "/", user=A)
    job = Job(1, spec, 0.0, Failed(1.0, 2.0, "cannot start 'secret' in /home/a", None))
    assert sharing.visible(job, A).state.reason == "cannot start 'secret' in /home/a"
    assert str(sharing.visible(job, B).state.reason) == "could not be started"
    printed = Job(1, spec, 0.0, Failed(1.0, 2.0, "exit code 3: secret", 3, quote="secret"))
    assert "secret" not in str(sharing.visible(printed, B))


SEEN = {
    "name", "gpus", "kind", "memory", "gpu_type", "priority", "timeout", "retries", "backoff",
    "after", "after_any", "group", "hold", "index", "where", "begin", "retry_lost", "nice",
    "host_memory", "cpus", "user", "resumable", "artefacts_of", "preemptible",
    "when_idle", "precision", "spared",
}  # fmt: skip
"""The fields of a job that everybody sees: each is short, and none holds what a user wrote but
the names."""


def test_what_is_not_known_to_be_public_of_a_job_is_hidden():
    private = {
        "argv": ("s3cret",), "cwd": "/s3cret", "env": {"s3cret": ""}, "workload": "s3cret",
        "params": {"s3cret": ""}, "notes": "s3cret", "tags": ("s3cret",), "notify": ("s3cret",),
        "container": "podman:s3cret", "mounts": ("/s3cret",), "container_env": ("s3cret",),
    }  # fmt: skip
    assert SEEN | set(private) | {"inherited"} == set(Spec.__struct_fields__), "decide on new ones"
    job = Job(1, Spec(**{"name": "x", **private, "user": A}), 0.0, Failed(1.0, 2.0, "no", 1))
    assert "s3cret" not in str(sharing.visible(job, B))
