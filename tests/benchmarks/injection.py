"""Prove linked attention on a GPU, and measure our attention in JAX there.

    python -m tests.benchmarks.injection [PART ...] --out FOLDER [--device cpu]

It needs torch with CUDA, jax with CUDA, cupy, timm and msgspec.

The part `jax` compares `accel.jax.attention` with what JAX offers, `arrays` attends on arrays of
CuPy, `proofs` runs `gpudeck inject prove --device cuda` on modules as people write them, and
`vision` patches models of timm. A part that cannot run says why, and the others go on. With
`--device cpu` the program itself is tried: sizes are small, and the times mean nothing.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.rows import RESULTS, context, write

SAMPLES = {
    "causal.py": """
import math
import torch
from torch import nn
from torch.nn import functional as F

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        size = config.block_size
        self.register_buffer("seen", torch.ones(size, size).tril().view(1, 1, size, size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(C, 2))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.seen[:, :, :T, :T] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        return self.out((att @ v).transpose(1, 2).contiguous().view(B, T, C))
""",
    "plain.py": """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim, num_heads=8):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attn = torch.einsum("bhid,bhjd->bhij", q * self.scale, k).softmax(dim=-1)
        return self.proj(torch.einsum("bhij,bhjd->bihd", attn, v).reshape(B, N, C))
""",
    "padded.py": """
import torch
from torch import nn
import torch.nn.functional as F

class MultiHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, query, key, value, mask=None):
        def heads(x):
            return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)
        q, k, v = heads(self.q(query)), heads(self.k(key)), heads(self.v(value))
        scores = torch.matmul(q, k.transpose(-2, -1)) / self.d_k ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        out = torch.matmul(F.softmax(scores, dim=-1), v)
        return out.transpose(1, 2).contiguous().view(query.size(0), -1, self.h * self.d_k)
""",
}
Row = dict[str, Any]


def row(part: str, case: str, **values: Any) -> Row:
    empty = dict.fromkeys(
        ("dtype", "passed", "error_before", "error_after", "ms_before", "ms_after",
         "mib_kept_before", "mib_kept_after", "ran"), "",
    )  # fmt: skip
    return {"part": part, "case": case, **empty, **values}


def proofs(device: str) -> Iterator[Row]:
    """Run the command on each sample."""
    folder = Path(tempfile.mkdtemp())
    for name, text in SAMPLES.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-c", "from gpudeck.app.cli.main import main; main()"]
    start = time.monotonic()
    places = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [*command, "inject", "prove", "--device", device, "--yes", "--json",
         *(str(folder / name) for name in SAMPLES)],
        capture_output=True, text=True, check=False, timeout=200,
        env=os.environ | {"GPUDECK_HOME": str(folder / "home"), "PYTHONPATH": places},
    )  # fmt: skip
    print(f"prove: exit {ended.returncode}, {time.monotonic() - start:.1f} s", ended.stderr[-2000:])
    for proof in json.loads(ended.stdout):
        print(proof["file"], proof["line"], proof["verdict"], proof["ran"], flush=True)
        for t in proof["trials"]:
            yield row(
                f"prove {Path(proof['file']).name}", t["inputs"], dtype=t["dtype"],
                passed=t["passed"], error_before=t["error_before"], error_after=t["error_after"],
                ms_before=t["ms_before"], ms_after=t["ms_after"],
                mib_kept_before=t["kept_before"] / 2**20, mib_kept_after=t["kept_after"] / 2**20,
                ran="; ".join(t["ran"]),
            )  # fmt: skip


def jax_calls(device: str) -> Iterator[Row]:
    """Compare the output, the gradients and the time with those of JAX's own attention."""
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.4"
    import jax
    import jax.numpy as jnp

    from gpudeck import accel

    print("jax", jax.__version__, jax.devices(), flush=True)
    b, h, s, d = (2, 16, 4096, 64) if device == "cuda" else (1, 2, 256, 64)
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v, dout = (jax.random.normal(key, (b, h, s, d), jnp.bfloat16) for key in keys)

    def ours(q: Any, k: Any, v: Any) -> Any:
        return accel.jax.attention(q, k, v, causal=True)

    def theirs(kind: str) -> Callable[..., Any]:
        def run(q: Any, k: Any, v: Any) -> Any:
            rows = (x.swapaxes(1, 2) for x in (q, k, v))
            out = jax.nn.dot_product_attention(*rows, is_causal=True, implementation=kind)
            return out.swapaxes(1, 2)

        return run

    def passes(f: Callable[..., Any]) -> Any:
        def both(q: Any, k: Any, v: Any) -> Any:
            out, back = jax.vjp(f, q, k, v)
            return out, back(dout.astype(out.dtype))

        return jax.jit(both)

    with jax.default_matmul_precision("highest"):
        exact = passes(theirs("xla"))(*(x.astype(jnp.float32) for x in (q, k, v)))
    results: dict[str, Any] = {}
    for name, f in (("ours", ours), ("xla", theirs("xla")), ("cudnn", theirs("cudnn"))):
        try:
            out = passes(f)(q, k, v)
            pairs = zip(jax.tree.leaves(out), jax.tree.leaves(exact), strict=True)
            error = max(_error(mine, want) for mine, want in pairs)
            results[name] = (error, _ms(jax.jit(f), q, k, v), _ms(passes(f), q, k, v))
        except Exception as e:  # noqa: BLE001 - one implementation may be missing
            print(name, type(e).__name__, str(e)[:500], flush=True)
    for peer in ("xla", "cudnn"):
        for n, what in ((1, "forward"), (2, "forward and backward")):
            if peer in results and "ours" in results:
                yield row(
                    f"jax beside {peer}", f"{what}, causal, {b}x{h}x{s}x{d}", dtype="bfloat16",
                    error_before=results[peer][0], error_after=results["ours"][0],
                    passed=results["ours"][0] <= 2 * results[peer][0] + 1e-2,
                    ms_before=results[peer][n], ms_after=results["ours"][n], ran="accel.jax",
                )  # fmt: skip
    small = [x[:, :2, :256].astype(jnp.float16) for x in (q, k, v)]
    bias = jax.random.normal(keys[0], (2, 256, 256), jnp.float16)
    mapped = jax.jit(jax.vmap(lambda *x: accel.jax.attention(*x, bias=bias)))
    out = mapped(*(jnp.stack([x, x + 1]) for x in small))
    alone = accel.jax.attention(*(x + 1 for x in small), bias=bias)
    gap = float(jnp.abs(out[1].astype(jnp.float32) - alone.astype(jnp.float32)).max())
    yield row("jax vmap", "2x2x2x256x64 with a bias", dtype="float16", passed=gap < 1e-2,
              error_after=gap, ran="accel.jax")  # fmt: skip


