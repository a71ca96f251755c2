"""Attention is linked at import and in live models, and that can be taken back."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from gpudeck.accel.inject import hook, link, record
from gpudeck.accel.inject.command import injected
from gpudeck.accel.inject.live import Stacked, patch

MODEL = textwrap.dedent("""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.qkv = nn.Linear(dim, 3 * dim)
            self.drop = nn.Dropout(0.1)

        def forward(self, x, fail=False):
            q, k, v = self.qkv(x).chunk(3, -1)
            a = self.drop((q @ k.mT * 0.2).softmax(-1))
            if fail:
                raise ValueError("as asked")
            return a @ v
""")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The name of a module with attention in a project of its own, not imported yet."""
    name = f"people_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    record.clear()
    yield name
    hook.off()
    sys.modules.pop(name, None)
    record.clear()


def ran():
    return {row["what"] for row in record.report()}


def same(before: nn.Module, after: nn.Module):
    after.load_state_dict(before.state_dict())
    x = torch.randn(2, 8, 16, requires_grad=True)
    torch.testing.assert_close(after.eval()(x), before.eval()(x))


def test_modules_are_linked_at_import_and_no_compiled_file_is_left(model):
    original = importlib.import_module(model).Attention(16)
    del sys.modules[model]
    for left in Path("__pycache__").glob("*"):
        left.unlink()
    hook.on()
    linked = importlib.import_module(model)
    same(original, linked.Attention(16))
    assert "linked" in ran()
    assert list(Path("__pycache__").glob("*")) == []
    assert linked.__file__ == str(Path(f"{model}.py").resolve())


def test_a_traceback_shows_the_original_lines(model):
    hook.on()
    import traceback

    try:
        importlib.import_module(model).Attention(16)(torch.randn(1, 2, 16), fail=True)
    except ValueError as e:
        frame = traceback.extract_tb(e.__traceback__)[-1]
    assert frame.line == 'raise ValueError("as asked")'
    assert frame.lineno == MODEL.splitlines().index('            raise ValueError("as asked")') + 1


def test_a_name_bound_early_stays_as_it_was_until_a_reload(model):
    module = importlib.import_module(model)
    early = module.Attention
    hook.on()
    same(early(16), early(16))
    assert ran() == set()
    importlib.reload(module)
    same(early(16), module.Attention(16))
    assert "linked" in ran()
    hook.off()
    record.clear()
    importlib.reload(module)
    same(early(16), module.Attention(16))
    assert ran() == set()


def _child(name, queue):
    from gpudeck.accel.inject import record as counted

    module = importlib.import_module(name)
    module.Attention(16).eval()(torch.randn(1, 4, 16))
    queue.put([row["what"] for row in counted.report()])


def test_forked_processes_inherit_the_hook(model):
    hook.on()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(model, queue))
    child.start()
    assert queue.get(timeout=60) == ["linked"]
    child.join()


def test_modules_outside_the_project_are_linked_only_if_they_are_named(model, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)
    hook.on()
    assert not hasattr(importlib.import_module(model), hook.ALIAS)
    del sys.modules[model]
    hook.on([model])
    assert getattr(importlib.import_module(model), hook.ALIAS) is link


