"""A scan links what it can follow, and says at which line it could not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudeck.accel.inject.rewrite import changes
from gpudeck.accel.inject.scan import scan

HEAD = "import math\nimport torch\nfrom torch import einsum, nn\nimport torch.nn.functional as F\n"


def found(tmp_path: Path, body: str, name: str = "model.py"):
    (tmp_path / name).write_text(HEAD + body)
    return scan([tmp_path / name])


def one(tmp_path: Path, statements: str):
    body = "def attend(q, k, v, mask, drop):\n" + "".join(
        f"    {line}\n" for line in statements.split("\n")
    )
    (finding,) = found(tmp_path, body)
    return finding


@pytest.mark.parametrize(
    "statements",
    [
        "return (q @ k.mT / 8).softmax(-1) @ v",
        "a = torch.bmm(q, k.transpose(1, 2))\nif mask is not None:\n    a += mask\n"
        "return torch.bmm(F.softmax(a, dim=-1), v)",
        "a = torch.einsum('bhid,bhjd->bhij', q, k)\na[mask] = -1e9\na = a.float().softmax(-1)\n"
        "return torch.einsum('bhij,bhjd->bhid', a.to(v.dtype), v)",
        "a = q.matmul(k.transpose(-1, -2))\na = torch.where(mask, a, -1e9)\n"
        "a = nn.Softmax(dim=-1)(a)\nreturn a.matmul(v)",
        "def soften(x):\n    return F.softmax(x, dim=-1)\nreturn soften(q @ k.mT) @ v",
        "n = (a := q @ k.mT).shape[-1]\nreturn F.softmax(a * n**-0.5, -1) @ v",
        "a = q @ k.mT\nb = a.new_full((9, 9), -1e9).triu_(1)\nreturn (a + b).softmax(-1) @ v",
        "with torch.autocast('cpu'):\n    a = (q @ k.mT).softmax(-1)\nreturn a @ v",
    ],
)
def test_these_are_linked(tmp_path, statements):
    finding = one(tmp_path, statements)
    assert finding.action == "link", finding.reason


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ("a = (q @ k.mT).softmax(-1)\nreturn a @ v, a", "weights are returned (line 7)"),
        ("a = q @ k.mT\nt = a.topk(4)[0]\na[a < t] = -1e9\nreturn a.softmax(-1) @ v", "top-k"),
        ("return F.gumbel_softmax(q @ k.mT, hard=True) @ v", "Gumbel"),
        ("a = F.dropout((q @ k.mT).softmax(-1), 0.1)\nreturn a @ v", "dropout is always active"),
        ("a = drop((q @ k.mT).softmax(-1))\nreturn a @ v", "passed to drop()"),
        ("a = (q @ k.mT).softmax(-1)\nv.hook = a\nreturn a @ v", "kept in v.hook"),
        ("a = q @ k.mT\nb = a[..., :4]\nreturn a.softmax(-1) @ v + b", "a part of them is taken"),
        ("a = (q @ k.mT).softmax(-1)\na = a * mask\nreturn a @ v", "changed after the softmax"),
        ("a = q @ k.mT\nq.add_(1)\nreturn a.softmax(-1) @ v", "q is changed in place"),
        ("a = q @ k.mT\nk[0] = 1\nreturn a.softmax(-1) @ v", "k is changed in place"),
        ("return q.softmax(-1) @ (k.softmax(-2).mT @ v)", "linear attention"),
        ("a = einsum('bhij,hg->bgij', q @ k.mT, v)\nreturn a.softmax(-1) @ v", "made of other"),
        ("a = (q @ k.mT).softmax(-1)\na = einsum('bhij,hg->bgij', a, mask)\nreturn a @ v", "heads"),
        ("a = torch.exp(q @ k.mT)\nreturn F.softmax(a, -1) @ v", "by hand from exponentials"),
        ("a = (q @ k.mT).softmax(-1)\nf = lambda: a\nreturn a @ v", "not followed"),
    ],
)  # fmt: skip
def test_these_are_left_alone_and_the_reason_names_the_line(tmp_path, statements, reason):
    (tmp_path / "m.py").write_text(
        HEAD + "def attend(q, k, v, mask, drop):\n"
        + "".join(f"    {line}\n" for line in statements.split("\n"))
    )  # fmt: skip
    findings = scan([tmp_path / "m.py"])
    assert {f.action for f in findings} == {"leave"}
    text = " ".join(str(f.reason) for f in findings)
    assert reason.replace("they", "") in text.replace("they", "")
    assert reason == "linear attention" or "(line " in text


def test_modules_in_attributes_are_known_from_their_class_and_its_bases(tmp_path):
    findings = found(
        tmp_path,
        "class Base(nn.Module):\n"
        "    def __init__(self, p):\n"
        "        super().__init__()\n"
        "        self.soft = nn.Softmax(dim=-1)\n"
        "        self.drop = nn.Dropout(p) if p > 0.0 else nn.Identity()\n"
        "class Attention(Base):\n"
        "    def _scores(self, q, k):\n"
        "        return q @ k.mT\n"
        "    def forward(self, q, k, v):\n"
        "        return self.drop(self.soft(self._scores(q, k))) @ v\n",
    )
    assert [f.action for f in findings] == ["link"]
    assert "while dropout is active it is computed as written" in str(findings[0].reason)


def test_a_module_that_may_be_a_softmax_or_something_else_is_left(tmp_path):
    findings = found(
        tmp_path,
        "class Attention(nn.Module):\n"
        "    def __init__(self, sharp):\n"
        "        super().__init__()\n"
        "        self.weigh = nn.Softmax(dim=-1) if sharp else nn.Identity()\n"
        "    def forward(self, q, k, v):\n"
        "        return self.weigh(q @ k.mT).softmax(-1) @ v\n",
    )
    assert [f.action for f in findings] == ["leave"], "scores may be weighed twice"
    assert "passed to self.weigh()" in str(findings[0].reason)


def test_scores_that_a_public_helper_returns_may_be_used_elsewhere(tmp_path):
    findings = found(
        tmp_path,
        "def scores(q, k):\n    return q @ k.mT\n"
        "def attend(q, k, v):\n    return scores(q, k).softmax(-1) @ v\n",
    )
    assert [(f.action, f.line) for f in findings] == [("leave", 6)]


def test_values_are_followed_into_other_modules_of_the_project(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "masks.py").write_text(
        "def hide(scores, mask):\n    return scores.masked_fill(~mask, float('-inf'))\n"
        "def keep(scores):\n    LAST.append(scores)\n    return scores\n"
    )
    (tmp_path / "pkg" / "model.py").write_text(
        HEAD + "from .masks import hide, keep\n"
        "def good(q, k, v, m):\n    return hide(q @ k.mT, m).softmax(-1) @ v\n"
        "def bad(q, k, v, m):\n    return keep(q @ k.mT).softmax(-1) @ v\n"
    )
    good, bad = scan([tmp_path])
    assert good.action == "link"
    assert bad.action == "leave"
    assert "LAST.append" in str(bad.reason)


def test_names_that_a_package_passes_on_are_followed_to_their_functions(tmp_path):
    package = tmp_path / "net" / "layers"
    package.mkdir(parents=True)
    (package / "masks.py").write_text("def added(a, mask):\n    return a + mask\n")
    (package / "__init__.py").write_text("from .masks import added\nfrom . import missing\n")
    (tmp_path / "net" / "model.py").write_text(
        HEAD + "from .layers import added, missing\n"
        "def one(q, k, v, mask):\n    return added(q @ k.mT, mask).softmax(-1) @ v\n"
        "def two(q, k, v, mask):\n    return missing(q @ k.mT, mask).softmax(-1) @ v\n"
    )
    one, two = scan([tmp_path / "net" / "model.py"])
    assert (one.action, two.action) == ("link", "leave")
    assert "passed to missing() (line 9)" in str(two.reason)


def test_library_calls_are_listed_with_what_to_do(tmp_path):
    findings = found(
        tmp_path,
        "from flash_attn import flash_attn_func\n"
        "def f(q, k, v):\n"
        "    a = F.scaled_dot_product_attention(q, k, v)\n"
        "    b = flash_attn_func(q, k, v)\n"
        "    return a + b + nn.MultiheadAttention(8, 2)(q, k, v)[0]\n",
    )
    assert [f.action for f in findings] == ["link", "leave", "leave"]
    assert "accel.flash_attn_func" in str(findings[1].reason)


def test_attention_over_several_gpus_is_named_with_what_takes_its_place(tmp_path):
    first, second = found(
        tmp_path,
        "from torch.distributed.tensor.experimental import context_parallel\n"
        "from ring_flash_attn import zigzag_ring_flash_attn_func\n"
        "def f(mesh, q, k, v):\n"
        "    with context_parallel(mesh, buffers=[q], buffer_seq_dims=[2]):\n"
        "        return zigzag_ring_flash_attn_func(q, k, v, causal=True)\n",
    )
    assert first.action == second.action == "leave"
    assert "accel.distributed.frameworks.torch.context_parallel" in str(first.reason)
    assert "accel.distributed.distributed_attention" in str(second.reason)


def test_a_name_that_stands_for_something_else_is_not_torch_s(tmp_path):
    assert not found(
        tmp_path,
        "from torch import matmul, softmax\n"
        "def f(matmul, softmax, q, k, v):\n    return matmul(softmax(matmul(q, k), -1), v)\n",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"print 'attention'\n", "this is not Python 3"),
        (b"def f(:\n", "this is not Python 3"),
        (b"\xff\xfe\x00a", "not text"),
        (b"# -*- coding: nonsense -*-\nx = 1\n", "the encoding cannot be read"),
        (b"a = 1\r\nb = 2\nc = 3\r\n", "mixes different line ends"),
        (b"x = '\x80'\n", "the encoding cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_finding(tmp_path, content, reason):
    (tmp_path / "m.py").write_bytes(content)
    (finding,) = scan([tmp_path])
    assert finding.action == "leave"
    assert reason in str(finding.reason)
    assert "\n" not in str(finding.reason)


def test_links_and_hidden_folders_are_not_searched(tmp_path):
    source = HEAD + "def f(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n"
    outside = tmp_path / "outside.py"
    outside.write_text(source)
    (tmp_path / "in" / ".venv").mkdir(parents=True)
    (tmp_path / "in" / ".venv" / "m.py").write_text(source)
    (tmp_path / "in" / "link.py").symlink_to(outside)
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    assert scan([tmp_path / "in"]) == []


def test_generated_code_and_torchscript_are_left_alone(tmp_path):
    body = "def f(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n"
    (tmp_path / "a.py").write_text("# @generated by a tool\n" + HEAD + body)
    (tmp_path / "b.py").write_text(HEAD + "@torch.jit.script\n" + body)
    assert ["a program wrote this file" in str(f.reason) or "TorchScript" in str(f.reason)
            for f in scan([tmp_path])] == [True, True]  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings_and_line_ends_are_kept(tmp_path, newline, encoding):
    if (newline, encoding) == ("\r", "latin-1"):
        pytest.skip("Python itself does not find the encoding of such a file")
    coding = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    text = (
        f'{coding}"""Aufmerksamkeit für alle."""\nfrom __future__ import annotations\n{HEAD}'
        "def f(q, k, v):\n    s = 'ü'; a = (q @  # é\n        k.mT); return a.softmax(-1)@v\n"
    )
    (tmp_path / "m.py").write_bytes(text.replace("\n", newline).encode(encoding))
    (change,), _ = changes([tmp_path / "m.py"])
    back = change.after.decode(encoding)
    assert back.count(newline) == text.count("\n") + 1
    assert "s = 'ü'; a = (_gpudeck.scores(q,  # é" in back
    assert "_gpudeck.attend(a.softmax(-1),v)" in back
    compile(change.after, "m.py", "exec")


def test_the_code_cells_of_a_notebook_are_read_and_changed(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# attention"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n"]},
        {"cell_type": "code", "source": [
            "!pip list\n", "def f(q, k, v):\n", "    return (q @ k.mT).softmax(-1) @ v"]},
    ]  # fmt: skip
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}, indent=1) + "\n")
    (finding,) = scan([path])
    assert (finding.action, finding.line) == ("link", 3)
    assert str(finding.form).startswith("cell 3: ")
    (change,), _ = changes([path])
    new = json.loads(change.after)
    assert new["cells"][:2] == cells[:2]
    code = "".join(new["cells"][2]["source"])
    assert code.startswith("from gpudeck.accel.inject import link as _gpudeck\n!pip list\n")
    assert "_gpudeck.attend((_gpudeck.scores(q, k.mT)).softmax(-1), v)" in code


def test_an_empty_file_and_one_without_attention_give_nothing(tmp_path):
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b.py").write_text("import torch\nx = torch.eye(2) @ torch.eye(2)\n")
    assert scan([tmp_path]) == []


@pytest.mark.parametrize(
    "statements",
    [
        "return (q @ k.mT / 8).softmax(-2) @ v",
        "return (q @ k.mT).softmax(0) @ v",
        "return torch.softmax(q @ k.mT, dim=-2) @ v",
        "return torch.nn.Softmax(dim=-2)(q @ k.mT) @ v",
        "import functools\nreturn functools.partial(torch.softmax, dim=-3)(q @ k.mT) @ v",
    ],
)
def test_a_softmax_over_another_axis_than_the_keys_is_left(tmp_path, statements):
    finding = one(tmp_path, statements)
    assert finding.action == "leave"
    assert "normalised over another axis" in str(finding.reason)


def test_a_softmax_over_another_axis_is_followed_where_the_keys_may_be_there(tmp_path):
    moved = "a = (q @ k.mT).transpose(-1, -2).softmax(-2)\nreturn a.transpose(-1, -2) @ v"
    assert one(tmp_path, moved).action == "link"


def test_a_file_that_cannot_be_read_keeps_the_others_from_nothing(tmp_path):
    (tmp_path / "a.py").write_text("def f(:\n")
    (tmp_path / "b.py").write_text(
        "import torch.nn.functional as F\n"
        "def f(q, k, v):\n"
        "    return F.softmax(q @ k.transpose(-2, -1), -1) @ v\n"
    )
    made, found = changes([tmp_path])
    assert [Path(change.path).name for change in made] == ["b.py"]
    assert [f.line for f in found if Path(f.file).name == "a.py"] == [1]


def test_the_line_that_differentiates_gradients_is_named(tmp_path):
    (tmp_path / "m.py").write_text(
        "import torch\n"
        "import torch.nn.functional as F\n"
        "def f(q, k, v):\n"
        "    out = F.softmax(q @ k.transpose(-2, -1), -1) @ v\n"
        "    return torch.autograd.grad(out.sum(), q, create_graph=True)\n"
    )
    _, found = changes([tmp_path])
    assert any("(line 5)" in str(f.reason) for f in found), found
