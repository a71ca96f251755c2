"""The kernels of serving on a GPU beside those of a CPU. On a machine with a GPU:

python -m pytest tests/gpu -n 0
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpudeck.accel.serving import cpu, gpu, tiny
from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import PagedCache, Place
from gpudeck.accel.serving.engine import Engine
from gpudeck.accel.serving.linear import Format, Heads, Linear, Norm
from gpudeck.accel.serving.request import Piece, Request, Sampling
from gpudeck.accel.serving.rotary import Rope
from gpudeck.accel.serving.tokens import Tokenizer
from gpudeck.accel.serving.transformer import _Loader, load, rotation
from tests.unit.accel.serving.serving_models import FAMILIES, oracle
from tests.unit.accel.serving.test_serving_gpu import config, drawn, off

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

KINDS = ["dense", "int8", "fp8", "int4"]
GPU, BF16 = torch.device("cuda", 0), torch.bfloat16


def posed(kind: str, rows: int, columns: int, tokens: int) -> tuple[Linear, Linear, torch.Tensor]:
    """Return a matrix as a GPU and a CPU have it, and vectors that both can represent."""
    linear = Linear("dense", drawn(rows, columns).to(BF16).float(), bias=drawn(rows, seed=3))
    kept = linear.quantized(kind)  # type: ignore[arg-type]
    return kept.to(GPU, BF16), kept.as_dense(torch.float32), drawn(tokens, columns, seed=1).to(BF16)


def on_gpu(norm: Norm) -> Norm:
    return norm._replace(weight=norm.weight.to(GPU))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [(272, 640), (1024, 4096), (512, 14336)])
@pytest.mark.parametrize("tokens", [1, 3, 70])
def test_products(kind: str, rows: int, columns: int, tokens: int) -> None:
    there, here, x = posed(kind, rows, columns, tokens)
    norm, add = Norm(drawn(columns, seed=2) + 1, 1e-6), drawn(tokens, rows, seed=4).to(BF16)
    for by, plus in ((None, None), (norm, None), (norm, add)):
        known = cpu.multiply(here, x.float(), by, None if plus is None else plus.float())
        given = None if plus is None else plus.to(GPU)
        made = gpu.multiply(there, x.to(GPU), by and on_gpu(by), given)
        assert made.dtype == BF16 and off(made.cpu(), known) < 6e-3
        made = gpu.multiply(there, x.to(GPU), by and on_gpu(by), given, precise=True)
        assert made.dtype == torch.float32 and off(made.cpu(), known) < 6e-3
    gate = replace(here, bias=None)
    for activation in ("silu", "gelu_tanh"):
        known = cpu.gated(gate, x.float() / 8, norm, activation)
        made = gpu.gated(replace(there, bias=None), x.to(GPU) / 8, on_gpu(norm), activation)
        assert off(made.cpu(), known) < 1.2e-2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("turned", [True, False])
def test_the_vectors_of_one_token_are_stored(kind: str, size: int, turned: bool) -> None:
    shape = config(8, 2, size)
    there, here, x = posed(kind, 12 * size, 640, 1)
    norm, heads = Norm(drawn(640, seed=2) + 1, 1e-6), Heads(8, 2, None)
    caches = [
        PagedCache(shape, 8, device, dtype)
        for device, dtype in ((GPU, BF16), (torch.device("cpu"), torch.float32))
    ]
    for cache in caches:
        cache.values[0].zero_()
    turn = None
    if turned:
        turn = rotation(Rope(()), torch.tensor([900]), 0.7 ** torch.arange(size // 2))
    slots = torch.tensor([53])
    given = turn and (turn[0].to(GPU), turn[1].to(GPU))
    stored = Place(given, slots.to(GPU), caches[0], 0)
    q = gpu.queries(there, x.to(GPU), on_gpu(norm), heads, stored)
    known = cpu.queries(here, x.float(), norm, heads, Place(turn, slots, caches[1], 0))
    assert off(q.cpu(), known) < 6e-3
    assert off(caches[0].values[0].cpu(), caches[1].values[0]) < 6e-3


@pytest.mark.parametrize("weights", ["bfloat16", "fp8", "int8"])
def test_an_answer_has_about_the_probabilities_of_a_cpu(
    tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is a graph; the CPU reads the GPU's tokens, with the same rounded weights."""
    tiny.make(tmp_path)
    engine = Engine.load(tmp_path, "cuda", weights, cache_tokens=512)  # type: ignore[arg-type]
    asked = engine.request("The GPU is", 24, Sampling(0.0, logprobs=0))
    stream = engine.submit(replace(asked, ignore_end=True))
    while engine.step():
        pass
    made = [c for e in iter(stream.take, None) if isinstance(e, Piece) for c in e.choices]
    text = torch.tensor([*asked.prompt, *(choice.token for choice in made)])
    kind: Format = "dense" if weights == "bfloat16" else weights  # type: ignore[assignment]
    with monkeypatch.context() as patched:
        patched.setattr(_Loader, "_kept", lambda self, m: m.quantized(kind).as_dense(torch.float32))
        known = load(tmp_path)
    at, rows = torch.arange(len(text)), torch.zeros(len(text), dtype=torch.int32)
    tables, parts = torch.arange(32, dtype=torch.int32).unsqueeze(0), ((len(text), len(text)),)
    cache = PagedCache(known.config, 32, known.device, known.dtype)
    found = known.forward(Batch(text, at, at, rows, tables, at, parts), cache).log_softmax(1)
    # activations in bfloat16 alone move single logarithms by up to 0.16 (measured on a CPU)
    for place, choice in enumerate(made, len(asked.prompt) - 1):
        assert abs(float(found[place, choice.token]) - choice.logprob) < 0.2
    assert len(made) == 24


