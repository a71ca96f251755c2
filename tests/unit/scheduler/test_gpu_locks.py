"""Lock GPUs between queues that know nothing of each other but one file."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.scheduler.attempts import GpuTaken, log_file, running
from gpudeck.scheduler.executors import lock_holders, lock_places
from gpudeck.scheduler.executors.gpu_locks import GpuLocks, held_by_others
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.executors.lock_file import REGION, ranges_of, region
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Job, Running, Spec
from gpudeck.scheduler.protocol.users import user_name
from gpudeck.scheduler.protocol.wait_reasons import JustTaken, LockHolder, StartFailed, Unseen
from gpudeck.scheduler.queue import job_index
from gpudeck.scheduler.store import Store
from tests.support import eventually, lives
from tests.unit.scheduler.own_queue import GPU, ended, make_queue, submit_all, wait_reason

A, B, C = (f"GPU-{name}" for name in "abc")
MIB = 2**20
TOTAL = {A: 100.0 * MIB}
HOLD = """
import sys, time
from gpudeck.scheduler.executors.gpu_locks import GpuLocks
locks = GpuLocks.open()
locks.claim(int(sys.argv[1]), {name: 100 * 2**20 for name in sys.argv[2:]})
print("locked", flush=True)
time.sleep(600)
"""

OTHER_USER = """
import os
import gpudeck.scheduler.executors.gpu_locks
os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""
"""As root can read our interpreter, and another user perhaps not."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty file that all queues of the test lock."""
    found = tmp_path / "locks"
    found.touch()
    monkeypatch.setenv("GPUDECK_GPU_LOCKS", str(found))
    return found


@pytest.fixture
def locks(file: Path) -> Iterator[GpuLocks]:
    """Return a queue's own way to the locks."""
    with GpuLocks.open() as made:
        yield made


def job(number: int, memory: int, *devices: str) -> Job:
    state = Running("nonce", devices, 0.0, 1, 1, "boot")
    return Job(number, Spec(("true",), "x", "/", gpus=len(devices), memory=memory), 0.0, state)


def test_a_gpu_that_a_job_has_to_itself_is_refused_to_all_others(locks: GpuLocks) -> None:
    other = GpuLocks.open()
    other.claim(0, {A: 1.0, B: 1.0})
    assert (locks.reserved(A), locks.reserved(B), locks.reserved(C)) == (math.inf, math.inf, 0)
    for memory in (0, MIB):
        with pytest.raises(GpuTaken) as caught:
            locks.claim(memory, TOTAL)
        assert caught.value.device == A
    other.close()
    assert locks.reserved(A) == 0
    locks.claim(0, TOTAL)


def test_locks_in_a_linked_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "locks").touch()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("GPUDECK_GPU_LOCKS", str(tmp_path / "link" / "locks"))
    command = [sys.executable, "-c", HOLD, "0", A]
    with GpuLocks.open() as mine, subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"locked\n"
        assert mine.reserved(A) == math.inf
        with GpuLocks.of(holder.pid) as found:
            found.release()
        assert mine.reserved(A) == 0
        holder.kill()


def test_all_gpus_are_locked_or_none(locks: GpuLocks) -> None:
    other, third = GpuLocks.open(), GpuLocks.open()
    other.claim(0, {B: 1.0})
    with pytest.raises(GpuTaken):
        locks.claim(0, {A: 1.0, B: 1.0, C: 1.0})
    assert (third.reserved(A), third.reserved(C)) == (0, 0)


def test_reservations_fill_the_memory_and_not_a_mib_more(locks: GpuLocks) -> None:
    first, second, third = (GpuLocks.open() for _ in range(3))
    first.claim(40 * MIB, TOTAL)
    second.claim(30 * MIB, TOTAL)
    first.close()  # leaves a gap before the second, and 30 MiB after it
    assert locks.reserved(A) == 30 * MIB
    with pytest.raises(GpuTaken):
        third.claim(71 * MIB, TOTAL)
    third.claim(70 * MIB + 5, TOTAL)  # in both gaps
    assert locks.reserved(A) == 100 * MIB
    for memory in (0, 1):
        with pytest.raises(GpuTaken):
            locks.claim(memory, TOTAL)


