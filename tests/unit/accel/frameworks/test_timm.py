"""Attention of timm is found, linked and restored, and computes what it did before."""

from __future__ import annotations

import importlib
from importlib import metadata, util
from pathlib import Path

import pytest
import torch

from gpudeck.accel.inject import record
from gpudeck.accel.inject.live import patch
from gpudeck.accel.inject.scan import scan

LACKING = [package for package in ("timm", "torchvision") if util.find_spec(package) is None]
if LACKING:
    pytest.skip(
        f"{LACKING[0]} is not installed; timm needs one built for this torch",
        allow_module_level=True,
    )
if torch.version.cuda is None and "+cpu" not in metadata.version("torchvision"):
    # The compiled part of this torchvision needs CUDA. Its part in Python, which timm uses, can be
    # imported if these operators are known by name.
    for _name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )

timm = importlib.import_module("timm")
HOME = Path(timm.__file__).parent
pytestmark = pytest.mark.filterwarnings("default")  # timm's own deprecations


def near(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def ran():
    return {row["what"] for row in record.report()}


def test_the_scan_of_timm_finds_its_attention_and_says_why_some_is_left():
    found = scan([HOME])
    assert all(f.form and f.reason for f in found), "every file can be read"
    linked = [f for f in found if f.action == "link"]
    assert len(linked) >= 100 and len(linked) / len(found) > 0.8
    own = [f for f in found if f.file == str(HOME / "layers" / "attention.py")]
    assert [f.action for f in own] == ["link"] * 4
    (talking,) = (f for f in found if f.file.endswith("cait.py") and f.action == "leave")
    assert "passed to self.proj_l() (line" in talking.reason
    differential = [f for f in found if f.file.endswith("diff_attention.py")]
    assert [f.action for f in differential] == ["link", "link", "leave"]


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.ones(9, 9, dtype=torch.bool).tril(2)},
    "added": {"attn_mask": torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(3))},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["Attention", "AttentionRope"])
def test_both_paths_of_its_layers_are_linked_with_every_mask(name, fused, mask):
    torch.manual_seed(0)
    net = getattr(timm.layers, name)(32, 4).eval()
    net.fused_attn = fused
    x = torch.randn(2, 9, 32, requires_grad=True)
    expected = net(x, **MASKS[mask])
    (of_x,) = torch.autograd.grad(expected.square().sum(), x)
    record.clear()
    with patch(net) as patched:
        assert patched.linked == [f"{name}.forward"]
        out = net(x, **MASKS[mask])
        near(out, expected)
        near(torch.autograd.grad(out.square().sum(), x)[0], of_x)
    assert ran() == {"linked as causal attention" if mask == "causal" else "linked"}
    assert torch.equal(net(x, **MASKS[mask]), expected)


MODELS = {
    "vit_tiny_patch16_224": {"img_size": 64},
    "deit_tiny_distilled_patch16_224": {"img_size": 64},
    "swin_tiny_patch4_window7_224": {"img_size": 56},
    "swinv2_tiny_window8_256": {"img_size": 64},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 56},
    "crossvit_tiny_240": {},
    "xcit_nano_12_p16_224": {},
    "pvt_v2_b0": {},
    "tiny_vit_5m_224": {},
    "samvit_base_patch16_224": {"img_size": 64, "depth": 2, "global_attn_indexes": (1,)},
    "levit_128s": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_models_give_what_they_gave_before(name, fused):
    torch.manual_seed(0)
    net = timm.create_model(name, **MODELS[name]).eval()
    for module in net.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    side = MODELS[name].get("img_size", net.default_cfg["input_size"][-1])
    x = torch.randn(1, 3, side, side)
    with torch.no_grad():
        expected = net(x)
        record.clear()
        with patch(net):
            near(net(x), expected)
        what = ran()
        assert torch.equal(net(x), expected)
    assert all(w == "linked" or w.startswith("computed as written: ") for w in what) and what
