"""Every family gives the logits of transformers, whatever its weights are stored as."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from serving_models import FAMILIES, logits, oracle

from gpudeck.accel.primitives.quantize.int4 import pack
from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.cache import PagedCache, quantize_kv_cache
from gpudeck.accel.serving.cache_error import cache_error
from gpudeck.accel.serving.checkpoint import Checkpoint
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.serving.families import KeyHeads, config_of, read_config
from gpudeck.accel.serving.files import weight_files
from gpudeck.accel.serving.linear import Linear
from gpudeck.accel.serving.tokens import Tokenizer
from gpudeck.accel.serving.transformer import load

TOKENS = torch.randint(3, 320, (100,), generator=torch.Generator().manual_seed(2))


def distance(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("family", [name for name in FAMILIES if "Gemma 4" not in name])
def test_logits_are_those_of_transformers(family, tmp_path):
    model = oracle(family, tmp_path)
    with torch.no_grad():
        wanted = model(TOKENS[None]).logits[0]
    assert distance(logits(load(tmp_path), TOKENS), wanted) < 1e-5


@pytest.mark.parametrize("family", [name for name in FAMILIES if "Gemma 4" in name])
def test_logits_of_gemma_4_are_as_near_to_exact_ones_as_those_of_transformers(family, tmp_path):
    """Scores that are not scaled enlarge what fp32 rounds off, in both."""
    model = oracle(family, tmp_path)
    with torch.no_grad():
        theirs = model(TOKENS[None]).logits[0]
        exact = model.double()(TOKENS[None]).logits[0]
    rounded = distance(theirs, exact)
    assert rounded < 1e-4
    assert distance(logits(load(tmp_path), TOKENS), exact) < 2 * rounded


def test_the_model_of_texts_of_gemma_4_is_read_from_one_that_sees_pictures(tmp_path):
    """Published checkpoints are such, with the tensors of the model of texts under another name."""
    oracle("Gemma 4, large", tmp_path)
    wanted = logits(load(tmp_path), TOKENS)
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma4", "text_config": text}))
    tensors = load_file(tmp_path / "model.safetensors")
    named = {n.replace("model.", "model.language_model.", 1): t for n, t in tensors.items()}
    save_file(named, tmp_path / "model.safetensors")
    assert torch.equal(logits(load(tmp_path), TOKENS), wanted)


def test_gemma_4_is_described_as_it_is_published():
    """In place of sizes of each layer, published configurations have those of the layers without
    a window; here the 31B model's."""
    raw = {
        "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504,
        "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 4,
        "attention_k_eq_v": True, "sliding_window": 1024, "hidden_size_per_layer_input": 0,
        "vocab_size": 262144, "num_kv_shared_layers": 0,
    }  # fmt: skip
    config = config_of(raw, "gemma", ())
    assert config.windows[:6] == (1024,) * 5 + (0,)
    assert config.keys[0] == KeyHeads(16, 256, 0) and config.keys[59] == KeyHeads(4, 512, 59, True)
    assert len(config.ropes[59].frequencies) == 256 and config.ropes[59].frequencies[64] == 0
    assert 30e9 < config.parameters < 32e9
    with pytest.raises(ModelRefused, match="without experts"):
        config_of({**raw, "enable_moe_block": True}, "gemma", ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    oracle("Llama 3", folder)
    return folder


def changed(folder, to, config=None, tensors=None):
    """Write the model with changes, and return the folder."""
    raw = json.loads((folder / "config.json").read_text()) | (config or {})
    (to / "config.json").write_text(json.dumps(raw))
    found = load_file(folder / "model.safetensors") if tensors is None else tensors
    save_file({k: v.contiguous() for k, v in found.items()}, to / "model.safetensors")
    return to


@pytest.mark.parametrize(("weights", "most"), [("bfloat16", 0.02), ("int8", 0.03), ("int4", 0.5)])
def test_quantized_weights_are_close(folder, weights, most):
    exact = logits(load(folder), TOKENS)
    model = load(folder, weights=weights)
    assert 0 < distance(logits(model, TOKENS), exact) < most
    assert model.weights == weights


@pytest.mark.parametrize("to", ["int8", "fp8", "int4"])
def test_a_quantized_matrix_is_off_by_half_a_step_at_most(to):
    weight = torch.randn(200, 384, generator=torch.Generator().manual_seed(0))
    made = Linear("dense", weight).quantized(to)
    error = (made.dense(torch.float32) - weight).abs()
    if to == "fp8":  # three bits of mantissa
        tile = weight.abs().max()
        assert (error <= weight.abs() / 16 + tile * 2**-16).all()
    else:
        groups = made.scales.shape[1] if made.scales.dim() == 2 else 1
        step = made.scales.view(200, groups).repeat_interleave(384 // groups, 1)
        assert (error <= step * (0.5001 if to == "int8" else 1.001)).all()


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_published_layouts_of_int4_are_read(folder, tmp_path, method):
    """Words are packed here number by number, as the layouts are defined."""
    tensors = load_file(folder / "model.safetensors")
    plain = dict(tensors)
    order = range(8) if method == "gptq" else (0, 2, 4, 6, 1, 3, 5, 7)
    for name in [n for n in tensors if "_proj.weight" in n]:
        weight, at = tensors.pop(name), name.removesuffix(".weight")
        rows, columns = weight.shape
        groups = columns // 32
        draw = torch.Generator().manual_seed(rows)
        values = torch.randint(0, 16, (rows, columns), generator=draw)
        zeros = torch.randint(1, 16, (rows, groups), generator=draw)
        scales = (torch.rand(rows, groups, generator=draw) / 50 + 0.01).half()
        wide = lambda x: x.repeat_interleave(32, 1)  # noqa: E731
        plain[name] = (values - wide(zeros)).float() * wide(scales.float())

        def words(numbers):
            found = torch.zeros(numbers.shape[0], numbers.shape[1] // 8, dtype=torch.int64)
            for place, column in enumerate(order):
                found |= numbers[:, column::8].long() << (4 * place)
            return torch.where(found >= 2**31, found - 2**32, found).to(torch.int32)

        if method == "gptq":
            tensors[f"{at}.qweight"] = words(values).T
            tensors[f"{at}.qzeros"] = words((zeros - 1).T)
        else:
            tensors[f"{at}.qweight"] = words(values.T)
            tensors[f"{at}.qzeros"] = words(zeros.T)
        tensors[f"{at}.scales"] = scales.T
    (tmp_path / "plain").mkdir()
    (tmp_path / method).mkdir()
    said = {"quantization_config": {"quant_method": method, "bits": 4, "group_size": 32}}
    ours = load(changed(folder, tmp_path / method, said, tensors))
    wanted = logits(load(changed(folder, tmp_path / "plain", None, plain)), TOKENS)
    assert ours.weights == "int4"
    assert distance(logits(ours, TOKENS), wanted) < 1e-5


def test_fp8_in_blocks_is_read(folder, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    plain = dict(tensors)
    for name in [n for n in tensors if "_proj.weight" in n]:
        made = Linear("dense", tensors[name].float()).quantized("fp8")
        tensors[name], tensors[f"{name}_scale_inv"] = made.values, made.scales
        plain[name] = made.dense(torch.float32)
    (tmp_path / "plain").mkdir()
    (tmp_path / "fp8").mkdir()
    said = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    ours = load(changed(folder, tmp_path / "fp8", said, tensors))
    wanted = logits(load(changed(folder, tmp_path / "plain", None, plain)), TOKENS)
    assert torch.equal(logits(ours, TOKENS), wanted)


def test_four_bits_are_packed_two_in_a_byte():
    values = torch.arange(16, dtype=torch.uint8).view(2, 8)
    one = torch.ones(2, 1)
    assert torch.equal(
        Linear("int4", pack(values), one, 0 * one.to(torch.uint8)).dense(torch.float32),
        values.float(),
    )


@pytest.mark.parametrize(("kind", "most"), [("int8", 0.02), ("fp8", 0.1)])
def test_a_quantized_cache_is_close(folder, kind, most):
    model = load(folder)
    exact = logits(model, TOKENS)
    cache = PagedCache(model.config, 20, model.device, torch.float32, kind)
    assert 0 < distance(logits(model, TOKENS, cache), exact) < most


def test_the_error_of_a_quantized_cache_is_measured_on_the_model_itself(tmp_path):
    tiny.make(tmp_path)
    model, tokenizer = load(tmp_path), Tokenizer.load(tmp_path)
    exact, int8, fp8 = (cache_error(model, tokenizer, kind) for kind in ("auto", "int8", "fp8"))
    assert (exact.divergence, exact.same, exact.tokens) == (0, 64, 64)
    assert 0 < int8.divergence < fp8.divergence < 0.1
    assert int8.same > 60
    damaged = load_file(tmp_path / "model.safetensors")
    damaged["model.norm.weight"][:] = torch.nan
    changed(tmp_path, tmp_path, tensors=damaged)
    with pytest.raises(ModelRefused, match="not finite"):
        cache_error(load(tmp_path), tokenizer, "int8")


def test_keys_are_quantized_within_half_a_step():
    keys = torch.randn(7, 3, 64, generator=torch.Generator().manual_seed(0)) * 9
    made = quantize_kv_cache(keys, torch.int8)
    assert ((made.dense() - keys).abs() <= made.scales.unsqueeze(-1) * 0.5001).all()
    with pytest.raises(ValueError, match="float8_e4m3fn or int8"):
        quantize_kv_cache(keys, torch.float16)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "the family 'mamba', which is not supported"),
        ({"model_type": ["llama"]}, "which is not supported"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers = 1000000000000"),
        ({"hidden_size": -64}, "hidden_size = -64"),
        ({"num_key_value_heads": 3}, "do not fit together"),
        ({"rms_norm_eps": "no"}, "rms_norm_eps"),
        ({"hidden_act": "relu"}, "the activation 'relu'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4}}, "rope scaling 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "malformed: 'factor'"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "'bitsandbytes'"),
        ({"text_config": {}}, "pictures"),
        ({"vocab_size": 99}, "model.embed_tokens.weight has the shape"),
        ({"num_hidden_layers": 5}, "has no tensor model.layers.4"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_in_a_line(folder, tmp_path, config, message):
    with pytest.raises(ModelRefused, match=message) as caught:
        load(changed(folder, tmp_path, config))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("damage", ["cut", "header", "gone", "gguf", "index", "json", "bomb"])
def test_damaged_files_are_refused_in_a_line(folder, tmp_path, damage):
    changed(folder, tmp_path)
    file = tmp_path / "model.safetensors"
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[:-1000])
        case "header":
            file.write_bytes(b"\xff" * 8 + file.read_bytes()[8:])
        case "gone" | "gguf":
            file.unlink()
            (tmp_path / "model.gguf").write_bytes(b"GGUF" if damage == "gguf" else b"")
            if damage == "gone":
                (tmp_path / "model.gguf").unlink()
        case "index":
            index = {"weight_map": {"a": "../../etc/passwd.safetensors"}}
            (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        case "json":
            (tmp_path / "config.json").write_text("[" * 100_000)
        case "bomb":
            (tmp_path / "config.json").write_text(" " * 2**21)
    with pytest.raises(ModelRefused) as caught:
        Checkpoint(tmp_path, read_config(tmp_path))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert ("GGUF" in str(caught.value)) == (damage == "gguf")


def test_an_index_names_no_file_outside_its_folder(tmp_path):
    (tmp_path / "other.safetensors").write_bytes(b"")
    folder = tmp_path / "model"
    folder.mkdir()
    index = {"weight_map": {"a": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelRefused, match="names the file"):
        weight_files(folder)
