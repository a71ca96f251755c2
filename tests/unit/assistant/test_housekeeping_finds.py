"""A scan finds caches, files of jobs, core dumps, duplicate models and shared memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from gpudeck.assistant.housekeeping import duplicates, undo
from gpudeck.assistant.housekeeping.findings import ScanMonitor, encoded, shown
from gpudeck.assistant.housekeeping.moving import move
from gpudeck.assistant.housekeeping.scope import Cache
from gpudeck.scheduler.protocol.jobs import Done, Job, Running, Spec
from tests.unit.assistant.debris import World, aged, contents, found, kernel, no_job, world, write


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    return world(tmp_path / "world")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let small files count as models."""
    monkeypatch.setattr(duplicates, "LEAST", 3 * 2**20)
    return 3 * 2**20


def model(
    path: Path, start: bytes = b"", size: int = 3 * 2**20 + 5, days: float = 100, last: bytes = b""
) -> Path:
    return write(path, start + bytes(size - len(start) - len(last)) + last, days)


def names(finds) -> list[str]:
    return sorted(find.path.name for find in finds)


def test_one_of_several_copies_stays_and_similar_files_are_not_found(
    place: World, small: int
) -> None:
    first = model(place.models / "a" / "model.safetensors", days=300)
    model(place.models / "b" / "copy.safetensors")
    model(place.models / "b" / "new copy.safetensors", days=2)
    model(place.models / "c" / "end differs.safetensors", last=b"!")
    model(place.models / "c" / "start differs.safetensors", b"!")
    model(place.models / "c" / "no model.txt")
    write(place.models / "d" / "small.safetensors")
    write(place.models / "d" / "small too.safetensors")
    [find] = found(place)
    assert (find.kind, find.path.name) == ("duplicate", "copy.safetensors")
    assert str(find.reason).endswith("/a/model.safetensors, which stays")
    assert find.bytes >= small
    first.unlink()
    [left] = move(place.scope, [find]).left
    assert "no longer exists" in str(left.why), "it is the only one now"


def test_a_copy_stays_once_the_other_has_changed(place: World, small: int) -> None:
    first = model(place.models / "model.pt", days=300)
    model(place.models / "copy.pt")
    [find] = found(place)
    with first.open("r+b") as f:
        f.write(b"trained on")
    [left] = move(place.scope, [find]).left
    assert str(left.why) == "the identical file has changed"


def test_targets_of_links_hard_links_and_spared_files_stay(
    place: World, small: int, tmp_path: Path
) -> None:
    """Snapshots in a Hugging Face store are links to blobs without an ending."""
    blob = model(tmp_path / "hub" / "models--x" / "blobs" / "c0ffee")
    model(place.models / "oldest.gguf", days=900)
    linked = model(place.models / "linked.gguf", days=800)
    (place.models / "link.gguf").symlink_to(linked)
    os.link(model(place.models / "twice.gguf", days=700), place.models / "twice again.gguf")
    model(place.models / "configured" / "weights.gguf", days=600)
    scope = replace(place.scope, library=tmp_path / "hub", model=place.models / "configured")
    [find] = found(place._replace(scope=scope))
    assert find.path.name == "oldest.gguf"
    assert find.twin in (encoded(blob), encoded(linked))


