"""Measure serving: one stream, many streams, prefixes, times to the first token, attention.

python -m tests.benchmarks.serving [--device cuda] [--only many,small] [--out FOLDER]

Models have random weights of real shapes, made on the device. Rows go to serving.csv, and the
kernels of a token to serving_kernels.csv. With `--layers 2` the same kernels are compiled and
nothing worth writing down is measured.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import platform
import statistics
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpudeck.accel.runtime import power
from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.cache import BLOCK, PagedCache
from gpudeck.accel.serving.engine import Engine
from gpudeck.accel.serving.families import Config, read_config
from gpudeck.accel.serving.linear import Linear
from gpudeck.accel.serving.request import Ended, Piece, Request, Sampling
from gpudeck.accel.serving.speculation import PromptLookup
from gpudeck.accel.serving.tokens import Tokenizer
from gpudeck.accel.serving.transformer import Transformer, _Loader, load
from tests.benchmarks.rows import context

GREEDY = Sampling(temperature=0.0)


class RandomWeights:
    """Stand for a checkpoint, with weights drawn on the device."""

    def __init__(self, config: Any, device: str) -> None:
        self._tied, self._device, self.read_bytes = config.tied, device, 0

    def __contains__(self, name: str) -> bool:
        return name == "lm_head.weight" and not self._tied

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        if len(shape) == 1:
            return torch.ones(shape, device=self._device)
        made = torch.empty(shape, device=self._device, dtype=torch.bfloat16)
        return made.normal_(std=2.0 / shape[-1] ** 0.5)

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        return Linear("dense", self.tensor(name, rows, columns))


class Bench:
    """Collect rows."""

    def __init__(self, device: str, out: Path, layers: int = 0) -> None:
        self.device, self.out, self._layers = device, out, layers
        self.rows: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self._began = time.monotonic()
        self._folder = Path(tempfile.mkdtemp())
        self.name = torch.cuda.get_device_name() if device == "cuda" else platform.processor()
        self.rate = self._memory_rate()

    def row(self, what: str, value: float, unit: str, **more: Any) -> None:
        clock = power.read(torch.device("cuda", 0))[0] if self.device == "cuda" else None
        made = {
            "figure": what, "value": f"{value:.5g}", "unit": unit, "detail": json.dumps(more),
            **context(self.name, ("torch", "triton")), "clock_mhz": round(clock or 0),
        }  # fmt: skip
        self.rows.append(made)
        at = time.monotonic() - self._began
        print(f"{at:5.0f} s  {what}: {value:.5g} {unit} {more or ''}", flush=True)
        with (self.out / "serving.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, made)
            writer.writeheader()
            writer.writerows(self.rows)

    def part(self, work: Callable[[], object]) -> None:
        """Run a part; one that fails does not end the others."""
        try:
            work()
        except Exception:  # noqa: BLE001
            traceback.print_exc()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def folder(self, shape: str) -> Path:
        """Return a folder with what describes a model, without its weights."""
        folder = self._folder / shape
        if not folder.exists():
            real = tiny._weights
            tiny._weights = lambda config, seed, dtype: iter(())
            try:
                tiny.make(folder, shape)
            finally:
                tiny._weights = real
        return folder

    def engine(self, shape: str, weights: str = "bfloat16", **more: Any) -> Engine:
        """Return an engine with a model of random weights."""
        folder = self.folder(shape)
        config = read_config(folder)
        if self._layers:
            config = shortened(config, self._layers)
        torch.manual_seed(0)
        source: Any = RandomWeights(config, self.device)
        model = _Loader(config, source, torch.device(self.device), weights).load(lambda _: None)
        tokens = more.pop("cache_tokens", 96 * 1024 if self.device == "cuda" else 8192)
        kind = more.pop("cache", "auto")
        cache = PagedCache(config, tokens // BLOCK, model.device, model.dtype, kind)
        return Engine(model, Tokenizer.load(folder), None, cache, **more)

    def sync(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _memory_rate(self) -> float:
        """Return the bytes a second of a copy, reads and writes counted."""
        size = 2**32 if self.device == "cuda" else 2**28
        source = torch.ones(size // 8, dtype=torch.int64, device=self.device)
        target = torch.empty_like(source)
        rates = []
        for _ in range(6):
            self.sync()
            began = time.perf_counter()
            target.copy_(source)
            self.sync()
            rates.append(2 * size / (time.perf_counter() - began))
        rate = statistics.median(rates[1:])
        self.row("memory rate of a copy", rate / 1e9, "GB/s")
        return rate


def shortened(config: Config, layers: int) -> Config:
    """Return a model of fewer layers."""
    return replace(
        config, layers=layers, windows=config.windows[:layers], ropes=config.ropes[:layers],
        experts=config.experts[:layers],
    )  # fmt: skip


def matrices(model: Transformer) -> list[Linear]:
    """Return the matrices that each token is multiplied with, in that order."""
    layers = [
        (layer.qkv, layer.output, layer.feed.gate_up, layer.feed.down) for layer in model._layers
    ]
    return [*itertools.chain(*layers), model._head]


def prompt(length: int, seed: int = 0, vocabulary: int = 500) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(5, vocabulary, (length,), generator=generator).tolist())


def run(engine: Engine, *requests: Request) -> list[Any]:
    """Serve requests to the end, and return their streams."""
    streams = [engine.submit(request) for request in requests]
    while any(stream.ended is None for stream in streams):
        engine.step()
        for stream in streams:
            while stream.take() is not None:
                pass
    return streams


def request(length: int, limit: int, seed: int = 0) -> Request:
    return Request(prompt(length, seed), limit, GREEDY, ignore_end=True)


def one_stream(bench: Bench, shape: str, weights: str) -> Engine:
    """Measure the tokens a second of one answer."""
    engine = bench.engine(shape, weights)
    size = sum(matrix.nbytes for matrix in matrices(engine.model))
    run(engine, request(64, 40))
    rates = []
    for seed in range(3):
        engine.submit(request(64, 200, seed + 9))
        engine.step()
        bench.sync()
        began = time.perf_counter()
        for _ in range(160):
            engine.step()
        bench.sync()
        rates.append(160 / (time.perf_counter() - began))
        while engine.step():
            pass
    rate = statistics.median(rates)
    kept = {"weights_GB": round(size / 1e9, 3), "low": min(rates), "high": max(rates)}
    bench.row(f"one stream {shape} {weights}", rate, "tok/s", **kept)
    bench.row(
        f"one stream {shape} {weights}, of the memory rate", rate * size / bench.rate, "share"
    )
    if bench.device == "cuda":
        graph = engine.runner._graphs[1]
        packed = graph.inputs[0]
        bench.sync()
        began = time.perf_counter()
        for _ in range(100):
            graph(packed)
        bench.sync()
        alone = 100 / (time.perf_counter() - began)
        bench.row(f"graph of one token {shape} {weights}", alone, "tok/s")
        bench.row(
            f"graph {shape} {weights}, of the memory rate", alone * size / bench.rate, "share"
        )
        bench.part(lambda: kernels(bench, engine, f"{shape} {weights}"))
    return engine


def kernels(bench: Bench, engine: Engine, name: str) -> None:
    """Write down where the time of one token's graph goes, kernel by kernel.

    A kernel's time is from the end of the one before to its own, as it may begin early.
    """
    graph = engine.runner._graphs[1]
    replays = 8
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(replays):
            graph(graph.inputs[0])
        bench.sync()
    trace = bench.out / "trace.json"
    profile.export_chrome_trace(str(trace))
    events = [
        event
        for event in json.loads(trace.read_text())["traceEvents"]
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    trace.unlink()
    events.sort(key=lambda event: event["ts"] + event["dur"])
    read = [matrix.nbytes for matrix in matrices(engine.model)]
    own = ("multiply", "eight_bits")
    products = [i for i, event in enumerate(events) if event["name"].startswith(own)]
    known = {}
    if len(products) == replays * len(read):
        known = dict(zip(products, read * replays, strict=True))
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    before = events[0]["ts"]
    for i, event in enumerate(events):
        end = event["ts"] + event["dur"]
        grid = str(event.get("args", {}).get("grid", ""))
        found.setdefault((event["name"][:60], grid, known.get(i, 0)), []).append(
            (end - before, event["dur"])
        )
        before = end
    rows = []
    for (kernel, grid, size), spans in found.items():
        typical = statistics.median(span for span, _ in spans)
        alone = statistics.median(span for _, span in spans)
        rows.append({
            "model": name, "kernel": kernel, "grid": grid, "a token": len(spans) / replays,
            "us": f"{typical:.2f}", "us begin to end": f"{alone:.2f}",
            "us a token": f"{typical * len(spans) / replays:.1f}", "bytes": size,
            "GB/s": f"{size / typical / 1e3:.0f}", "device": bench.name,
            "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
        })  # fmt: skip
    rows.sort(key=lambda row: -float(row["us a token"]))
    bench.kernels += rows
    for row in rows:
        print("  ", *list(row.values())[1:9], sep=" | ", flush=True)
    with (bench.out / "serving_kernels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(bench.kernels)


def early(bench: Bench, shape: str) -> None:
    """Find whether kernels should begin while the one before ends, and do so from then on."""
    from gpudeck.accel.serving import launches

    found = {}
    for begins in (True, False):
        launches.EARLY = begins
        launches._LAUNCHES.clear()
        engine = bench.engine(shape)
        run(engine, request(64, 40))
        graph = engine.runner._graphs[1]
        bench.sync()
        began = time.perf_counter()
        for _ in range(100):
            graph(graph.inputs[0])
        bench.sync()
        found[begins] = 100 / (time.perf_counter() - began)
        which = "early" if begins else "in turn"
        bench.row(f"graph of one token {shape}, kernels begin {which}", found[begins], "tok/s")
    launches.EARLY = found[True] > found[False]
    launches._LAUNCHES.clear()


def many_streams(bench: Bench, engine: Engine, streams: int, length: int, limit: int) -> None:
    """Measure the throughput of many requests at once."""
    for count in (streams, 2, 1):  # graphs and kernels
        run(engine, *(request(length, 6, 1000 + seed) for seed in range(count)))
    for seed, which in ((2000, "first run"), (3000, "second run")):
        bench.sync()
        began = time.perf_counter()
        made = run(engine, *(request(length, limit, seed + i) for i in range(streams)))
        bench.sync()
        took = time.perf_counter() - began
        assert all(stream.ended.tokens == limit for stream in made)
        name = f"{streams} streams of {length} in, {limit} out: answers, {which}"
        bench.row(name, streams * limit / took, "tok/s", seconds=took)


def prefix(bench: Bench, engine: Engine, length: int) -> None:
    """Measure the time to the first token of a second request with a long common prompt."""
    common = prompt(length, 77)
    times = []
    for seed in range(4):
        asked = Request((*common, *prompt(32, 300 + seed)), 2, GREEDY, ignore_end=True)
        bench.sync()
        began = time.perf_counter()
        stream = engine.submit(asked)
        while not stream._events:
            engine.step()
        times.append((time.perf_counter() - began) * 1e3)
        while engine.step():
            pass
    bench.row(f"first token after {length} tokens", times[0], "ms")
    bench.row(f"first token, {length} tokens shared", statistics.median(times[1:]), "ms")


def first_tokens(bench: Bench, engine: Engine, streams: int, tries: int) -> None:
    """Measure the time to the first token of short requests while others stream."""
    with engine.running():
        others = [engine.submit(request(64, 900, 4000 + seed)) for seed in range(streams)]
        reader = threading.Thread(
            target=lambda: [time.sleep(0.005) for _ in iter(lambda: _drain(others), True)]
        )
        reader.start()
        time.sleep(2.0 if bench.device == "cuda" else 0.5)
        times = []
        for seed in range(tries):
            began = time.perf_counter()
            stream = engine.submit(request(32, 2, 5000 + seed))
            for event in stream:
                if isinstance(event, Piece | Ended):
                    times.append((time.perf_counter() - began) * 1e3)
                    break
            stream.cancel()
            time.sleep(0.02)
        running = sum(other.ended is None for other in others)
        for other in others:
            other.cancel()
        reader.join()
    times.sort()
    bench.row(
        f"first token beside {streams} streams, median",
        statistics.median(times),
        "ms",
        tries=tries,
        still_streaming=running,
    )
    bench.row(
        f"first token beside {streams} streams, P99", times[int(0.99 * (len(times) - 1))], "ms"
    )


def _drain(streams: list[Any]) -> bool:
    for stream in streams:
        while stream.take() is not None:
            pass
    return all(stream.ended is not None for stream in streams)


def attention(bench: Bench, kind: str) -> float:
    """Return the bytes a second of decode attention with large caches."""
    from gpudeck.accel.runtime.graphs import Replay
    from gpudeck.accel.serving import gpu

    one = shortened(read_config(bench.folder("llama-8b")), 1)
    streams, length = 64, 8192
    blocks = length // BLOCK
    cache = PagedCache(one, streams * blocks, torch.device("cuda"), torch.bfloat16, kind)
    if kind == "auto":
        cache.values[0].normal_()
    else:
        cache.values[0].view(torch.uint8).random_(0, 100)
        cache.scales[0].fill_(0.01)
    order = torch.randperm(streams * blocks, device="cuda").int().view(streams, blocks)
    rows = torch.arange(streams, device="cuda", dtype=torch.int32)
    positions = torch.full((streams,), length - 1, device="cuda")
    q = torch.randn(streams, 32, 128, device="cuda", dtype=torch.bfloat16)
    replay = Replay(lambda x: gpu.attend_few(x, 0, order, rows, positions, cache, 0, 0.088, 0.0), q)
    for _ in range(5):
        replay(q)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(50):
        replay(q)
    torch.cuda.synchronize()
    took = (time.perf_counter() - began) / 50
    size = cache.nbytes * cache.blocks / (cache.blocks + 1)
    return size / took


TILES = {
    "dense": ((2, 2048, 4, 8), (4, 2048, 8, 8), (4, 1024, 4, 8), (2, 1024, 4, 8), (4, 2048, 4, 8),
              (2, 2048, 8, 8), (2, 4096, 8, 8), (8, 512, 4, 8)),
    "fp8": ((4, 2048, 4, 16), (2, 2048, 4, 16), (4, 2048, 8, 16), (8, 2048, 8, 16),
            (2, 4096, 4, 16), (4, 1024, 4, 16), (2, 2048, 4, 8)),
}  # fmt: skip
TILES["int8"] = TILES["fp8"]


def tiles(bench: Bench) -> None:
    """Find the fastest tile of a product with one vector for each format, and use it."""
    from gpudeck.accel.runtime.graphs import Replay
    from gpudeck.accel.serving import gpu

    shapes = ((28672, 4096), (4096, 14336), (6144, 4096))
    for kind, candidates in TILES.items():
        made = []
        for _ in range(3):  # together more than the cache holds
            for rows, columns in shapes:
                weight = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
                made.append(Linear("dense", weight).quantized(kind).to(weight.device, weight.dtype))
        size = sum(linear.nbytes for linear in made)
        vectors = [torch.randn(1, m.shape[1], device="cuda", dtype=torch.bfloat16) for m in made]
        best = (0.0, candidates[0])
        for candidate in candidates:
            try:
                gpu.ONE[kind] = gpu.Tile(*candidate)
                replay = Replay(
                    lambda *xs, made=made: [
                        gpu.multiply(m, x) for m, x in zip(made, xs, strict=True)
                    ],
                    *vectors,
                )
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(20):
                    replay._graph.replay()
                torch.cuda.synchronize()
                rate = 20 * size / (time.perf_counter() - began)
            except Exception as e:  # noqa: BLE001
                print(kind, candidate, repr(e)[:150])
                continue
            print(f"{kind} {candidate}: {rate / 1e9:.0f} GB/s", flush=True)
            best = max(best, (rate, candidate))
        gpu.ONE[kind] = gpu.Tile(*best[1])
        bench.row(f"product with one vector, {kind}", best[0] / 1e9, "GB/s", tile=best[1])


def large_caches(bench: Bench) -> None:
    """Measure decode attention with large caches."""
    for kind in ("auto", "fp8", "int8"):
        rate = attention(bench, kind)
        bench.row(f"decode attention, 64 x 8192 keys, {kind}", rate / 1e9, "GB/s")
        bench.row(f"decode attention {kind}, of the memory rate", rate / bench.rate, "share")


def cold_start(bench: Bench, shape: str) -> None:
    """Measure the time from the start of a process to the first token of a model in files."""
    import subprocess
    import sys

    from safetensors.torch import save_file

    folder = bench.folder(shape)
    config = read_config(folder)
    source: Any = RandomWeights(config, bench.device)
    c, kv = config.hidden, config.kv_heads * config.head_dim
    made = {
        "model.embed_tokens.weight": (config.vocabulary, c),
        "model.norm.weight": (c,),
        "lm_head.weight": (config.vocabulary, c),
    }
    for i in range(config.layers):
        at = f"model.layers.{i}"
        made |= {f"{at}.input_layernorm.weight": (c,),
                 f"{at}.post_attention_layernorm.weight": (c,),
                 f"{at}.self_attn.q_proj.weight": (c, c), f"{at}.self_attn.k_proj.weight": (kv, c),
                 f"{at}.self_attn.v_proj.weight": (kv, c), f"{at}.self_attn.o_proj.weight": (c, c),
                 f"{at}.mlp.gate_proj.weight": (config.intermediate, c),
                 f"{at}.mlp.up_proj.weight": (config.intermediate, c),
                 f"{at}.mlp.down_proj.weight": (c, config.intermediate)}  # fmt: skip
    names = sorted(made)
    for part in range(4):
        save_file(
            {n: source.tensor(n, *made[n]).bfloat16().cpu() for n in names[part::4]},
            folder / f"model-{part}.safetensors",
        )
    (folder / "model.safetensors").unlink()
    torch.cuda.empty_cache()
    code = (
        "from pathlib import Path; import sys; from gpudeck.accel.serving.engine import Engine; "
        "e = Engine.load(Path(sys.argv[1]), sys.argv[2], cache_tokens=16384); "
        "s = e.submit(e.request('The GPU', 1)); e.step(); print(s.take())"
    )
    times = []
    for _ in range(2):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, str(folder), bench.device], check=True)
        times.append(time.perf_counter() - began)
    bench.row("process start to the first token, 16 GB in cached files", times[-1], "s", each=times)


def correct(bench: Bench) -> None:
    """Compare the log probabilities of answers with those of transformers in fp32 on the CPU."""
    import transformers

    folder = bench.out / "tiny"
    tiny.make(folder)
    known = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = load(folder, bench.device)
    for kind in ("auto", "fp8", "int8"):
        cache = PagedCache(model.config, 256, model.device, model.dtype, kind)
        engine = Engine(model, Tokenizer.load(folder), None, cache, speculator=PromptLookup())
        asked = [
            Request(prompt(300 + seed, seed), 24, Sampling(0.0, logprobs=0), ignore_end=True)
            for seed in range(6)
        ]
        streams = [engine.submit(one) for one in asked]
        while engine.step():
            pass
        off = []
        for one, stream in zip(asked, streams, strict=True):
            made = [c for e in iter(stream.take, None) if isinstance(e, Piece) for c in e.choices]
            text = torch.tensor([[*one.prompt, *(choice.token for choice in made)]])
            with torch.no_grad():
                wanted = known(text).logits[0].log_softmax(1)
            for i, choice in enumerate(made):
                at = len(one.prompt) + i - 1
                off.append(abs(choice.logprob - float(wanted[at, choice.token])))
        bench.row(
            f"log probabilities beside transformers in fp32, cache {kind}",
            statistics.mean(off),
            "mean difference",
            most=max(off),
            count=len(off),
        )


def decoding(bench: Bench, streams: int, length: int, limit: int) -> None:
    """Compare the steps of decoding alone with transformers: all prompts have been read."""
    engine = bench.engine("llama-8b")
    run(engine, *(request(length, 6, 1000 + seed) for seed in range(streams)))
    run(engine, request(64, 6))
    loads = ((1, 64), (streams, length))
    for count, given in loads:
        # The first streams write answers while the prompts of the last are read.
        longest = limit + limit // 2
        made = [engine.submit(request(given, longest, 5000 + seed)) for seed in range(count)]
        engine.step()
        busy = engine.scheduler
        while busy.waiting or not all(one.answered for one in busy.running):
            engine.step()
        for _ in range(FIRST_STEPS):
            engine.step()
        steps = limit // 2
        bench.sync()
        began = time.perf_counter()
        for _ in range(steps):
            engine.step()
        bench.sync()
        took = time.perf_counter() - began
        assert len(busy.running) == count, [stream.ended for stream in made]
        while engine.step():
            pass
        _tell_decoding(bench, "ours", count, given, steps, took)
    del engine
    torch.cuda.empty_cache()
    for count, given in loads:
        transformers_decoding(bench, count, given, limit)


FIRST_STEPS = 8
"""Steps of decoding that are not timed."""


def transformers_decoding(bench: Bench, count: int, length: int, limit: int) -> None:
    """Measure transformers' steps with a static cache, whose forward pass it compiles itself."""
    import transformers

    torch._dynamo.reset()  # each load has its own sizes, not those of the one before as variables
    config = transformers.AutoConfig.from_pretrained(bench.folder("llama-8b"))
    with torch.device(bench.device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        ).eval()
    tokens = torch.tensor([prompt(length, seed) for seed in range(count)], device=bench.device)
    began = 0.0

    def look(ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        nonlocal began
        if ids.shape[1] == length + FIRST_STEPS:
            bench.sync()
            began = time.perf_counter()
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

    with torch.inference_mode():
        for _ in range(2):  # the first time compiles
            model.generate(
                tokens, max_new_tokens=limit, min_new_tokens=limit, do_sample=False, pad_token_id=0,
                cache_implementation="static",
                stopping_criteria=transformers.StoppingCriteriaList([look]),
            )  # fmt: skip
            bench.sync()
            took = time.perf_counter() - began
    who = f"transformers {transformers.__version__}, static cache, compiled"
    _tell_decoding(bench, who, count, length, limit - FIRST_STEPS, took)


def _tell_decoding(
    bench: Bench, who: str, count: int, length: int, steps: int, seconds: float
) -> None:
    name = f"steps of decoding, {count} streams after {length} tokens, {who}"
    bench.row(name, count * steps / seconds, "tok/s", seconds=seconds, steps=steps)


def recurrent(bench: Bench, streams: int, length: int, limit: int, shape: str) -> None:
    """Measure RWKV-7 in the same scheduler: one answer, and many at once."""
    from gpudeck.accel.rwkv.tokenizer import Tokenizer as Vocabulary
    from tests.benchmarks import rwkv_gpu

    torch.manual_seed(0)
    weights = rwkv_gpu.random_weights(*rwkv_gpu.SHAPES[shape])
    network = rwkv_gpu.ours(weights, torch.bfloat16)
    engine = Engine.of_network(
        network, Vocabulary({n + 1: bytes([n]) for n in range(256)}), streams, 2 * streams
    )
    # Answers begin one after another, so the first run meets, and compiles, each size of batch.
    turns = ((6000, "first run"), (7000, "second run"))
    for count, (first, which) in itertools.product((1, streams), turns):
        asked = [request(length, limit, first + seed) for seed in range(count)]
        bench.sync()
        began = time.perf_counter()
        made = run(engine, *asked)
        bench.sync()
        took = time.perf_counter() - began
        assert all(stream.ended.tokens == limit for stream in made)
        name = f"RWKV-7 {shape}, {count} streams of {length} in, {limit} out, {which}"
        bench.row(
            name, count * limit / took, "tok/s", seconds=took, weights_GB=network.nbytes / 1e9
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--layers", type=int, default=0, help="fewer, to compile kernels first")
    parser.add_argument("--only", help="parts, separated by commas, in the order they run")
    parser.add_argument("--out", type=Path, default=Path("tests/benchmarks/results"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    bench = Bench(args.device, args.out, args.layers)
    large, small = ("tiny", "tiny") if args.small else ("llama-8b", "llama-1b")
    streams, length, limit = (6, 100, 20) if args.small else (64, 1024, 256)
    quick = args.small or args.layers

    def many() -> None:
        engine = one_stream(bench, large, "bfloat16")
        bench.part(lambda: many_streams(bench, engine, streams, length, limit))
        bench.part(lambda: prefix(bench, engine, 600 if args.small else 8192))
        bench.part(lambda: first_tokens(bench, engine, streams - 1, 10 if quick else 100))

    parts: dict[str, Callable[[], object]] = {
        "many": many,
        "cold": lambda: cold_start(bench, large),
        "rwkv": lambda: recurrent(bench, streams, length, limit, "0.1B" if args.small else "1.5B"),
        "attention": lambda: large_caches(bench),
        "small": lambda: one_stream(bench, small, "bfloat16"),
        **{
            weights: lambda weights=weights: one_stream(bench, large, weights)
            for weights in ("fp8", "int8", "int4")
        },
        "tiles": lambda: tiles(bench),
        "early": lambda: early(bench, small),
        "correct": lambda: correct(bench),
        "decoding": lambda: decoding(bench, streams, length, limit),
    }
    needs_gpu = {"rwkv", "attention", "fp8", "int4", "tiles", "early", "decoding"}
    chosen = args.only.split(",") if args.only else [
        part for part in parts if args.device == "cuda" or part not in needs_gpu
    ]  # fmt: skip
    for part in chosen:
        bench.part(parts[part])


if __name__ == "__main__":
    main()
