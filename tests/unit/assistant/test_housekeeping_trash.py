"""Files go to the trash and back on a real file system, and no kill loses anything."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import unquote_to_bytes

import msgspec
import pytest

from gpudeck.assistant.housekeeping import empty, load, receipts, restoring, undo
from gpudeck.assistant.housekeeping.findings import Finding, encoded
from gpudeck.assistant.housekeeping.journal import locked
from gpudeck.assistant.housekeeping.moving import move
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from tests.unit.assistant.debris import World, aged, contents, found, kernel, world, write

CORE = b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00" + b"!" * 9000
NAMES = [
    "plain",
    "new\nline",
    "\x1b[31mred\x1b[0m",
    b"\xff\xfe not UTF-8",
    "ünïcode 名",
    "%2e%2e",
    "-rf",
    "a" * 255,
]


def keep_data_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("GPUDECK_HOME", str(folder / "home"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    keep_data_below(tmp_path, monkeypatch)
    return world(tmp_path / "world")


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on another file system."""
    keep_data_below(tmp_path, monkeypatch)
    folder = Path("/dev/shm") / f"gpudeck-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    empty()
    shutil.rmtree(folder)


def trash(tmp_path: Path, part: str = "files") -> list[Path]:
    folder = tmp_path / "data" / "Trash" / part
    return sorted(folder.iterdir()) if folder.exists() else []


def test_files_of_any_name_are_moved_and_put_back(place: World, tmp_path: Path) -> None:
    for name in NAMES:
        kernel(place, name)
    kernel(place, "used lately", days=3)
    before = contents(place.root)
    finds = found(place)
    assert {find.path.name for find in finds} == {os.fsdecode(name) for name in NAMES}
    assert all(
        find.kind == "cache"
        and find.bytes > 0
        and 399 < find.age / 86400 < 401
        and "Triton" in str(find.reason)
        for find in finds
    )
    assert all(find.shown.isprintable() for find in finds)
    assert msgspec.json.decode(msgspec.json.encode(finds), type=tuple[Finding, ...]) == finds, (
        "names of any bytes go through JSON"
    )

    receipt = move(place.scope, finds)
    assert receipt.left == ()
    assert [entry.name for entry in place.cache.iterdir()] == ["used lately"]
    assert len(trash(tmp_path)) == len(NAMES)
    assert receipt.bytes == sum(find.bytes for find in finds)
    assert receipts() == (receipt,)

    undone = undo(receipt)
    assert undone.left == ()
    assert {find.path for find in undone.restored} == {find.path for find in finds}
    assert contents(place.root) == before, "inodes, modes and times, too"
    assert trash(tmp_path) == trash(tmp_path, "info") == []
    assert receipts() == ()
    with pytest.raises(NotFound):
        undo(receipt)


