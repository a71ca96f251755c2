"""Find attention in code, show and prove what would change, change it, and undo it."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gpudeck.accel.inject import journal
from gpudeck.accel.inject import prove as proving
from gpudeck.accel.inject.finding import Finding
from gpudeck.accel.inject.journal import Refused
from gpudeck.accel.inject.rewrite import Change, changes
from gpudeck.accel.inject.scan import libraries, scan
from gpudeck.app.cli.connection import daemon_status
from gpudeck.app.cli.output import (
    UsageError,
    confirm,
    print_json,
    print_line,
    print_result,
    print_table,
    require_terminal,
)
from gpudeck.app.code.linking import Applied, Connect, apply_change, describe, prove_change
from gpudeck.app.code.rows import speedup_of
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound

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
        "--device",
        choices=proving.DEVICES,
        default="cpu",
        help="device on which the proof runs (default: cpu)",
    )
    parser.add_argument(
        "--unproved",
        action="store_true",
        help="also apply changes that could not be proved because their code could not be run",
    )


def run(args: Namespace) -> int | None:
    """Carry out the action that the arguments name."""
    for path in args.paths:
        if not os.path.lexists(path):
            raise NotFound(phrase("there is no file or folder {path}", path=str(path)))
    actions: dict[str, Callable[[Namespace], int | None]] = {
        "scan": _scan, "diff": _diff, "prove": _prove, "apply": _apply, "undo": _undo,
    }  # fmt: skip
    return actions[args.action](args)


def _scan(args: Namespace) -> None:
    found = scan(args.paths)
    if args.json:
        print_json(found)
        return
    _print_findings(found, args.paths)
    linked = sum(f.action == "link" for f in found)
    if linked:
        known = sum(bool(f.form) for f in found)
        print_line(f"{linked} of {known} can be linked. To see how: gpudeck inject diff PATH")
    if changed := len(_changed_below(args.paths)):
        what = "1 file is" if changed == 1 else f"{changed} files are"
        print_line(f"{what} linked already. To undo that: gpudeck inject undo PATH")


def _print_findings(found: Sequence[Finding], paths: Sequence[str]) -> None:
    if not found:
        print_line("There is no attention in it.")
        if names := libraries(paths):
            verb = "has" if len(names) == 1 else "have"
            print_line(
                f"It imports {' and '.join(names)}, which {verb} attention of their own. To run"
                " ours under it, call this before the model is made: from gpudeck import accel;"
                " accel.install()"
            )
        return
    rows = [(f"{f.file}:{f.line}", f.action, speedup_of(f), f"{f.form}: {f.reason}" if f.form
             else str(f.reason)) for f in found]  # fmt: skip
    print_table([("WHERE", "ACTION", "PREDICTED", "WHAT AND WHY"), *rows])
    for prediction in dict.fromkeys(str(f.speedup.text) for f in found if f.speedup):
        print_line(f"{capitalized(prediction)}.")


def _diff(args: Namespace) -> None:
    made, found = changes(args.paths)
    if args.json:
        print_json([{"file": str(c.path), "diff": c.diff()} for c in made])
        return
    for each in made:
        for line in each.diff().splitlines():
            print_line(line)
    if not made:
        _print_findings([f for f in found if f.action == "leave"], args.paths)


def _prove(args: Namespace) -> int:
    made, _ = changes(args.paths)
    if not _agree(args, made):
        return 0
    proofs = [proof for each in made for proof in prove_change(each, _connect(), args.device)]
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
    require_terminal(phrase("Nothing was run."))
    return confirm("Run it?")


def _connect() -> Connect | None:
    """Return what connects to the daemon, if it runs."""
    return partial(Client, start=False) if daemon_status().running else None


def _apply(args: Namespace) -> int:
    made, found = changes(args.paths)
    if not _agree(args, made):
        return 0
    results: list[Applied] = []
    try:
        for each in made:
            results.append(
                apply_change(each, _connect(), unproved=args.unproved, device=args.device)
            )
    finally:  # also where a later file or a person stops it
        print_result(args, results, *_told(results, found))
    return int(any(not result.linked for result in results))


def _told(results: Sequence[Applied], found: Sequence[Finding]) -> list[str]:
    """Return in lines what was changed, and what was left."""
    rows = [line for result in results for line in _described(result)]
    left = [f for f in found if f.action == "leave"]
    if not any(f.action == "link" for f in found):
        return [f"{f.file}:{f.line} left: {f.reason}" for f in left] or ["nothing to link"]
    if left:
        rows.append(f"{len(left)} left alone. To see why: gpudeck inject scan PATH")
    return rows


def _described(result: Applied) -> list[str]:
    undo = f". To undo it: gpudeck inject undo {result.file}" if result.linked else ""
    return [f"{result.file}: {result.result}{undo}", *result.left]


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
