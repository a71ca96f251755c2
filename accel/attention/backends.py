"""torch's own attention kernels, each by name. Every one says up front whether it can solve a problem, and if not, why."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention, can_use_efficient_attention, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from accel.attention.problem import Problem, dtype_name

# torch's choice of kernel is global to the process: two threads that set it at once would run each other's backend.
_SELECTING = threading.Lock()


@dataclass(frozen=True)
class TorchBackend:
    """A backend of torch.nn.functional.scaled_dot_product_attention."""

    name: str
    kernel: SDPBackend
    rules: Callable[[Problem], Iterator[str]]
    """What keeps it from solving the problem, as far as it does not depend on torch's version."""
    torch_allows: Callable[[SDPAParams, bool], bool] | None = None
    """torch's own verdict on CUDA, which does depend on the version."""
    own_lower_right: bool = False
    """Whether on CUDA it masks bottom-right by itself, so that no mask of seq_q x seq_k elements is needed."""

    def refusal(self, problem: Problem) -> str | None:
        """Why it cannot solve `problem`, in words; None where it can."""
        known = "; ".join(self.rules(problem))
        if known or problem.empty or self.torch_allows is None or problem.device.type != "cuda" or not torch.cuda.is_available():
            return known or None
        return self._refusal_of_torch(problem, self.torch_allows)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
        """Run it: [batch, heads, seq_q, head_dim] in the dtype of q. Raises RuntimeError where torch refuses after all."""
        # Queries that see no key are left out; what remains is a square, which every kernel's causal mask fits.
        seeing = q[:, :, problem.blind :]
        mask = self._mask(problem) if problem.mask == "lower right" else None
        with _SELECTING, sdpa_kernel(self.kernel):
            out = scaled_dot_product_attention(
                seeing,
                k,
                v,
                attn_mask=mask,
                is_causal=problem.mask == "square",
                scale=problem.scale,
                enable_gqa=problem.heads != problem.kv_heads,
            )
        return pad(out, (0, 0, problem.blind, 0)) if problem.blind else out

    def _mask(self, problem: Problem) -> Tensor:
        """The bottom-right mask: torch's `is_causal` would align top-left."""
        if problem.device.type == "cuda" and self.own_lower_right:
            from torch.nn.attention.bias import causal_lower_right  # takes seconds to import, and few need it

            return causal_lower_right(problem.seq_q, problem.seq_k)
        seen = torch.ones(problem.seq_q, problem.seq_k, dtype=torch.bool, device=problem.device)
        return seen.tril(problem.seq_k - problem.seq_q)

    def _refusal_of_torch(self, problem: Problem, allows: Callable[[SDPAParams, bool], bool]) -> str | None:
        """Ask torch about tensors like the real ones that take no memory."""
        p = problem
        with FakeTensorMode(), torch.cuda.device(p.device):
            q = torch.empty(p.batch, p.heads, p.seq_q - p.blind, p.head_dim, dtype=p.dtype, device=p.device, requires_grad=p.grad)
            k = torch.empty(p.batch, p.kv_heads, p.seq_k, p.head_dim, dtype=p.dtype, device=p.device, requires_grad=p.grad)
        params = SDPAParams(q, k, k, None, 0.0, p.mask == "square", p.heads != p.kv_heads)
        with _SELECTING, sdpa_kernel(self.kernel), torch.cuda.device(p.device), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if allows(params, True):
                return None
        reasons = [str(w.message).split(" (Triggered", 1)[0].strip() for w in said]
        return f"is refused by torch {torch.__version__}: {' '.join(reasons) or 'it does not say why'}"


def _flash(p: Problem) -> Iterator[str]:
    if p.device.type == "cuda":
        yield from _half_precision_on_ampere(p)
        if p.head_dim > 256:
            yield f"takes head sizes up to 256 on CUDA, not {p.head_dim}"
    yield from _dense(p)


def _cudnn(p: Problem) -> Iterator[str]:
    yield from _on_cuda(p)
    yield from _half_precision_on_ampere(p)
    if p.head_dim % 8 or p.head_dim > 256:
        yield f"takes head sizes that are multiples of 8 up to 256, not {p.head_dim}"
    if p.mask == "lower right":
        yield f"masks causal sequences of one length only, not {p.seq_q} over {p.seq_k}"
    yield from _dense(p)


def _efficient(p: Problem) -> Iterator[str]:
    yield from _on_cuda(p)
    if p.dtype == torch.bfloat16 and p.capability is not None and p.capability < (8, 0):
        yield f"takes bfloat16 from compute capability 8.0 on; this GPU has {_version(p)}"
    if p.mask == "lower right" and p.heads != p.kv_heads:
        yield f"cannot mask {p.seq_q} over {p.seq_k} tokens with grouped heads"
    yield from _dense(p)


def _math(p: Problem) -> Iterator[str]:
    yield from ()


def _on_cuda(p: Problem) -> Iterator[str]:
    if p.device.type != "cuda":
        yield f"needs a CUDA GPU; the tensors are on {p.device}"


def _half_precision_on_ampere(p: Problem) -> Iterator[str]:
    if p.dtype not in (torch.float16, torch.bfloat16):
        yield f"takes float16 and bfloat16, not {dtype_name(p.dtype)}"
    if p.capability is not None and p.capability < (8, 0):
        yield f"needs compute capability 8.0 or newer; this GPU has {_version(p)}"


def _dense(p: Problem) -> Iterator[str]:
    if not p.dense:
        yield "needs the elements of a head side by side in memory (call .contiguous() on q, k and v)"


def _version(p: Problem) -> str:
    return "none" if p.capability is None else f"{p.capability[0]}.{p.capability[1]}"


TORCH_BACKENDS: tuple[TorchBackend, ...] = (
    TorchBackend("flash", SDPBackend.FLASH_ATTENTION, _flash, can_use_flash_attention, own_lower_right=True),
    TorchBackend("cudnn", SDPBackend.CUDNN_ATTENTION, _cudnn, can_use_cudnn_attention),
    TorchBackend("efficient", SDPBackend.EFFICIENT_ATTENTION, _efficient, can_use_efficient_attention, own_lower_right=True),
    TorchBackend("math", SDPBackend.MATH, _math),
)