def _error(mine: Any, want: Any) -> float:
    import jax.numpy as jnp

    mine, want = mine.astype(jnp.float32), want.astype(jnp.float32)
    return float(jnp.linalg.norm(mine - want) / jnp.linalg.norm(want))


def _ms(f: Callable[..., Any], *given: Any) -> float:
    """Return the milliseconds of a call, as the median of five groups of ten."""
    import jax

    jax.block_until_ready(f(*given))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        made = [f(*given) for _ in range(10)]
        jax.block_until_ready(made)
        times.append((time.perf_counter() - start) * 100)
    return sorted(times)[2]


def arrays(device: str) -> Iterator[Row]:
    """Attend on arrays of CuPy; on a CPU, on arrays of NumPy."""
    if device == "cuda":
        import cupy as library
    else:
        import numpy as library

    from gpudeck import accel

    draw = library.random.standard_normal
    q, k, v = (draw((2, 8, 512, 64)).astype(library.float16) for _ in range(3))
    out = accel.arrays.attention(q, k, v, causal=True)
    assert isinstance(out, type(q))
    tensors = [torch.from_dlpack(x).float() for x in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    error = float((torch.from_dlpack(out).float() - want).norm() / want.norm())
    yield row(library.__name__, "2x8x512x64, causal", dtype="float16", passed=error < 2e-3,
              error_after=error, ran="accel.arrays")  # fmt: skip


MODELS = ("vit_base_patch16_224", "vit_small_patch16_224", "swin_tiny_patch4_window7_224",
          "beit_base_patch16_224", "eva02_tiny_patch14_224", "pvt_v2_b0")  # fmt: skip


def vision(device: str) -> Iterator[Row]:
    """Patch models of timm, with torch's fused attention and with the one written by hand."""
    import timm

    from gpudeck.accel.inject import record
    from gpudeck.accel.inject.live import patch

    print("timm", timm.__version__, flush=True)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    for name in MODELS:
        net = timm.create_model(name, pretrained=False).eval().to(device, dtype)
        x = torch.randn(64 if device == "cuda" else 1, 3, 224, 224, device=device, dtype=dtype)
        for fused in (True, False):
            for module in net.modules():
                if hasattr(module, "fused_attn"):
                    module.fused_attn = fused
            with torch.no_grad():
                want = copy.deepcopy(net).double()(x.double())
                before, ms_before = _timed(net, x)
                with patch(net):
                    record.clear()
                    after, ms_after = _timed(net, x)
            errors = [float((y.double() - want).norm() / want.norm()) for y in (before, after)]
            yield row("timm", f"{name}, fused {fused}", dtype=str(dtype).removeprefix("torch."),
                      passed=errors[1] <= 2 * errors[0] + 1e-5, error_before=errors[0],
                      error_after=errors[1], ms_before=ms_before, ms_after=ms_after,
                      ran="; ".join(sorted({str(r["what"]) for r in record.report()})))  # fmt: skip


def _timed(net: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return the output, and the milliseconds of a call as the fastest of five groups of five."""
    out, times = net(x), []
    for _ in range(5 if x.is_cuda else 1):
        start = time.perf_counter()
        for _ in range(5 if x.is_cuda else 1):
            out = net(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 200)
    return out, min(times)


def main() -> None:
    """Run all parts and write the rows."""
    parser = argparse.ArgumentParser()
    parts = {"jax": jax_calls, "arrays": arrays, "proofs": proofs, "vision": vision}
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    seen: list[Row] = []
    cuda = args.device == "cuda"
    wanted = args.parts or list(parts)
    packages = ["torch", "triton", *(["jax", "jaxlib"] if "jax" in wanted else [])]
    about = context(torch.cuda.get_device_name() if cuda else "CPU", packages)
    for part in (parts[name] for name in wanted):
        start = time.monotonic()
        try:
            for each in part(args.device):
                print({k: v for k, v in each.items() if v != ""}, flush=True)
                seen.append(each | about)
        except Exception:  # noqa: BLE001 - the other parts go on
            traceback.print_exc()
        print(f"{part.__name__}: {time.monotonic() - start:.1f} s", flush=True)
        write("injection", seen or [row("none", "nothing ran") | about], args.out)


if __name__ == "__main__":
    main()
