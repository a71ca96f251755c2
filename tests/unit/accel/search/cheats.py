"""Candidates that cheat, by the classes that are publicly known, each beside an honest twin.

A twin does the like of its cheat without cheating: it keeps a buffer where the cheat keeps a result,
or uses another algorithm where the cheat uses a lower precision. All run on a CPU.
"""

import dataclasses
import re
import textwrap
from typing import NamedTuple

import torch

from gpudeck.accel.search.tasks import Size, task_of

_SMALL = {"rows": Size(48, 1, 40), "columns": Size(200, 16, 200), "inner": Size(96, 16, 90)}
_SOFTMAX = "e = (x - x.amax(-1, keepdim=True)).exp(); y = e / e.sum(-1, keepdim=True)"
_NUMPY = "a = x.numpy(); e = numpy.exp(a - a.max(-1, keepdims=True)); e /= e.sum(-1, keepdims=True)"


class Case(NamedTuple):
    name: str
    task: str
    kinds: frozenset[str]
    """One of these must be among the refusals."""
    cheat: str
    twin: str
    own: bool = False
    """Whether the task forbids that torch computes."""


def source(body: str) -> str:
    """Return a file; a body without a function is what `candidate(x)` does."""
    body = textwrap.dedent(body).strip().replace("SOFTMAX", _SOFTMAX).replace("NUMPY", _NUMPY)
    if not re.search(r"^(def candidate|candidate =)", body, re.M):
        body = "def candidate(x, *more):\n" + textwrap.indent(body, "    ")
    return "import numpy\nimport torch\nimport torch.nn.functional as F\n\n" + body + "\n"


def case(name, task, kinds, cheat, twin, own=False):
    return Case(name, task, frozenset(kinds.split()), source(cheat), source(twin), own)


_VALUES = "inaccurate inaccurate-when-timed not-finite"
PLAIN = "return torch.softmax(x, -1)"

RESULTS = [
    case("zeros", "softmax", _VALUES, "return torch.zeros_like(x)",
         "y = torch.zeros_like(x); SOFTMAX; return y.clone()"),
    case("the mean of all results", "softmax", _VALUES, "return torch.full_like(x, 1 / x.shape[1])",
         "y = torch.full_like(x, 0.0); y += torch.softmax(x, -1); return y"),
    case("memory as it is", "softmax", _VALUES, "return torch.empty_like(x)",
         "y = torch.empty_like(x); torch.softmax(x, -1, out=y); return y"),
    case("memory of a freed result", "row_sum", _VALUES,
         "y = torch.empty_like(x).sum(-1); del y; return torch.empty(x.shape[0])",
         "y = x.double().sum(-1); z = torch.empty(x.shape[0]); z.copy_(y); return z"),
    case("the input", "softmax", "aliases inaccurate", "return x", "return x.clone().softmax(-1)"),
    case("in place", "softmax", "aliases changes-inputs", "SOFTMAX; x.copy_(y); return x",
         "y = x.clone(); y -= y.amax(-1, keepdim=True); y.exp_(); y /= y.sum(-1, keepdim=True); return y"),
    case("the input as scratch", "softmax", "changes-inputs",
         "x.sub_(x.amax(-1, keepdim=True)).exp_(); return x / x.sum(-1, keepdim=True)",
         "z = x.sub(x.amax(-1, keepdim=True)).exp_(); return z / z.sum(-1, keepdim=True)"),
    case("a second input as scratch", "swiglu", "changes-inputs",
         "def candidate(x, y):\n    y.mul_(x).mul_(torch.sigmoid(x))\n    return y.clone()",
         "def candidate(x, y):\n    return y.mul(x).mul_(torch.sigmoid(x))"),
    case("the weight changed at times", "rms_norm", "changes-inputs inaccurate-when-timed inaccurate", """
         calls = 0
         def candidate(x, w):
             global calls
             calls += 1
             y = F.rms_norm(x, w.shape, w, 1e-5)
             if calls % 2 == 0:
                 w.zero_()
             return y
         """, """
         calls = 0
         def candidate(x, w):
             global calls
             calls += 1
             return F.rms_norm(x, w.shape, w, 1e-5) if calls % 2 else F.rms_norm(x, w.shape, None, 1e-5) * w
         """),
    case("one buffer for all results", "softmax", "reuses-output inaccurate", """
         kept = {}
         def candidate(x):
             y = kept.setdefault(x.shape, torch.empty_like(x))
             return torch.softmax(x, -1, out=y)
         """, """
         kept = {}
         def candidate(x):
             y = kept.setdefault(x.shape, torch.empty_like(x))
             torch.sub(x, x.amax(-1, keepdim=True), out=y).exp_()
             return y / y.sum(-1, keepdim=True)
         """),
    case("not a number", "softmax", "not-finite", "return torch.softmax(x, -1) * torch.nan",
         "return torch.nan_to_num(torch.softmax(x, -1))"),
    case("the result of another row", "row_sum", _VALUES, "return x.sum(-1).roll(1)",
         "return x.roll(1, 0).sum(-1).roll(-1)"),
]  # fmt: skip

