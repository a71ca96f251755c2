"""Our kernels under NVIDIA's compute-sanitizer: out-of-bounds and misaligned accesses
(memcheck), races in shared memory (racecheck). On a machine with a GPU and the CUDA toolkit:

    python -m tests.gpu.sanitize [--tools memcheck,racecheck] [--workers 5] [--limit 90] [--only TEXT]

The calls are those of `tests.gpu.sanitized` and `tests.gpu.sanitized_primitives`. Each worker takes
a share of them, in three processes: one compiles and runs a call, and then one with each tool runs
it again, which takes the compiled kernels from Triton's cache. Compile them before (`--tools ""`)
where time is short: on an H200 that took most of two minutes. The calls whose verdicts in
results/sanitizer.csv are oldest come first. OUT/sanitizer.csv has a row for each call and tool,
written as soon as it is known; one that did not end within the limit has the verdict `not
finished`, which is a failure. `--take FILE` puts the rows of calls that ended in the place of older
ones in the results.

The race checker knows nothing of hand-overs between warps of several kinds: it calls those of a
minimal kernel races, too (`tests.gpu.handover`), and those within cuDNN's own attention. So what it
reports is told apart by the lines of the source that write and read: `entry`, where Triton's code
sends warps to their parts of the kernel; `hand-over`, a word that an mbarrier guards, in the
functions named in HAND_OVERS; anything else is a failure, but in the minimal kernel, which shows
what the tool reports of every hand-over. That the barriers are right is shown by
`make emulation`, which runs the same source under every order of events that it draws, and finds
the defects that are planted.
"""  # noqa: E501

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import torch

from gpudeck.accel.attention.kernels import hopper
from gpudeck.accel.primitives.gemm import hopper_kernels
from tests.benchmarks.rows import RESULTS, context, merge, read
from tests.gpu import handover
from tests.gpu.sanitized import CASES, launches, run
from tests.gpu.sanitized_primitives import CALLS

SEPARATOR = ";"
"""Between the names of calls, which may hold commas."""
CONTROL = "control"
"""The minimal kernel, which shows what the race checker says of every hand-over."""
HAND_OVERS = {
    ("_publish", "_field"),
    ("_produce", "_consume"),
    ("_pass_on", "_second"),
    ("publish_claim", "take_claim"),
}
"""Which function writes to shared memory what which other one reads, an mbarrier between them."""
MOST_ERROR = 2e-2
"""A sink's gradient is a small difference: rounded weights and outputs alone make 1.7e-2 of it."""
MOST_ERROR_OF_ROUGH = 8e-2
ROUGH = ("fp8", "linear")
"""Calls in FP8, and of linear attention, whose exactness its own tests show."""
RUNS: dict[str, Callable[[], float]] = {
    CONTROL: handover.run,
    **{name: partial(run, case) for name, case in CASES.items()},
    **CALLS,
}
"""What a call computes, which returns its relative error."""
TOOLS = {
    "memcheck": (),
    "racecheck": ("--racecheck-report", "hazard", "--print-limit", "100000"),
}


def calls(only: str = "") -> list[str]:
    """Return the names of calls, those first whose verdicts are oldest, so that runs which end
    early reach all in the end."""
    found: dict[str, str] = {}
    for row in read(RESULTS / "sanitizer.csv"):
        found[row["call"]] = min(row["date"], found.get(row["call"], row["date"]))
    return sorted((name for name in RUNS if only in name), key=lambda name: found.get(name, ""))


def each(names: Sequence[str], compiled: Path, first: bool) -> None:
    """Run calls and tell what they launched; the first process does so for those that follow.

    Args:
        names: the calls.
        compiled: a folder with a file for each call whose kernels are compiled.
        first: whether this process compiles.
    """
    warnings.simplefilter("ignore")
    # races are told apart by lines, which modules of tests leave out (tests/kernel_code.py)
    os.environ["TRITON_DISABLE_LINE_INFO"] = "0"
    torch.zeros(1, device="cuda")
    counted = launches()
    for name in names:
        done = compiled / name.replace(" ", "_")
        while not first and not done.exists():
            time.sleep(0.2)
        counted.clear()
        print(f"begin {name}", flush=True)
        began = time.monotonic()
        try:
            error = RUNS[name]()
        except Exception as e:  # noqa: BLE001 - one call that fails must not end the others
            print(f"failed {name}: {type(e).__name__}: {e}", flush=True)
            done.touch()
            continue
        kernels = " ".join(f"{kernel}*{n}" for kernel, n in sorted(counted.items()))
        print(f"end {name}: {time.monotonic() - began:.1f} {error:.3g} {kernels}", flush=True)
        done.touch()


