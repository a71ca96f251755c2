"""Models of transformers compute the same with our attention, whatever masks they make."""

from __future__ import annotations

import functools

import pytest
import torch

from gpudeck.accel.attention.frameworks.transformers import register

COMMON = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 128,
}  # fmt: skip
KINDS = {
    "llama": ("llama", {}),
    "sliding window": ("mistral", {"sliding_window": 5}),
    "sliding and full layers": (
        "gemma3_text",
        {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "chunks": (
        "llama4_text",
        {"attention_chunk_size": 4, "num_local_experts": 2, "intermediate_size_mlp": 48,
         "layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0]},
    ),
    "heads of 512 in full layers, whose keys later layers take, too": (
        "gemma4_text",
        {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
         "num_hidden_layers": 4, "num_kv_shared_layers": 2, "global_head_dim": 512,
         "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 61},
    ),
    "values that are the keys": (
        "gemma4_text",
        {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"],
         "attention_k_eq_v": True, "num_global_key_value_heads": 1, "global_head_dim": 512,
         "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 61},
    ),
}  # fmt: skip
PAIR = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        "vocab_size": 61}  # fmt: skip
ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 48}  # fmt: skip
SMALL = {
    "bert": ENCODER | {"vocab_size": 61},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 61,
           "decoder_start_token_id": 0},
    "bart": PAIR,
    "vit": ENCODER | {"image_size": 16, "patch_size": 4},
    "whisper": PAIR | {"num_mel_bins": 8, "max_source_positions": 12, "pad_token_id": 0,
                       "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
}  # fmt: skip
"""Models that are no decoders alone."""
slow = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def registered():
    import transformers

    transformers.logging.set_verbosity_error()
    register()


@functools.cache
def config_and_weights(kind):
    import transformers

    name, more = KINDS[kind]
    config = transformers.AutoConfig.for_model(name, **(COMMON | more))
    torch.manual_seed(0)
    net = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return config, net.state_dict()


def model(kind, implementation):
    import transformers

    config, weights = config_and_weights(kind)
    net = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    net.load_state_dict(weights)
    return net.eval()


def both(kind):
    ours = model(kind, "gpudeck")
    assert ours.config._attn_implementation == "gpudeck"
    return ours, model(kind, "sdpa")


def tokens(batch, length=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 61, (batch, length), generator=generator)


def padded(batch, side, length=11):
    """Return tokens and a mask, of which every sequence has another number of tokens."""
    mask = torch.ones(batch, length, dtype=torch.long)
    for n in range(batch):
        hidden = (n * 3) % (length - 2)
        if hidden:
            mask[n, slice(hidden) if side == "left" else slice(length - hidden, None)] = 0
    return {"input_ids": tokens(batch, length) * mask, "attention_mask": mask}


def same_logits(kind, seen=None, **inputs):
    ours, theirs = (net(**inputs).logits for net in both(kind))
    seen = torch.ones(ours.shape[:2], dtype=torch.bool) if seen is None else seen.bool()
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", *(pytest.param(k, marks=slow) for k in [*KINDS][1:])])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_both_sides(kind, side):
    given = padded(3, side)
    same_logits(kind, given["attention_mask"], **given)


@slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_batch_without_mask(kind):
    same_logits(kind, input_ids=tokens(2))


@slow
@pytest.mark.parametrize("kind", ["llama", "sliding window"])
def test_packed_sequences_do_not_see_each_other(kind):
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3]])
    same_logits(kind, input_ids=tokens(1), position_ids=places)
    ours = model(kind, "gpudeck")
    packed = ours(input_ids=tokens(1), position_ids=places, use_cache=False).logits
    alone = ours(input_ids=tokens(1)[:, 4:7]).logits
    torch.testing.assert_close(packed[:, 4:7], alone, rtol=1e-4, atol=1e-5)


