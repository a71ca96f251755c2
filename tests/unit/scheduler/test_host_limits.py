"""Limit the host memory and the CPUs of jobs, in a tree of files as the kernel makes a cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudeck.scheduler.executors import cgroups
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol import mounts
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS, make_spec
from gpudeck.scheduler.protocol.jobs import Done, Failed, Queued, Spec
from gpudeck.scheduler.queue import job_index
from gpudeck.scheduler.store import Store
from tests.support import eventually
from tests.unit.scheduler.own_queue import CPU, ended, make_queue, submit, wait_reason

FILES = {
    "cgroup.kill": "",
    "cgroup.procs": "",
    "memory.max": "max",
    "memory.oom.group": "0",
    "memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n",
    "cpu.max": "max 100000",
}
"""What the kernel puts into a new group; here without swap."""
LIMITS = {"host_memory": 2**30, "cpus": 1.5}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a delegated group with a daemon in a group below, as systemd 254 makes it."""
    mount = tmp_path / "cgroup 2"
    group = mount / "user.slice" / "gpudeck.service"
    (group / cgroups.SUBGROUP).mkdir(parents=True)
    (group / "cgroup.subtree_control").write_text("memory cpu\n")
    try:
        os.setxattr(group, "user.delegate", b"1")
    except OSError as e:
        pytest.skip(f"this file system has no attributes: {e}")
    own = tmp_path / "own"
    own.write_text(f"3:cpuset:/other\n0::/user.slice/gpudeck.service/{cgroups.SUBGROUP}\n")
    infos = tmp_path / "mountinfo"
    point = str(mount).replace(" ", "\\040")
    infos.write_text(f"30 23 0:26 / {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
    monkeypatch.setattr(cgroups, "OWN", own)
    monkeypatch.setattr(mounts, "MOUNTS", infos)
    create = Path.mkdir

    def like_the_kernel(path: Path, mode: int = 0o777, **more: bool) -> None:
        create(path, mode, **more)
        if path.parent == group:
            for name, content in FILES.items():
                (path / name).write_text(content)

    monkeypatch.setattr(Path, "mkdir", like_the_kernel)
    return group


def test_a_job_is_limited_by_its_group_and_fails_for_want_of_memory(
    store: Store, tree: Path
) -> None:
    queue = make_queue(store)
    kill = "sed -i 's/oom_kill 0/oom_kill 3/' {}/gpudeck-$GPUDECK_ATTEMPT/memory.events; exit 1"
    starved = submit(queue, "sh", "-c", kill.format(f"'{tree}'"), env=dict(os.environ), **LIMITS)
    queue.step([CPU])
    (group,) = tree.glob(f"{cgroups.PREFIX}*")
    found = {name: (group / name).read_text() for name in FILES}
    assert found["memory.max"] == str(2**30)
    assert found["memory.oom.group"] == "1"
    assert found["cpu.max"] == "150000 100000"
    eventually(lambda: ended(queue, starved))
    assert (group / "cgroup.procs").read_text() == "0", "the command entered its group"
    state = queue.get(starved).state
    assert isinstance(state, Failed)
    assert str(state.reason) == "needed more than its 1 GiB of host memory"
    failed = submit(queue, "sh", "-c", "exit 3", **LIMITS)
    free = submit(queue, "true")
    queue.step([CPU])
    eventually(lambda: ended(queue, failed) and ended(queue, free))
    state = queue.get(failed).state
    assert isinstance(state, Failed) and "memory" not in str(state.reason), "it was not killed"
    assert isinstance(queue.get(free).state, Done)


def test_limits_that_cannot_be_kept_are_refused_with_the_reason(store: Store, tree: Path) -> None:
    def refusal(**asked: object) -> str:
        with pytest.raises(UserError) as raised:
            submit(make_queue(store), "true", **asked)
        return str(raised.value)

    start = "the host memory and CPUs of a job cannot be limited here: "
    (tree / "cgroup.subtree_control").write_text("memory\n")
    (tree / "cgroup.subtree_control").chmod(0o400)
    if os.getuid():
        want = f"{start}systemd did not delegate the cgroup controller cpu to you"
        assert refusal(cpus=1.0) == want
    cgroups.OWN.write_text("0::/user.slice/gpudeck.service\n")
    assert refusal(cpus=1.0).startswith(f"{start}the daemon has no group apart from its jobs. To")
    cgroups.OWN.write_text("0::/user.slice\n")
    not_delegated = f"{start}the daemon does not run in a delegated cgroup. To have systemd 254"
    assert refusal(host_memory=2**30).startswith(not_delegated)
    assert isinstance(make_queue(store).get(submit(make_queue(store), "true")).state, Queued)


def test_a_limited_job_waits_where_a_later_daemon_cannot_limit_it(
    store: Store, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_index, "RETRY_S", 0.001)
    job = submit(make_queue(store), "true", **LIMITS)
    cgroups.OWN.write_text("0::/\n")
    queue = make_queue(store, local=Local(lambda job, runner: None))
    with pytest.raises(UserError, match="cannot be limited here: the daemon does not run in a"):
        queue.step([CPU])
    assert "cannot be limited here" in str(getattr(wait_reason(queue, job), "problem", ""))
    assert not list(tree.glob(f"{cgroups.PREFIX}*"))


def test_the_options_are_read_checked_and_shown() -> None:
    options = {option.name: option for option in JOB_OPTIONS}
    memory, cpus = options["host_memory"], options["cpus"]
    assert memory.parse is not None and cpus.parse is not None
    spec = make_spec(["true"], {"host_memory": "64GiB", "cpus": cpus.parse("0.5")})
    assert (spec.host_memory, spec.cpus) == (64 * 2**30, 0.5)
    assert str(memory.write(spec.host_memory)) == "at most 64 GiB"
    assert str(cpus.write(spec.cpus)) == "at most 0.5"
    for text in ("nan", "inf", "-1", "0.001", "many"):
        with pytest.raises(UserError, match="a number of processors"):
            cpus.parse(text)
    assert cgroups.limits(Spec(("true",), "x", "/")) == {}
