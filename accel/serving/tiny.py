"""Make a small model of random weights, with a tokenizer trained on text made here.

python -m gpudeck.accel.serving.tiny FOLDER

It writes nonsense, but it is a whole model: with it, everything about serving can be tried and
tested without a download. Other shapes give the sizes of published models, to measure speed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
        "max_position_embeddings": 1024, "tie_word_embeddings": True, "rope_theta": 10000.0,
    },
    "smollm-135m": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 2048, "tie_word_embeddings": True, "rope_theta": 10000.0,
    },
    "llama-1b": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
        "max_position_embeddings": 16384, "tie_word_embeddings": True, "rope_theta": 500000.0,
    },
    "llama-8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 16384, "tie_word_embeddings": False, "rope_theta": 500000.0,
    },
}  # fmt: skip
"""Values of config.json by the name of a shape."""

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools:\n{% for tool in tools %}{{ tool | tojson }}\n"
    "{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_NOUNS = ("GPU", "queue", "model", "kernel", "token", "block", "job", "fan", "clock", "memory")
_VERBS = ("waits", "runs", "reads", "writes", "holds", "frees", "copies", "measures", "shares")
_ADJECTIVES = ("small", "fast", "idle", "busy", "warm", "long", "free", "full", "quiet", "exact")


def make(folder: Path, shape: str = "tiny", seed: int = 0, dtype: str = "float32") -> None:
    """Write a model's folder.

    Args:
        folder: Is made; files of the same names are replaced.
        shape: A name in SHAPES.
        seed: Other weights for another seed.
        dtype: Of the stored weights: float32 or bfloat16.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = SHAPES[shape]
    trained = _tokenizer(min(size["vocab_size"], 512))
    trained.save(str(folder / "tokenizer.json"))
    end, stop = trained.token_to_id(END), trained.token_to_id(STOP)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "torch_dtype": dtype, "bos_token_id": end,
        "eos_token_id": [end, stop], **size,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    said = {"chat_template": TEMPLATE, "eos_token": STOP, "bos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=1))
    weights = dict(_weights(config, seed, getattr(torch, dtype)))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def sentences(count: int, seed: int = 0) -> Iterator[str]:
    """Yield sentences about nothing."""
    draw = random.Random(seed)  # noqa: S311  no secret depends on it
    for _ in range(count):
        first, second = draw.choice(_NOUNS), draw.choice(_NOUNS)
        number, kind = draw.randrange(1000), draw.choice(_ADJECTIVES)
        yield f"The {kind} {first} {draw.choice(_VERBS)} while {second} {number} is {kind}.\n"


def _tokenizer(size: int) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, START, STOP],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(sentences(500), trainer)
    return made


def _weights(config: dict[str, Any], seed: int, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    hidden, width = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim", hidden // heads)

    def matrix(rows: int, columns: int) -> Tensor:
        drawn = torch.empty(rows, columns).normal_(generator=generator)
        return drawn.mul_(2.0 / columns**0.5).to(dtype)

    yield "model.embed_tokens.weight", matrix(config["vocab_size"], hidden) * hidden**0.5 / 8
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        yield f"{at}.input_layernorm.weight", torch.ones(hidden, dtype=dtype)
        yield f"{at}.post_attention_layernorm.weight", torch.ones(hidden, dtype=dtype)
        yield f"{at}.self_attn.q_proj.weight", matrix(heads * head, hidden)
        yield f"{at}.self_attn.k_proj.weight", matrix(kv_heads * head, hidden)
        yield f"{at}.self_attn.v_proj.weight", matrix(kv_heads * head, hidden)
        yield f"{at}.self_attn.o_proj.weight", matrix(hidden, heads * head)
        yield f"{at}.mlp.gate_proj.weight", matrix(width, hidden)
        yield f"{at}.mlp.up_proj.weight", matrix(width, hidden)
        yield f"{at}.mlp.down_proj.weight", matrix(hidden, width)
    yield "model.norm.weight", torch.ones(hidden, dtype=dtype)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", matrix(config["vocab_size"], hidden)


def main(argv: Sequence[str]) -> int:
    """Make the model that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m gpudeck.accel.serving.tiny", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument("--shape", choices=SHAPES, default="tiny", help="default: tiny")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the weights")
    args = parser.parse_args(argv)
    dtype = "float32" if args.shape == "tiny" else "bfloat16"
    make(args.folder, args.shape, args.seed, dtype)
    print(f"{args.folder}: a model of the shape {args.shape} with random weights")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