def test_desktops_show_moved_files_in_their_trash(place: World, tmp_path: Path) -> None:
    """See the trash specification of freedesktop.org."""
    gone = kernel(place, b"\xff odd\n")
    move(place.scope, found(place))
    [info], [file] = trash(tmp_path, "info"), trash(tmp_path)
    assert os.fsencode(info.name) == os.fsencode(file.name) + b".trashinfo"
    head, path, date = info.read_text().splitlines()
    assert head == "[Trash Info]"
    assert unquote_to_bytes(path.removeprefix("Path=")) == os.fsencode(gone)
    assert (
        abs(time.mktime(time.strptime(date, "DeletionDate=%Y-%m-%dT%H:%M:%S")) - time.time()) < 100
    )
    for folder in (tmp_path / "data" / "Trash", info.parent, file.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_files_restored_or_deleted_by_the_desktop_are_left_out(
    place: World, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        kernel(place, name)
    receipt = move(place.scope, found(place))
    [one, _] = trash(tmp_path)
    one.rename(place.cache / "one")
    assert [item.find.path.name for item in load(receipt.id).items] == ["two"]
    assert [find.path.name for find in undo(receipt).restored] == ["two"]


def test_another_file_system_has_its_own_trash(shm: Path) -> None:
    """A move is a rename, never a copy: the inode stays the same."""
    here = world(shm / "world")
    gone = kernel(here, "far away")
    inode = gone.stat().st_ino
    receipt = move(here.scope, found(here))
    assert receipt.left == ()
    [item] = receipt.items
    inside = Path("/dev/shm") / f".Trash-{os.geteuid()}" / "files" / item.name.replace("%20", " ")
    assert inside.stat().st_ino == inode
    assert (
        "Path=gpudeck-test"
        in (inside.parent.parent / "info" / f"{inside.name}.trashinfo").read_text()
    ), "relative to the mount"
    undo(receipt)
    assert gone.stat().st_ino == inode


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a file system for a test."""
    keep_data_below(tmp_path, monkeypatch)
    with tmpfs(tmp_path / "mounted") as folder:
        yield folder


@contextmanager
def tmpfs(folder: Path, used: int = 5000) -> Iterator[Path]:
    """Mount a file system in memory at a new folder, and use up the first inode numbers.

    Neighbouring processes map deleted files of other file systems in memory, which are known by
    their numbers alone, and small numbers are likely to be among those.
    """
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", folder],
        check=False,
        capture_output=True,
    ).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        for _ in range(used):
            (folder / "number").touch()
            (folder / "number").unlink()
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_mapped_file_of_the_same_number_elsewhere_keeps_nothing(
    mounted: Path, tmp_path: Path
) -> None:
    with tmpfs(tmp_path / "elsewhere") as elsewhere:
        here, there = world(mounted / "world"), world(elsewhere / "world")
        mine, other = (kernel(place, "mine") / "a.cubin" for place in (here, there))
        assert mine.stat().st_ino == other.stat().st_ino
        finds, others = found(here), found(there)
        with other.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
            [left] = move(there.scope, others).left
            assert "open" in str(left.why)
            assert move(here.scope, finds).left == ()


SEMAPHORES = (
    "import multiprocessing as m; held = [m.Semaphore() for _ in range(60)];"
    "print(open('/proc/self/maps').read().count('/dev/shm/'), flush=True); input()"
)


@pytest.fixture
def small_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a file system whose files have the first inode numbers."""
    keep_data_below(tmp_path, monkeypatch)
    with tmpfs(tmp_path / "mounted", used=0) as folder:
        yield folder


def test_deleted_semaphores_of_the_same_numbers_keep_nothing(small_numbers: Path) -> None:
    """In a container, for example, which numbers its shared memory from the beginning."""
    here = world(small_numbers / "world")
    inode = (kernel(here, "mine") / "a.cubin").stat().st_ino
    finds = found(here)
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh",
         sys.executable, "-c", SEMAPHORES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert int(other.stdout.readline()) == 60 > inode
        assert move(here.scope, finds).left == ()
        other.communicate(b"\n")


def test_a_trash_that_others_prepared_is_not_used(mounted: Path, tmp_path: Path) -> None:
    here = world(mounted / "world")
    kernel(here, "mine")
    (tmp_path / "elsewhere").mkdir()
    (mounted / f".Trash-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    receipt = move(here.scope, found(here))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert receipt.left == ()
    [item] = receipt.items
    assert item.trash.startswith(str(here.cache)), "one in the allowed folder instead"
    assert found(here) == (), "which is not debris itself"
    assert undo(receipt).left == ()


@pytest.mark.parametrize(
    ("mode", "used"), [(0o1777, ".Trash/{}"), (0o777, ".Trash-{}")], ids=["sticky", "open to all"]
)
def test_a_shared_trash_is_used_only_if_nobody_can_take_files_of_others(
    mounted: Path, mode: int, used: str
) -> None:
    here = world(mounted / "world")
    kernel(here, "mine")
    (mounted / ".Trash").mkdir()
    (mounted / ".Trash").chmod(mode)
    receipt = move(here.scope, found(here))
    assert receipt.left == ()
    [item] = receipt.items
    assert item.trash == str(mounted / used.format(os.geteuid()))


def test_undo_overwrites_nothing(place: World, tmp_path: Path) -> None:
    for name in ("full", "empty", "file"):
        kernel(place, name)
    dump = write(place.models / "core.1", CORE)
    receipt = move(place.scope, found(place))
    assert len(receipt.items) == 4
    (place.cache / "full").mkdir()
    (place.cache / "full" / "new").write_text("new")
    (place.cache / "empty").mkdir()
    (place.cache / "file").write_text("new")
    dump.write_text("new")
    undone = undo(receipt)
    assert [find.path.name for find in undone.restored] == ["empty"]
    assert {left.find.path.name: left.why for left in undone.left}.keys() == {
        "full",
        "file",
        "core.1",
    }
    assert all("something else is in its place" in str(left.why) for left in undone.left)
    assert (
        dump.read_text()
        == (place.cache / "file").read_text()
        == (place.cache / "full" / "new").read_text()
        == "new"
    )
    dump.unlink()
    assert [find.path.name for find in undo(receipt).restored] == ["core.1"], (
        "again, once the way is free"
    )
    assert dump.stat().st_size > 9000


def test_undo_names_a_folder_that_no_longer_exists(place: World) -> None:
    kernel(place, "one")
    receipt = move(place.scope, found(place))
    place.cache.rmdir()
    [left] = undo(receipt).left
    assert "folder no longer exists" in str(left.why)


def test_emptying_deletes_only_our_items_that_are_old_enough(place: World, tmp_path: Path) -> None:
    kernel(place, "one")
    outside = write(tmp_path / "outside")
    (place.cache / "one" / "link").symlink_to(outside)
    os.link(outside, place.cache / "one" / "hard")
    aged(place.cache / "one", 400)
    receipt = move(place.scope, found(place))
    theirs = write(tmp_path / "data" / "Trash" / "files" / "by hand")
    assert empty(3600).items == 0
    assert empty(3600, now=time.time() + 7200).items == 1
    assert trash(tmp_path) == [theirs], "what the person put there stays"
    assert trash(tmp_path, "info") == []
    assert outside.read_bytes() == b"x" * 5000, "no link was followed, and the other name is there"
    assert receipts() == ()
    with pytest.raises(NotFound):
        undo(receipt)


def test_only_one_clean_up_runs_at_a_time(place: World) -> None:
    kernel(place, "one")
    finds = found(place)
    with locked():
        for act in (lambda: move(place.scope, finds), lambda: undo("20260101"), empty):
            with pytest.raises(UserError, match="another clean-up is running"):
                act()
    assert move(place.scope, finds).left == ()


def test_files_in_a_trash_are_not_found_again(
    place: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(place.models / "share"))
    write(place.models / "core.1", CORE)
    [find] = found(place)
    receipt = move(place.scope, [find])
    assert len(receipt.items) == 1
    assert found(place) == ()
    inside = place.models / "share" / "Trash" / "files" / receipt.items[0].name
    forged = msgspec.structs.replace(find, place=encoded(inside))
    assert "in a trash" in str(move(place.scope, [forged]).left[0].why)


def test_on_a_full_disk_nothing_unrecorded_is_moved(
    place: World, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state folder is on a file system that is really full."""
    monkeypatch.setenv("GPUDECK_HOME", str(mounted / "home"))
    for i in range(20):
        kernel(place, f"{i}" * 100)
    before, finds = contents(place.root), found(place)
    assert receipts() == ()
    with (
        pytest.raises(OSError, match="space"),
        (mounted / "ballast").open("wb", buffering=0) as ballast,
    ):
        while True:
            ballast.write(bytes(4096))
    with pytest.raises(UserError, match=r"cannot be written: .*No space left"):
        move(place.scope, finds)
    assert contents(place.root) == before


MOVING = {
    "move": ("move", "_take", "move_item", "MoveJournal.append", "MoveJournal.__init__"),
    "undo": ("undo", "put_back", "_link_back", "_link_or_claim", "drop_note", "forget"),
    "empty": ("empty", "_delete", "_remove", "drop_note", "forget"),
}
"""The functions between whose lines a process is killed."""


ABILITIES = {
    "all": [],
    "no free rename": ["-e", "inject=renameat2:error=EINVAL"],
    "no links either": ["-e", "inject=renameat2:error=EINVAL", "-e", "inject=linkat:error=EPERM"],
}
"""What file systems cannot do, and how strace(1) plays that."""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("missing", ABILITIES.values(), ids=ABILITIES)
def test_undo_needs_no_links_and_overwrites_nothing(
    place: World, tmp_path: Path, missing: list[str]
) -> None:
    file, taken = (write(place.models / f"core.{n}", CORE) for n in (1, 2))
    before, finds = contents(place.root), found(place)
    receipt = move(place.scope, finds)
    taken.write_text("new")
    undoing = "import sys; from gpudeck.assistant.housekeeping import undo; undo(sys.argv[1])"

    def run() -> None:
        command = ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2,linkat", *missing]
        subprocess.run([*command, sys.executable, "-c", undoing, receipt.id], check=True)

    run()
    assert (file.read_bytes(), taken.read_text()) == (CORE, "new")
    assert len(trash(tmp_path)) == 1
    taken.unlink()
    run()
    assert contents(place.root) == before
    assert trash(tmp_path) == []


def killed(act: str, lines: int, do: Callable[[], object]) -> bool:
    """Kill a process after this many lines; return False if it ended before."""

    def count(frame: FrameType, event: str, _: object) -> Callable[..., object]:
        nonlocal lines
        lines -= event == "line"
        if not lines:
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    def trace(frame: FrameType, *_: object) -> Callable[..., object] | None:
        return (
            count
            if frame.f_code.co_qualname in MOVING[act]
            and "housekeeping" in frame.f_code.co_filename
            else None
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The child does not use threads.
        pid = os.fork()
    if not pid:
        sys.settrace(trace)
        do()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


SOME = 23
"""`make test` kills at one in this many lines, `make slow` at each."""


def unable(*_: object) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize("act", ["move", "undo", "undo by links"])
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), SOME])
def test_after_a_kill_at_any_moment_undo_restores_everything(
    place: World, act: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if act == "undo by links":
        act = "undo"
        monkeypatch.setattr(restoring, "rename_to_free_name", unable)
    kernel(place, "one")
    write(place.models / "core.1", CORE)
    before, finds = contents(place.root), found(place)
    assert len(finds) == 2
    lines = every // 2
    do: Callable[[], object] = (
        (lambda: undo(receipts()[0])) if act == "undo" else (lambda: move(place.scope, finds))
    )
    going_on = True
    while going_on:
        lines += every
        if act == "undo":
            assert move(place.scope, finds).left == ()
        going_on = killed(act, lines, do)
        for receipt in receipts():
            assert undo(receipt).left == ()
        assert contents(place.root) == before, f"killed after {lines} lines"
        assert trash(tmp_path) == []
    assert lines > 30, "it was killed at many lines"


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), SOME])
def test_a_killed_emptying_continues_and_half_a_folder_is_not_put_back(
    place: World, every: int, tmp_path: Path
) -> None:
    lines, going_on = every // 2, True
    while going_on:
        lines += every
        gone = kernel(place, "one")
        whole = len(contents(place.cache))
        receipt = move(place.scope, found(place))
        going_on = killed("empty", lines, empty)
        if receipts():
            assert undo(receipt).left == ()
            assert len(contents(place.cache)) == whole, "all of it, or nothing"
            shutil.rmtree(gone)
        empty()
        assert trash(tmp_path) == []
    assert lines > 30