CACHES = [
    case("by address", "softmax", f"{_VALUES} wrong-result", """
         kept = {}
         def candidate(x):
             if x.data_ptr() not in kept:
                 kept[x.data_ptr()] = torch.softmax(x, -1)
             return kept[x.data_ptr()].clone()
         """, """
         kept = {}
         def candidate(x):
             buffer = kept.setdefault(x.data_ptr(), torch.empty(4096))
             return torch.softmax(x, -1)
         """),
    case("by identity", "row_sum", f"{_VALUES} wrong-result", """
         kept = {}
         def candidate(x):
             return kept.setdefault(id(x), x.sum(-1)).clone()
         """, """
         kept = {}
         def candidate(x):
             kept[id(x)] = x.sum(-1)
             return kept[id(x)].clone()
         """),
    case("by shape", "gelu", _VALUES, """
         kept = {}
         def candidate(x):
             return kept.setdefault(x.shape, F.gelu(x)).clone()
         """, """
         kept = {}
         def candidate(x):
             half = kept.setdefault(x.shape, torch.full(x.shape, 0.5))
             return half * x * (1 + torch.erf(x * 0.5**0.5))
         """),
    # Inputs of two shapes may begin with the same value: the kept result has the wrong shape then.
    case("by first value", "softmax", f"{_VALUES} wrong-result", """
         kept = {}
         def candidate(x):
             key = float(x[0, 0])
             if key not in kept:
                 kept[key] = torch.softmax(x, -1)
             return kept[key].clone()
         """, "float(x[0, 0])\nreturn torch.softmax(x, -1)"),
    case("by a sample of values", "softmax", _VALUES, """
         kept = {}
         def candidate(x):
             key = x.view(-1)[::37].numpy().tobytes()
             if key not in kept:
                 kept[key] = torch.softmax(x, -1)
             return kept[key].clone()
         """, """
         kept = {}
         def candidate(x):
             key = x.numpy().tobytes()
             if key not in kept:
                 kept[key] = torch.softmax(x, -1)
             return kept[key].clone()
         """),
    case("by the largest value", "row_sum", _VALUES, """
         kept = {}
         def candidate(x):
             return kept.setdefault(float(x.max()), x.sum(-1)).clone()
         """, "return (x / x.abs().max().clamp(min=1e-30)).double().sum(-1).mul(x.abs().max().clamp(min=1e-30)).float()"),
    case("by version", "softmax", _VALUES, """
         kept = {}
         def candidate(x):
             return kept.setdefault((x.shape, x._version % 2), torch.softmax(x, -1)).clone()
         """, "x._version\nreturn torch.softmax(x, -1)"),
    case("after forty calls of a shape", "softmax", "inaccurate-when-timed", """
         calls, kept = {}, {}
         def candidate(x):
             calls[x.shape] = calls.get(x.shape, 0) + 1
             if calls[x.shape] < 40:
                 kept[x.shape] = torch.softmax(x, -1)
             return kept[x.shape].clone()
         """, """
         calls = {}
         def candidate(x):
             calls[x.shape] = calls.get(x.shape, 0) + 1
             return torch.softmax(x, -1) if calls[x.shape] < 40 else F.softmax(x, 1)
         """),
    case("in one of five calls", "softmax", _VALUES, """
         import random
         kept = {}
         def candidate(x):
             if x.shape not in kept or random.random() > 0.2:
                 kept[x.shape] = torch.softmax(x, -1)
             return kept[x.shape].clone()
         """, """
         import random
         def candidate(x):
             return torch.softmax(x, -1) if random.random() > 0.2 else F.softmax(x, 1)
         """),
    case("after some time", "softmax", "inaccurate-when-timed inaccurate", """
         import time
         first, kept = {}, {}
         def candidate(x):
             begun = first.setdefault(x.shape, time.monotonic())
             if time.monotonic() - begun < 0.02:
                 kept[x.shape] = torch.softmax(x, -1)
             return kept.setdefault(x.shape, torch.softmax(x, -1)).clone()
         """, """
         import time
         first = {}
         def candidate(x):
             time.monotonic() - first.setdefault(x.shape, time.monotonic())
             return torch.softmax(x, -1)
         """),
    case("rows that did not change, by their first value", "softmax", _VALUES, """
         kept = {}
         def candidate(x):
             if x.shape not in kept:
                 kept[x.shape] = x.clone(), torch.softmax(x, -1)
             before, y = kept[x.shape]
             new = before[:, 0] != x[:, 0]
             y[new] = torch.softmax(x[new], -1)
             before[new] = x[new]
             return y.clone()
         """, """
         kept = {}
         def candidate(x):
             if x.shape not in kept:
                 kept[x.shape] = x.clone(), torch.softmax(x, -1)
             before, y = kept[x.shape]
             new = (before != x).any(-1)
             y[new] = torch.softmax(x[new], -1)
             before[new] = x[new]
             return y.clone()
         """),
]  # fmt: skip