def test_own_jobs_are_not_those_of_others(locks: GpuLocks) -> None:
    mine, other = GpuLocks.open(), GpuLocks.open()
    mine.claim(10 * MIB, TOTAL)
    mine.claim(0, {B: 1.0})
    other.claim(30 * MIB, TOTAL)
    running = [job(1, 10 * MIB, A), job(2, 0, B), job(3, 5 * MIB, C)]  # 3 is older than the locks
    assert held_by_others(locks, (A, B, C), running) == {A: 30 * MIB}
    assert held_by_others(locks, (A, B, C), []) == {A: 40 * MIB, B: math.inf}


@pytest.mark.parametrize("memory", [0, 20 * MIB], ids=["alone", "shared"])
def test_a_killed_holder_releases_its_gpus(locks: GpuLocks, memory: int) -> None:
    command = [sys.executable, "-c", HOLD, str(memory), A, B]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        held = memory or math.inf
        assert (locks.reserved(A), locks.reserved(B)) == (held, held)
        os.kill(holder.pid, signal.SIGKILL)
    assert (locks.reserved(A), locks.reserved(B)) == (0, 0)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.one_of(st.none(), st.just(0), st.integers(1, 60)),
            st.sets(st.sampled_from((A, B)), min_size=1),
        ),
        max_size=25,
    )
)
def test_any_sequence_of_claims_keeps_to_the_memory(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int | None, set[str]]],
) -> None:
    """Queue n claims some MiB of some GPUs, all of them (0), or releases what it has (None)."""
    with pytest.MonkeyPatch.context() as patch:
        file = tmp_path_factory.mktemp("locks") / "file"
        file.touch()
        patch.setenv("GPUDECK_GPU_LOCKS", str(file))
        queues = [GpuLocks.open() for _ in range(5)]
        observer = GpuLocks.open()
        model: dict[int, tuple[int, set[str]]] = {}
        for number, size, devices in steps:
            if size is None or number in model:
                queues[number].release()
                model.pop(number, None)
                continue
            used = {d: [other for other, held in model.values() if d in held] for d in devices}
            fits = all(
                not sizes if not size else 0 not in sizes and sum(sizes) + size <= 100
                for sizes in used.values()
            )
            try:
                queues[number].claim(size * MIB, dict.fromkeys(devices, 100.0 * MIB))
            except GpuTaken:
                assert not fits
            else:
                assert fits
                model[number] = (size, devices)
        for device in (A, B):
            sizes = [size for size, held in model.values() if device in held]
            expected = math.inf if 0 in sizes else float(sum(sizes) * MIB)
            assert observer.reserved(device) == expected
        for opened in (*queues, observer):
            opened.close()


def test_a_gpu_with_countless_locks_counts_as_held_and_costs_no_time(locks: GpuLocks) -> None:
    hostile = os.open(os.environ["GPUDECK_GPU_LOCKS"], os.O_RDWR)
    for number in range(300):
        flock = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, region(A) + 2 * number, 1, 0)
        fcntl.fcntl(hostile, fcntl.F_OFD_SETLK, flock)
    assert locks.reserved(A) == math.inf
    assert locks.reserved(B) == 0
    os.close(hostile)