def test_copies_that_must_all_stay_are_not_read(
    place: World, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(2):
        model(place.models / f"{i}.onnx")
        (place.models / f"link {i}").symlink_to(place.models / f"{i}.onnx")
    monkeypatch.setattr(duplicates, "_digest", None)
    assert found(place) == ()


def core(path: Path, kind: int = 4, order: int = 1, days: float = 10) -> Path:
    return write(
        path,
        b"\x7fELF\x02"
        + bytes([order])
        + bytes(10)
        + kind.to_bytes(2, "little" if order == 1 else "big")
        + b"!" * 9000,
        days,
    )


def test_core_dumps_are_recognised_by_name_and_content(place: World) -> None:
    for name in ("core", "core.4711", "vgcore.12", "python.core", "core-python-11"):
        core(place.models / "deep" / name)
    core(place.models / "core.big", order=2)
    core(place.models / "kernel.nvcudmp", kind=0)
    core(place.models / "core.program", kind=2)
    core(place.models / "core.new", days=1)
    core(place.models / "encore.py")
    write(place.models / "core.txt", b"the core of the matter")
    (place.models / "core.pipe").parent.mkdir(exist_ok=True)
    os.mkfifo(place.models / "core.pipe")
    assert names(found(place)) == sorted(
        ["core", "core.4711", "vgcore.12", "python.core", "core-python-11", "core.big", "kernel.nvcudmp"]  # noqa: E501
    )  # fmt: skip


def test_a_real_core_dump_is_found_where_a_job_ran(place: World, tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip("core dumps go elsewhere on this machine")
    ran = tmp_path / "ran"
    (ran / "below").mkdir(parents=True)
    code = (
        "import resource, os; resource.setrlimit(resource.RLIMIT_CORE, (2**40, 2**40)); os.abort()"
    )
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("core dumps are forbidden here")
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ran, check=False, stderr=subprocess.DEVNULL
    )
    assert done.returncode == -signal.SIGABRT
    [dump] = [path for path in ran.iterdir() if path.is_file()]
    aged(dump, 4)
    core(ran / "below" / "core.1")
    here = place._replace(scope=replace(place.scope, ran=(ran,)))
    [find] = found(here)
    assert find.path == dump, "the folder itself alone is looked into"
    assert undo(move(here.scope, [find])).left == ()


def test_files_of_jobs_that_ended_long_ago_are_found(place: World, tmp_path: Path) -> None:
    jobs = place.root / "jobs"
    for number in ("1", "2", "3", "4"):
        for file in ("log", "log.1", "artefacts/checkpoint.pt", "result.json", "runner.lock"):
            write(jobs / number / file)
        aged(jobs / number, 400)
    aged(jobs / "4", 40)
    write(jobs / "1.old-12345" / "log")
    write(jobs / "notes" / "log")

    def job(number: int) -> Job:
        if number == 3:
            return no_job(number)
        running = Running("a", (), 0.0, 1, 1, "b")
        return Job(
            number,
            Spec(("true",), "train \x1b[31m", "/"),
            0.0,
            running if number == 2 else Done(0.0, 1.0),
        )

    finds = found(place, job=job)
    assert sorted(f"{find.kind} {find.path.relative_to(jobs)}" for find in finds) == [
        *("artefacts 1/artefacts", "artefacts 3/artefacts", "log 1.old-12345/log"),
        *("log 1/log", "log 1/log.1", "log 3/log", "log 3/log.1", "log 4/log", "log 4/log.1"),
    ]  # fmt: skip
    reasons = {str(find.path.relative_to(jobs)): str(find.reason) for find in finds}
    assert reasons["1/log"] == "of job 1 (train  [31m), done"
    assert reasons["3/log"] == "of job 3, which the queue does not know"
    assert "newer one" in reasons["1.old-12345/log"]
    before = contents(jobs)
    assert undo(move(place.scope, finds)).left == ()
    assert contents(jobs) == before


def test_caches_of_every_depth_are_found(place: World) -> None:
    kernel(place, "triton")
    for path in (
        "ext/py311_cu130/old/a.so",
        "ext/py311_cu130/new/a.so",
        "nv/ComputeCache/1/2/a",
        "nv/ComputeCache/index",
    ):
        write(place.root / path)
    aged(place.root / "ext", 400)
    aged(place.root / "nv", 400)
    aged(place.root / "ext/py311_cu130/new/a.so", 3)
    caches = (
        *place.scope.caches,
        Cache("PyTorch", place.root / "ext", 2),
        Cache("CUDA", place.root / "nv" / "ComputeCache", 0),
    )
    here = place._replace(scope=replace(place.scope, caches=caches))
    finds = found(here)
    assert names(finds) == ["ComputeCache", "old", "triton"]
    assert move(here.scope, finds).left == ()
    assert not (place.root / "nv" / "ComputeCache").exists()


def test_findings_inside_others_are_not_listed(place: World) -> None:
    core(place.cache / "one" / "core.1")
    aged(place.cache / "one", 400)
    here = place._replace(scope=replace(place.scope, folders=(place.root,)))
    assert names(found(here)) == ["one"]


@pytest.fixture
def segment() -> Iterator[SharedMemory]:
    made = SharedMemory(create=True, size=100_000)
    assert made.buf is not None
    made.buf[:] = b"x" * len(made.buf)
    yield made
    made.close()
    made.unlink()


def test_shared_memory_is_found_once_nobody_has_it_open(
    place: World, segment: SharedMemory
) -> None:
    """A mapping keeps a segment, in this process or in another that has closed its file."""
    here = place._replace(scope=replace(place.scope, memory=Path("/dev/shm")))
    file = Path("/dev/shm") / segment.name
    aged(file, 3)

    def proposed() -> bool:
        return file in [find.path for find in found(here)]

    assert not proposed(), "it is mapped"
    segment.close()
    aged(file, 3)
    assert proposed()
    [find] = [find for find in found(here) if find.path == file]
    assert find.bytes >= 100_000
    code = (
        "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); "
        "print('mapped', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not proposed()
        assert "open" in str(move(here.scope, [find]).left[0].why)
        process.kill()
    aged(file, 0.5)
    assert not proposed(), "too young"


def test_missing_folders_are_reported(place: World, tmp_path: Path) -> None:
    gone = place._replace(
        scope=replace(place.scope, folders=(tmp_path / "gone",), jobs=tmp_path / "none")
    )
    watch = ScanMonitor()
    assert found(gone, watch) == ()
    assert list(map(str, watch.unseen)) == [
        f"{shown(tmp_path / 'gone')}: No such file or directory"
    ]


def test_two_copies_are_never_both_moved(place: World, small: int) -> None:
    """Two scans may find each as the other's copy, and a folder may hold the other."""
    one, two = model(place.models / "one.pt", days=300), model(place.models / "two.pt", days=100)
    [first] = found(place)
    link = place.models / "link"
    link.symlink_to(two)
    [second] = found(place)
    link.unlink()
    assert (first.path, second.path) == (two, one)
    assert {str(left.why) for left in move(place.scope, [first, second]).left} == {
        "the identical file would be moved as well"
    }
    assert one.exists()
    assert two.exists()


def test_the_assistants_model_stays_even_if_chosen_after_the_scan(place: World, small: int) -> None:
    model(place.models / "a" / "w.pt", days=300)
    model(place.models / "b" / "w.pt")
    finds = found(place)
    chosen = replace(place.scope, model=place.models / "b")
    assert [str(left.why) for left in move(chosen, finds).left] == [
        "it belongs to the assistant's model"
    ]
