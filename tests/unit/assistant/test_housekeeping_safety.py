"""Housekeeping never touches what is open, changed, needed, mounted, foreign or outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gpudeck.assistant.housekeeping import moving, undo
from gpudeck.assistant.housekeeping.findings import ScanMonitor, encoded
from gpudeck.assistant.housekeeping.in_use import CHANGED
from gpudeck.assistant.housekeeping.journal import Receipt
from gpudeck.assistant.housekeeping.moving import move
from gpudeck.assistant.housekeeping.scope import Cache, scope_from
from gpudeck.assistant.housekeeping.walk import DEEPEST
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.protocol.settings import Settings, changed
from tests.unit.assistant.debris import World, aged, contents, found, kernel, world, write

STRANGER = 65534
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and mount")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    return world(tmp_path / "world")


def why(receipt: Receipt) -> str:
    """Return the one reason why the one item stayed."""
    assert receipt.items == ()
    [left] = receipt.left
    return str(left.why)


@contextmanager
def other_process(code: str, *arguments: object) -> Iterator[None]:
    """Run a process that does something and stays alive."""
    command = [
        sys.executable,
        "-S",
        "-c",
        f"{code}\nprint('done', flush=True); input()",
        *map(str, arguments),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        yield
        process.kill()


OPEN = "import sys; f = open(sys.argv[1])"
MAP = (
    "import sys, mmap; f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); "
    "f.close()"
)
WORK = "import sys, os; os.chdir(sys.argv[1])"
RUN = "import sys, os; os.open(sys.argv[1], os.O_PATH)"


@pytest.mark.parametrize(
    ("code", "where"), [(OPEN, "b/c.ptx"), (MAP, "a.cubin"), (WORK, "b"), (RUN, "b/c.ptx")]
)
def test_files_that_a_process_has_open_or_mapped_or_works_in_stay(
    place: World, code: str, where: str
) -> None:
    used, free = kernel(place, "used"), kernel(place, "free")
    finds = found(place)
    with other_process(code, used / where):
        receipt = move(place.scope, finds)
    assert [item.find.path for item in receipt.items] == [free]
    [left] = receipt.left
    assert left.find.path == used
    assert "open" in str(left.why)


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen between the check and the renaming."""
    move_item = moving.move_item

    def later(item: moving.TrashItem) -> None:
        act()
        move_item(item)

    monkeypatch.setattr(moving, "move_item", later)