_CALL = re.compile(
    r"^begin (?P<name>.+)\n(?P<said>(?:(?!begin |end ).*\n)*)"
    r"(?:end .+: (?P<seconds>\S+) (?P<error>\S+) ?(?P<kernels>.*)$)?",
    re.MULTILINE,
)
_PAIR = re.compile(
    r"(?:Write|Read) Thread .* in (\S+\.py):(\d+)\n.*(?:Write|Read) Thread .* in (\S+\.py):(\d+)"
)
_FAILED = re.compile(r"^failed ", re.M)
_REPORT = re.compile(r"^========= (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)\S.*$", re.M)


def verdicts(tool: str, log: str) -> Iterator[dict[str, object]]:
    """Yield a row for each call that a log tells of."""
    for call in _CALL.finditer(log):
        name, said = call["name"], call["said"]
        failed = _FAILED.search(said)
        reports = Counter(_REPORT.findall(said))
        kinds = Counter(kind_of(*pair) for pair in _PAIR.findall(said))
        explained = sum(
            n for kind, n in kinds.items() if name == CONTROL or not kind.startswith("race")
        )
        errors = reports.total() - explained
        verdict = "failed" if failed else _verdict(name, call["error"], errors)
        yield row_of(tool, name, verdict) | {
            "kernels": call["kernels"] or "",
            "launches": sum(int(k.rpartition("*")[2]) for k in (call["kernels"] or "").split()),
            "errors": errors,
            "entry": kinds["entry"],
            "hand_overs": explained - kinds["entry"],
            "relative_error": call["error"] or "",
            "seconds": call["seconds"] or "",
            "said": "; ".join(_told(said, reports, kinds))[:600],
        }


def row_of(tool: str, call: str, verdict: str) -> dict[str, object]:
    """Return a row of which nothing else is known."""
    unknown = ("kernels", "launches", "errors", "entry", "hand_overs", "relative_error", "seconds")
    return {
        "tool": tool,
        "call": call,
        "verdict": verdict,
        **dict.fromkeys(unknown, ""),
        "said": "",
    }


def _verdict(name: str, error: str | None, errors: int) -> str:
    if error is None:
        return "not finished"
    if errors:
        return "errors"
    return "ok" if float(error) <= most_error(name) else "wrong"


def most_error(name: str) -> float:
    """Return the relative error that a call's answer may have."""
    return MOST_ERROR_OF_ROUGH if name.startswith(ROUGH) else MOST_ERROR


def _told(said: str, reports: Counter[str], kinds: Counter[str]) -> Iterator[str]:
    """Yield what a tool reports, each kind once, and why a call failed."""
    yield from (line for line in said.splitlines() if line.startswith("failed "))
    yield from (f"{n} times {kind}" for kind, n in kinds.most_common())
    if not kinds:
        yield from (f"{n} times {line[10:]}" for line, n in reports.most_common(3))


@cache
def kind_of(file: str, line: str, other_file: str, other_line: str) -> str:
    """Return what two accesses to the same place in shared memory are to each other."""
    first, second = (
        _function(Path(f).name, int(n)) for f, n in ((file, line), (other_file, other_line))
    )
    if "entry" in (first, second):
        return "entry"
    return (
        f"{'hand-over' if (first, second) in HAND_OVERS else 'race'}: {first} ({file}:{line}) and"
        f" {second} ({other_file}:{other_line})"
    )