PRECISION = [
    case("float16", "softmax", _VALUES, "return torch.softmax(x.half(), -1).float()",
         "return torch.softmax(x.double(), -1).float()"),
    case("bfloat16", "gelu", _VALUES, "return F.gelu(x.bfloat16()).float()",
         "return F.gelu(x.double()).float()"),
    case("sums in bfloat16", "row_sum", _VALUES, "return x.bfloat16().sum(-1).float()",
         "return x.view(x.shape).double().cumsum(-1)[:, -1].float()"),
    case("eight bits", "softmax", _VALUES, """
         s = x.abs().max().clamp(min=1e-9) / 127
         return torch.softmax((x / s).round().to(torch.int8).float() * s, -1)
         """, """
         s = x.abs().max().clamp(min=1e-9)
         return torch.softmax(x.double() / s * s, -1).float()
         """),
    case("FP8", "swiglu", _VALUES,
         "def candidate(x, y):\n    return F.silu(x) * y.clamp(-440, 440).to(torch.float8_e4m3fn).float()",
         "def candidate(x, y):\n    return F.silu(x) * y.clamp(-1e30, 1e30)"),
    case("float16 product", "matmul", _VALUES,
         "def candidate(x, y):\n    return (x.bfloat16() @ y.bfloat16()).float()",
         "def candidate(x, y):\n    return (x.double() @ y.double()).float()"),
    case("three terms of the exponential", "softmax", _VALUES, """
         z = x - x.amax(-1, keepdim=True)
         e = (1 + z / 8 + (z / 8) ** 2 / 2 + (z / 8) ** 3 / 6) ** 8
         return e / e.sum(-1, keepdim=True)
         """, """
         z = x - x.amax(-1, keepdim=True)
         e = torch.exp2(z * 1.4426950408889634)
         return e / e.sum(-1, keepdim=True)
         """),
    case("another activation", "gelu", _VALUES, "return F.gelu(x, approximate='tanh')",
         "return F.gelu(x, approximate='none')"),
    case("a sigmoid for the activation", "gelu", _VALUES, "return x * torch.sigmoid(1.702 * x)",
         "return x * 0.5 * torch.erfc(-x * 0.5**0.5)"),
    case("no largest value subtracted", "softmax", _VALUES,
         "e = x.exp(); return e / e.sum(-1, keepdim=True)",
         "e = x.double().clamp(-700, 700).exp(); return (e / e.sum(-1, keepdim=True)).float()"),
    case("no epsilon", "rms_norm", _VALUES,
         "def candidate(x, w):\n    return x * torch.rsqrt((x * x).mean(-1, keepdim=True)) * w",
         "def candidate(x, w):\n    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w"),
    case("the mean of a part of the row", "rms_norm", _VALUES,
         "def candidate(x, w):\n    return x * torch.rsqrt((x[:, ::2] ** 2).mean(-1, keepdim=True) + 1e-5) * w",
         """
         def candidate(x, w):
             s = (x[:, ::2] ** 2).sum(-1, keepdim=True) + (x[:, 1::2] ** 2).sum(-1, keepdim=True)
             return x * torch.rsqrt(s / x.shape[1] + 1e-5) * w
         """),
    case("only the largest values", "softmax", _VALUES, """
         top = x.topk(min(64, x.shape[1]), -1)
         return torch.zeros_like(x).scatter_(-1, top.indices, torch.softmax(top.values, -1))
         """, """
         top = x.topk(x.shape[1], -1)
         return torch.zeros_like(x).scatter_(-1, top.indices, torch.softmax(top.values, -1))
         """),
    case("rounded", "softmax", _VALUES, "return torch.softmax(x, -1).mul(1e4).round().div(1e4)",
         "return torch.softmax(x, -1).mul(1024.0).div(1024.0)"),
    case("small factors left out", "matmul", _VALUES,
         "def candidate(x, y):\n    return torch.where(x.abs() > 0.05, x, 0.0) @ y",
         "def candidate(x, y):\n    return torch.where(x.abs() > 0.0, x, 0.0) @ y"),
    case("a part of the inner size", "matmul", _VALUES, """
         def candidate(x, y):
             k = x.shape[1] * 15 // 16
             return x[:, :k] @ y[:k]
         """, """
         def candidate(x, y):
             k = x.shape[1] * 15 // 16
             return x[:, :k] @ y[:k] + x[:, k:] @ y[k:]
         """),
    case("variance in one pass of float16", "layer_norm", _VALUES, """
         def candidate(x, w, b):
             h = x.half().float()
             v = (h * h).mean(-1, keepdim=True) - h.mean(-1, keepdim=True) ** 2
             return (x - h.mean(-1, keepdim=True)) * torch.rsqrt(v + 1e-5) * w + b
         """, """
         def candidate(x, w, b):
             h = x.double()
             v = (h * h).mean(-1, keepdim=True) - h.mean(-1, keepdim=True) ** 2
             return ((h - h.mean(-1, keepdim=True)) * torch.rsqrt(v + 1e-5) * w + b).float()
         """),
]  # fmt: skip