@pytest.mark.parametrize("kind", ["missing", "link", "pipe", "folder", "other device"])
def test_a_file_that_cannot_hold_locks_is_refused_in_one_line(
    file: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.unlink()
    match kind:
        case "link":
            file.symlink_to("/dev/full")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "other device":
            monkeypatch.setenv("GPUDECK_GPU_LOCKS", "/dev/null")
    with pytest.raises(UserError, match=r"^GPUs cannot be locked against other users' queues by"):
        GpuLocks.open()


def test_the_place_of_a_gpu_is_the_same_in_every_version() -> None:
    """Queues of different versions must find each other's locks."""
    assert region("GPU-07310d02-5a07-b366-b9c8-dda734271cd2") == 2648620901813190656
    assert REGION == 2**22
    assert region(A) != region(B)
    assert all(0 <= region(name) <= 2**62 - REGION for name in (A, B, C))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become other users")
def test_users_exclude_each_other_by_the_file_that_every_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GPUDECK_GPU_LOCKS", raising=False)
    name = f"GPU-of-this-test-{os.getpid()}"
    with GpuLocks.open() as mine:
        with subprocess.Popen(
            [sys.executable, "-c", OTHER_USER + HOLD, "0", name], stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "locked\n"
            assert mine.reserved(name) == math.inf
            with pytest.raises(GpuTaken):
                mine.claim(0, {name: 1.0})
            other.kill()
        mine.claim(0, {name: 1.0})
        refused = subprocess.run(
            [sys.executable, "-c", OTHER_USER + HOLD, str(MIB), name],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "GpuTaken" in refused.stderr


def test_a_gpu_that_another_queue_takes_at_the_last_moment_costs_the_job_nothing(
    file: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_index, "RETRY_S", 0.05)
    queue = make_queue(store, local=Local(lambda job, runner: None, memory_of=lambda d: 2.0**36))
    other = GpuLocks.open()
    other.claim(0, {GPU.id: 1.0})
    before = set(psutil.Process().children())
    (job,) = submit_all(queue, [Spec(("true",), "x", "/", gpus=1)], [GPU])
    for _ in range(3):
        queue.step([GPU])  # no plan here knows of the other queue
        assert wait_reason(queue, job.id) == JustTaken("GPU 0")
        time.sleep(0.06)
    assert [event.what for event in queue.queries.timeline(job.id)] == ["submitted"]
    assert queue.get(job.id).tries == 0
    left = set(psutil.Process().children()) - before
    assert all(child.status() == "zombie" for child in left)
    other.close()
    eventually(lambda: queue.step([GPU]) or queue.get(job.id).status != "queued")
    with GpuLocks.open() as observer:
        eventually(lambda: ended(queue, job.id))
        assert isinstance(queue.get(job.id).state, Done)
        assert observer.reserved(GPU.id) == 0


def test_the_runner_holds_the_gpu_and_the_command_does_not(file: Path, store: Store) -> None:
    queue = make_queue(store, local=Local(lambda job, runner: None, memory_of=lambda d: 2.0**36))
    script = "setsid sleep 600 & echo $!; exec sleep 600"
    (job,) = submit_all(queue, [Spec(("sh", "-c", script), "x", "/", gpus=1)], [GPU])
    queue.step([GPU])
    state = running(queue.get(job.id))
    with GpuLocks.open() as observer:
        assert observer.reserved(GPU.id) == math.inf
        log = log_file(queue.get(job.id))
        orphan = int(eventually(lambda: log.exists() and log.read_text()))
        os.kill(state.runner, signal.SIGKILL)
        eventually(lambda: observer.reserved(GPU.id) == 0)
        assert lives(orphan)
    eventually(lambda: ended(queue, job.id))
    assert not lives(orphan)


MEMBER = """
import os
import gpudeck.scheduler.executors.gpu_locks
os.setgroups([4242]); os.setgid(65534); os.setuid(65534)
"""
root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become other users")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a place for the locks of a group's members, on a machine that is mixed."""
    base = Path("/var/tmp") / f"gpudeck-test-locks-{os.getpid()}"  # other users reach it
    monkeypatch.setenv("GPUDECK_GPU_LOCKS", str(base))
    lock_places.make_place(base, 4242, mixed=True)
    yield base
    shutil.rmtree(base)


@contextmanager
def started(code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python until it printed a line or ended; it is killed at the end."""
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def refusal(user: str, gpu: str) -> str:
    """Return how a queue of another user fails to lock a GPU."""
    with started(user + HOLD, "0", gpu) as process:
        assert process.stderr is not None
        assert process.wait(30) == 1
        return process.stderr.read()


@root_only
def test_members_and_others_exclude_each_other_while_a_machine_is_mixed(place: Path) -> None:
    name = f"GPU-mixed-{os.getpid()}"
    for user in (OTHER_USER, MEMBER):
        with GpuLocks.open() as mine, started(user + HOLD, "0", name) as other:
            with pytest.raises(GpuTaken):
                mine.claim(0, {name: 1.0})
            other.kill()
            other.wait()
            mine.claim(0, {name: 1.0})
            assert "GpuTaken" in refusal(user, name)


@root_only
def test_a_stranger_who_locks_what_everybody_can_open_stops_no_member(place: Path) -> None:
    """The hostile case: one user holds all of /dev/full."""
    name = f"GPU-closed-{os.getpid()}"
    start, end = ranges_of(name)[0]
    code = (
        "import fcntl, os, struct, sys, time\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "fd = os.open('/dev/full', os.O_RDWR)\n"
        f"lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, {start}, {end - start}, 0)\n"
        "fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)\n"
        "print('locked', flush=True); time.sleep(600)"
    )
    with started(code) as stranger:
        with GpuLocks.open() as mixed, pytest.raises(GpuTaken):
            mixed.claim(0, {name: 1.0})
        assert lock_holders.find_holders([name], [Path("/dev/full")], ()) == {
            name: LockHolder(stranger.pid, user_name(65534))
        }
        lock_places.make_place(place, 4242, mixed=False)
        with GpuLocks.open() as closed:
            assert closed.reserved(name) == 0
            closed.claim(0, {name: 1.0})
            assert "GpuTaken" in refusal(MEMBER, name)
        assert "usermod -aG" in refusal(OTHER_USER, name)


@root_only
def test_a_place_that_others_can_change_is_refused(place: Path) -> None:
    for path, mode in ((place, 0o777), (place / lock_places.GPUS, 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(UserError, match="can be changed by others"):
            GpuLocks.open()
        path.chmod(before)
    GpuLocks.open().close()


@root_only
def test_the_process_of_another_user_is_not_seen_and_ones_own_is(place: Path) -> None:
    name = f"GPU-seen-{os.getpid()}"
    ask = (
        "\nimport sys\nfrom pathlib import Path\n"
        "from gpudeck.scheduler.executors import lock_holders\n"
        "print(lock_holders.find_holders(sys.argv[1:2], [Path('/dev/full')], ()))"
    )
    with started(MEMBER + HOLD, "0", name) as member, GpuLocks.open() as locks:
        found = lock_holders.find_holders([name], locks.files, ())
        assert found == {name: LockHolder(member.pid, user_name(65534))}
        assert lock_holders.find_holders([name], locks.files, [member.pid]) == {name: Unseen()}
        stranger = "import os\nimport gpudeck.scheduler.executors.lock_holders\n" + (
            "os.setgroups([]); os.setgid(65533); os.setuid(65533)"
        )
        seen = subprocess.run(
            [sys.executable, "-c", stranger + ask, name],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "Unseen()" in seen.stdout


@root_only
def test_a_job_of_a_user_who_is_no_member_waits_and_says_whom_to_ask(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a runner without locks would share its GPU with a member's job."""
    lock_places.make_place(place, 4242, mixed=False)
    monkeypatch.setattr(os, "access", lambda path, mode, **_: Path(path) != place / "gpus")
    queue = make_queue(store, local=Local(lambda job, runner: None, memory_of=lambda d: 2.0**36))
    (job,) = submit_all(queue, [Spec(("true",), "x", "/", gpus=1)], [GPU])
    with pytest.raises(UserError, match="usermod -aG"):
        queue.step([GPU])
    found = wait_reason(queue, job.id)
    assert isinstance(found, StartFailed)
    assert "only members of the group" in str(found.problem)


@root_only
def test_only_users_who_are_no_members_are_told_that_anybody_can_hold_their_gpus(
    place: Path,
) -> None:
    assert lock_places.shared_note() == ""
    code = "from gpudeck.scheduler.executors import lock_places; print(lock_places.shared_note())"
    told = subprocess.run(
        [sys.executable, "-c", OTHER_USER + code], capture_output=True, text=True, check=True
    ).stdout
    assert "/dev/full" in told and str(place / "gpus") in told
