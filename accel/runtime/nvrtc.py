"""Compile CUDA C++ on the user's machine with NVRTC, and keep the code on disk.

NVRTC is a library that comes with CUDA's builds of torch. It needs no other compiler, no headers
and no GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import util
from pathlib import Path

from gpudeck.accel.runtime import state_files

_SYSTEM = (Path("/usr/local/cuda/lib64"), Path("/usr/lib/x86_64-linux-gnu"))
_OPTIONS = ("-std=c++17", "-diag-suppress=177")  # a macro may leave a variable without use


def compile_cuda(source: str, target: str, macros: Mapping[str, int]) -> bytes:
    """Return the code of a source, from disk if it was compiled before.

    Args:
        source: CUDA C++, whose kernels are `extern "C"`.
        target: `sm_75` gives machine code for that compute capability, `compute_75` PTX, which the
            driver translates for any newer one.
        macros: the macros that are defined.

    Raises:
        ImportError: if there is no NVRTC.
        RuntimeError: if it does not compile, with what NVRTC says.
    """
    options = [f"--gpu-architecture={target}", *_OPTIONS]
    options += [f"-D{name}={value}" for name, value in sorted(macros.items())]
    kind = "CUBIN" if target.startswith("sm_") else "PTX"
    told = "\0".join((*library_version(), *options, source))
    file = state_files.state_folder() / "cuda" / hashlib.sha256(told.encode()).hexdigest()
    try:
        if code := state_files.read(file):
            return code
        code = _compile(source, options, kind)
        state_files.replace(file, code)
    except OSError as e:
        warnings.warn(f"compiled kernels are not kept: {e}", stacklevel=2)
        return _compile(source, options, kind)
    return code


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return NVRTC's library.

    Raises:
        ImportError: if there is none.
    """
    path = next(_find(), None)
    if path is None:
        raise ImportError("no libnvrtc: it comes with the builds of torch for CUDA")
    for helper in sorted(path.parent.glob("libnvrtc-builtins.so*")):
        if ".alt." not in helper.name:
            ctypes.CDLL(str(helper))  # NVRTC asks for it by its name, which is known then
    return ctypes.CDLL(str(path))


@lru_cache(maxsize=1)
def library_version() -> tuple[str, str]:
    """Return NVRTC's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return str(major.value), str(minor.value)


def _find() -> Iterator[Path]:
    """Yield the libraries that come with Python packages, then those of the system."""
    package = util.find_spec("nvidia")
    places = [Path(p) for p in (package and package.submodule_search_locations) or ()]
    folders = [folder for place in places for folder in sorted(place.glob("*/lib"))]
    for folder in (*folders, *_SYSTEM):
        yield from (p for p in sorted(folder.glob("libnvrtc.so*")) if ".alt." not in p.name)


def _compile(source: str, options: list[str], kind: str) -> bytes:
    nvrtc, program = library(), ctypes.c_void_p()
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None))
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            log = _read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise RuntimeError(f"NVRTC cannot compile the kernel: {log}")
        return _read(program, kind)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, text))
    return text.raw


def _check(status: int) -> None:
    if status:
        explain = library().nvrtcGetErrorString
        explain.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC answers {explain(status).decode()} ({status})")