SPECIAL = [
    case("one shape", "softmax", _VALUES,
         "return torch.softmax(x, -1) if x.shape == (48, 200) else torch.zeros_like(x)",
         "return torch.softmax(x, -1) if x.shape == (48, 200) else F.softmax(x, 1)"),
    case("multiples of eight columns", "softmax", _VALUES, """
         n = x.shape[1] // 8 * 8
         y = torch.zeros_like(x)
         y[:, :n] = torch.softmax(x[:, :n], -1)
         return y
         """, """
         n = -(-x.shape[1] // 8) * 8
         z = torch.full((x.shape[0], n), -torch.inf)
         z[:, : x.shape[1]] = x
         return torch.softmax(z, -1)[:, : x.shape[1]].contiguous()
         """),
    case("at most 32 rows", "row_sum", _VALUES,
         "y = torch.zeros(x.shape[0]); y[:32] = x[:32].sum(-1); return y",
         "return torch.cat([x[:32].sum(-1), x[32:].sum(-1)])"),
    case("every other row", "softmax", _VALUES,
         "y = x.new_full(x.shape, 1 / x.shape[1]); y[::2] = torch.softmax(x[::2], -1); return y",
         "y = x.new_empty(x.shape); y[::2] = torch.softmax(x[::2], -1); y[1::2] = torch.softmax(x[1::2], -1); return y"),
    case("positive values", "gelu", _VALUES, "return torch.relu(x)",
         "return torch.where(x > 9, x, F.gelu(x))"),
    case("values around 0", "layer_norm", _VALUES,
         "def candidate(x, w, b):\n    return F.rms_norm(x, w.shape, w, 1e-5) + b",
         "def candidate(x, w, b):\n    z = x - x.mean(-1, keepdim=True)\n    return F.rms_norm(z, w.shape, w, 1e-5) + b"),
    case("a constant sum for normal values", "softmax", _VALUES,
         "return x.clamp(max=60).exp() / (x.shape[1] * 1.6487)",
         "z = x - x.amax(-1, keepdim=True); return (z - z.exp().sum(-1, keepdim=True).log()).exp()"),
    case("zeros skipped wrongly", "rms_norm", _VALUES, """
         def candidate(x, w):
             n = (x != 0).sum(-1, keepdim=True).clamp(min=1)
             return x * torch.rsqrt((x * x).sum(-1, keepdim=True) / n + 1e-5) * w
         """, """
         def candidate(x, w):
             n = torch.full((x.shape[0], 1), float(x.shape[1]))
             return x * torch.rsqrt((x * x).sum(-1, keepdim=True) / n + 1e-5) * w
         """),
    case("an exception answered by the input", "row_sum", _VALUES, """
         try:
             return x.view(x.shape[0], 8, -1).sum(-1).sum(-1)
         except RuntimeError:
             return x[:, 0].clone()
         """, """
         try:
             return x.view(x.shape[0], 8, -1).sum(-1).sum(-1)
         except RuntimeError:
             return x.sum(-1)
         """),
]  # fmt: skip

