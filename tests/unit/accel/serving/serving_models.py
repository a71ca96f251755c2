"""Small random models of every family, made by transformers, which is also their oracle."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.serving.batch import Batch
from gpudeck.accel.serving.cache import BLOCK, PagedCache
from gpudeck.accel.serving.transformer import Transformer

_COMMON: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
_LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75, "factor": 2.0,
    "short_factor": [1 + i / 10 for i in range(6)], "long_factor": [2.0] * 6,
}  # fmt: skip
_FOUR = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 2": ("llama", {"num_key_value_heads": 4}),
    "Llama 3": ("llama", {"rope_parameters": _LLAMA_3}),
    "SmolLM": ("llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144,
                         "tie_word_embeddings": True}),
    "Mistral": ("mistral", {"sliding_window": 24, "head_dim": 24}),
    "Qwen 2.5": ("qwen2", {"use_sliding_window": True, "sliding_window": 20,
                           "max_window_layers": 2}),
    "Qwen 3": ("qwen3", {"head_dim": 32}),
    "Qwen 3 MoE": ("qwen3_moe", {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2,
                                 "moe_intermediate_size": 48, "norm_topk_prob": True,
                                 "mlp_only_layers": [1]}),
    "Gemma 2": ("gemma2", {"head_dim": 16, "sliding_window": 20, "query_pre_attn_scalar": 20}),
    "Gemma 3": ("gemma3_text", {"head_dim": 16, "sliding_window": 20, "num_hidden_layers": 7,
                                "query_pre_attn_scalar": 20}),
    "Gemma 4, small": ("gemma4_text", {"head_dim": 16, "global_head_dim": 32, "sliding_window": 20,
                                       "num_hidden_layers": 8, "num_kv_shared_layers": 4,
                                       "layer_types": _FOUR * 2, "use_double_wide_mlp": True,
                                       "hidden_size_per_layer_input": 8,
                                       "vocab_size_per_layer_input": 320,
                                       "final_logit_softcapping": 30.0}),
    "Gemma 4, large": ("gemma4_text", {"head_dim": 16, "global_head_dim": 32, "sliding_window": 20,
                                       "layer_types": _FOUR, "attention_k_eq_v": True,
                                       "num_global_key_value_heads": 1,
                                       "hidden_size_per_layer_input": 0}),
    "Phi-3": ("phi3", {}),
    "Phi-4-mini": ("phi3", {"tie_word_embeddings": True, "rope_parameters": _LONG,
                            "original_max_position_embeddings": 256}),
    "SmolLM3": ("smollm3", {}),
}  # fmt: skip
"""The model_type of transformers, and what the model has besides the common sizes."""


def oracle(family: str, folder: Path) -> Any:
    """Return a random model of transformers in fp32, and save it in a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.disable_progress_bar()
        transformers.logging.set_verbosity_error()
        kind, more = FAMILIES[family]
        config = transformers.AutoConfig.for_model(kind, **{**_COMMON, **more})
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model = model.float().eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 1:
                    weight.add_(torch.randn_like(weight) * 0.1)
                else:
                    weight.mul_(4)
            for name, factor in model.named_buffers():
                if name.endswith("layer_scalar"):
                    factor.fill_(0.75)
        model.save_pretrained(folder)
    return model


def logits(model: Transformer, tokens: Tensor, cache: PagedCache | None = None) -> Tensor:
    """Return the logits [T, V] of one text, whose blocks are scattered over the cache."""
    count = -(-len(tokens) // BLOCK)
    if cache is None:
        cache = PagedCache(model.config, 2 * count, model.device, torch.float32)
    blocks = torch.randperm(cache.blocks, generator=torch.Generator().manual_seed(0))[:count]
    positions = torch.arange(len(tokens))
    slots = blocks[positions // BLOCK] * BLOCK + positions % BLOCK
    rows = torch.zeros(len(tokens), dtype=torch.int32)
    table = blocks.to(torch.int32).unsqueeze(0)
    batch = Batch(tokens, positions, slots, rows, table, positions, ((len(tokens), len(tokens)),))
    return model.forward(batch, cache)