@slow
def test_a_mask_of_four_axes_is_taken_as_it_is():
    mask = torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(3)) < 0.5
    mask |= torch.eye(11, dtype=torch.bool)
    same_logits("llama", input_ids=tokens(2), attention_mask=mask)
    added = torch.zeros(2, 1, 11, 11).masked_fill(~mask, torch.finfo(torch.float32).min)
    same_logits("llama", input_ids=tokens(2), attention_mask=added)


@slow
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_greedy_generation_writes_the_same_tokens(kind, cache, batch):
    options = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    ours, theirs = both(kind)
    given = padded(batch, "left")
    assert torch.equal(ours.generate(**given, **options), theirs.generate(**given, **options))


@slow
@pytest.mark.parametrize("beams", [1, 3])
def test_sampling_and_beams_take_the_same_turns(beams):
    made = []
    for net in both("llama"):
        torch.manual_seed(5)
        made.append(
            net.generate(
                **padded(2, "left"), max_new_tokens=7, do_sample=beams == 1, num_beams=beams
            )
        )
    assert torch.equal(*made)


@slow
def test_sinks_learn_as_in_eager():
    import transformers

    config = transformers.AutoConfig.for_model(
        "gpt_oss", **COMMON, sliding_window=4, num_local_experts=2, num_experts_per_tok=1
    )
    torch.manual_seed(0)
    eager, ours = (
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation=name).eval()
        for name in ("eager", "gpudeck")
    )
    with torch.no_grad():
        for p in eager.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
    ours.load_state_dict(eager.state_dict())
    given = padded(3, "left")
    seen = given["attention_mask"].bool()
    logits = [net(**given).logits[seen] for net in (ours, eager)]
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
    sinks = [net.model.layers[0].self_attn.sinks for net in (ours, eager)]
    grads = [
        torch.autograd.grad(x.square().mean(), sink)[0]
        for x, sink in zip(logits, sinks, strict=True)
    ]
    assert grads[0].abs().max() > 0
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-6)


@slow
def test_softcaps_are_those_of_eager():
    import transformers

    config = transformers.AutoConfig.for_model(
        "gemma2", **COMMON, sliding_window=4, attn_logit_softcapping=3.0, query_pre_attn_scalar=8
    )
    torch.manual_seed(0)
    eager = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager"
    ).eval()
    ours = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="gpudeck"
    ).eval()
    ours.load_state_dict(eager.state_dict())
    given = padded(3, "left")
    seen = given["attention_mask"].bool()
    torch.testing.assert_close(
        ours(**given).logits[seen], eager(**given).logits[seen], rtol=1e-4, atol=1e-5
    )


@slow
@pytest.mark.parametrize("name", SMALL)
def test_encoders_and_pairs_of_encoder_and_decoder(name):
    import transformers

    small = SMALL[name]
    config = transformers.AutoConfig.for_model(name, **small)
    torch.manual_seed(0)
    theirs = transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval()
    ours = transformers.AutoModel.from_config(config, attn_implementation="gpudeck").eval()
    ours.load_state_dict(theirs.state_dict())
    if name == "vit":
        given = {"pixel_values": torch.randn(2, 3, 16, 16)}
    elif name == "whisper":
        given = {"input_features": torch.randn(2, 8, 24), "decoder_input_ids": tokens(2, 5)}
    else:
        given = padded(3, "right")
    if name in ("t5", "bart"):
        given["decoder_input_ids"] = tokens(3, 7)
    mine, expected = ours(**given)[0], theirs(**given)[0]
    torch.testing.assert_close(mine, expected, rtol=1e-4, atol=2e-5)
    for out in (mine, expected):
        out.square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


@slow
def test_compiled_models_are_one_graph():
    torch._dynamo.reset()
    net = model("llama", "gpudeck")
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        ids = tokens(2)
        out = compiled(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(out, net(input_ids=ids).logits, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


@slow
def test_the_cache_of_continuous_batching_is_refused_by_name():
    from gpudeck.accel.attention.frameworks.transformers import attention_forward

    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(ValueError, match="offers no cache"):
        attention_forward(torch.nn.Module(), q, q, q, None, cache=object())