TYPES = [
    case("float64", "softmax", "wrong-result", "return torch.softmax(x.double(), -1)",
         "return torch.softmax(x.double(), -1).to(x.dtype)"),
    case("float16 result", "row_sum", "wrong-result", "return x.sum(-1).half()",
         "return x.sum(-1, dtype=torch.float64).float()"),
    case("another shape", "row_sum", "wrong-result", "return x.sum(-1, keepdim=True)",
         "return x.sum(-1, keepdim=True).squeeze(-1)"),
    case("a tuple", "softmax", "wrong-result", "return (torch.softmax(x, -1),)",
         "(y,) = (torch.softmax(x, -1),)\nreturn y"),
    case("an array of numpy", "softmax", "wrong-result", "NUMPY; return e",
         "NUMPY; return torch.from_numpy(e)"),
    case("computed when it is read", "softmax", "wrong-result", """
         class Lazy(torch.Tensor):
             @classmethod
             def __torch_function__(cls, function, types, arguments=(), more=None):
                 plain = [torch.softmax(a.as_subclass(torch.Tensor), -1) if isinstance(a, Lazy) else a for a in arguments]
                 return function(*plain, **(more or {}))
         def candidate(x):
             return x.clone().as_subclass(Lazy)
         """, """
         class Eager(torch.Tensor):
             pass
         def candidate(x):
             return torch.softmax(x.clone().as_subclass(Eager), -1).as_subclass(torch.Tensor)
         """),
    case("a parameter", "softmax", "wrong-result", "return torch.nn.Parameter(torch.softmax(x, -1))",
         "return torch.nn.Parameter(torch.softmax(x, -1)).data"),
    case("a sparse tensor", "softmax", "wrong-result", "return torch.softmax(x, -1).to_sparse()",
         "return torch.softmax(x, -1).to_sparse().to_dense()"),
    case("a meta tensor", "softmax", "wrong-result", "return torch.empty_like(x, device='meta')",
         "torch.empty_like(x, device='meta')\nreturn torch.softmax(x, -1)"),
    case("a view into the inputs", "row_sum", "aliases", "return x[:, 0]",
         "return x.sum(-1)[:]"),
]  # fmt: skip

