"""Carry out the requests of the page: scan, prove, apply and undo.

What reads and proves code is imported with the first request, so that the window opens sooner.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Call
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Idle

if TYPE_CHECKING:
    from gpudeck.accel.inject.finding import Finding
    from gpudeck.accel.inject.prove import Proof
    from gpudeck.accel.inject.rewrite import Change
    from gpudeck.app.code.linking import Applied


class ChangedFile(msgspec.Struct, frozen=True):
    """Hold a file before and after its attention is linked."""

    path: str
    before: str
    after: str


class Scanned(msgspec.Struct, frozen=True):
    """Describe what is in a folder."""

    root: str
    found: tuple[Finding, ...]
    files: dict[str, ChangedFile]
    """What would change."""
    linked: dict[str, ChangedFile]
    """What is changed by us already."""


class ScanCode(msgspec.Struct, frozen=True):
    """Find the attention in a file or folder. Nothing of it is run."""

    path: str

    def carry_out(self, call: Call) -> Scanned:
        """Scan, and make the changes of all files without writing them."""
        from gpudeck.accel.inject import journal
        from gpudeck.accel.inject.rewrite import changes

        root = Path(self.path).expanduser().absolute()
        if not root.exists():
            raise UserError(tr("there is no file or folder {path}", path=root))
        made, found = changes([root])
        below = [f for f in journal.changed_files() if f == root or root in f.parents]
        linked = [_linked(file) for file in below]
        files = [ChangedFile(str(c.path), c.text_before, c.text_after) for c in made]
        by_path = ({file.path: file for file in group} for group in (files, linked))
        return Scanned(str(root), tuple(found), *by_path)


class ProveCode(msgspec.Struct, frozen=True):
    """Run the code of one file before and after, and compare. A person has agreed to that."""

    path: str

    def carry_out(self, call: Call) -> tuple[Proof, ...]:
        """Prove the file as a job, on a GPU if one is idle."""
        from gpudeck.app.code.linking import prove_change

        return prove_change(_change(self.path), call.client, _device(call))


class ApplyCode(msgspec.Struct, frozen=True):
    """Prove one file, and change what was proved. A person has agreed to that."""

    path: str

    def carry_out(self, call: Call) -> Applied:
        """Prove the file as ProveCode does, and change it."""
        from gpudeck.app.code.linking import apply_change

        return apply_change(_change(self.path), call.client, device=_device(call))


class UndoCode(msgspec.Struct, frozen=True):
    """Restore one file."""

    path: str

    def carry_out(self, call: Call) -> Text:
        """Restore the file, and return what was restored."""
        from gpudeck.accel.inject import journal
        from gpudeck.accel.inject.journal import Refused

        try:
            return journal.undo(Path(self.path))
        except Refused as e:
            raise UserError(
                phrase("{path} is left as it is: {why}", path=self.path, why=e.why)
            ) from e


def _device(call: Call) -> str:
    """Return `cuda` if a GPU of this machine is idle and free now, else `cpu`."""
    with call.client() as client:
        states = client.snapshot().devices
    free = any(s.device.kind == "nvidia" and isinstance(s.use, Idle) and not s.holders
               for s in states)  # fmt: skip
    return "cuda" if free else "cpu"


def _linked(path: Path) -> ChangedFile:
    """Return a file that is changed by us, before that and as it is now."""
    from gpudeck.accel.inject import journal

    record = journal.record(path)
    before = base64.b64decode(record.before) if record is not None else b""
    texts = (raw.decode(errors="replace") for raw in (before, path.read_bytes()))
    return ChangedFile(str(path), *texts)


def _change(path: str) -> Change:
    from gpudeck.accel.inject.rewrite import changes

    made, _ = changes([path])
    if not made:
        raise UserError(tr("there is nothing to link in {path}", path=path))
    return made[0]
