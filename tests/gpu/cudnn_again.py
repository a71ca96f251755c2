"""Looks again for what was seen once: cuDNN's backward, after the memory-efficient forward, with
a relative error of 0.7 in dq.

    python -m tests.gpu.cudnn_again [--seconds 60]

The shape and dtypes of that test (batch 2, 4 heads, 256 queries, head size 64, causal, bf16), new
inputs every time; every other time in memory that was NaN before, which would show what reads what
nobody wrote. Says which gradient was wrong, and by which seed. Exit status 1: it was wrong again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch

from gpudeck.accel.attention.inputs import arrange, problem_of, rules_of
from gpudeck.accel.attention.passes import backward, forward

SHAPE = (2, 4, 256, 64)
WRONG = 0.05
"""Relative error; rounding makes about a hundredth of it."""
FORWARDS = ("efficient", "cudnn", "math")


def errors(seed: int, first: str, poisoned: bool) -> dict[str, float]:
    """Of dq, dk, dv, relative to those of `math`."""
    torch.manual_seed(seed)
    q, k, v, dout = (torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    x = arrange(q, k, v, None, None, "bhsd")
    p = problem_of(x, rules_of(q, causal=True))
    if poisoned:
        nan = [torch.full((2**n,), torch.nan, device="cuda") for n in range(8, 23)]
        del nan  # the allocator gives this memory to whoever asks next
    exact = backward(dout, x, *forward(x, p, "math"), p, "math")[:3]
    got = backward(dout, x, *forward(x, p, first), p, "cudnn")[:3]
    return {
        name: float((a - b).norm() / b.norm())
        for name, a, b in zip(("dq", "dk", "dv"), got, exact, strict=True)
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    end = time.monotonic() + parser.parse_args().seconds
    if not torch.cuda.is_available():
        raise SystemExit("this looks at cuDNN on a GPU, and torch can use none here")
    wrong: Counter[str] = Counter()
    seed = 0
    while time.monotonic() < end:
        first, poisoned = FORWARDS[seed % len(FORWARDS)], bool(seed // len(FORWARDS) % 2)
        for name, error in errors(seed, first, poisoned).items():
            if not error < WRONG:
                wrong[f"{name} after {first}{', in memory that was NaN' if poisoned else ''}"] += 1
                print(
                    f"seed {seed}: {name} is off by {error:.3g} after {first}, poisoned:"
                    f" {poisoned}",
                    flush=True,
                )
        seed += 1
    print(
        f"{seed} problems, {wrong.total()} gradients wrong {dict(wrong)}, cuDNN"
        f" {torch.backends.cudnn.version()}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
