"""Find attention in code, show and prove what would change, change it, and undo it."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from accel.inject import journal
from accel.inject import prove as proving
from accel.inject.finding import Finding
from accel.inject.journal import Refused
from accel.inject.prove import Proof
from accel.inject.rewrite import Change, change, changes
from accel.inject.scan import scan
from app.cli.connection import daemon_status
from app.cli.output import UsageError, confirm, print_json, print_line, print_result, print_table
from app.format.values import memory
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, NotFound

MAX_LOG = 16 * 2**20
ACTIONS = ("scan", "diff", "prove", "apply", "undo")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the files and folders, and what is asked."""
    parser.add_argument(
        "action", choices=ACTIONS, metavar="ACTION",
        help="scan: list attention; diff: show what would change; prove: run the code before and "
        "after the change and compare; apply: prove and change; undo: restore",
    )  # fmt: skip
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a Python file, a notebook or a folder"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--device", choices=proving.DEVICES, default="cpu", help="where to prove: cpu, or cuda"
    )
    parser.add_argument(
        "--unproved", action="store_true", help="apply also what could not be run to prove it"
    )


def run(args: Namespace) -> int:
    """Carry out the action that the arguments name."""
    for path in args.paths:
        if not Path(path).exists() and not Path(path).is_symlink():
            raise NotFound(f"there is no file or folder {path}")
    return {"scan": _scan, "diff": _diff, "prove": _prove, "apply": _apply, "undo": _undo}[
        args.action
    ](args)


def _scan(args: Namespace) -> int:
    found = scan(args.paths)
    if args.json:
        print_json(found)
        return 0
    _print_findings(found)
    linked = sum(f.action == "link" for f in found)
    if linked:
        print_line(f"{linked} of {len(found)} can be linked. To see how: gpudeck inject diff PATH")
    return 0


def _print_findings(found: Sequence[Finding]) -> None:
    if not found:
        print_line("There is no attention in it.")
        return
    rows = [(f"{f.file}:{f.line}", f.action, f"{f.form}: {f.reason}" if f.form else f.reason)
            for f in found]  # fmt: skip
    print_table([("WHERE", "ACTION", "WHAT AND WHY"), *rows])


def _diff(args: Namespace) -> int:
    made, found = changes(args.paths)
    if args.json:
        print_json([{"file": str(c.path), "diff": c.diff()} for c in made])
        return 0
    for each in made:
        for line in each.diff().splitlines():
            print_line(line)
    if not made:
        _print_findings([f for f in found if f.action == "leave"])
    return 0


def _prove(args: Namespace) -> int:
    made, _ = changes(args.paths)
    if not _agree(args, made):
        return 0
    proofs = [proof for each in made for proof in prove_change(each, args.device)]
    if args.json:
        print_json(proofs)
    else:
        for proof in proofs:
            print_line(describe(proof))
        if not made:
            print_line("There is nothing to link, so nothing was run.")
    return int(any(not proof.proved for proof in proofs))


def _agree(args: Namespace, made: Sequence[Change]) -> bool:
    """Say that code will be run, and ask."""
    if not made or args.yes:
        return True
    if args.json:
        raise UsageError("--json does not ask for confirmation. If you are sure, add --yes")
    print_line(f"To prove it, code of {len(made)} of these files is run, with limits.")
    if not sys.stdin.isatty():
        print_line("Nothing was run. There is no terminal to ask on. If you are sure, add --yes.")
        return False
    return confirm("Run it?")


def prove_change(each: Change, device: str = "cpu") -> list[Proof]:
    """Prove a change, as a job if the daemon runs, else in a process with limits of its own."""
    proofs = _in_job(each.path, device) if daemon_status().running else None
    if proofs is None:
        proofs = proving.prove(each.path, device=device)
    missing = {site.finding.line for site in each.linked} - {proof.line for proof in proofs}
    ended = "not run: the process that proves it ended early"
    return [*proofs, *(Proof(str(each.path), line, ended) for line in sorted(missing))]