def _function(name: str, line: int) -> str:
    """Return the function of our kernels at that line; `entry` for the kernels themselves, which
    only set up and send their warps off."""
    ours = (hopper_kernels.__file__, handover.__file__)
    for file in (*Path(hopper.__file__).parent.glob("*.py"), *map(Path, ours)):
        if file.name == name:
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (
                    node.end_lineno or 0
                ):
                    text = ast.unparse(node)
                    return "entry" if "warp_specialize" in text else node.name
    return f"{name}:{line}"


def started(
    tool: str, names: Sequence[str], folder: Path, number: int
) -> tuple[str, Path, subprocess.Popen[bytes]]:
    """Start a process over a share of the calls, without a tool to compile them.

    Returns:
        The tool, the file that the process writes, and the process, the first of its group.
    """
    log = folder / f"{tool or 'compile'}.{number}"
    watched = (sanitizer(), "--tool", tool, *TOOLS[tool]) if tool else ()
    argv = [
        sys.executable,
        "-m",
        "tests.gpu.sanitize",
        "--each",
        SEPARATOR.join(names),
        str(folder),
        tool,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*watched, *argv], stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    return tool, log, process


def sanitizer() -> str:
    """Return the path of compute-sanitizer."""
    found = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if found is None:
        raise SystemExit("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
    return found


def watched(
    names: Sequence[str],
    tools: Sequence[str],
    workers: int,
    limit: float,
    stopped: threading.Event,
) -> Iterator[dict[str, object]]:
    """Yield a row for each call and tool as soon as its verdict is known.

    Args:
        names: the calls.
        tools: those of compute-sanitizer; none to compile only.
        workers: the shares that the calls are cut into.
        limit: seconds for everything.
        stopped: set by somebody who wants the rest to be given up.
    """
    deadline = time.monotonic() + limit
    told: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory() as made:
        running = [
            started(tool, names[number::workers], Path(made), number)
            for number in range(workers)
            for tool in ("", *tools)
        ]
        last = False
        while not last:
            last = (
                stopped.wait(0.5)
                or time.monotonic() > deadline
                or all(process.poll() is not None for _, _, process in running)
            )
            for row in _known(running):
                call = str(row["tool"]), str(row["call"])
                if call not in told and (last or row["verdict"] != "not finished"):
                    told.add(call)
                    yield row
        for _, _, process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    for tool in tools:
        for name in names:
            if (tool, name) not in told:
                yield row_of(tool, name, "not begun")


def _known(
    running: Sequence[tuple[str, Path, subprocess.Popen[bytes]]],
) -> Iterator[dict[str, object]]:
    for tool, log, _ in running:
        yield from verdicts(tool or "none", log.read_text(errors="replace"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", default=",".join(TOOLS), help="empty: compile only")
    parser.add_argument("--only", default="", help="calls whose name contains this")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for everything")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--take", type=Path, metavar="FILE", help="rows of another machine")
    parser.add_argument("--each", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.each:
        names, folder, tool = options.each
        each(names.split(SEPARATOR), Path(folder), first=not tool)
        return 0
    if options.take:
        ended = [
            row
            for row in read(options.take)
            if row["tool"] in TOOLS and not row["verdict"].startswith("not ")
        ]
        merge("sanitizer", ended, ("tool", "call"), options.out)
        return 0
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    tools = [tool for tool in options.tools.split(",") if tool]
    where = context(torch.cuda.get_device_name(), ("torch", "triton"))
    where["versions"] += f" compute-sanitizer={_version()}"
    rows: list[dict[str, object]] = []
    for row in watched(calls(options.only), tools, options.workers, options.limit, stopped):
        rows.append(row | where)
        merge("sanitizer", rows[-1:], ("tool", "call"), options.out)
        print(
            *(row[n] for n in ("verdict", "tool", "call", "kernels", "said")), sep="; ", flush=True
        )
    fine = sum(row["verdict"] == "ok" for row in rows)
    print(f"{fine} of {len(rows)} are well")
    return 0 if fine == len(rows) else 1


def _version() -> str:
    said = subprocess.run([sanitizer(), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"Version (\S+)", said.stdout)
    return found[1] if found else "unknown"


if __name__ == "__main__":
    sys.exit(main())
