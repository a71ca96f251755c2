"""Torture what changes people's files: inject and clean are killed, and their disk becomes full.

    sudo python -m tests.integration.torture.changed_files [--faults 400] [--seed 4]

Each round lets one process change or restore Python files, or move files to the trash or back. One
fault strikes it at a random moment. Afterwards undo must give every file its bytes back, with what
somebody else has written to it meanwhile, and nothing of ours may be left. Only root can mount the
small disk that becomes full.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from gpudeck.accel.inject import journal
from gpudeck.accel.inject.refused import Refused
from gpudeck.assistant.housekeeping import receipts, undo
from gpudeck.assistant.housekeeping.moving import move
from gpudeck.scheduler.protocol.errors import UserError
from tests.unit.assistant.debris import World, contents, found, kernel, world

DISK = 2**21
"""Bytes of the disk that becomes full."""
LONGEST_S = 0.008
"""Most of the operations take less; a later kill meets nobody."""
ORIGINAL = b"".join(b"line %d\n" % number for number in range(200))
LINKED = b"import gpudeck.accel\n" + ORIGINAL.replace(b"line 7\n", b"linked 7\n")
RELINKED = LINKED.replace(b"line 90\n", b"linked 90\n")
EDIT = b"# somebody's own line\n"


class Torture:
    """Run rounds in one folder, and note what was violated."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.source = folder / "project" / "model.py"
        self.source.parent.mkdir()
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []

    def round(self) -> None:
        """Strike one operation, undo it, and compare."""
        name, operate = self.draw.choice((("inject", self.inject), ("clean", self.clean)))
        fault = self.draw.choice(("killed", "the disk full", "killed on a full disk"))
        try:
            operate(fault)
        except (AssertionError, UserError, Refused, OSError) as e:
            self.violations.append(f"{name}, {fault}, round {self.faults.total()}: {e!r}")
        self.faults[f"{name}: {fault}"] += 1

    def inject(self, fault: str) -> None:
        """Strike an application, a second one or an undo; an editor may save the file then."""
        self.source.write_bytes(ORIGINAL)
        action = self.draw.choice(("apply", "apply again", "undo"))
        if action != "apply":
            journal.apply(self.source, ORIGINAL, LINKED)
        operations: dict[str, Callable[[], object]] = {
            "apply": lambda: journal.apply(self.source, ORIGINAL, LINKED),
            "apply again": lambda: journal.apply(self.source, LINKED, RELINKED),
            "undo": lambda: journal.undo(self.source),
        }
        self.strike(operations[action], fault)
        now, wanted = self.source.read_bytes(), ORIGINAL
        assert now in (ORIGINAL, LINKED, RELINKED), f"{action} left {now[:60]!r}"
        if self.draw.random() < 0.5:
            self.source.write_bytes(now + EDIT)
            wanted += EDIT
        if journal.record(self.source) is not None:
            journal.undo(self.source)
        assert self.source.read_bytes() == wanted, f"undo after {action} lost bytes"
        journal.apply(self.source, wanted, LINKED)  # the next change takes away what a kill left
        journal.undo(self.source)
        assert journal.changed_files() == [], "a record was left"
        assert list(self.source.parent.iterdir()) == [self.source], "a new file was left"

    def clean(self, fault: str) -> None:
        """Strike a move to the trash or an undo."""
        place = world(self.folder / "debris")
        for number in range(6):
            kernel(place, f"kernel {number}")
        before, finds = contents(place.root), found(place)
        assert len(finds) == 6
        if self.draw.random() < 0.5:
            self.strike(lambda: move(place.scope, finds), fault)
        else:
            receipt = move(place.scope, finds)
            self.strike(lambda: undo(receipt), fault)
        for receipt in receipts():
            assert undo(receipt).left == (), "something was not put back"
        self.compare(before, place)
        shutil.rmtree(place.root)

    def compare(self, before: dict[str, object], place: World) -> None:
        """Check that every file is back and none is in the trash."""
        assert contents(place.root) == before, "files differ after undo"
        trashed = self.folder / "data" / "Trash" / "files"
        assert not trashed.exists() or not any(trashed.iterdir()), "files stay in the trash"

    def strike(self, operate: Callable[[], object], fault: str) -> None:
        """Run an operation in a process of its own while a fault strikes."""
        filled = contextlib.nullcontext() if fault == "killed" else self.full()
        with filled:
            if not (pid := os.fork()):
                status = 1
                try:
                    with contextlib.suppress(UserError, Refused, OSError):
                        operate()
                    status = 0
                finally:
                    os._exit(status)
            if "killed" in fault:
                time.sleep(self.draw.random() * LONGEST_S)
                os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, -signal.SIGKILL)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave a few bytes on the disk, or none."""
        ballast = self.folder / "ballast"
        left = self.draw.choice((0, 4096, 8192, 16384, 32768))
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)) == 4096:
                pass
        os.truncate(ballast, max(ballast.stat().st_size - left, 0))
        try:
            yield
        finally:
            ballast.unlink()


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a disk of a few MiB, with the state folder and the trash on it."""
    folder = Path(tempfile.mkdtemp(prefix="gpudeck-changed-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
    os.environ |= {"GPUDECK_HOME": str(folder / "home"), "XDG_DATA_HOME": str(folder / "data")}
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def torture(seed: int, faults: int) -> Torture:
    """Run so many rounds."""
    with small_disk() as folder:
        run = Torture(folder, seed)
        for _ in range(faults):
            run.round()
        return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=400)
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    run = torture(arguments.seed, arguments.faults)
    for name, count in sorted(run.faults.items()):
        print(f"{count:6} {name}")
    print("\n".join(run.violations) or f"{run.faults.total()} faults, every file restored")
    return bool(run.violations)


if __name__ == "__main__":
    sys.exit(main())
