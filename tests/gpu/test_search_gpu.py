"""The judge on a GPU: streams, graphs, and the templates in Triton.

python -m pytest tests/gpu/test_search_gpu.py -n 0
"""

import dataclasses

import pytest
import torch
from torch import nn

from gpudeck import accel
from gpudeck.accel.search.api import OURS
from gpudeck.accel.search.code import decode_codes
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.engine import Budget
from gpudeck.accel.search.journal import searches
from gpudeck.accel.search.judge import judge
from gpudeck.accel.search.tasks import task_of
from gpudeck.accel.search.templates import REDUCING, ROWWISE
from gpudeck.accel.search.verdict import Source

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

TASK = dataclasses.replace(
    task_of("softmax", torch.float32, {"rows": 4096, "columns": 2048}), own=False
)
CASES = {
    "a stream of its own": (
        """
import torch
stream = torch.cuda.Stream()
def candidate(x):
    y = torch.empty_like(x)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        torch.softmax(x, -1, out=y)
    return y
""",
        """
import torch
stream = torch.cuda.Stream()
def candidate(x):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = torch.softmax(x, -1)
    torch.cuda.current_stream().wait_stream(stream)
    y.record_stream(torch.cuda.current_stream())
    return y
""",
    ),
    "a graph that is replayed into one result": (
        """
import torch
graphs = {}
def candidate(x):
    key = x.data_ptr(), x.shape
    if key not in graphs:
        torch.softmax(x, -1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch.softmax(x, -1)
        graphs[key] = graph, y
    graph, y = graphs[key]
    graph.replay()
    return y
""",
        """
import torch
graphs = {}
def candidate(x):
    key = x.data_ptr(), x.shape
    if key not in graphs:
        torch.softmax(x, -1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch.softmax(x, -1)
        graphs[key] = graph, y
    graph, y = graphs[key]
    graph.replay()
    return y.clone()
""",
    ),
    "TF32 in place of float32": (
        """
import torch
def candidate(x):
    torch.backends.cuda.matmul.allow_tf32 = True
    eye = torch.eye(x.shape[1], device=x.device)
    return torch.softmax(x @ eye, -1)
""",
        "import torch\ndef candidate(x):\n    return torch.softmax(x.clone(), -1)\n",
    ),
    "memory of an earlier result": (
        "import torch\ndef candidate(x):\n    return torch.empty_like(x)\n",
        "import torch\ndef candidate(x):\n    y = torch.empty_like(x)\n"
        "    return torch.softmax(x, -1, out=y)\n",
    ),
    "synchronisation replaced": (
        "import torch\ntorch.cuda.synchronize = lambda *more: None\n"
        "def candidate(x):\n    return torch.softmax(x, -1)\n",
        "import torch\ndef candidate(x):\n    torch.cuda.synchronize()\n"
        "    return torch.softmax(x, -1)\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cheat_with_the_gpu_is_refused_and_its_twin_is_not(name, tmp_path):
    for text, accepted in zip(CASES[name], (False, True), strict=True):
        file = tmp_path / "candidate.py"
        file.write_text(text)
        found = judge(Source(str(file)), TASK, compiled=(), effort=Effort(3.0, 40, 8))
        assert found.accepted is accepted, [str(r.text) for r in found.refusals]
        assert "synchronised device" in found.measures


def test_a_library_kernel_is_listed_and_refused(tmp_path):
    file = tmp_path / "candidate.py"
    file.write_text("import torch\ndef candidate(x):\n    return torch.softmax(x, -1)\n")
    task = dataclasses.replace(TASK, own=True)
    found = judge(Source(str(file)), task, compiled=(), effort=Effort(2.0, 30, 2))
    assert [r.kind for r in found.refusals] == ["library"]
    assert any("softmax" in name.lower() for name in found.launched)


@pytest.mark.parametrize("task", [*ROWWISE, *REDUCING])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_search_finds_a_kernel_that_the_judge_accepts(task, dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    found = accel.optimize_kernel(
        task, sizes={"rows": 2048, "columns": 1000}, dtype=dtype, compiled=(),
        budget=Budget(minutes=1.0, configurations=6), effort=Effort(2.0, 40, 6),
    )  # fmt: skip
    assert found.verdict.accepted, [str(r.text) for r in found.verdict.refusals]
    assert found.verdict.roofline is not None and found.verdict.race is not None


_OURS = {
    "attention": {"heads": 8, "tokens": 1024, "width": 128},
    "attention_gradients": {"heads": 8, "tokens": 512, "width": 64},
    "decoding": {"sequences": 8, "keys": 3000, "width": 128},
    "matmul": {"rows": 1024, "inner": 2048, "columns": 1024},
    "retention": {"tokens": 2048, "heads": 8, "width": 128},
    "rwkv7": {"tokens": 128, "heads": 32},
}


@pytest.mark.parametrize("task", OURS)
def test_a_search_of_our_kernels_tries_their_own_tile_first_and_shows_the_code(
    task, tmp_path, monkeypatch
):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    entries = []
    found = accel.optimize_kernel(
        task, sizes=_OURS[task], dtype=torch.float32 if task == "rwkv7" else torch.bfloat16,
        compiled=(), report=entries.append, budget=Budget(minutes=1.0, configurations=5),
        effort=Effort(2.0, 40, 6),
    )  # fmt: skip
    assert found.verdict.accepted, [str(r.text) for r in found.verdict.refusals]
    assert (entries[0].by, entries[0].state) == ("usual", "timed")
    assert all(entry.captured for entry in entries if entry.state == "timed")
    assert found.microseconds <= 1.05 * entries[0].microseconds, "measured again, it may differ"
    ((problem, _),) = searches()
    codes = decode_codes(problem.code_file.read_bytes())
    assert codes.winner == found.config and all(c.instructions for c in codes.winner_code)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(1000, 515), nn.GELU()),
        nn.Sequential(nn.Linear(1024, 512), nn.Softmax(-1)),
        nn.Sequential(nn.LayerNorm(1024), nn.Tanh()),
        nn.Mish(),
    ],
    ids=["odd product", "product and rows", "rows", "flat"],
)
def test_a_module_is_fused_into_kernels_that_the_judge_accepts(module, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    module = module.cuda()
    columns = next((p.shape[-1] for p in module.parameters()), 1024)
    found = accel.optimize_kernel(
        module, inputs=[torch.empty(2048, columns, device="cuda")], compiled=(),
        budget=Budget(minutes=1.0, configurations=4), effort=Effort(2.0, 40, 4),
    )  # fmt: skip
    assert found.verdict.accepted, [str(r.text) for r in found.verdict.refusals]
    x = torch.randn(77, columns, device="cuda")
    torch.testing.assert_close(found.function(x), module(x), rtol=1e-4, atol=1e-4)
