"""Prove, apply and undo changes of people's code, for the command and the page. Free of Qt."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from gpudeck.accel.inject import journal
from gpudeck.accel.inject import prove as proving
from gpudeck.accel.inject.journal import Refused
from gpudeck.accel.inject.prove import Proof
from gpudeck.accel.inject.rewrite import Change, change
from gpudeck.app.code.proof_marks import milliseconds
from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError

MAX_LOG = 16 * 2**20
_NO_GPU = tr_noop(
    "no GPU was free in time to prove it there. Try again later, or prove it on the CPU"
)
Connect = Callable[[], AbstractContextManager[Client]]


class Applied(msgspec.Struct, frozen=True):
    """Describe what was done to one file."""

    file: str
    linked: tuple[int, ...]
    """The lines of the attentions that were linked."""
    result: Text
    """What was done."""
    proofs: tuple[Proof, ...] = ()

    @property
    def left(self) -> list[str]:
        """Return in words what was not linked."""
        return [describe(p) for p in self.proofs if p.line not in self.linked]


def prove_change(
    each: Change, connect: Connect | None = None, device: str = "cpu"
) -> tuple[Proof, ...]:
    """Prove a change, as a job of the daemon, else in a process with limits of its own.

    Args:
        connect: opens a connection to the daemon; None if it does not run.
    """
    proofs = _in_job(each.path, connect, device) if connect is not None else None
    if proofs is None:
        proofs = proving.prove(each.path, device=device)
    missing = {site.finding.line for site in each.linked} - {proof.line for proof in proofs}
    ended = phrase("the process that proves it ended early")
    return (*proofs, *(proving.not_run(str(each.path), line, ended) for line in sorted(missing)))


def _in_job(path: Path, connect: Connect, device: str) -> list[Proof] | None:
    """Prove a file in a job; None if the daemon ends meanwhile, or the queue does not start it.

    Raises UserError if no GPU was free in time: the queue is not passed by.
    """
    try:
        with connect() as client:
            job = client.submit(
                proving.command(path.resolve(), device), name=f"prove {path.name}",
                cwd=path.resolve().parent, timeout=proving.TIMEOUT_S,
                gpus=int(device == "cuda"),
            )  # fmt: skip
            end = time.monotonic() + proving.TIMEOUT_S
            try:
                job.wait(timeout=max(1.0, end - time.monotonic()))
            except TimeoutError as e:
                job.cancel()
                if device == "cuda":
                    raise UserError(tr(_NO_GPU)) from e
                return None
            return proving.decode(job.log(limit=MAX_LOG))
    except DaemonGone:
        return None


def apply_change(
    each: Change, connect: Connect | None = None, *, unproved: bool = False, device: str = "cpu"
) -> Applied:
    """Prove a change and apply what was proved."""
    path = str(each.path)
    try:
        journal.check(each.path)
    except Refused as e:
        return _unchanged(path, e.why)
    proofs = prove_change(each, connect, device)
    good = {p.line for p in proofs if p.proved or (unproved and p.outcome == "not run")}
    sites = [s for s in each.sites if s.finding.line in good and s.edits]
    if not sites:
        return _unchanged(path, phrase("nothing was proved"), proofs)
    try:
        journal.apply(each.path, each.before, change(each.module, sites).after)
    except Refused as e:
        return _unchanged(path, e.why, proofs)
    return Applied(path, tuple(sorted(good)), phrase("linked {n}", n=len(sites)), proofs)


def _unchanged(path: str, why: Text, proofs: tuple[Proof, ...] = ()) -> Applied:
    return Applied(path, (), phrase("not changed: {why}", why=why), proofs)


def describe(proof: Proof) -> str:
    """Return a proof in one line."""
    where = f"{proof.file}:{proof.line}: {tr_text(proof.verdict)}"
    linked = [t for t in proof.trials if t.linked]
    if not linked:
        return where
    worst = max(linked, key=lambda t: t.error_after)
    slow = max(linked, key=lambda t: t.ms_before)
    text = tr(
        "{where} by {n} comparisons of {ran}, forward and backward; largest error {error}, before"
        " {error_before}; kept for the backward pass {kept}, before {kept_before}; at most {time},"
        " before {time_before}",
        where=where,
        n=len(linked),
        ran=tr_text(proof.ran),
        error=f"{worst.error_after:.1e}",
        error_before=f"{worst.error_before:.1e}",
        kept=memory(slow.kept_after),
        kept_before=memory(slow.kept_before),
        time=milliseconds(slow.ms_after),
        time_before=milliseconds(slow.ms_before),
    )
    if proof.device == "cpu":
        text = tr("{text} on the CPU, whose times say little", text=text)
    elif proof.device == "cuda":
        text = tr("{text} on the GPU", text=text)
    return f"{text}; {tr_text(proof.speedup.text)}" if proof.speedup else text