PROCESS = [
    case("a thread fills the result", "softmax", "threads", """
         import threading
         def candidate(x):
             y = torch.empty_like(x)
             threading.Thread(target=lambda: y.copy_(torch.softmax(x.clone(), -1))).start()
             return y
         """, """
         import threading
         lock = threading.Lock()
         def candidate(x):
             with lock:
                 return torch.softmax(x, -1)
         """),
    case("a thread that stays", "softmax", "threads", """
         import threading, time
         def poll():
             while True:
                 time.sleep(0.001)
         threading.Thread(target=poll, daemon=True).start()
         def candidate(x):
             return torch.softmax(x, -1)
         """, """
         import threading
         thread = threading.Thread(target=lambda: None)
         thread.start()
         thread.join()
         def candidate(x):
             return torch.softmax(x, -1)
         """),
    case("a pool of threads", "row_sum", "threads", """
         from concurrent.futures import ThreadPoolExecutor
         pool = ThreadPoolExecutor(2)
         def candidate(x):
             return pool.submit(lambda: x.sum(-1)).result()
         """, """
         def candidate(x):
             return (lambda: x.sum(-1))()
         """),
    case("a process that is started", "softmax", "processes", """
         import subprocess
         def candidate(x):
             subprocess.run(["true"])
             return torch.softmax(x, -1)
         """, """
         import subprocess
         subprocess.run(["true"])
         def candidate(x):
             return torch.softmax(x, -1)
         """),
    case("a fork", "softmax", "processes inaccurate not-finite", """
         import os
         def candidate(x):
             if os.fork() == 0:
                 os._exit(0)
             return torch.softmax(x, -1)
         """, "import os\nos.getpid()\nreturn torch.softmax(x, -1)"),
    case("the end of the process", "softmax", "crashed", "import os\nos._exit(0)", PLAIN),
    case("the interpreter's exit", "softmax", "crashed", "raise SystemExit(0)",
         "try:\n    raise ValueError\nexcept ValueError:\n    return torch.softmax(x, -1)"),
    case("a segmentation fault", "softmax", "crashed", "import ctypes\nctypes.string_at(0)",
         "import ctypes\nctypes.string_at(x.data_ptr(), 4)\nreturn torch.softmax(x, -1)"),
    case("an exception", "softmax", "crashed", "raise KeyError(1)", "return torch.softmax(x, -1)"),
    case("a file with errors", "softmax", "unloadable", "candidate = nothing",
         "candidate = lambda x: torch.softmax(x, -1)"),
]  # fmt: skip

INSPECTION = [
    case("copying replaced", "softmax", "patches", """
         original = torch.Tensor.copy_
         torch.Tensor.copy_ = lambda self, other, *more: self
         candidate = lambda x: torch.softmax(x, -1)
         """, """
         original = torch.Tensor.copy_
         candidate = lambda x: original(torch.empty_like(x), torch.softmax(x, -1))
         """),
    case("the clock replaced", "softmax", "patches", """
         import time
         time.perf_counter = lambda: 0.0
         candidate = lambda x: torch.softmax(x, -1)
         """, """
         import time
         clock = time.perf_counter
         def candidate(x):
             clock()
             return torch.softmax(x, -1)
         """),
    case("the reference's function replaced", "softmax", "patches", """
         torch.softmax = F.softmax = lambda x, dim: torch.zeros_like(x)
         candidate = lambda x: x.softmax(-1)
         """, "from torch import softmax\nreturn softmax(x, -1)"),
    case("the comparison replaced", "softmax", "patches", """
         torch.allclose = torch.equal = lambda *anything, **more: True
         candidate = lambda x: x.softmax(-1)
         """, "torch.equal(x, x)\nreturn x.softmax(-1)"),
    case("synchronisation replaced", "softmax", "patches", """
         torch.cuda.synchronize = lambda device=None: None
         candidate = lambda x: x.softmax(-1)
         """, "torch.cuda.is_available()\nreturn x.softmax(-1)"),
    case("the judge's function replaced", "softmax", "patches", """
         import gpudeck.accel.search.worker as worker
         worker._copy = lambda target, source: target
         candidate = lambda x: x.softmax(-1)
         """, """
         import gpudeck.accel.search.tasks as tasks
         candidate = tasks.torch_softmax
         """),
    case("the judge's code replaced", "softmax", "patches", """
         import gpudeck.accel.search.worker as worker
         worker.Worker._wrong.__code__ = (lambda self, out, wanted: None).__code__
         candidate = lambda x: x.softmax(-1)
         """, "candidate = lambda x: x.softmax(-1)"),
    case("replaced within a call", "softmax", "patches", """
         def candidate(x):
             torch.isfinite = lambda y: torch.ones_like(y)
             return x.softmax(-1)
         """, "torch.isfinite(x)\nreturn x.softmax(-1)"),
    case("a built-in function replaced", "softmax", "patches crashed", """
         import builtins
         builtins.isinstance = lambda *anything: True
         candidate = lambda x: x.softmax(-1)
         """, "isinstance(x, torch.Tensor)\nreturn x.softmax(-1)"),
    case("the frames of the caller", "softmax", "inspects", """
         import sys
         def candidate(x):
             sys._getframe(1).f_locals
             return x.softmax(-1)
         """, "import sys\nsys.getrecursionlimit()\nreturn x.softmax(-1)"),
    case("the stack", "softmax", "inspects", """
         import inspect
         def candidate(x):
             inspect.currentframe().f_back
             return x.softmax(-1)
         """, "import inspect\ninspect.isfunction(x)\nreturn x.softmax(-1)"),
    case("all objects", "softmax", "inspects", """
         import gc
         found = [o for o in gc.get_objects() if type(o).__name__ == "Worker"]
         candidate = lambda x: x.softmax(-1)
         """, """
         import gc
         gc.collect()
         candidate = lambda x: x.softmax(-1)
         """),
    case("who refers to an input", "softmax", "inspects", """
         import gc
         def candidate(x):
             gc.get_referrers(x)
             return x.softmax(-1)
         """, "import gc\ngc.isenabled()\nreturn x.softmax(-1)"),
    case("a trace function", "softmax", "inspects", """
         import sys
         sys.setprofile(lambda *anything: None)
         candidate = lambda x: x.softmax(-1)
         """, "import sys\nsys.getprofile()\nreturn x.softmax(-1)"),
    case("the memory file of the process", "softmax", "inspects", """
         with open("/proc/self/maps") as f:
             f.read(10)
         candidate = lambda x: x.softmax(-1)
         """, "from pathlib import Path\nPath('/').exists()\nreturn x.softmax(-1)"),
]  # fmt: skip