@pytest.mark.parametrize("family", ["Gemma 4, small", "Gemma 4, large"])
def test_gemma_4_is_as_near_to_exact_logits_as_transformers(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads of 256 with windows and of 512 without: a prompt in chunks, then steps in graphs.

    Transformers reads our text in bfloat16, too; the exact logits are of the same weights.
    """
    kind, sizes = FAMILIES[family]
    heads = {"head_dim": 256, "global_head_dim": 512}
    monkeypatch.setitem(FAMILIES, family, (kind, sizes | heads))
    model = oracle(family, tmp_path / "model")
    tiny.make(tmp_path / "tiny")
    ours = load(tmp_path / "model", "cuda", "bfloat16")
    cache = PagedCache(ours.config, 32, ours.device, ours.dtype)
    engine = Engine(ours, Tokenizer.load(tmp_path / "tiny"), None, cache, step_tokens=64)
    prompt = torch.randint(3, 320, (150,), generator=torch.Generator().manual_seed(2)).tolist()
    asked = Request(tuple(prompt), 48, Sampling(0.0, logprobs=0), ignore_end=True)
    stream = engine.submit(asked)
    while engine.step():
        pass
    made = [c for e in iter(stream.take, None) if isinstance(e, Piece) for c in e.choices]
    text = torch.tensor([[*asked.prompt, *(choice.token for choice in made)]])
    places = torch.arange(len(made)) + len(prompt) - 1
    chosen = text[0, places + 1]
    half = (
        type(model)
        .from_pretrained(tmp_path / "model", dtype=BF16, attn_implementation="eager")
        .to(GPU)
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(BF16))
        theirs = half(text.to(GPU)).logits[0].cpu().double().log_softmax(1)
        exact = model.double()(text).logits[0].log_softmax(1)
    known = exact[places, chosen]
    rounded = off(theirs[places, chosen], known)
    found = off(torch.tensor([choice.logprob for choice in made]), known)
    print(f"{family}: transformers {rounded:.2e} from exact logarithms, ours {found:.2e}")
    assert len(made) == 48 and found < 2 * rounded