def test_a_script_run_by_the_hook_records_what_was_replaced(model, tmp_path):
    (tmp_path / "train.py").write_text(
        f"import sys, torch\nfrom {model} import Attention\n"
        "def main(q):\n    return (q @ q.mT).softmax(-1) @ q\n"
        "if __name__ == '__main__':\n    main(torch.randn(1, 4, 8))\n"
        "    Attention(16).eval()(torch.randn(1, 4, 16))\n    print(sys.argv)\n"
    )
    result = tmp_path / "result.json"
    ended = subprocess.run(
        [*injected([sys.executable, "-u", "train.py", "--lr", "1"])],
        env=os.environ | {"GPUDECK_RESULT": str(result), "PYTHONPATH": os.getcwd()
                          + os.pathsep + str(Path(__file__).parents[4])},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ended.stdout == "['train.py', '--lr', '1']\n", ended.stderr
    noted = json.loads(result.read_text())["inject"]
    assert {(Path(f["file"]).name, f["action"]) for f in noted["found"]} == {
        ("train.py", "link"), (f"{model}.py", "link"),
    }  # fmt: skip
    assert [row["what"] for row in noted["ran"]] == ["linked", "linked"]


@pytest.mark.parametrize(
    ("argv", "script"),
    [(["python", "t.py"], 4), (["python3.11", "-u", "-W", "error", "t.py", "-x"], 7)],
)
def test_the_command_of_a_script_runs_it_through_the_hook(argv, script):
    made = injected(argv)
    assert made[script - 1] == "t.py"
    assert "gpudeck.accel.inject.script" in made


@pytest.mark.parametrize(
    "argv", [["bash", "run.sh"], ["python", "-m", "pkg"], ["python", "-c", "1"]]
)
def test_other_commands_cannot_be_injected(argv):
    with pytest.raises(ValueError, match="a Python script"):
        injected(argv)


def test_a_live_model_is_linked_and_restored(model):
    net = nn.Sequential(importlib.import_module(model).Attention(16), nn.Linear(16, 16)).eval()
    x = torch.randn(2, 8, 16)
    expected = net(x)
    with patch(net) as patched:
        torch.testing.assert_close(net(x), expected)
        assert patched.linked == ["Attention.forward"]
        assert "linked" in ran()
    record.clear()
    assert torch.equal(net(x), expected)
    assert ran() == set()
    assert "forward" not in net[0].__dict__


def test_two_patchers_stacked_are_detected_in_either_order(model):
    net = importlib.import_module(model).Attention(16).eval()
    patched = patch(net)
    with pytest.raises(Stacked, match="replaced already"):
        patch(net)
    net.forward = lambda x: x  # another patcher
    with pytest.raises(Stacked, match="by another patcher since"):
        patched.undo()
    del net.forward
    other = importlib.import_module(model).Attention(16)
    other.forward = lambda x: x
    with pytest.raises(Stacked):
        patch(nn.Sequential(net, other))
    assert "forward" not in net.__dict__


@pytest.mark.parametrize("need_weights", [False, True])
def test_torch_s_multihead_attention_is_linked_where_no_weights_are_asked_for(need_weights):
    net = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(2, 8, 16)
    expected = net(x, x, x, need_weights=need_weights)
    record.clear()
    with patch(net):
        out = net(x, x, x, need_weights=need_weights)
    torch.testing.assert_close(out[0], expected[0])
    assert (ran() == {"linked"}) != need_weights


def test_training_under_autocast_and_compile_matches(model):
    net = importlib.import_module(model).Attention(16).eval()
    x = torch.randn(2, 8, 16)

    def step():
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = net(x)
        out.float().square().sum().backward()
        return out, net.qkv.weight.grad.clone()

    expected = step()
    with patch(net):
        torch.testing.assert_close(step(), expected, rtol=3e-2, atol=3e-2)
        torch._dynamo.reset()
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x))


def test_data_parallel_training_matches(model, tmp_path):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        net = importlib.import_module(model).Attention(16).eval()
        x = torch.randn(2, 8, 16)

        def gradient():
            net.zero_grad()
            DistributedDataParallel(net)(x).square().sum().backward()
            return net.qkv.weight.grad.clone()

        expected = gradient()
        with patch(net):
            torch.testing.assert_close(gradient(), expected)
        assert "linked" in ran()
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_a_spawned_process_links_by_calling_on_itself(model):
    """Processes that are spawned inherit nothing; the manual says to call on() there."""
    code = (
        "import multiprocessing as m\n"
        "def child(link, queue):\n"
        "    from gpudeck.accel.inject import hook, record\n"
        "    link and hook.on()\n"
        f"    import torch, {model} as people\n"
        "    people.Attention(16).eval()(torch.randn(1, 4, 16))\n"
        "    queue.put(sorted({r['what'] for r in record.report()}))\n"
        "if __name__ == '__main__':\n"
        "    c = m.get_context('spawn'); q = c.Queue()\n"
        "    for link in (False, True):\n"
        "        p = c.Process(target=child, args=(link, q)); p.start(); print(q.get()); p.join()\n"
    )
    Path("spawning.py").write_text(code)
    ended = subprocess.run(
        [sys.executable, "spawning.py"],
        env=os.environ | {"PYTHONPATH": f"{Path.cwd()}{os.pathsep}{Path(__file__).parents[4]}"},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ended.stdout.split("\n")[:2] == ["[]", "['linked']"], ended.stderr


def test_another_library_s_sdpa_is_called_where_it_replaced_torch_s(monkeypatch):
    theirs = []
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *given, **options: theirs.append(given) or given[0],
    )
    record.clear()
    q = torch.randn(1, 2, 4, 8)
    assert link.scaled_dot_product_attention(q, q, q) is q
    assert len(theirs) == 1
    assert ran() == {"computed as written: another library has replaced torch's function"}
    record.clear()
