"""Run flash-attention's own tests of its CuTe kernels with our attention in place of these.

    python -m tests.gpu.flash_attention_suite FOLDER [--count 3000] [--seed 0] [--limit 600]
        [--processes 8] [--out FILE.csv] [--known FILE.csv]

FOLDER is a checkout of github.com/Dao-AILab/flash-attention, of which nothing is installed and
nothing is kept here: its tests/cute/test_flash_attn.py and test_flash_attn_varlen.py run with their
own reference, flash_attn/cute/testing.py, and a module flash_attn.cute.interface whose functions
call `accel.attention`. Of the dense and ragged tests of outputs and gradients as many cases as
asked for are drawn by the seed, and a tenth as many of the other ragged test, beside all cases of
the gradient of lse, of small heads and of empty inputs. Several processes share the cases; those
that run the same kernels are left to one process, so that each kernel is compiled once. A case is
"forward only" where the test itself leaves out the gradients on Hopper. `auto` goes by the shipped
tables: measuring every shape would compile what the fastest backend has no need of. Cases that an
earlier file, --known, holds are not run again.
It needs a CUDA GPU, pytest and einops.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import itertools
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from gpudeck.accel.attention import Ragged, attention
from gpudeck.accel.lessons.store import learning

DRAWN = ("test_flash_attn_output", "test_flash_attn_varlen_output")
RAGGED = "test_varlen"
ALWAYS = (
    "test_flash_attn_lse_grad",
    "test_flash_attn_small_head_dim",
    "test_flash_attn_seqlen_k_zero",
    "test_flash_attn_empty_q_dense",
    "test_flash_attn_empty_q_varlen",
    "test_flash_attn_learnable_sink_backward_dtype",
    "test_flash_attn_varlen_learnable_sink_backward_with_lse",
    "test_flash_attn_varlen_backward_non_aligned_head_dim",
    "test_flash_attn_sm90_hdim_padding",
)
SCORES, PART_BYTES = 50_000_000, 7 << 30
"""The GPU's memory is shared out in parts, each enough for the references of so many scores."""
LOST = 3
"""How a process ends that cannot use the GPU any more."""
NOT_COMPILED = {
    "seqlen_q", "seqlen_k", "min_seq_len", "max_seq_len", "B", "varlen_mode", "zero_lengths_q",
    "zero_lengths_k", "unpad_q", "unpad_kv", "softmax_scale", "mha_type", "H",
}  # fmt: skip
"""Arguments of the tests that kernels are not compiled for."""
Answer = tuple[Tensor, Tensor]
Test = Callable[..., None]
Case = tuple[Test, dict[str, object]]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qv: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Tensor | None = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    return_lse: bool = True,
    **others: object,
) -> Answer:
    """Compute what the function of this name does: out [B,Sq,H,D] and lse [B,H,Sq]."""
    _refuse(qv=qv, **others)
    return attention(
        q, k, v, causal=causal, window=window_size, scale=softmax_scale, softcap=softcap or 0.0,
        sink=learnable_sink, deterministic=deterministic, layout="bshd", return_lse=True,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Tensor | None = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    scheduler_metadata: object = None,
    return_lse: bool = True,
    **others: object,
) -> Answer:
    """Compute what the function of this name does: padded tensors are packed before, and the
    output is padded with zeros after."""
    _refuse(**others)
    queries, starts_q, used = _pack(q, cu_seqlens_q, seqused_q)
    keys, starts_k, _ = _pack(k, cu_seqlens_k, seqused_k)
    values = _pack(v, cu_seqlens_k, seqused_k)[0]
    longest = [int((s[1:] - s[:-1]).max()) if len(s) > 1 else 0 for s in (starts_q, starts_k)]
    out, lse = attention(
        queries, keys, values, causal=causal, window=window_size, scale=softmax_scale,
        softcap=softcap or 0.0, sink=learnable_sink, deterministic=deterministic, return_lse=True,
        seqlens=Ragged(starts_q, starts_k, *longest),
    )  # fmt: skip
    if used is None:
        return out, lse
    padded = out.new_zeros(*q.shape[:-1], out.shape[-1])
    return padded.masked_scatter(used[..., None, None], out), lse


