"""What is to be shown on an H100, the dearest first. Seconds are what each should take there,
most of them guessed from shorter runs."""

from __future__ import annotations

from gpudeck.extras import EXTRAS
from tests.gpu.plan import Room, Step

_PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-rfE",
    "--tb=short",
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=",
)
_CUDA = ("--device", "cuda")


def _tests(
    name: str,
    shows: str,
    seconds: float,
    room: Room,
    files: tuple[str, ...],
    which: str = "",
    workers: int = 0,
    needs: tuple[str, ...] = (),
    gpus: int = 1,
) -> Step:
    paths = [f"tests/gpu/{file}.py" for file in files]
    argv = (*_PYTEST, *paths, "-n", str(workers), *(("-k", which) if which else ()))
    packages = ("pytest", "xdist", "hypothesis", *needs)
    return Step(f"tests-{name}", shows, argv, seconds, room, packages, gpus=gpus)


def _bench(name: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", f"tests.benchmarks.{name}", *arguments, "--out", "{out}")


_RIGHT = "attention: right on the GPU"

STEPS: tuple[Step, ...] = (
    _tests("hopper-forward", _RIGHT, 200, "half", ("test_hopper_forward",), workers=8),
    _tests("hopper-backward", _RIGHT, 120, "half", ("test_hopper_backward",), workers=8),
    _tests("portable", _RIGHT, 120, "half", ("test_portable_attention",), "not memory", 8),
    _tests("turing", _RIGHT, 90, "half", ("test_turing_gpu",), workers=4),
    _tests("search", "the judge refuses cheats on the GPU", 240, "gpu", ("test_search_gpu",)),
    _tests("attention", _RIGHT, 240, "half", ("test_attention_gpu",), "not memory", 8),
    _tests("variants", _RIGHT, 240, "half", ("test_attention_variants_gpu",), workers=8),
    _tests("fp8", "attention in FP8: right on the GPU", 180, "light", ("test_attention_fp8_gpu",)),
    _tests("leftovers", "what memory held before", 300, "half", ("test_leftovers_gpu",), workers=8),
    _tests("learning", "attention: lessons and CUDA graphs", 90, "gpu", ("test_learning_gpu",)),
    _tests(
        "linear",
        "linear attention: right on the GPU",
        240,
        "half",
        ("test_linear_attention_gpu",),
        workers=8,
    ),
    _tests("training", "training: its loss and its loop", 240, "light", ("test_training_gpu",)),
    _tests(
        "several",
        "attention over two GPUs: right",
        120,
        "machine",
        ("test_several_gpus",),
        gpus=2,
    ),
    _tests(
        "serving",
        "serving: answers, products, steps",
        300,
        "half",
        ("test_serving_gpu",),
        needs=("numba",),
    ),
    Step(
        "grid",
        "attention: 48 cells against every peer",
        _bench("attention_grid", "--seconds", "0.4"),
        360,
        "gpu",
        figure=True,
    ),
    Step(
        "zoo", "attention: 60 shapes of models", _bench("attention_models"), 480, "gpu", figure=True
    ),
    Step(
        "flex",
        "attention: FlexAttention's own matrix",
        _bench("attention_flex"),
        480,
        "gpu",
        figure=True,
    ),
    Step(
        "fp8", "attention in FP8 beside its peers", _bench("attention_fp8"), 120, "gpu", figure=True
    ),
    Step(
        "decoding",
        "attention: one query, long keys",
        _bench("attention_decoding"),
        180,
        "gpu",
        figure=True,
    ),
    Step(
        "gemm",
        "matrix products beside cuBLAS",
        _bench("gemm", "--minutes", "5"),
        360,
        "gpu",
        figure=True,
    ),
    Step(
        "linear",
        "linear attention beside fla-core",
        _bench(
            "linear_attention", "fla:gdn,ssd,rwkv7,kda,gla,retention:registry", "--minutes", "6"
        ),
        480,
        "gpu",
        needs=("fla",),
        figure=True,
    ),
    Step(
        "layers",
        "layers in FP8 beside bf16",
        _bench("precision", "--only", "layers"),
        180,
        "gpu",
        figure=True,
    ),
    Step(
        "engines",
        "transformer layers in FP8 beside bf16",
        _bench("precision", "--only", "engines"),
        240,
        "gpu",
        figure=True,
    ),
    Step("serving", "serving a language model", _bench("serving"), 300, "gpu", figure=True),
    Step(
        "lookup",
        "serving: looked-up proposals for edits",
        _bench("serving_lookup", "--shape", "llama-8b", *_CUDA),
        120,
        "gpu",
        figure=True,
    ),
    Step(
        "small",
        "attention: FlashCore's nine shapes, and memory",
        _bench("attention_small"),
        100,
        "machine",
        figure=True,
    ),
    Step(
        "host",
        "attention: host time of a call, by layer",
        _bench("host_time"),
        40,
        "machine",
        figure=True,
    ),
    *(
        Step(
            tool,
            f"every kernel under {tool}",
            ("-m", "tests.gpu.sanitize", "--tools", tool, "--limit", "280", "--out", "{out}"),
            300,
        )
        for tool in ("memcheck", "racecheck")
    ),
    Step(
        "rwkv",
        "assistant: beside its peers, and as right",
        _bench("rwkv_gpu", "0.1B", "1.5B", "2.9B"),
        400,
        "gpu",
        needs=("rwkv",),
        figure=True,
    ),
    Step(
        "rwkv-load",
        "assistant: 3 GB to the first token",
        _bench("rwkv_load"),
        120,
        "gpu",
        figure=True,
    ),
    Step(
        "rwkv-tiles",
        "assistant: which tiles a GPU wants",
        _bench("rwkv_tiles", "--seconds", "200"),
        220,
        "gpu",
        figure=True,
    ),
    Step(
        "slowdown",
        "queue: of a job that evicts",
        _bench("eviction", "--trials", "0", "--pairs", "10"),
        290,
        "machine",
        figure=True,
    ),
    _tests(
        "assistant",
        "assistant: on CUDA, and evicted",
        90,
        "machine",
        ("test_assistant_gpu",),
        needs=EXTRAS["assistant"],
    ),
    Step(
        "tour",
        "the pictures of the README",
        ("-m", "gpudeck", "tour", "--out", "{out}"),
        150,
        "machine",
        needs=("PySide6",),
        figure=True,
    ),
    Step(
        "panel-live",
        "assistant: the panel while jobs come and go",
        ("-m", "tests.gpu.panel_live", "--out", "{out}"),
        150,
        "machine",
        needs=("PySide6",),
        figure=True,
    ),
    Step(
        "probe-cost",
        "monitor: CPU time beside nvitop",
        _bench("probe_cost"),
        75,
        "machine",
        needs=("nvitop",),
        figure=True,
    ),
    Step(
        "tflops-truth",
        "monitor: live TFLOP/s against counted work, by which clock",
        _bench("tflops_truth"),
        110,
        "machine",
    ),
    Step(
        "calibration-truth",
        "monitor: live TFLOP/s against counted work, before and after a calibration",
        _bench("calibration_truth"),
        220,
        "machine",
    ),
    _tests("timing", "attention: the timing loop, the workloads", 200, "gpu", ("test_timing_gpu",)),
    _tests(
        "precision",
        "FP8 layers, fused and compiled",
        400,
        "half",
        ("test_precision_gpu",),
        workers=8,
    ),
    _tests(
        "memory",
        "attention: O(N)",
        60,
        "gpu",
        ("test_attention_gpu", "test_portable_attention"),
        "memory",
    ),
    Step(
        "energy-truth",
        "monitor: a job's and a device's energy beside the card's counter",
        _bench("energy_truth"),
        90,
        "machine",
    ),
    Step(
        "nvml-truth",
        "monitor: every value beside nvidia-smi's",
        _bench("nvml_truth"),
        75,
        "machine",
    ),
    Step(
        "nvml-calls",
        "monitor: what each question of the probe costs",
        _bench("nvml_calls"),
        30,
        "machine",
    ),
    Step(
        "eviction-ends",
        "queue: which way out of a GPU is the shortest",
        _bench("eviction_ends"),
        70,
        "machine",
    ),
    Step(
        "eviction",
        "queue: from enqueue to memory free",
        _bench("eviction", "--trials", "100", "--pairs", "0"),
        210,
        "machine",
    ),
    Step(
        "tiles",
        "attention: atomics or a kernel of its own for dq",
        _bench("attention_tiles"),
        120,
        "gpu",
        figure=True,
    ),
    Step(
        "cudnn",
        "attention: is cuDNN's backward wrong again",
        ("-m", "tests.gpu.cudnn_again", "--seconds", "90"),
        110,
    ),
)
"""Not here: the GPU tests with another Triton. Install it, and run `--only` the tests into a
folder of their own."""