def _in_job(path: Path, device: str) -> list[Proof] | None:
    """Prove a file in a job; None if the daemon ends meanwhile, or the queue does not start it."""
    try:
        with Client(start=False) as client:
            job = client.submit(
                proving.command(path.resolve(), device), name=f"prove {path.name}",
                cwd=path.resolve().parent, timeout=proving.TIMEOUT_S,
                gpus=int(device == "cuda"),
            )  # fmt: skip
            end = time.monotonic() + proving.TIMEOUT_S
            try:
                job.wait(timeout=max(1.0, end - time.monotonic()))
            except TimeoutError:
                job.cancel()
                return None
            return proving.decode(job.log(limit=MAX_LOG))
    except DaemonGone:
        return None


def describe(proof: Proof) -> str:
    """Return a proof in one line."""
    where = f"{proof.file}:{proof.line}: {proof.verdict}"
    linked = [t for t in proof.trials if t.linked]
    if not linked:
        return where
    worst = max(linked, key=lambda t: t.error_after)
    slow = max(linked, key=lambda t: t.ms_before)
    return (
        f"{where} by {len(linked)} comparisons of {proof.ran}, forward and backward; largest error"
        f" {worst.error_after:.1e}, before {worst.error_before:.1e}; kept for the backward pass"
        f" {memory(slow.kept_after)}, before {memory(slow.kept_before)}; at most"
        f" {slow.ms_after:.3g} ms, before {slow.ms_before:.3g} ms"
    )


def _apply(args: Namespace) -> int:
    made, found = changes(args.paths)
    if not _agree(args, made):
        return 0
    results: list[dict[str, Any]] = []
    for each in made:
        results.append(apply_change(each, unproved=args.unproved, device=args.device))
    rows = [line for result in results for line in result["lines"]]
    if not made:
        left = [f for f in found if f.action == "leave"]
        rows = [f"{f.file}:{f.line} left: {f.reason}" for f in left] or ["nothing to link"]
    shown = [{k: v for k, v in result.items() if k != "lines"} for result in results]
    print_result(args, shown, *rows)
    return int(any(not result["linked"] for result in results))


def apply_change(each: Change, *, unproved: bool = False, device: str = "cpu") -> dict[str, Any]:
    """Prove a change and apply what was proved; return what was linked and what was left."""
    path = str(each.path)
    try:
        journal.check(each.path)
    except Refused as e:
        return _applied(path, [], [], f"not changed: {e}")
    proofs = prove_change(each, device)
    good = {p.line for p in proofs if p.proved or (unproved and p.verdict.startswith("not run"))}
    sites = [s for s in each.sites if s.finding.line in good and s.edits]
    if not sites:
        return _applied(path, [], proofs, "not changed: nothing was proved")
    try:
        journal.apply(each.path, each.before, change(each.module, sites).after)
    except Refused as e:
        return _applied(path, [], proofs, f"not changed: {e}")
    return _applied(path, sorted(good), proofs, f"linked {len(sites)}")


def _applied(path: str, lines: list[int], proofs: list[Proof], words: str) -> dict[str, Any]:
    left = [describe(p) for p in proofs if p.line not in lines]
    return {
        "file": path, "linked": lines, "result": words, "proofs": msgspec.to_builtins(proofs),
        "lines": [f"{path}: {words}. To undo it: gpudeck inject undo {path}" if lines
                  else f"{path}: {words}", *left],
    }  # fmt: skip


def _undo(args: Namespace) -> int:
    results = []
    for path in _changed_below(args.paths):
        try:
            results.append({"file": str(path), "undone": True, "result": journal.undo(path)})
        except Refused as e:
            results.append({"file": str(path), "undone": False, "result": f"left as it is: {e}"})
    lines = [f"{r['file']}: {r['result']}" for r in results]
    print_result(args, results, *(lines or ["Nothing in it is linked."]))
    return int(any(not r["undone"] for r in results))


def _changed_below(paths: Sequence[str]) -> list[Path]:
    """Return the changed files among paths and below folders."""
    given = [Path(path).absolute() for path in paths]
    return [f for f in journal.changed_files() if any(f == g or g in f.parents for g in given)]
