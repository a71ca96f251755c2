"""Judge or search a kernel; list, install and remove kernels that were found."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

from gpudeck.accel.search import installed
from gpudeck.accel.search.code import decode_codes, written
from gpudeck.accel.search.journal import (
    Entry,
    Problem,
    Turns,
    by_speed,
    comparable,
    improvements,
    searches,
    turns_of,
)
from gpudeck.accel.search.verdict import Verdict, decode
from gpudeck.accel.workloads.catalog import SEARCHED, SEARCHED_OURS
from gpudeck.app.cli import arguments
from gpudeck.app.cli.files import read_bytes, write_bytes
from gpudeck.app.cli.output import (
    UsageError,
    print_json,
    print_line,
    print_list,
    print_result,
    print_table,
)
from gpudeck.extras import missing_of
from gpudeck.language.rendering import render
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError

TASKS = (*SEARCHED, *SEARCHED_OURS)
ACTIONS = ("judge", "tune", "list", "install", "remove", "show")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, what it is about, and how a kernel is judged."""
    parser.add_argument(
        "action", choices=ACTIONS, metavar="ACTION",
        help="judge: check and time the kernel in a Python file, whose code is run; tune: search "
        "the constants and launch options that a Python file declares, or those of our kernel for "
        "a task; list: show the kernels that are installed; install: use the kernel of a saved "
        "verdict; remove: use it no longer; show: list the searches of this machine, or all that "
        "one of them tried",
    )  # fmt: skip
    parser.add_argument(
        "target", nargs="?", metavar="TARGET",
        help="judge: a Python file; tune: a Python file or the name of a task; install: a saved "
        "verdict; remove: the name of a kernel; show: the name of a search",
    )  # fmt: skip
    parser.add_argument(
        "--task", choices=TASKS, metavar="TASK",
        help=f"judge: what the kernel must compute: {', '.join(TASKS)}",
    )  # fmt: skip
    parser.add_argument(
        "--entry", default="candidate", help="the function in the file (default: candidate)"
    )
    parser.add_argument(
        "--size", action="append", type=_size, default=[], metavar="NAME=N",
        help="a size of the task that is timed, e.g. rows=4096",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", choices=("float32", "float16", "bfloat16"), default="float32",
        help="data type of the inputs and the result (default: float32)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds",
        type=arguments.positive_seconds,
        default=8.0,
        help="how long it is timed (default: 8)",
    )
    parser.add_argument(
        "--search-seconds", type=arguments.positive_seconds, default=600.0,
        help="tune: how long it is searched, earlier searches included (default: 600)",
    )  # fmt: skip
    parser.add_argument(
        "--install", action="store_true", help="tune: install the winner if it is judged faster"
    )
    parser.add_argument("--seed", type=_seed, help="repeat the verdict with this seed")
    parser.add_argument(
        "--library", action="store_true", help="the kernel may call operators of torch"
    )
    parser.add_argument(
        "--no-compile", action="store_true", help="do not time torch.compile beside it"
    )
    parser.add_argument(
        "--code", action="store_true",
        help="show: also the source and machine code of the winner and of what was tried first",
    )  # fmt: skip
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the verdict to a file")


def run(args: Namespace) -> int | None:
    """Carry out the action that the arguments name."""
    if args.target is None and args.action not in ("list", "show"):
        raise UsageError(f"{args.action} needs a TARGET. See: gpudeck search --help")
    actions: dict[str, Callable[[Namespace], int | None]] = {
        "list": _list, "show": _show, "judge": _judge, "tune": _tune, "install": _install,
        "remove": _remove,
    }  # fmt: skip
    return actions[args.action](args)


def _size(text: str) -> str:
    """Read a size, as argparse does."""
    name, _, number = text.partition("=")
    arguments.positive_count(number)
    return f"{name}={number}"


def _seed(text: str) -> int:
    """Read a seed of torch, as argparse does."""
    if (seed := arguments.count(text)) >= 2**63:
        raise ArgumentTypeError(f"expected a whole number below 2^63; got {text!r}")
    return seed


def _judge(args: Namespace) -> int:
    if args.task is None:
        raise UsageError(f"judge needs --task, one of {', '.join(TASKS)}")
    _check_file(args.target)
    options = [f"--task={args.task}", f"--entry={args.entry}", *_problem(args)]
    options += [] if args.seed is None else [f"--seed={args.seed}"]
    return _run(args, [*options, *["--library"] * args.library], "compute")


def _tune(args: Namespace) -> int:
    if args.target not in TASKS:
        _check_file(args.target)
        if args.size:
            raise UsageError(f"{args.target} declares its sizes itself; --size is for tasks")
    options = [f"--minutes={args.search_seconds / 60}", *_problem(args)]
    return _run(args, [*options, *["--install"] * args.install], "search")


def _check_file(name: str) -> None:
    if not Path(name).is_file():
        raise NotFound(phrase("there is no file {target}", target=name))


def _problem(args: Namespace) -> list[str]:
    """Return the options about what is timed and how long."""
    options = [f"--dtype={args.dtype}", f"--seconds={args.seconds}"]
    options += [f"--size={size}" for size in args.size]
    return options + ["--no-compile"] * args.no_compile


