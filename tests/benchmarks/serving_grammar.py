"""Measure what answers that follow a JSON schema or a regular expression cost by llguidance.

python -m tests.benchmarks.serving_grammar [--out FOLDER]

Times are those of a CPU, as others use the machine, too: once for each tokenizer (prepare), once
for each request (compile), and for each token the mask as llguidance computes it (mask), the mask
as the sampler takes it (allowed), and the step to the next state (add). The answers are valid ones,
whose tokens are known beforehand, so no model is needed. Vocabularies: 128,256 tokens as Llama 3
has, of a BPE that is trained here on the texts of installed packages, and the 65,536 of RWKV's
World models. Rows go to serving_grammar.csv.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpudeck.accel.rwkv.tokenizer import Tokenizer as World
from gpudeck.accel.serving.grammar import Grammars
from gpudeck.accel.serving.request import Grammar
from gpudeck.accel.serving.tokens import Tokenizer
from gpudeck.accel.serving.world import Vocabulary, WorldTokenizer
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.unit.accel.rwkv.rwkv_models import vocabulary_file

ANSWERS = 50
SIZE, END = 128_256, "<|end_of_text|>"
CORPUS_BYTES = 60 * 2**20
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "state": {"enum": ["waiting", "running", "held", "succeeded", "failed"]},
        "gpus": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 71}},
        "hours": {"type": "number"},
        "note": {"type": "string"},
        "limits": {
            "type": "object",
            "properties": {"watts": {"type": "integer"}, "memory": {"type": "string"}},
            "required": ["watts", "memory"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "state", "gpus", "hours", "note", "limits"],
    "additionalProperties": False,
}
REGEX = r"[0-9]{4}-[0-9]{2}-[0-9]{2} (GPU [0-9]{1,2}: [a-zA-Z ,]{1,80}\.\n)+"
WORDS = ("queue", "waits", "memory", "model", "reads", "kernel", "attention", "clock", "idle")


def answers(kind: str) -> Iterator[str]:
    """Yield texts that follow the schema or the regular expression."""
    draw = random.Random(0)
    for _ in range(ANSWERS):
        lines = [" ".join(draw.choices(WORDS, k=draw.randrange(3, 9))) for _ in range(6)]
        if kind == "regex":
            text = "".join(f"GPU {draw.randrange(72)}: {line}.\n" for line in lines)
            yield f"2026-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02} {text}"
            continue
        made = {
            "name": lines[0][:40],
            "state": draw.choice(SCHEMA["properties"]["state"]["enum"]),
            "gpus": draw.sample(range(72), 8),
            "hours": round(draw.uniform(0, 100), 2),
            "note": " ".join(lines[1:]),
            "limits": {"watts": draw.randrange(100, 700), "memory": f"{draw.randrange(80)} GiB"},
        }
        yield json.dumps(made, separators=(",", ":"))


def trained() -> Tokenizer:
    """Return a byte-level BPE of SIZE tokens, trained on the texts of installed packages."""
    texts, left = [], CORPUS_BYTES
    for file in sorted(Path(torch.__file__).parents[1].rglob("*")):
        if file.suffix in (".py", ".pyi", ".h", ".txt", ".md", ".rst", ".json") and left > 0:
            text = file.read_text(encoding="utf-8", errors="ignore")[: 2**18]
            left -= len(text)
            texts.append(text)
    made = Backend(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    assert made.get_vocab_size() == SIZE, f"the texts give only {made.get_vocab_size()} tokens"
    return Tokenizer(made)


def rows(name: str, tokenizer: Vocabulary, size: int, known: dict[str, str]) -> Iterator[Any]:
    """Yield the rows of one vocabulary; the token 0 ends a text."""
    for kind, text in (("json_schema", json.dumps(SCHEMA)), ("regex", REGEX)):
        grammar = Grammar(kind, text)
        grammars = Grammars(tokenizer, size, (0,))
        taken: dict[str, list[float]] = {"prepare": [_ms(grammars.matcher, grammar)]}
        taken |= {"compile": [], "mask": [], "allowed": [], "add": []}
        for answer in answers(kind):
            taken["compile"].append(_ms(grammars.matcher, grammar))
            matcher = grammars.matcher(grammar)
            twin = grammars.matcher(grammar)  # a matcher remembers a mask that it has computed
            for token in tokenizer.encode(answer, 10_000):
                taken["mask"].append(_ms(twin._matcher.compute_bitmask))
                taken["allowed"].append(_ms(matcher.allowed))
                assert matcher.allowed()[token], f"{token} follows the {kind}"
                taken["add"].append(_ms(matcher.add, token))
                twin.add(token)
        for what, found in taken.items():
            row = {"vocabulary": name, "tokens": size, "grammar": kind, "what": what, "unit": "ms"}
            print(f"{name} {kind} {what}: {spread(found)}", flush=True)
            yield row | spread(found) | known


def _ms(call: Any, *args: Any) -> float:
    began = time.process_time()
    call(*args)
    return 1000 * (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    known = context(device, ("llguidance", "tokenizers", "torch"))
    world = WorldTokenizer(World.load(vocabulary_file().parent))
    found = [*rows("RWKV World", world, 65_536, known)]
    found += rows("BPE trained here", trained(), SIZE, known)
    write("serving_grammar", found, args.out)


if __name__ == "__main__":
    main()
