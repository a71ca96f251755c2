"""Programs that hold memory of a GPU, compute, and tell at the end what they have computed.

Each has the arguments GIB, STOP, LIMIT and SEED: it fills so much memory, prints "ready", and makes
steps until the file STOP is there, or LIMIT steps where that is not 0. Then it prints the number of
its steps and a digest of all that it holds. A run of the same number of steps that nobody disturbs
prints the same digest.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["torch", "JAX", "CuPy", "CUDA C++"]
_HEAD = """
import hashlib, os, sys, time
from pathlib import Path
gib, stop, limit, seed = float(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def run(step, ready="ready"):
    print(ready, flush=True)
    steps = 0
    while steps < limit if limit else not stop.exists():
        step()
        steps += 1
        if not limit:
            time.sleep(0.005)
    return steps
def tell(steps, *parts):
    print(steps, hashlib.sha256(b"".join(parts)).hexdigest()[:16], flush=True)
"""
_TORCH = """
import torch
buffer = torch.randint(0, 255, (int(gib * 2**30),), dtype=torch.uint8, device="cuda")
filled = buffer.view(torch.int64).sum()
torch.manual_seed(seed)
linear = torch.nn.Linear
model = torch.nn.Sequential(linear(512, 2048), torch.nn.GELU(), linear(2048, 512)).cuda()
compute = torch.compile(model) if os.environ.get("COMPILE") else model
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
data = torch.randn(64, 512, device="cuda")
def train():
    optimizer.zero_grad(set_to_none=False)
    loss = (compute(data) - data).square().mean()
    loss.backward()
    optimizer.step()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        train()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    train()
def step():
    data.normal_()
    graph.replay()
    torch.cuda.synchronize()
steps = run(step)
same = b"whole" if buffer.view(torch.int64).sum() == filled else b"damaged"
tell(steps, same, *(p.detach().cpu().numpy().tobytes() for p in model.parameters()))
"""
_JAX = """
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
import jax, jax.numpy as jnp, numpy
state = jax.random.normal(jax.random.key(seed), (int(gib * 2**18), 1024))
weights = jax.random.normal(jax.random.key(1), (1024, 1024)) / 30
@jax.jit
def advance(state):
    return state.at[:1024].set(jnp.tanh(state[:1024] @ weights) + 0.1 * state[1024:2048])
def step():
    global state
    state = advance(state).block_until_ready()
tell(run(step), numpy.asarray(state).tobytes())
"""
_CUPY = """
import cupy
cupy.random.seed(seed)
state = cupy.random.standard_normal((int(gib * 2**18), 1024), dtype=cupy.float32)
weights = cupy.random.standard_normal((1024, 1024), dtype=cupy.float32) / 30
def step():
    state[:1024] = cupy.tanh(state[:1024] @ weights) + 0.1 * state[1024:2048]
    cupy.cuda.Device().synchronize()
tell(run(step), state.tobytes())
"""
_STAND_IN = """
for folder in {os.environ["STUB_CUDA"], os.environ["FAKE_GPU"]}:
    for name in (f"{os.getpid()}.size", f"{os.getpid()}"):
        (Path(folder) / name).write_text(f"{int(gib * 2**24)}\\n")  # a machine with little memory
state = seed
def step():
    global state
    state = (state * 69069 + 1) % 2**32
tell(run(step), str(state).encode())
"""
_SOURCES = {"torch": _TORCH, "JAX": _JAX, "CuPy": _CUPY}


_SMALL = 0.125


class Ended(NamedTuple):
    """What a program prints at its end."""

    steps: int
    digest: str


def command(kind: Kind, gib: float, stop: Path, limit: int = 0, seed: int = 1) -> list[str]:
    """Return the command of a program."""
    arguments = [f"{gib}", str(stop), str(limit), str(seed)]
    if "STUB_CUDA" in os.environ:
        return [sys.executable, "-S", "-c", _HEAD + _STAND_IN, *arguments]
    if kind == "CUDA C++":
        return [str(_build()), *arguments]
    return [sys.executable, "-c", _HEAD + _SOURCES[kind], *arguments]


@cache
def _build() -> Path:
    """Compile the program in CUDA C++, where other users find it, too."""
    built = Path("/tmp/gpudeck-suspension-programs")
    source = Path(__file__).with_name("programs.cu")
    subprocess.run(("nvcc", "-O2", "-arch=native", "-o", built, source), check=True)
    return built


class Program:
    """A program that runs as a child of this process."""

    def __init__(self, kind: Kind, gib: float, stop: Path, limit: int = 0, seed: int = 1) -> None:
        self.kind, self.gib, self.stop, self.seed = kind, gib, stop, seed
        self._process = subprocess.Popen(
            command(kind, gib, stop, limit, seed), stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._process.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until the memory is filled."""
        line = self._line()
        assert line == "ready", f"{self.kind}: {line}"

    def end(self) -> Ended:
        """Stop the program, and return what it tells."""
        self.stop.touch()
        ended = parse_end(self._line())
        self._process.wait()
        return ended

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def parse_end(line: str) -> Ended:
    """Return what the last line of a program tells."""
    steps, digest = line.split()
    return Ended(int(steps), digest)


def is_exact(kind: Kind, gib: float, seed: int, ended: Ended, folder: Path) -> bool:
    """Return whether a run that nobody disturbs ends in the same way."""
    gib = _SMALL if kind == "torch" else gib  # its digest does not depend on the size
    again = Program(kind, gib, folder / "undisturbed", ended.steps, seed)
    again.wait_ready()
    return again.end() == ended