def _pack(
    x: Tensor, starts: Tensor | None, used: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return rows end to end, where each sequence starts, and which rows of a padded tensor are
    used."""
    if starts is not None:
        if used is not None:
            pytest.skip("our attention takes no parts of sequences that lie end to end")
        return x, starts, None
    lengths = used if used is not None else x.new_full((len(x),), x.shape[1], dtype=torch.int32)
    seen = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return x[seen], starts, seen


def _refuse(**others: object) -> None:
    """Skip a case that asks for what only the replaced interface has, such as pages."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        pytest.skip(f"our attention has no {', '.join(given)}")


def _only_theirs(*_: object, **__: object) -> Any:
    pytest.skip("a function of flash-attention's interface that has no counterpart")


def _find_theirs(name: str) -> Any:
    """Answer for what the shim lacks, but not for `__file__` and the like: torch reads these of
    every module that is loaded when it registers a kernel."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _only_theirs


def _install(folder: Path) -> None:
    """Put the modules that the tests import in place."""
    for name in ("flash_attn", "flash_attn.cute"):
        package = ModuleType(name)
        package.__path__ = []
        package.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
        sys.modules[name] = package
    cache = ModuleType("flash_attn.cute.cache_utils")
    cache.JITCache = dict  # type: ignore[attr-defined]
    interface = ModuleType("flash_attn.cute.interface")
    interface.__getattr__ = _find_theirs  # type: ignore[method-assign]
    interface.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    interface.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    interface.get_scheduler_metadata = lambda **_: None  # type: ignore[attr-defined]
    for module in (cache, interface):
        sys.modules[module.__name__] = module
    _load("flash_attn.cute.testing", folder / "flash_attn/cute/testing.py")


def _load(name: str, file: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def _axes(test: Test) -> list[list[dict[str, object]]]:
    """Return what each `parametrize` of a test gives, as arguments by name."""
    axes = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    return axes


def _cases(folder: Path, count: int, seed: int) -> Iterator[Case]:
    """Yield tests and their arguments: all cases of some, drawn cases of others.

    Collected by pytest, the ragged cases alone are hundreds of thousands.
    """
    module = _load("test_flash_attn", folder / "tests/cute/test_flash_attn.py")
    ragged = _load("test_flash_attn_varlen", folder / "tests/cute/test_flash_attn_varlen.py")
    for test in (getattr(module, n) for n in ALWAYS if hasattr(module, n)):  # not all versions have
        for parts in itertools.product(*_axes(test)):
            yield test, {key: value for part in parts for key, value in part.items()}
    rng = random.Random(seed)
    tests = [getattr(module, name) for name in DRAWN]
    for i in range(count):
        yield _draw(rng, tests, lambda given: bool(given["causal"] and given["local_enum"]))
        if i % 10 == 9:
            yield _draw(rng, [getattr(ragged, RAGGED)],
                        lambda given: given["min_seq_len"] > given["max_seq_len"])  # type: ignore[operator]  # fmt: skip


def _draw(
    rng: random.Random, tests: list[Test], skips: Callable[[dict[str, object]], bool]
) -> Case:
    """Return a case of one of the tests, none that the test skips."""
    while True:
        test = rng.choice(tests)
        given = {k: v for axis in _axes(test) for k, v in rng.choice(axis).items()}
        if not skips(given):
            return test, given


def _alike(cases: list[Case], known: set[int]) -> list[list[int]]:
    """Return the numbers of the cases that are not known, those together that run the same
    kernels, the largest groups first."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (test, given) in enumerate(cases):
        if at not in known:
            kernels = (test.__name__, *(v for k, v in given.items() if k not in NOT_COMPILED))
            groups.setdefault(kernels, []).append(at)
    return sorted(groups.values(), key=len, reverse=True)


def _outcome(test: Test, given: dict[str, object]) -> str:
    """Run a case; return passed, forward only, skipped or what failed."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            test(**given)
    except pytest.skip.Exception:
        return "skipped"
    except pytest.xfail.Exception:
        return "forward only"
    except Exception as e:  # noqa: BLE001 - every failure is counted
        return f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
    return "passed"


class _Run:
    """What the processes share: the next group of cases, memory, and what was found."""

    def __init__(self, folder: Path, count: int, seed: int, end: float, known: set[int]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.given = folder, count, seed
        self.end, self.known = end, known
        self.next = spawn.Value("i", 0)
        self.every = torch.cuda.get_device_properties(0).total_memory // PART_BYTES
        self.door, self.parts = spawn.Lock(), spawn.Semaphore(self.every)
        self.found = spawn.SimpleQueue()

    def start(self) -> BaseProcess:
        """Start a process that takes group after group."""
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(self,), daemon=True
        )
        process.start()
        return process

    def take(self) -> int:
        """Return the next group's number, which nobody else gets."""
        with self.next.get_lock():
            self.next.value += 1
            return int(self.next.value) - 1

    @contextlib.contextmanager
    def memory_for(self, test: Test, given: dict[str, Any]) -> Iterator[None]:
        """Wait until there is memory for a case's reference, which holds all scores."""
        queries, keys = given.get("seqlen_q", 0), given.get("seqlen_k", 0)
        sequences = 9 if keys <= 2048 else 2
        if test.__name__ == DRAWN[1]:
            sequences = 49 if queries <= 512 else 7
        parts = min(self.every, 6 * sequences * queries * max(queries, keys) // SCORES)
        with self.door:
            for _ in range(parts):
                self.parts.acquire()
        try:
            yield
        finally:
            for _ in range(parts):
                self.parts.release()


def _work(run: _Run) -> None:
    """Run cases until none or no time is left; end with `LOST` where the GPU is lost."""
    learning("off")
    _install(run.given[0])
    cases = list(_cases(*run.given))
    groups = _alike(cases, run.known)
    while (group := run.take()) < len(groups):
        for at in groups[group]:
            if time.time() > run.end:
                return
            _run_case(run, at, *cases[at])


def _run_case(run: _Run, at: int, test: Test, given: dict[str, Any]) -> None:
    """Run a case as soon as there is memory for it, and tell what it gave."""
    with run.memory_for(test, given):
        began = time.time()
        outcome = _outcome(test, given)
        named = ", ".join(f"{k}={v}" for k, v in given.items())
        run.found.put((at, test.__name__, named, outcome, round(time.time() - began, 3)))
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
        except RuntimeError:
            sys.exit(LOST)


def _gather(run: _Run, processes: int) -> Iterator[tuple[int, str, str, str, float]]:
    """Yield what the processes find; one that lost the GPU is replaced."""
    workers = [run.start() for _ in range(processes)]
    while any(w.is_alive() for w in workers) and time.time() < run.end + 20:
        while not run.found.empty():
            yield run.found.get()
        workers = [run.start() if w.exitcode == LOST else w for w in workers]
        time.sleep(0.2)
    while not run.found.empty():
        yield run.found.get()
    for worker in workers:
        worker.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("flash_attention_suite.csv"))
    parser.add_argument("--known", type=Path)
    asked = parser.parse_args()
    known: set[int] = set()
    if asked.known is not None:
        with asked.known.open(newline="") as file:
            known = {int(row["case"]) for row in csv.DictReader(file)}
    run = _Run(asked.folder, asked.count, asked.seed, time.time() + asked.limit, known)
    counts: Counter[tuple[str, str]] = Counter()
    with asked.out.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(("case", "test", "arguments", "outcome", "seconds"))
        for at, name, given, outcome, seconds in _gather(run, asked.processes):
            kind = outcome if outcome in ("passed", "forward only", "skipped") else "failed"
            counts[name, kind] += 1
            table.writerow((at, name, given, outcome, seconds))
            out.flush()
            if kind == "failed":
                print(f"{name}({given}): {outcome}", flush=True)
    for (name, kind), n in sorted(counts.items()):
        print(f"{name}: {n} {kind}")
    return int(any(kind == "failed" for _, kind in counts))


if __name__ == "__main__":
    sys.exit(main())
