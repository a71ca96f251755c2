"""How good a trained model is on what it never saw: phrasings, ways to say it, names and numbers. Judged by program.

python -m assistant.training.evaluate FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random

import torch

from assistant.generate import Generation, read
from assistant.model import RWKV7
from assistant.sampling import Sampler
from assistant.tokenizer import Tokenizer
from assistant.training import briefs
from assistant.training.corpus import routing, writing
from assistant.verify import Refused, fill, verify
from assistant.writer import required_facts

_LONGEST = 200


def evaluate(folder: Path, count: int, device: str = "cpu", seed: int = 99) -> dict[str, float]:
    """Shares of `count` each, greedy, at the first try: routes exactly right, briefs faithful, briefs complete as well."""
    torch.set_num_threads(1)
    model, tokenizer, random = RWKV7.load(folder, device), Tokenizer.load(folder), Random(seed)
    right = faithful = both = 0
    for _ in range(count):
        sample = routing(random, held_out=True)
        right += written(model, tokenizer, sample.prompt) == sample.answer.strip()
        sample, facts = writing(random, held_out=True)
        text = written(model, tokenizer, sample.prompt)
        try:
            verify(fill(text, facts), facts, required_facts(facts))
        except Refused:
            continue
        faithful += 1
        both += briefs.complete(text, facts)
    return {"routing": right / count, "faithful": faithful / count, "faithful and complete": both / count, "count": count}


def written(model: RWKV7, tokenizer: Tokenizer, prompt: str) -> str:
    """What the model writes after a prompt, greedily."""
    after = read(model, tokenizer.encode(prompt), None, lambda: False)
    return "".join(Generation(model, tokenizer, Sampler(), *after, limit=_LONGEST)).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate a trained model on what it never saw.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    found = evaluate(given.folder, given.count, given.device)
    print(json.dumps(found, indent=1))
    (given.folder / "evaluation.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
