"""Each bad model file gives one line that says what is wrong, and no code in it runs."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gpudeck.accel.rwkv import weights
from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.weights.find import files_of
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf

SMALL = random_model(layers=2, channels=64, vocabulary=32)
HF = to_hf(SMALL)


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        weights.load(path)
    line = str(caught.value)
    assert "\n" not in line
    return line


def changed(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    merged = HF | {name.replace("__", "."): t for name, t in changes.items() if t is not None}
    return {
        name: t for name, t in merged.items() if changes.get(name.replace(".", "__"), t) is not None
    }


def test_a_good_folder_loads_with_canonical_names_and_shapes(tmp_path) -> None:
    loaded = weights.load(write_hf(tmp_path, HF))
    assert loaded["blocks.1.att.w1"].shape == (64, 16)
    assert loaded["blocks.1.att.x_r"].shape == (64,)
    assert "blocks.0.att.v0" not in loaded
    assert torch.equal(loaded["blocks.1.att.g2"], SMALL["blocks.1.att.g2"])


def test_an_empty_folder_is_refused(tmp_path) -> None:
    assert "no weights in" in refusal(tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "neither .pth nor .safetensors" in refusal(tmp_path / "model.gguf")


def test_two_models_in_one_folder_are_refused(tmp_path) -> None:
    for name in ("a", "b"):
        save_file(HF, tmp_path / f"{name}.safetensors")
    assert "holds 2 .safetensors files" in refusal(tmp_path)


def test_a_missing_shard_is_named(tmp_path) -> None:
    write_hf(tmp_path, HF, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "the shard model-00002-of-00003.safetensors is missing" in refusal(tmp_path)


def test_the_newest_complete_one_of_shards_and_a_single_file_is_loaded(tmp_path) -> None:
    """A pull may replace shards with one file, or one file with shards."""
    write_hf(tmp_path, HF, shards=3)
    whole, index = tmp_path / "model.safetensors", tmp_path / "model.safetensors.index.json"
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    save_file(HF, whole)
    os.utime(index, (1, 1))
    assert files_of(tmp_path) == [whole], "the index is of what was there before"
    os.utime(whole, (0, 0))
    assert files_of(tmp_path) == shards
    shards[0].unlink()
    assert files_of(tmp_path) == [whole], "they are not all there"
    index.unlink()
    assert files_of(tmp_path) == [whole], "shards without an index are none of it"


@pytest.mark.parametrize("keep", [0.5, 0.001, 0.0])
def test_a_truncated_safetensors_file_is_refused(tmp_path, keep) -> None:
    file = write_hf(tmp_path, HF) / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * keep)])
    line = refusal(tmp_path)
    assert "model.safetensors" in line
    assert "truncated or damaged" in line


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_a_truncated_pth_is_refused(tmp_path, keep) -> None:
    file = tmp_path / "m.pth"
    torch.save(SMALL, file)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * keep)])
    assert "Download it again" in refusal(file)


def test_a_broken_index_is_refused(tmp_path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": [1')
    assert "cannot read" in refusal(tmp_path)


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "sub/../../outside.safetensors", "..", ""]
)
def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path, name) -> None:
    save_file(HF, tmp_path / "outside.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert "outside of it and was not opened" in refusal(folder)


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path) -> None:
    save_file(HF, tmp_path / "outside.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(tmp_path / "outside.safetensors")
    assert "outside of it and was not opened" in refusal(folder)


def test_the_links_of_the_hugging_face_cache_are_followed(tmp_path) -> None:
    repo = tmp_path / "models--me--small"
    snapshot = repo / "snapshots" / "abc"
    write_hf(snapshot, HF)
    (repo / "blobs").mkdir()
    (snapshot / "model.safetensors").rename(repo / "blobs" / "1234")
    (snapshot / "model.safetensors").symlink_to("../../blobs/1234")
    assert "emb.weight" in weights.load(snapshot)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "llama"}, "type 'llama'"),
        ({"model_type": "rwkv7", "head_size": 64}, "`head_size`"),
        ({"model_type": "rwkv7", "lora_rank_decay": 64}, "`lora_rank_decay`"),
    ],
)
def test_other_architectures_and_dialects_are_named(tmp_path, config, words) -> None:
    write_hf(tmp_path, HF)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert words in refusal(tmp_path)


class Trap:
    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (str(self.sentinel),)


@pytest.mark.parametrize("how", ["zip", "legacy", "plain pickle"])
def test_code_in_a_pth_is_refused_and_does_not_run(tmp_path, how) -> None:
    sentinel, file = tmp_path / "it-ran", tmp_path / "m.pth"
    if how == "plain pickle":
        file.write_bytes(pickle.dumps(SMALL | {"x": Trap(sentinel)}))
    else:
        torch.save(SMALL | {"x": Trap(sentinel)}, file, _use_new_zipfile_serialization=how == "zip")
    line = refusal(file)
    assert not sentinel.exists()
    assert "Python code, which was not run" in line


def test_a_legacy_pth_of_tensors_loads(tmp_path) -> None:
    torch.save(SMALL, tmp_path / "m.pth", _use_new_zipfile_serialization=False)
    assert torch.equal(weights.load(tmp_path / "m.pth")["head.weight"], SMALL["head.weight"])


def test_a_training_checkpoint_is_not_a_model(tmp_path) -> None:
    torch.save({"model": SMALL, "step": 3}, tmp_path / "m.pth")
    assert "not a table of named tensors" in refusal(tmp_path / "m.pth")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__layers__1__attn__r_k": None}, ["lacks the tensor blocks.1.att.r_k"]),
        ({"lm_head__weight": None}, ["lacks the tensor head.weight"]),
        (
            {"model__layers__1__ffn__key__weight": torch.zeros(256, 63)},
            ["blocks.1.ffn.key.weight", "[256, 63]", "[any, 64]"],
        ),
        (
            {"model__layers__1__attn__r_k": torch.zeros(2, 32)},
            ["blocks.1.att.r_k", "[2, 32]", "[1, 64]"],
        ),
        (
            {"model__layers__1__attn__x_r": torch.zeros(2, 32)},
            ["blocks.1.att.x_r", "[2, 32]", "[64]"],
        ),
        (
            {"model__layers__0__attn__a_lora__lora__2__weight": torch.zeros(64, 5)},
            ["blocks.0.att.a2", "[5, 64]", "[24, 64]"],
        ),
        (
            {"model__layers__1__ffn__value__weight": torch.zeros(64, 7)},
            ["blocks.1.ffn.value.weight", "[64, 7]", "[64, 256]"],
        ),
        ({"model__norm__weight": torch.zeros(64, dtype=torch.int64)}, ["ln_out.weight", "int64"]),
        (
            {
                "model__embeddings__weight": torch.zeros(32, 60),
                "lm_head__weight": torch.zeros(32, 60),
            },
            ["60 channels"],
        ),
        (
            {"model__layers__1__ffn__s_emb": torch.zeros(4)},
            ["blocks.1.ffn.s_emb", "another dialect"],
        ),
        ({"blocks__0__att__time_decay": torch.zeros(4)}, ["older RWKV"]),
        ({"model__layers__1__attn__x_x": torch.zeros(5, 64)}, ["x_x", "[5, 64]", "[6, channels]"]),
        ({"model__layers__9999999999__attn__x_r": torch.zeros(64)}, ["another dialect"]),
    ],
)
def test_missing_odd_and_foreign_tensors_are_named_with_their_shapes(
    tmp_path, changes, words
) -> None:
    line = refusal(write_hf(tmp_path, changed(**changes)))
    for word in words:
        assert word in line
