"""Invented models that are served, and one that could be."""

from __future__ import annotations

import math

import msgspec

from gpudeck.accel.serving.memory import CacheError, Footprint
from gpudeck.app.models.requests import ServedNow
from gpudeck.assistant.library.describe import Model
from gpudeck.assistant.serve.control_messages import Served

GIB = 2**30
QWEN = Model(
    "/m/Qwen3-8B", "Qwen3-8B", 16_400_000_000, 8_190_735_360, 36, 4096, 151_936, "BF16",
    needs={"cpu": 16_400_000_000, "cuda": 16_400_000_000}, family="Qwen 3", chats=True,
    footprint=Footprint(
        "Qwen3-8B", 40960, 16_400_000_000, 7_568_405_504, 622_329_856, 73_728, 576
    ),
)  # fmt: skip
SMALL = Model(
    "/m/rwkv7-small", "rwkv7-small", 26_400_000, 13_200_000, 8, 256, 8192, "BF16",
    "flash-linear-attention", {"cpu": 53_000_000, "cuda": 27_000_000},
)  # fmt: skip
_LLAMA = Footprint(
    "Llama-3.1-8B-Instruct", 16384, 16_060_000_000, 7_505_000_000, 525_336_576, 65_536, 512
)
_PHI = Footprint("Phi-4-mini", 131_072, 7_672_000_000, 3_221_000_000, 614_000_000, 65_536, 512)
MODELS = (
    SMALL,
    QWEN,
    Model(
        "/m/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct", 16_060_000_000, 8_030_261_248, 32,
        4096, 128_256, "BF16", family="Llama", chats=True, footprint=_LLAMA,
    ),
    Model(
        "/m/Phi-4-mini", "Phi-4-mini", 7_672_000_000, 3_836_000_000, 32, 3072, 200_064, "BF16",
        family="Phi 3", chats=True, footprint=_PHI,
    ),
)  # fmt: skip
FIGURES = {
    "running": 5, "waiting": 2, "blocks": 5120, "used_blocks": 1740, "known_blocks": 610,
    "tokens_per_second": 812.0, "prompt_tokens": 90_000, "cached_tokens": 55_000,
    "proposed": 400, "accepted": 240,
}  # fmt: skip
LLAMA = Served(
    "Llama-3.1-8B-Instruct", "/m/Llama-3.1-8B-Instruct", 8420, 4711, "lease", "ready",
    device="cuda", gpu="GPU-0", weights="bfloat16", context=16384, cache_tokens=81920,
    cache="fp8", cache_error=CacheError(64, 0.0012, 63), seconds=6.6, figures=FIGURES,
)  # fmt: skip
LOADING = Served(
    "Phi-4-mini", "/m/Phi-4-mini", 8421, 4712, "job", "loading", done=2 * GIB, total=7 * GIB,
    seconds=1.5,
)  # fmt: skip
MINUTE = tuple(
    ServedNow(
        (
            msgspec.structs.replace(
                LLAMA,
                figures={
                    **FIGURES,
                    "tokens_per_second": 640.0 + 190 * math.sin(at / 7) * math.sin(at / 3),
                    "used_blocks": 900 + 14 * at,
                    "running": 3 + at % 5 // 2,
                    "waiting": at % 9 // 4,
                    "cached_tokens": 40_000 + 250 * at,
                },
            ),
            LOADING,
        ),
        48 * GIB,
    )
    for at in range(60)
)
"""What is served, second by second, before NOW."""
NOW = ServedNow((LLAMA, LOADING), 48 * GIB)
