"""Random trees and races lose nothing, and undo restores everything."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from gpudeck.assistant.housekeeping import empty, moving, receipts, undo
from gpudeck.assistant.housekeeping.moving import move
from tests.unit.assistant.debris import World, aged, contents, found, world, write

TREES = 200
pytestmark = pytest.mark.slow
NAMES = [
    "a",
    "b.cubin",
    "core.1",
    "\x1b[2J",
    "new\nline",
    os.fsdecode(b"\xff\xfe"),
    "ü" * 60,
    "-rf",
    ".hidden",
    "log",
]
CORE = b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00"


def grow(random: random.Random, folder: Path, depth: int = 0) -> None:
    """Make files, folders, links and hard links."""
    folder.mkdir(exist_ok=True)
    for name in random.sample(NAMES, random.randint(1, 5)):
        path = folder / name
        kind = random.random()
        files = [p for p in folder.iterdir() if p.is_file() and not p.is_symlink()]
        if kind < 0.25 and depth < 5:
            grow(random, path, depth + 1)
        elif kind < 0.35:
            path.symlink_to(random.choice(["/etc/passwd", "..", "nowhere", str(folder.parent)]))
        elif kind < 0.45 and files:
            os.link(random.choice(files), path)
        elif kind < 0.5:
            os.mkfifo(path)
        else:
            write(
                path,
                (CORE if random.random() < 0.5 else b"")
                + random.randbytes(random.randint(0, 20_000)),
            )


def race(random: random.Random, place: World, files: list[BinaryIO]) -> Callable[[], None]:
    """Return something that another program does meanwhile; it destroys nothing itself."""
    things = [p for p in (*place.cache.rglob("*"), *place.models.rglob("*")) if not p.is_symlink()]
    chosen = random.choice(things)
    aside = place.root / "aside"

    def open_it() -> None:
        if chosen.is_file():
            files.append(chosen.open("rb"))

    def swap() -> None:
        chosen.rename(aside / f"{random.random()}")
        chosen.symlink_to("/etc")

    def replace() -> None:
        chosen.rename(aside / f"{random.random()}")
        chosen.mkdir()
        (chosen / "new").write_text("new")

    def come_back() -> None:
        chosen.mkdir(parents=True, exist_ok=True)

    def grow_it() -> None:
        if chosen.is_dir():
            (chosen / f"new {random.random()}").write_text("new")

    act = random.choice([open_it, swap, replace, come_back, grow_it])

    def now() -> None:
        try:
            act()
        except OSError:
            pass  # It is gone, or another race came first.

    return now


def all_bytes(*folders: Path) -> Counter[object]:
    """Return every regular file by inode and content."""
    inodes = {
        entry[1]: entry[0] for entry in contents(*folders).values() if isinstance(entry[0], bytes)
    }  # type: ignore[index]
    return Counter((inode, content) for inode, content in inodes.items())


@contextmanager
def meanwhile(
    random: random.Random, races: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Run some races right before a rename, the others at any moment in a thread."""
    early, late = races[::2], races[1::2]
    move_item = moving.move_item

    def later(item: moving.TrashItem) -> None:
        if early:
            early.pop()()
        move_item(item)

    monkeypatch.setattr(moving, "move_item", later)
    thread = threading.Thread(target=lambda: [do() for do in late])
    thread.start()
    yield
    thread.join()
    monkeypatch.undo()


def test_nothing_is_lost_whatever_happens_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = stayed = 0
    for seed in range(TREES):
        draw = random.Random(seed)
        base = tmp_path / f"{seed}"
        with monkeypatch.context() as patch:
            patch.setenv("XDG_DATA_HOME", str(base / "data"))
            patch.setenv("GPUDECK_HOME", str(base / "home"))
            place = world(base / "world")
            (base / "data").mkdir()
            (place.root / "aside").mkdir()
            for i in range(draw.randint(1, 6)):
                grow(draw, place.cache / f"kernel {i}")
            grow(draw, place.models)
            for folder in (place.cache, place.models):
                aged(folder, 400)
            before, everything = contents(place.root), all_bytes(place.root)
            finds = found(place)
            files: list[BinaryIO] = []
            races = [race(draw, place, files) for _ in range(draw.choice([0, 1, 3, 8]))]
            with meanwhile(draw, races, monkeypatch):
                receipt = move(place.scope, finds)
            moved, stayed = moved + len(receipt.items), stayed + len(receipt.left)
            assert everything <= all_bytes(base), (
                f"tree {seed}: something is neither left nor in the trash"
            )
            if not races:
                assert receipt.left == ()
            gone = {entry[1] for entry in contents(base / "data").values()}  # type: ignore[index]
            if not any("in the trash all the same" in str(left.why) for left in receipt.left):
                assert gone.isdisjoint(os.fstat(file.fileno()).st_ino for file in files), (
                    f"tree {seed}: something open was taken"
                )
            for file in files:
                file.close()
            undo_all()
            assert everything <= all_bytes(base), f"tree {seed}: undo lost something"
            if not races:
                assert contents(place.root) == before, f"tree {seed}: not as before"
                assert list((base / "data").rglob("files/*")) == []
            empty()
    assert moved > TREES, "much was moved"
    assert stayed > TREES / 5, "and much was kept back"


def undo_all() -> None:
    """Undo everything, after moving away what a race put in the place of an item."""
    for receipt in receipts():
        for left in undo(receipt).left:
            assert (
                "in its place" in str(left.why)
                or "folder no longer exists" in str(left.why)
                or "Not a directory" in str(left.why)
            ), left
