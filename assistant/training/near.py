"""Write the examples that vote beside the reader's head.

    python -m gpudeck.assistant.training.near ENCODER DATA --reader RUN/reader.pt --out FOLDER

It leaves out the profiles that are held out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from gpudeck.assistant.reader.neighbours import FILE, save
from gpudeck.assistant.training.reader_network import LAYERS, Reader, load
from gpudeck.assistant.training.reader_rows import rows
from gpudeck.assistant.training.requests import examples


def main() -> None:
    """Encode the examples, and write them."""
    parser = argparse.ArgumentParser(description="Write the examples that vote.")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--reader", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held-out", nargs="*", type=int, default=[])
    args = parser.parse_args()
    model = Reader(load_file(args.encoder / "encoder.safetensors"), LAYERS)
    model.load_state_dict(load(args.reader))
    tokenizer = Tokenizer.from_file(str(args.encoder / "tokenizer.json"))
    kept = [one for file in args.data for one in examples(file)
            if one.profile not in args.held_out]  # fmt: skip
    found = rows(kept, tokenizer, model)
    whole = [torch.cat((row.states[0], row.states.float().mean(0))) for row in found]
    heads = np.array([row.head for row in found])
    save(args.out / FILE, torch.stack(whole).float().numpy(), heads)


if __name__ == "__main__":
    main()