def test_a_file_opened_between_check_and_move_is_put_back(
    place: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = kernel(place, "one")
    before, finds = contents(place.root), found(place)
    files = []
    between(monkeypatch, lambda: files.append((gone / "a.cubin").open("rb")))
    assert "open" in why(move(place.scope, finds))
    files[0].close()
    assert contents(place.root) == before
    assert contents(tmp_path / "data" / "Trash").keys() == {
        str(tmp_path / "data" / "Trash" / part) for part in ("files", "info")
    }


def test_a_file_changed_between_check_and_move_is_put_back(
    place: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = kernel(place, "one")
    finds = found(place)
    between(monkeypatch, lambda: (gone / "new").write_text("new"))
    assert why(move(place.scope, finds)) == str(CHANGED)
    assert (gone / "new").read_text() == "new"


def swapped(path: Path, target: Path) -> None:
    path.rename(path.with_name(f".{path.name} aside"))
    path.symlink_to(target)


@pytest.mark.parametrize("late", [False, True], ids=["after the scan", "after the check"])
@pytest.mark.parametrize("what", ["cache", "cache/one", "cache/one/b"])
def test_a_folder_that_becomes_a_link_leads_nowhere(
    place: World, what: str, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel(place, "one")
    [find] = finds = found(place)
    outside = tmp_path / "outside"
    shutil.copytree(place.root / what, outside, symlinks=True)
    before = contents(outside)
    if late:
        between(monkeypatch, lambda: swapped(place.root / what, outside))
    else:
        swapped(place.root / what, outside)
    assert why(move(place.scope, finds)), find
    assert contents(outside) == before
    assert (place.root / what).is_symlink(), "the link itself is as it was, too"


def test_links_are_not_followed(place: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "core.1", b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00")
    write(outside / "kernel" / "a.cubin")
    aged(outside, 400)
    (place.models / "link").symlink_to(outside)
    (place.models / "core.2").symlink_to(outside / "core.1")
    (place.cache / "link").symlink_to(outside / "kernel")
    assert found(place) == ()


@pytest.mark.parametrize("change", ["rewritten", "touched", "grown", "renamed in", "replaced"])
def test_files_that_changed_since_the_scan_stay(place: World, change: str) -> None:
    gone = kernel(place, "one")
    finds = found(place)
    file = gone / "b" / "c.ptx"
    info = file.stat()
    if change == "rewritten":
        file.write_bytes(b"!" * info.st_size)
    elif change == "touched":
        os.utime(file)
    elif change == "grown":
        (gone / "b" / "d").mkdir()
    elif change == "renamed in":
        (gone / "a.cubin").rename(gone / "b" / "a.cubin")
    else:  # the same content, size and time, in another file
        content = file.read_bytes()
        file.rename(place.root / "kept")
        file.write_bytes(content)
        os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert why(move(place.scope, finds)) == str(CHANGED)


def test_a_file_that_no_longer_exists_is_reported(place: World) -> None:
    gone = kernel(place, "one")
    finds = found(place)
    shutil.rmtree(gone)
    assert why(move(place.scope, finds)) == "it no longer exists"


def test_nothing_outside_the_allowed_folders_is_moved(place: World, tmp_path: Path) -> None:
    kernel(place, "one")
    [real] = found(place)
    outside = write(tmp_path / "outside" / "file")
    for path, root in (
        (outside, place.cache),
        (outside, outside.parent),
        (place.cache / ".." / ".." / "outside" / "file", place.cache),
        (place.cache, place.cache),
        (place.root, place.cache),
    ):
        forged = msgspec.structs.replace(real, place=encoded(path), root=encoded(root))
        assert "outside the folders" in why(move(place.scope, [forged]))
    assert outside.exists()
    assert place.cache.exists()


def test_hard_links_free_nothing_until_all_of_them_go(place: World) -> None:
    one = kernel(place, "one", files=("a",))
    other = write(place.root / "elsewhere", b"y" * 50000)
    os.link(other, one / "hard")
    aged(one, 400)
    [find] = found(place)
    alone = (one / "a").stat().st_blocks * 512 + one.stat().st_blocks * 512
    assert find.bytes == alone
    os.link(other, one / "hard again")
    other.unlink()
    aged(one, 400)
    [find] = found(place)
    assert find.bytes == alone + (one / "hard").stat().st_blocks * 512, "counted once"
    receipt = move(place.scope, [find])
    assert undo(receipt).left == ()
    assert (one / "hard").samefile(one / "hard again")


def test_sizes_are_those_of_the_disk(place: World) -> None:
    with (kernel(place, "one", files=()) / "sparse").open("wb") as f:
        f.truncate(2**30)
    aged(place.cache / "one", 400)
    [find] = found(place)
    assert find.bytes < 2**20


def test_deep_trees_stay_and_are_reported(place: World) -> None:
    fd = os.open(kernel(place, "deep", files=()), os.O_RDONLY)
    for _ in range(2 * DEEPEST):  # Its path is longer than any that the kernel accepts.
        os.mkdir("d" * 100, dir_fd=fd)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    kernel(place, "flat")
    watch = ScanMonitor()
    assert [find.path.name for find in found(place, watch)] == ["flat"]
    assert any(f"more than {DEEPEST} nested folders" in str(line) for line in watch.unseen)


@contextmanager
def nobody() -> Iterator[None]:
    """Drop root's powers, if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(STRANGER, STRANGER, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a folder for a process without root's powers; `given` hands it over."""
    base = Path("/var/tmp") / f"gpudeck-test-{os.getpid()}"
    monkeypatch.setenv("XDG_DATA_HOME", str(base / "data"))
    monkeypatch.setenv("GPUDECK_HOME", str(base / "home"))
    yield world(base / "world")
    subprocess.run(["chmod", "-R", "u+rwx", base], check=True)
    shutil.rmtree(base)


def given(place: World) -> None:
    """Give everything to the user of `nobody`."""
    if os.geteuid() == 0:
        base = place.root.parent
        for path in (base, *base.rglob("*")):
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def test_unreadable_files_stay_and_are_reported(theirs: World) -> None:
    for name in ("closed", "open", "unreadable"):
        kernel(theirs, name)
    (theirs.models / "closed").mkdir()
    given(theirs)
    with nobody():
        (theirs.cache / "closed" / "b").chmod(0)
        (theirs.cache / "unreadable" / "a.cubin").chmod(0o200)
        (theirs.models / "closed").chmod(0)
        watch = ScanMonitor()
        finds = found(theirs, watch)
        assert {find.path.name for find in finds} == {"open", "unreadable"}
        assert (
            sorted(str(line).rpartition("/")[2] for line in watch.unseen)
            == ["closed: Permission denied"] * 2
        )
        receipt = move(theirs.scope, finds)
    assert [item.find.path.name for item in receipt.items] == ["open"]
    assert [str(left.why) for left in receipt.left] == ["Permission denied"]


@ROOT
@pytest.mark.parametrize("code", [OPEN, MAP])
def test_files_open_in_a_process_of_another_user_stay(theirs: World, code: str) -> None:
    """In a container, root sees nothing of the process in /proc, but the kernel refuses a lease."""
    used = kernel(theirs, "used")
    finds = found(theirs)
    given(theirs)
    with other_process(code, used / "a.cubin"), nobody():
        assert why(move(theirs.scope, finds)) == "a process has a file in it open"


@ROOT
def test_files_of_another_user_stay(place: World) -> None:
    gone, watch = kernel(place, "one"), ScanMonitor()
    finds = found(place)
    os.chown(gone / "b", STRANGER, STRANGER)
    assert "another user" in why(move(place.scope, finds))
    assert found(place, watch) == ()
    assert "another user" in str(watch.unseen[0])


@ROOT
@pytest.mark.parametrize("where", ["b", ""])
def test_mount_points_stay(place: World, where: str, tmp_path: Path) -> None:
    """A bind mount of the same file system has the same device."""
    gone = kernel(place, "one")
    finds = found(place)
    inside = aged(write(tmp_path / "mounted" / "c.ptx").parent, 400)
    if subprocess.run(
        ["mount", "--bind", inside, gone / where], check=False, capture_output=True
    ).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert "mounted" in why(move(place.scope, finds))
    finally:
        subprocess.run(["umount", gone / where], check=True)
    assert (inside / "c.ptx").exists()


@ROOT
def test_files_that_cannot_be_renamed_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of an overlay's lower layer, as in a container's image, cannot be renamed."""
    base, merged = tmp_path / "base", tmp_path / "merged"
    for folder in (base, merged):
        folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", base], check=False, capture_output=True
    ).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        lower = world(base / "lower" / "world")
        kernel(lower, "of the image")
        for name in ("upper", "work"):
            (base / name).mkdir()
        layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        if subprocess.run(
            ["mount", "-t", "overlay", "-o", layers, "overlay", merged],
            check=False,
            capture_output=True,
        ).returncode:
            pytest.skip("there is no overlay here")
        try:
            monkeypatch.setenv("XDG_DATA_HOME", str(merged / "data"))
            monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
            cache = Cache("Triton", merged / "world" / "cache", 1)
            here = World(merged / "world", replace(lower.scope, caches=(cache,), folders=()))
            before = contents(here.root)
            assert "cannot be renamed into a trash" in why(move(here.scope, found(here)))
            assert contents(here.root).keys() == before.keys()
            assert [*(merged / "data" / "Trash").rglob("*.trashinfo")] == []
        finally:
            subprocess.run(["umount", merged], check=True)
    finally:
        subprocess.run(["umount", base], check=True)


def job(number: int, cwd: Path, *argv: str) -> Job:
    return Job(number, Spec(argv or ("true",), "train", str(cwd)), 0.0, Queued())


def test_files_that_an_active_job_needs_stay(place: World) -> None:
    dump = write(place.models / "runs" / "core.1", b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00")
    kernel(place, "one")
    finds = found(place)
    assert len(finds) == 2
    for busy, reason in (
        (job(7, place.models / "runs"), "job 7 works in"),
        (job(8, Path("/"), "gdb", f"--core={dump}"), "job 8 needs it"),
        (job(9, place.models, "cat", "runs/core.1"), "job 9 needs it"),
    ):
        now = place._replace(scope=replace(place.scope, active=(busy,)))
        assert [find.kind for find in found(now)] == ["cache"]
        assert reason in why(move(now.scope, [find for find in finds if find.kind == "core"]))
    assert move(place.scope, finds).left == ()


def test_a_scan_can_be_cancelled_and_ends_in_time(place: World) -> None:
    for i in range(30):
        kernel(place, f"{i}")
    told = list[str]()
    assert (
        len(found(place, ScanMonitor(told.append, cancelled=lambda: bool(told)))) == len(told) == 1
    )
    watch = ScanMonitor(seconds=0)
    assert found(place, watch) == ()
    assert str(watch.stopped) == "not done after 0 s"


def test_the_settings_define_folders_and_ages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "HOME",
        "XDG_CACHE_HOME",
        "TRITON_CACHE_DIR",
        "TRITON_HOME",
        "CUDA_CACHE_PATH",
        "HF_HOME",
        "GPUDECK_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "ext"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made = scope_from(
        Settings(clean_folders="~/link, ~/real/inner, /", clean_caches=2, clean_cores="off"),
        (str(tmp_path / "link"), "/gone"),
    )
    assert [(cache.folder.relative_to(tmp_path), cache.depth) for cache in made.caches] == [
        (Path(".triton/cache"), 1), (Path("inductor"), 1), (Path("ext"), 1),
        (Path(".nv/ComputeCache"), 0),
    ]  # fmt: skip
    assert made.folders == (tmp_path / "real",), (
        "links resolved, one in another left out, and never everything"
    )
    assert made.ran == (tmp_path / "real",)
    assert made.jobs == tmp_path / ".local/state/gpudeck/jobs"
    assert (made.age_of("cache"), made.age_of("core")) == (2 * 86400, None)
    with pytest.raises(UserError, match="whole path"):
        changed(Settings(), {"clean_folders": "~/models, models"})
