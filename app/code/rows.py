"""Word what a scan found, and lay a change out side by side. Free of Qt."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal, NamedTuple

from gpudeck.accel.inject.finding import Finding
from gpudeck.accel.inject.prove import Proof
from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_noop, tr_text
from gpudeck.language.text import phrase

UNKNOWN = tr_noop(
    "the speed-up is unknown: the file does not name the sizes, nothing like them was measured, or"
    " they are so small that a GPU computes it as written"
)
CONTEXT = 3
"""Unchanged lines that are shown around each change."""


_ACTIONS = {"link": tr_noop("link"), "leave": tr_noop("leave")}


class FindingRow(NamedTuple):
    """Show one attention in the list."""

    finding: Finding
    root: str
    """The folder that was opened."""
    linked: bool = False
    """It stands for a file that is changed by us already."""

    @property
    def key(self) -> object:
        return self.finding.file, self.finding.line, self.linked

    @property
    def cells(self) -> tuple[str, ...]:
        f = self.finding
        if self.linked:
            return self.where, tr("linked"), tr_text(f.form), "-", "-", "-"
        where = f"{self.where}:{f.line}"
        action = tr(_ACTIONS[f.action])
        return where, action, tr_text(f.form or f.reason), speedup_of(f), gain_of(f), risk_of(f)

    @property
    def tooltip(self) -> str:
        return f"{tr_text(self.finding.form)}\n{self.why}".strip()

    @property
    def why(self) -> str:
        """Return what would run instead and how fast, or why it is left alone."""
        f = self.finding
        if f.action == "leave" or self.linked:
            return tr_text(f.reason)
        speed = tr_text(f.speedup.text) if f.speedup else tr(UNKNOWN)
        return tr("{what}; {rest}", what=tr_text(f.reason), rest=speed)

    @property
    def where(self) -> str:
        """Return the file as seen from the folder that was opened."""
        path, root = Path(self.finding.file), Path(self.root)
        return str(path.relative_to(root)) if root in path.parents else path.name


def linked_row(path: str, root: str) -> FindingRow:
    """Return the row of a file that is changed by us already."""
    form = phrase("its attention is linked")
    undo = phrase(
        "It is linked already. Undo restores the file, and keeps later edits of other lines."
    )
    return FindingRow(Finding(path, 0, "link", form, undo), root, True)


def gain_of(f: Finding) -> str:
    """Return what linking saves, in a few words."""
    if f.action == "leave":
        return "-"
    if f.saved is not None:
        return tr_text(phrase("{amount} a sequence", amount=f.saved))
    if f.kind == "by hand":
        return tr("memory of queries x keys")
    return tr("the fastest measured kernel")


def speedup_of(f: Finding) -> str:
    """Return the speed-up that linking is predicted to bring, forward and backward."""
    if f.action == "leave":
        return "-"
    if f.speedup is None:
        return tr("unknown")
    times = tr_decimal(f"{f.speedup.training:.2g}x")
    return tr("{times} on {gpu}", times=times, gpu=f.speedup.gpu.removeprefix("NVIDIA "))


def proved(proofs: Sequence[Proof]) -> str:
    """Return in words how many proofs succeeded, and where they ran."""
    on = {proof.device for proof in proofs}
    good, total = sum(p.proved for p in proofs), len(proofs)
    if on == {"cuda"}:
        return tr("{n} of {total} proved on the GPU", n=good, total=total)
    if on == {"cpu"}:
        return tr("{n} of {total} proved on the CPU", n=good, total=total)
    return tr("{n} of {total} proved", n=good, total=total)


def risk_of(f: Finding) -> str:
    """Return what may limit the gain, in a few words."""
    if f.action == "leave":
        return tr_text(f.reason)
    if "dropout" in f.steps:
        return tr("while dropout is active, nothing changes")
    if not {"bias", "mask"}.isdisjoint(f.steps):
        return tr("masks other than causal are slower")
    return tr("rounding only")


class Line(NamedTuple):
    """Show one line of a file before and after; numbers are 0 where there is none."""

    kind: Literal["same", "changed", "gap"]
    left_number: int = 0
    left: str = ""
    right_number: int = 0
    right: str = ""


def side_by_side(before: str, after: str) -> list[Line]:
    """Return the changed lines with those around them, the old beside the new ones."""
    old, new = before.splitlines(), after.splitlines()
    lines: list[Line] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        if lines:
            lines.append(Line("gap"))
        for tag, first, last, a, b in group:
            for at in range(max(last - first, b - a)):
                i, j = first + at, a + at
                lines.append(
                    Line(
                        "same" if tag == "equal" else "changed",
                        i + 1 if i < last else 0, old[i] if i < last else "",
                        j + 1 if j < b else 0, new[j] if j < b else "",
                    )
                )  # fmt: skip
    return lines


def summary(found: tuple[Finding, ...], linked: int) -> str:
    """Return in one line what a scan found."""
    if not found:
        return tr("There is no attention in it.")
    can = sum(f.action == "link" for f in found)
    text = tr_count(
        "{n} attention found, {can} can be linked",
        "{n} attentions found, {can} can be linked",
        len(found),
        can=can,
    )
    if not linked:
        return text
    files = tr_count("{n} file linked", "{n} files linked", linked)
    return f"{text} · {files}"