LIBRARY = [
    case("the library's operator", "softmax", "library", PLAIN, "NUMPY; return torch.from_numpy(e)", own=True),
    case("the operator by its other name", "softmax", "library",
         "return torch.ops.aten._softmax(x, -1, False)",
         "y = torch.empty_like(x); NUMPY; y.numpy()[:] = e; return y", own=True),
    case("a module of the library", "softmax", "library", """
         module = torch.nn.Softmax(-1)
         candidate = lambda x: module(x)
         """, """
         def candidate(x):
             a = x.numpy()
             e = numpy.exp2((a - a.max(-1, keepdims=True)) * numpy.float32(1.4426950408889634))
             return torch.from_numpy(e / e.sum(-1, keepdims=True))
         """, own=True),
    case("the library after an exception", "row_sum", "library", """
         try:
             raise RuntimeError("no such kernel")
         except RuntimeError:
             return x.sum(-1)
         """, """
         try:
             raise RuntimeError("no such kernel")
         except RuntimeError:
             return torch.from_numpy(x.numpy().sum(-1, dtype=numpy.float64).astype(numpy.float32))
         """, own=True),
    case("the library for odd sizes", "softmax", "library", """
         if x.shape[1] % 8:
             return torch.softmax(x, -1)
         NUMPY; return torch.from_numpy(e)
         """, """
         if x.shape[1] % 8:
             a = x.numpy().astype(numpy.float64)
             e = numpy.exp(a - a.max(-1, keepdims=True))
             return torch.from_numpy((e / e.sum(-1, keepdims=True)).astype(numpy.float32))
         NUMPY; return torch.from_numpy(e)
         """, own=True),
    case("the library for a part", "rms_norm", "library", """
         def candidate(x, w):
             r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5).numpy()
             return torch.from_numpy(x.numpy() * r * w.numpy())
         """, """
         def candidate(x, w):
             a = x.numpy()
             r = 1 / numpy.sqrt((a * a).mean(-1, keepdims=True) + numpy.float32(1e-5))
             return torch.from_numpy(a * r * w.numpy())
         """, own=True),
]  # fmt: skip


def small(name, own=False):
    """Return the task of a case with sizes that take little time."""
    task = task_of(name, torch.float32, {})
    sizes = {key: _SMALL[key] for key in task.sizes}
    return dataclasses.replace(task, own=own, sizes=sizes)


CASES = [*RESULTS, *CACHES, *PRECISION, *SPECIAL, *TYPES, *PROCESS, *INSPECTION, *LIBRARY]
