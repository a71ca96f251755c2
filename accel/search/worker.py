"""Run a candidate in a process of its own, as the judge requests it.

What decides is seen from outside: the judge wrote the inputs, reads the results, and has the clock.
What is watched here (types, memory, threads, replaced functions) adds to that. The functions that
this module uses are bound before the candidate is loaded.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import torch
from torch import Tensor

from gpudeck.accel.search.arena import Arena
from gpudeck.accel.search.candidate_protocol import (
    Bind,
    Capture,
    Compile,
    Flag,
    Listing,
    Load,
    Reply,
    Request,
    Show,
    Window,
    read_frame,
    write_frame,
)
from gpudeck.accel.search.listing import list_launches
from gpudeck.accel.search.resources import code_of, compiled_resources
from gpudeck.accel.search.verdict import Kind, Source
from gpudeck.accel.search.watch import Watch

_M_PERTURB = -6
_GARBAGE = 0xA5
"""Bytes of it are large numbers in all dtypes; glibc writes their complement."""
_POISONED_BLOCKS = 4
_copy = Tensor.copy_
_plain = Tensor
_kind = type


def load(source: Source) -> Callable[..., Any]:
    """Return the function that a source names."""
    if source.place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("candidate", source.place)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module  # as dataclasses and Triton look it up
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(source.place)
    function = getattr(module, source.entry)
    made: Callable[..., Any] = function if source.options is None else function(**source.options)
    return made


class Worker:
    """Hold the candidate, the shared memory, and what was noticed."""

    def __init__(self, arena_file: int) -> None:
        self._file = arena_file
        self._flags: dict[Flag, None] = {}
        self._libc = ctypes.CDLL(None)
        self._synchronize: Callable[[], object] = lambda: None
        self._arena: Arena | None = None
        self._captured: tuple[Any, Tensor] | None = None
        """A graph of calls, and where the last one's result is."""

    def answer(self, request: Request) -> Reply:
        """Do what is requested, and tell what was noticed since the last reply."""
        match request:
            case Load():
                self._load(request)
            case Bind():
                self._bind(request)
            case Window():
                self._run(request)
            case Capture():
                self._capture(request)
            case Listing():
                return self._list()
            case Compile():
                return self._compile(request)
            case Show():
                return self._show(request)
        return self._reply()

    def _reply(self, launched: tuple[str, ...] = (), foreign: tuple[str, ...] = ()) -> Reply:
        flags, self._flags = tuple(self._flags), {}
        return Reply(flags, launched, foreign)

    def _flag(self, kind: Kind, where: str) -> None:
        self._flags[Flag(kind, where)] = None

    def _load(self, request: Load) -> None:
        torch.set_num_threads(request.threads)
        torch.set_grad_enabled(False)
        self._device = torch.device(request.device)
        self._forget()
        self._trusted = request.trusted
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._synchronize = ctypes.CDLL("libcuda.so.1").cuCtxSynchronize
        if self._arena is None:
            self._arena = Arena.open(request.memory, self._file, request.handle)
        self._watch = Watch(request.source.place, self._flag)
        if not self._trusted:
            self._watch.begin()
        try:
            self._call = load(request.source)
        except Exception as e:  # noqa: BLE001 - whatever the candidate raises is the finding
            self._flag("unloadable", f"{type(e).__name__}: {e}"[:500])
        if not self._trusted:
            self._watch.check()

    def _forget(self) -> None:
        """Give back what the function before held, if there was one."""
        self._captured = None
        if vars(self).pop("_call", None) is not None:
            gc.collect()
            if self._device.type == "cuda":
                torch.cuda.empty_cache()

    def _bind(self, request: Bind) -> None:
        assert self._arena is not None
        self._captured = None
        tensor = self._arena.tensor
        self._inputs = tuple(map(tensor, request.inputs))
        self._fresh = tuple(tuple(map(tensor, regions)) for regions in request.fresh)
        self._results = tuple(map(tensor, request.results))

    def _run(self, request: Window) -> None:
        if request.poison:
            self._libc.mallopt(_M_PERTURB, _GARBAGE)
        self._watch.armed = not (request.warm or self._trusted)
        late = []
        try:
            for number in range(request.calls):
                for fixed, fresh in zip(self._inputs, self._fresh[number], strict=True):
                    _copy(fixed, fresh)
                if request.poison and self._device.type == "cuda":
                    self._poison()
                out = self._computed(request.repeats)
                if wrong := self._wrong(out, self._results[number]):
                    self._flag(*wrong)
                    break
                if request.late:
                    late.append(out)
                else:
                    _copy(self._results[number], out)
            for number, out in enumerate(late):
                _copy(self._results[number], out)
            self._synchronize()
        except Exception as e:  # noqa: BLE001 - whatever the candidate raises is the finding
            self._flag("crashed", f"{type(e).__name__}: {e}"[:500])
        self._watch.armed = False
        if request.poison:
            self._libc.mallopt(_M_PERTURB, 0)

    def _computed(self, repeats: int) -> Any:
        """Compute as often as requested; return the last result."""
        if self._captured is not None:
            graph, out = self._captured
            graph.replay()
            return out
        for _ in range(repeats):
            out = self._call(*self._inputs)
        return out

    def _capture(self, request: Capture) -> None:
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = self._computed(request.repeats)
            self._captured = graph, out
        except Exception as e:  # noqa: BLE001 - whatever is raised is the finding
            self._flag("crashed", f"{type(e).__name__}: {e}"[:500])

    def _wrong(self, out: object, wanted: Tensor) -> tuple[Kind, str] | None:
        """Return what keeps a result from being a plain tensor of its own memory."""
        if _kind(out) is not _plain:
            return "wrong-result", f"a {type(out).__name__}"
        assert isinstance(out, Tensor)
        if out.dtype != wanted.dtype or out.shape != wanted.shape:
            return "wrong-result", f"{out.dtype} {tuple(out.shape)}"
        if out.device != wanted.device or out.layout != torch.strided or out.is_meta:
            return "wrong-result", f"on {out.device}, {out.layout}"
        if out.is_conj() or out.is_neg() or out.requires_grad:
            return "wrong-result", "a tensor that is not computed yet"
        if self._arena is not None and self._arena.holds(out.untyped_storage().data_ptr()):
            return "aliases", "an address of the inputs"
        return None

    def _poison(self) -> None:
        """Fill with NaN what the allocator will hand out next for a result."""
        like = self._results[0]
        blocks = [torch.full_like(like, torch.nan) for _ in range(_POISONED_BLOCKS)]
        del blocks

    def _list(self) -> Reply:
        if not self._trusted:
            self._watch.check()
        try:
            launched, foreign = list_launches(lambda: self._call(*self._inputs), self._device)
        except Exception as e:  # noqa: BLE001 - whatever the candidate raises is the finding
            self._flag("crashed", f"{type(e).__name__}: {e}"[:500])
            return self._reply()
        return self._reply(launched, foreign)

    def _compile(self, request: Compile) -> Reply:
        try:
            call = load(request.source)
            return Reply(resources=compiled_resources(call, request.capability))
        except Exception as e:  # noqa: BLE001 - Triton and ptxas raise many kinds
            self._flag("unloadable", f"{type(e).__name__}: {e}"[:500])
            return self._reply()

    def _show(self, request: Show) -> Reply:
        try:
            return Reply(code=code_of(load(request.source), request.capability))
        except Exception as e:  # noqa: BLE001 - Triton and ptxas raise many kinds
            self._flag("unloadable", f"{type(e).__name__}: {e}"[:500])
            return self._reply()


def serve(channel: socket.socket, descriptors: list[int]) -> NoReturn:
    """Answer requests until the judge ends this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a candidate that prints must not disturb whoever reads our output
        os.dup2(null, stream)
    worker = Worker(descriptors[0] if descriptors else -1)
    gc.freeze()
    try:
        while True:
            request = msgspec.msgpack.decode(read_frame(channel), type=Request)
            write_frame(channel, worker.answer(request))
    except OSError:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a candidate that exits ends the process, not the nursery
        os._exit(1)