def _run(args: Namespace, options: list[str], extra: str) -> int:
    """Run the search's program on the target; print and save the verdict that it prints."""
    if missing := missing_of(extra):
        raise UserError(missing.text)
    ended = subprocess.run(
        [
            sys.executable, "-P", "-m", "gpudeck.accel.search.program", args.action, args.target,
            *options,
        ],
        capture_output=True, check=False,
    )  # fmt: skip
    if ended.returncode not in (0, 1) or not ended.stdout:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(lines[-1] if lines else phrase("the judge ended without a verdict"))
    record = ended.stdout.strip()
    if args.save:
        write_bytes(args.save, record)
    verdict = decode(record)
    print_result(args, verdict, *_described(verdict))
    return ended.returncode


def _described(verdict: Verdict) -> list[str]:
    lines = [render(verdict.text)]
    lines += [f"  {render(refusal.text)}" for refusal in verdict.refusals[1:]]
    sizes = " ".join(f"{name}={size}" for name, size in verdict.sizes.items())
    if config := (verdict.candidate.options or {}).get("config"):
        lines.append("  " + " ".join(f"{name}={value}" for name, value in config.items()))
    lines.append(f"{verdict.task} {verdict.dtype} {sizes}, {verdict.device}, seed {verdict.seed}")
    if verdict.race:
        for other in verdict.race.denominators:
            what = other.absent or f"{other.microseconds:.1f} µs"
            lines.append(f"  {other.name}: {what}")
    return lines


def _list(args: Namespace) -> None:
    kernels = installed.installed()
    print_list(
        args, kernels, ("KERNEL", "AT LEAST", "TIMES AS FAST AS", "DEVICE"),
        [(k.name, f"{k.speedup:.3f}", k.baseline, k.device) for k in kernels],
        "No kernel is installed. To search one: gpudeck run search task=softmax",
    )  # fmt: skip


def _show(args: Namespace) -> None:
    held = {problem.name: (problem, entries) for problem, entries in searches()}
    if args.target is None:
        print_list(
            args, [problem for problem, _ in held.values()],
            ("SEARCH", "TRIED", "BEST µs", "SECONDS", "GPU"),
            [_overview(name, *found) for name, found in held.items()],
            "Nothing was searched. To search: gpudeck run search task=softmax",
        )  # fmt: skip
        return
    if args.target not in held:
        raise NotFound(
            phrase("no search is called {target}. See: gpudeck search show", target=args.target)
        )
    problem, entries = held[args.target]
    if args.json:
        print_json({"problem": problem, "entries": entries, "turns": turns_of(problem)})
        return
    sizes = " ".join(f"{name}={size}" for name, size in problem.sizes.items())
    print_line(
        f"{problem.task} {problem.dtype} {sizes} on {problem.gpu}, template: {problem.template}"
    )
    print_table([("AFTER s", "BEST µs", "PROPOSED BY", "CONFIGURATION"), *_progress(entries)])
    print_table([("µs", "OUTCOME", "WHY", "CONFIGURATION"), *_variants(entries)])
    if turns := turns_of(problem):
        rows = [(" ".join(f"{us:.1f}" for us in t.microseconds), _written(t)) for t in turns]
        print_table([("AGAIN, IN TURNS, µs", "CONFIGURATION"), *rows])
    if args.code:
        _show_code(problem)


def _show_code(problem: Problem) -> None:
    """Print the code of what was tried first and of the winner."""
    if not problem.code_file.is_file():
        raise NotFound(
            phrase("the code is not known: kernels for GPUs have one once a search has ended")
        )
    codes = decode_codes(read_bytes(problem.code_file))
    for title, config, code in (
        ("TRIED FIRST", codes.first, codes.first_code),
        ("WINNER", codes.winner, codes.winner_code),
    ):
        shown = " ".join(f"{name}={value}" for name, value in config.items())
        print_line(f"{title}: {shown}, compiled for sm_{codes.capability}\n{written(code)}")


def _overview(name: str, problem: Problem, entries: list[Entry]) -> tuple[str, ...]:
    timed = [entry.microseconds for entry in comparable(entries)]
    best = f"{min(timed):.1f}" if timed else ""
    seconds = sum(entry.seconds for entry in entries)
    return name, str(len(entries)), best, f"{seconds:.0f}", problem.gpu


def _progress(entries: list[Entry]) -> list[tuple[str, ...]]:
    """Return a row for each configuration that was the best so far."""
    return [
        (f"{spent:.1f}", f"{entry.microseconds:.1f}", entry.by, _written(entry))
        for spent, entry in improvements(entries)
    ]


def _variants(entries: list[Entry]) -> list[tuple[str, ...]]:
    """Return a row for each configuration, the fastest first, and then those that were refused."""
    return [
        (
            f"{e.microseconds:.1f}" if e.state == "timed" else "",
            e.state,
            str(e.why)[:60],
            _written(e),
        )
        for e in by_speed(entries)
    ]


def _written(entry: Entry | Turns) -> str:
    return " ".join(f"{name}={value}" for name, value in entry.config.items())


def _install(args: Namespace) -> None:
    try:
        verdict = decode(read_bytes(Path(args.target)))
    except MALFORMED as e:
        raise UserError(
            phrase("{target} is no verdict: {error}", target=args.target, error=str(e))
        ) from e
    try:
        kernel = installed.install(verdict)
    except ValueError as e:
        raise UserError(str(e)) from e
    print_result(
        args, kernel, f"{kernel.name} is used. To undo it: gpudeck search remove {kernel.name}"
    )


def _remove(args: Namespace) -> None:
    try:
        kernel = installed.remove(args.target)
    except KeyError as e:
        raise NotFound(
            phrase("no kernel is called {target}. See: gpudeck search list", target=args.target)
        ) from e
    print_result(args, kernel, f"{kernel.name} is no longer used.")
